"""Several processes on one storage: commands beside a live bot, and two bots on one workspace."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot.dispatcher import LEASE_S
from tests.acceptance.process import HermodProcess, until
from tests.integration.cli.command import Done, hermod
from tests.servers.openai import Call, OpenAIServer, Reply, Request
from tests.servers.slack import SlackServer

CHANNELS = [f"C{n}LOAD" for n in range(6)]


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with SlackServer(ack_timeout=1.0, retry_delays=(0.2, *(0.5,) * 100)) as server:
        for channel in CHANNELS:
            server.add_channel(channel, channel.lower())
        yield server


@pytest.fixture
async def model() -> AsyncIterator[OpenAIServer]:
    """A model that uses a tool before it answers, and takes its time."""
    async with OpenAIServer() as server:
        server.on(user="thing", step=0).dynamic(look_at_it).after(0.2)
        server.on(user="thing", step=1).dynamic(lambda r: Reply(f"answer {read_number(r)}", pace=0.02)).after(0.2)
        yield server


def read_number(request: Request) -> str:
    return str(re.findall(r"[0-9]+", request.last_user)[-1])


def look_at_it(request: Request) -> Reply:
    return Reply(None, [Call("look_at", f'{{"thing": "thing{read_number(request)}"}}')])


class Workspace:
    """Asks and counts the answers."""

    def __init__(self, slack: SlackServer, seed: int, *, channels: Sequence[str] = CHANNELS) -> None:
        self._slack = slack
        self._channels = channels
        self._random = random.Random(seed)
        self.expected: dict[tuple[str, str], str] = {}

    async def mention(self, count: int, *, pause_s: float = 0.0) -> None:
        """Mention the bot so often, each delivered one to three times, over whichever connection comes next."""
        for _ in range(count):
            number = len(self.expected)
            channel = self._channels[number % len(self._channels)]
            copies = {"mention": self._random.randint(1, 2), "message": self._random.randint(0, 1)}
            root = await self._slack.mention(f"look at thing {number}", channel=channel, copies=copies)
            self.expected[channel, root] = f"answer {number}"
            await asyncio.sleep(pause_s)

    @property
    def answers(self) -> list[tuple[tuple[str, str], str]]:
        return [((c, m["thread_ts"]), m["text"]) for c in CHANNELS for m in self._slack.bot_messages(c)]

    @property
    def answered(self) -> set[tuple[str, str]]:
        """The threads in which a whole answer stands."""
        return {(c, m["thread_ts"]) for c in CHANNELS for m in self._slack.replies(c)}

    async def wait_answered(self, count: int | None = None, timeout_s: float = 90.0) -> None:
        wanted = len(self.expected) if count is None else count
        await self._slack.wait_until(lambda: len(self.answered) >= wanted, timeout_s)

    async def check_each_answered_once(self, *, settle_s: float = 2.0) -> None:
        await self.wait_answered()
        await asyncio.sleep(settle_s)  # anything doubled would come now
        assert Counter(place for place, _ in self.answers).most_common(1)[0][1] == 1
        assert dict(self.answers) == self.expected


@asynccontextmanager
async def start(
    folder: Path, slack: SlackServer, model: OpenAIServer, *names: str
) -> AsyncIterator[list[HermodProcess]]:
    """Start ``hermod run`` once for each name, on the same settings and storage, and wait until each is connected."""
    processes = [HermodProcess(folder, slack_url=slack.base_url, model_url=model.base_url, name=name) for name in names]
    try:
        for process in processes:
            await process.start()
        for process in processes:
            await process.wait_ready()
        yield processes
    finally:
        for process in processes:
            if process.running:
                process.thaw()
                await process.stop()


async def run(process: HermodProcess, *words: str) -> Done:
    return await asyncio.to_thread(hermod, process.folder, *words, TOOL_LOG=str(process.tool_log))


# -- commands beside a live bot ----------------------------------------------------------------------


@pytest.mark.timeout(180)
async def test_ask_and_tools_run_work_beside_a_busy_bot_and_leave_its_threads_alone(
    tmp_path: Path, slack: SlackServer, model: OpenAIServer
) -> None:
    workspace = Workspace(slack, 1)
    async with start(tmp_path, slack, model, "hermod") as (process,):
        asking = asyncio.create_task(workspace.mention(60, pause_s=0.1))
        asked: list[Done] = []
        told: list[Done] = []
        for number in range(900, 903):
            done, tool = await asyncio.gather(
                run(process, "ask", f"look at thing {number}", "--json", "--verbose"),
                run(process, "tools", "run", "look_at", f"thing=thing{number}", "--json", "--verbose"),
            )
            asked.append(done)
            told.append(tool)
        await asking
        await workspace.check_each_answered_once()
        assert await process.stop() == 0
    assert [d.data["answer"] for d in asked] == [f"answer {number}" for number in range(900, 903)]
    assert [d.data["result"] for d in told] == [f"thing{number} is fine" for number in range(900, 903)]
    assert [d.code for d in (*asked, *told)] == [0] * 6
    for text in (process.log_path.read_text(), *(d.err for d in (*asked, *told))):
        assert "locked" not in text
        assert "Traceback" not in text
    assert "terminal:" not in process.log_path.read_text()
    for done in (*asked, *told):
        assert "slack:" not in done.err
    with contextlib.closing(sqlite3.connect(process.database)) as connection:
        runs = connection.execute("SELECT substr(thread_key, 1, 6), state, attempt FROM run").fetchall()
        integrity = connection.execute("PRAGMA integrity_check").fetchall()
    assert Counter(runs) == {("slack:", "finished", 1): 60, ("termin", "finished", 1): 3}
    assert integrity == [("ok",)]
    assert model.violations == []


@pytest.mark.timeout(180)
async def test_a_bot_leaves_the_question_of_a_killed_command_alone(
    tmp_path: Path, slack: SlackServer, model: OpenAIServer
) -> None:
    model.on(user="forever").hang()
    workspace = Workspace(slack, 2)
    async with start(tmp_path, slack, model, "hermod") as (process,):
        asking = await process.start_command("ask", "think forever")
        await until(lambda: any("forever" in r.last_user for r in model.requests))
        asking.kill()
        await asking.wait()
        await workspace.mention(3)
        await workspace.check_each_answered_once(settle_s=3.0)  # time enough to look for work of dead processes
        assert sum("forever" in r.last_user for r in model.requests) == 1
        assert (await run(process, "ask", "look at thing 7")).out.startswith("answer 7")
        assert sum("forever" in r.last_user for r in model.requests) == 1


# -- two bots ----------------------------------------------------------------------------------------


@pytest.mark.timeout(180)
async def test_two_processes_on_one_workspace_answer_each_of_60_mentions_once(
    tmp_path: Path, slack: SlackServer, model: OpenAIServer
) -> None:
    workspace = Workspace(slack, 3)
    async with start(tmp_path, slack, model, "first", "second") as processes:
        await workspace.mention(60)
        await workspace.check_each_answered_once()
        for process in processes:  # both had a part in it
            assert any(e.get("event") == "run_ended" for e in process.events())
            assert "Traceback" not in process.log_path.read_text()
    assert len(slack.deliveries) > 60
    assert Counter(processes[0].tool_log.read_text().split()) == Counter(f"thing{n}" for n in range(60))
    assert model.violations == []


@pytest.mark.timeout(180)
async def test_sigterm_drains_one_of_two_processes_and_the_other_goes_on(
    tmp_path: Path, slack: SlackServer, model: OpenAIServer
) -> None:
    workspace = Workspace(slack, 4)
    async with start(tmp_path, slack, model, "first", "second") as (first, second):
        asking = asyncio.create_task(workspace.mention(60, pause_s=0.05))
        await workspace.wait_answered(10)
        assert await first.stop() == 0
        (draining,) = (e for e in first.events() if e.get("event") == "draining")
        assert int(str(draining["active"])) > 0  # it was in the middle of its work
        await asking
        await workspace.check_each_answered_once()
        assert second.running
        assert (await second.get("/readyz"))[0] == 200
    # what was under way was finished, not left to the other
    assert Counter(first.tool_log.read_text().split()) == Counter(f"thing{n}" for n in range(60))


@pytest.mark.timeout(180)
async def test_a_process_that_comes_back_late_says_nothing_twice(
    tmp_path: Path, slack: SlackServer, model: OpenAIServer
) -> None:
    workspace = Workspace(slack, 5)
    moments = random.Random(5)
    async with start(tmp_path, slack, model, "first", "second") as (first, second):
        for frozen in (first, second):
            before = len(workspace.answered)
            asking = asyncio.create_task(workspace.mention(36, pause_s=0.05))
            await workspace.wait_answered(before + 2)  # some runs have just begun, some are about to be answered
            await asyncio.sleep(moments.uniform(0.0, 1.0))
            frozen.freeze()
            await asyncio.sleep(LEASE_S + 2)
            frozen.thaw()
            await asking
            await workspace.check_each_answered_once(settle_s=4.0)
        assert first.running
        assert second.running
    assert any(e.get("event") == "claim_lost" for p in (first, second) for e in p.events())


@pytest.mark.timeout(300)
async def test_a_reply_that_waited_for_its_turn_too_long_is_left_to_the_process_that_took_over(
    tmp_path: Path, slack: SlackServer, model: OpenAIServer
) -> None:
    workspace = Workspace(slack, 7, channels=["C0LOAD"])
    async with start(tmp_path, slack, model, "first", "second") as (first, _):
        slack.set_knobs(strict_rate_limits=True)  # one post a second: some always wait for their turn
        await workspace.mention(16)
        await workspace.wait_answered(3)
        first.freeze()
        await asyncio.sleep(LEASE_S + 2)
        # the other has taken over; where drafts were shown, their calls use up a minute's rate
        await workspace.wait_answered(timeout_s=150.0)
        slack.set_knobs(strict_rate_limits=False)  # nothing but the late process itself holds it back
        first.thaw()
        await workspace.check_each_answered_once(settle_s=4.0)
