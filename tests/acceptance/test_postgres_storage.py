"""``hermod run`` twice on one Postgres: the rows are shared, whoever dies, and nobody notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.process import HermodProcess
from tests.acceptance.test_two_processes import Workspace, model, slack
from tests.servers.openai import OpenAIServer
from tests.servers.postgres import Lab, any_postgres
from tests.servers.slack import SlackServer

__all__ = ["any_postgres", "model", "slack"]


@asynccontextmanager
async def start(
    folder: Path, slack: SlackServer, model: OpenAIServer, url: str, names: Sequence[str]
) -> AsyncIterator[list[HermodProcess]]:
    """Start ``hermod run`` once for each name, with the rows on Postgres, and wait until each is connected."""
    processes = [
        HermodProcess(
            folder,
            slack_url=slack.base_url,
            model_url=model.base_url,
            name=name,
            environ={"HERMOD_STORAGE__URL": url},
        )
        for name in names
    ]
    try:
        for process in processes:
            await process.start()
        for process in processes:
            await process.wait_ready()
        yield processes
    finally:
        for process in processes:
            if process.running:
                await process.stop()


@pytest.mark.timeout(240)
async def test_two_processes_on_one_postgres_answer_each_mention_once_though_one_is_killed(
    tmp_path: Path, slack: SlackServer, model: OpenAIServer, any_postgres: Lab
) -> None:
    url = any_postgres.server.url(await any_postgres.create_database(extension=False))
    workspace = Workspace(slack, 11)
    async with start(tmp_path, slack, model, url, ("first", "second")) as (first, second):
        await workspace.mention(20)
        await workspace.check_each_answered_once()
        for process in (first, second):
            assert any(e.get("event") == "run_ended" for e in process.events()), "it had no part in it"
        await workspace.mention(20)
        await workspace.wait_answered(24)  # so some are under way in either
        await first.kill()
        await workspace.mention(10)
        await workspace.check_each_answered_once(settle_s=4.0)
        assert await second.stop() == 0
        assert "Traceback" not in second.log_path.read_text()
    assert not (tmp_path / "hermod.db").exists()
    async with await psycopg.AsyncConnection.connect(url) as connection:
        rows = await (await connection.execute("SELECT state, count(*) FROM run GROUP BY state")).fetchall()
    assert rows == [("finished", 50)]
    looked = Counter((tmp_path / "tools.log").read_text().split())
    assert set(looked) == {f"thing{n}" for n in range(50)}
    assert model.violations == []
