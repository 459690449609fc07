"""``hermod jobs run``: beside a running Hermod and without one, on a local Slack; and printed only."""

from __future__ import annotations

import asyncio
import json
import re
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.storage import open_store
from tests.acceptance.process import HermodProcess
from tests.servers.slack import SlackServer

CHANNEL = "C1OPS"
SETTINGS = """
[targets.shop]
url = "postgresql://hermod@127.0.0.1:9/shop"
[collector]
enabled = false
[reports.daily]
cron = "0 {hour} * * *"
channel = "slack:{channel}"
task = "What cost most on shop since yesterday?"
[reports.nowhere]
cron = "0 {hour} * * *"
channel = "slack:T0FAKE/C9GONE"
task = "What cost most?"
"""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A local Slack, and the settings of a Hermod in it."""

    folder: Path
    slack: SlackServer
    hermod: HermodProcess

    async def run(self, *words: str) -> tuple[int, str]:
        """Run a command of jobs; its exit code and what it printed."""
        process = await self.hermod.start_command("jobs", *words, output=PIPE)
        async with asyncio.timeout(90):
            out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, (out + err).decode()

    def said(self) -> list[list[dict[str, Any]]]:
        """The threads of the channel that Hermod began, each with its posts."""
        roots = [m for m in self.slack.bot_messages(CHANNEL) if m.get("thread_ts", m["ts"]) == m["ts"]]
        return [self.slack.replies(CHANNEL, root["ts"]) for root in roots]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with SlackServer(ack_timeout=10.0) as slack:
        hour = (datetime.now(UTC).hour + 12) % 24  # far from now: only what is asked for is made
        extra = SETTINGS.format(channel=CHANNEL, hour=hour)
        yield Place(
            folder=tmp_path,
            slack=slack,
            hermod=HermodProcess(tmp_path, slack_url=slack.base_url, model_url=None, extra=extra),
        )
        assert slack.violations == []


async def test_without_a_running_hermod_the_command_itself_makes_and_delivers_the_report(place: Place) -> None:
    code, out = await place.run("run", "daily", "--json")
    assert code == 0, out
    (line,) = (line for line in out.splitlines() if line.startswith('{"schema"'))
    (item,) = json.loads(line)["items"]
    ((headline, *below),) = place.said()
    assert item["thread"] == f"slack:T0FAKE/{CHANNEL}/{headline['ts']}"
    assert (item["name"], item["delivered"]) == ("daily", True)
    assert below
    store = open_store(f"sqlite:///{place.hermod.database}")
    await store.open()
    (run,) = await store.list_job_runs("s-daily")
    counts = await store.count_rows()
    await store.close()
    assert (run.state, run.run_id, run.run_key) == ("done", item["run_id"], item["run_key"])
    assert (counts.inbox_open, counts.runs_active, counts.outbox_pending) == (0, 0, 0)


async def test_a_running_hermod_makes_it_and_the_command_waits_for_the_delivery(place: Place) -> None:
    await place.hermod.start()
    try:
        await place.slack.wait_connected()
        await place.hermod.wait_ready()
        code, out = await place.run("run", "daily")
        assert code == 0, out
        ((_, *below),) = place.said()
        assert below
        fired = [
            e
            for e in place.hermod.events()
            if str(e.get("thread", "")).startswith(f"slack:T0FAKE/{CHANNEL}/command-report-")
        ]
        assert fired, "the running process did not work on it"
    finally:
        assert await place.hermod.stop() == 0


async def test_a_report_that_cannot_be_posted_fails_and_says_why(place: Place) -> None:
    code, out = await place.run("run", "nowhere")
    assert code == 1
    assert "hermod: no report was made" in out
    assert "the job is paused: " in out
    assert "`hermod jobs resume nowhere`" in out
    code, out = await place.run("list")
    (line,) = (line for line in out.splitlines() if line.startswith("nowhere"))
    assert re.search(r"  last \S+Z failed: its channel slack:T0FAKE/C9GONE is gone", line)
    assert place.said() == []
    code, out = await place.run("run", "dayly")
    assert code == 1
    assert "did you mean 'daily'?" in out


async def test_a_dry_run_prints_the_report_posts_nothing_and_makes_no_job(place: Place) -> None:
    code, out = await place.run("run", "daily", "--dry-run")
    assert code == 0, out
    assert "**Daily database report: daily**" in out
    assert "Written without a language model" in out
    assert place.slack.bot_messages(CHANNEL) == []
    store = open_store(f"sqlite:///{place.hermod.database}")
    await store.open()
    jobs = await store.list_jobs()
    await store.close()
    assert jobs == ()
