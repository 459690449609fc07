"""Two live processes on one database whose settings have different reports."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bot.storage import open_store
from tests.acceptance.process import HermodProcess, until
from tests.servers.slack import SlackServer

pytestmark = pytest.mark.timeout(240)

COLLECTOR = "[collector]\nenabled = false\n"
TABLE = """
[reports.{name}]
cron = "0 9 1 1 *"
channel = "slack:T0FAKE/C1OPS"
task = "What cost most?"
"""


async def list_names(hermod: HermodProcess) -> list[str]:
    store = open_store(f"sqlite:///{hermod.database}")
    await store.open()
    try:
        return [row.name for row in await store.list_jobs()]
    finally:
        await store.close()


async def test_a_process_without_a_table_leaves_the_job_to_the_live_one_that_has_it(tmp_path: Path) -> None:
    async with SlackServer(ack_timeout=10.0) as slack, AsyncExitStack() as ends:

        def build(name: str, *tables: str) -> HermodProcess:
            extra = COLLECTOR + "".join(TABLE.format(name=table) for table in tables)
            made = HermodProcess(tmp_path, slack_url=slack.base_url, model_url=None, extra=extra, name=name)
            ends.push_async_callback(made.kill)
            return made

        def says(hermod: HermodProcess, event: str) -> list[str]:
            return [str(e.get("report") or e.get("job")) for e in hermod.events() if e.get("event") == event]

        first = build("first", "daily")
        await first.start()
        await until(lambda: says(first, "job_made") == ["daily"])
        second = build("second", "weekly")
        await second.start()
        await until(lambda: says(second, "report_kept") == ["daily"])
        assert await list_names(second) == ["daily", "weekly"]
        assert await first.stop() == 0
        assert await second.stop() == 0
        third = build("third", "weekly")
        await third.start()
        await until(lambda: says(third, "report_deleted") == ["daily"])
        await until(lambda: says(third, "job_deleted") == ["daily"])
        assert await list_names(third) == ["weekly"]
        assert await third.stop() == 0
