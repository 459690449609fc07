"""A report that is being made is stopped: by somebody of its channel, and by the operator from another process."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.storage import open_store
from bot.storage.base import UsageRow
from bot.storage.jobs import JobRow, JobRunRow
from tests.acceptance.process import PATIENCE_S, HermodProcess, until
from tests.integration.reports.stage import DIVIDES, plan_call
from tests.servers.openai import OpenAIServer
from tests.servers.slack import SlackServer

pytestmark = pytest.mark.timeout(240)

CHANNEL = "C1OPS"
SETTINGS = """
[targets.shop]
url = "postgresql://hermod@127.0.0.1:9/shop"
[collector]
enabled = false
[reports.daily]
cron = "0 {hour} * * *"
channel = "slack:T0FAKE/{channel}"
task = "What cost most on shop since yesterday?"
"""


@dataclass(frozen=True, kw_only=True)
class Office:
    """A running Hermod whose model divides a report, and then says no more to the worker."""

    slack: SlackServer
    model: OpenAIServer
    hermod: HermodProcess

    def posted(self) -> list[str]:
        """What Hermod said in the channel itself."""
        found = self.slack.bot_messages(CHANNEL)
        return [m["text"] for m in found if m.get("thread_ts", m["ts"]) == m["ts"]]

    async def answer(self, text: str, *, user: str = "U1ALICE") -> str:
        """Ask in a new thread, and wait for the answer there."""
        root = await self.slack.mention(text, user=user)

        def answers() -> list[dict[str, Any]]:
            return self.slack.bot_messages(CHANNEL, root)

        await self.slack.wait_until(answers, PATIENCE_S)
        return str(answers()[0]["text"])

    async def run(self, *words: str) -> tuple[int, str]:
        """Run a command of jobs beside the live process."""
        process = await self.hermod.start_command("jobs", *words, output=PIPE)
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, (out + err).decode()

    async def begin(self) -> None:
        """Have the report made, as far as its worker's first question."""
        asked = len(self.model.requests)
        assert "is being made" in await self.answer("jobs run daily")
        await until(lambda: len(self.model.requests) == asked + 2)

    async def look(self) -> tuple[JobRow, JobRunRow, tuple[UsageRow, ...]]:
        """The job, what became of its last time, and what that has cost."""
        store = open_store(f"sqlite:///{self.hermod.database}")
        await store.open()
        try:
            job = await store.load_job("daily")
            assert job is not None
            (run, *_) = await store.list_job_runs(job.job_id)
            used = await store.load_usage(since=run.fired_at)
            return job, run, tuple(row for row in used if row.run_id == run.run_id)
        finally:
            await store.close()


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with SlackServer(ack_timeout=10.0) as slack, OpenAIServer() as model:
        model.on(system=DIVIDES).tools(plan_call(("a1", "sql_optimizer", "look at shop")))
        model.on().hang()
        hour = (datetime.now(UTC).hour + 12) % 24  # far from now: only what is asked for is made
        extra = SETTINGS.format(channel=CHANNEL, hour=hour)
        hermod = HermodProcess(tmp_path, slack_url=slack.base_url, model_url=model.base_url, extra=extra)
        await hermod.start()
        try:
            await slack.wait_connected()
            await hermod.wait_ready()
            yield Office(slack=slack, model=model, hermod=hermod)
        finally:
            assert await hermod.stop() == 0
        assert slack.violations == []


async def test_somebody_of_the_channel_stops_a_report_and_the_next_one_is_made_as_ever(office: Office) -> None:
    await office.begin()
    job, run, _ = await office.look()
    assert run.state == "running"
    assert "is being stopped" in await office.answer("jobs stop daily", user="U2BOB")
    await office.slack.wait_until(office.posted, PATIENCE_S)
    (said,) = office.posted()
    assert said.startswith("The report daily was stopped by ")
    assert "nothing of it is posted" in said
    after, run, used = await office.look()
    assert (after.next_at, after.state, after.revision) == (job.next_at, job.state, job.revision)
    assert run.state == "stopped"
    assert sum(row.requests for row in used) >= 1, "what it cost until then is not lost"
    await office.begin()  # a later one is not touched by the word
    assert office.posted() == [said]
    assert (await office.look())[1].state == "running"
    assert "is being stopped" in await office.answer("jobs stop daily")
    await office.slack.wait_until(lambda: len(office.posted()) == 2, PATIENCE_S)


async def test_the_operator_stops_a_report_that_another_process_makes(office: Office) -> None:
    code, out = await office.run("stop", "daily")
    assert (code, "no report of 'daily' is being made now" in out) == (1, True), out
    await office.begin()
    code, out = await office.run("stop", "daily")
    assert code == 0, out
    assert "daily is being stopped; its channel is told" in out
    await office.slack.wait_until(office.posted, PATIENCE_S)
    assert office.posted() == [
        "The report daily was stopped by the operator; nothing of it is posted. Its next time stays as it was."
    ]
    code, out = await office.run("list")
    (line,) = (line for line in out.splitlines() if line.startswith("daily"))
    assert line.endswith(" stopped: by the operator")
