"""kill -9 in the middle of reports: each is posted once and whole, and no step that was finished is done again.

Each test has several reports come to a moment of their own, sees which steps are recorded by then, and kills the
process. The moments are events: a request that the local servers hold back, a tool that waits, a row that is there.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_core.context import StepState
from bot.jobs.calendar import Occurrence
from bot.jobs.job import SETTINGS_OWNER, JobSpec, build_firing, dump_spec, load_spec
from bot.jobs.keeping import build_new_firing
from bot.storage import open_store
from bot.storage.base import RunRow, Store
from bot.storage.jobs import JobRow, JobState
from tests.acceptance.process import PATIENCE_S, HermodProcess, until
from tests.servers.openai import Call, OpenAIServer, Reply, Request
from tests.servers.postgres import Lab, any_postgres
from tests.servers.slack import SlackServer

__all__ = ["any_postgres"]

pytestmark = pytest.mark.timeout(240)

THINGS = ("alpha", "beta")
"""What the two workers of each report look at."""

BODY_PARTS = 3
PARAGRAPHS = 24
ROWS = 30

TOOL = '''
import asyncio
import os
import pathlib

LOG = pathlib.Path(os.environ["TOOL_LOG"])
ROWS = 30


def register(registry):
    """Register a tool that waits while it is held, and whose every run can be counted from outside."""

    async def weigh(thing: str, report: str) -> dict[str, object]:
        """Weigh a thing.

        Args:
            thing: which one.
            report: for which report.
        """
        with LOG.open("a") as log:
            log.write(f"{report}/{thing}\\n")
        while LOG.with_name(f"hold-{report}-{thing}").exists():
            await asyncio.sleep(0.02)
        rows = [{"item": f"{thing} {n}", "of": report, "weight": n} for n in range(ROWS)]
        return {"ok": True, "target": thing, "rows": rows}

    registry.register(weigh)
'''

SETTINGS = """
[collector]
enabled = false
[limits]
tool_timeout_s = 120
[targets.shop]
url = "{target}"
[workers.weigher]
description = "weighs things"
tools = ["weigh", "get_slow_queries"]
"""

Condition = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Report:
    """One report of a test: its channel and job are its own."""

    name: str
    job: JobRow
    due: datetime

    @property
    def channel(self) -> str:
        return self.job.place.rpartition("/")[2]

    @property
    def run_key(self) -> str:
        return f"{self.due:%Y-%m-%dT%H:%M}"

    @property
    def thread_key(self) -> str:
        occurrence = Occurrence(at=self.due, key=self.run_key, local="")
        spec = JobSpec(cron="", zone="", task="")
        return build_firing(
            self.job.place, author=SETTINGS_OWNER, job_id=self.job.job_id, job="", spec=spec, occurrence=occurrence
        ).thread.key


@dataclass
class Seen:
    """What was asked for a report until it was interrupted: finished steps, and how often each step was begun."""

    done: frozenset[str]
    begun: Counter[str]


@dataclass(kw_only=True)
class Office:
    """The chat, the model and the rows, which outlive the process."""

    slack: SlackServer
    model: OpenAIServer
    store: Store
    hermod: HermodProcess
    make: Callable[..., HermodProcess]
    holds: list[asyncio.Event] = field(default_factory=list)
    held_tools: list[Path] = field(default_factory=list)

    # -- reports -----------------------------------------------------------------------------------

    async def add(self, name: str, task: str = "") -> Report:
        """Make a job whose time came two minutes ago; the next one is in a year."""
        now = datetime.now(UTC)
        due = now.replace(second=0, microsecond=0) - timedelta(minutes=2)
        channel = f"C{name.upper()}"
        self.slack.add_channel(channel, name)
        cron = f"{due.minute} {due.hour} {due.day} {due.month} *"
        spec = JobSpec(cron=cron, zone="UTC", task=task or f"Weigh everything for <{name}>.", workers=("weigher",))
        job = JobRow(
            job_id=uuid.uuid4().hex,
            name=name,
            origin="chat",
            place=f"slack:T0FAKE/{channel}",
            owner="slack:U1ALICE",
            owner_name="alice",
            spec=dump_spec(spec),
            state=JobState.ACTIVE,
            reason="",
            next_at=due,
            thread_key="",
            created_at=now,
            updated_at=now,
        )
        assert await self.store.save_job(job, expected=None)
        return Report(name=name, job=job, due=due)

    async def find_run(self, report: Report) -> RunRow | None:
        runs = await self.store.list_runs(thread_key=report.thread_key)
        assert len(runs) <= 1
        return runs[0] if runs else None

    async def list_done(self, report: Report) -> frozenset[str]:
        """The steps of a report that are recorded as done, as ``list_begun`` names them."""
        run = await self.find_run(report)
        found = None if run is None else await self.store.load_run(run.run_id)
        steps = () if found is None else found[1]
        return frozenset(name_step(s.entry.key) for s in steps if s.entry.state is StepState.DONE)

    def list_begun(self, report: Report) -> Counter[str]:
        """How often each step was begun, as the model server and the tool itself saw it."""
        asked = Counter(name_request(r) for r in self.model.requests if f"<{report.name}>" in whole_text(r))
        ran = (line.split("/") for line in self.hermod.tool_log.read_text().split())
        return asked + Counter(f"{thing} tool" for name, thing in ran if name == report.name)

    async def see(self, report: Report) -> Seen:
        return Seen(done=await self.list_done(report), begun=self.list_begun(report))

    # -- moments -----------------------------------------------------------------------------------

    def hold_model(self, report: str, step: str) -> Condition:
        """Let the answer of a step wait."""
        rule = self.model.on(where=lambda r: f"<{report}>" in whole_text(r) and name_request(r) == step)
        rule.dynamic(answer).once().wait = hold = asyncio.Event()
        self.holds.append(hold)
        return lambda: rule.used

    def hold_tool(self, report: str, thing: str) -> Condition:
        """Let a tool wait."""
        self.held_tools.append(hold := self.hermod.folder / f"hold-{report}-{thing}")
        hold.touch()
        return lambda: f"{report}/{thing}" in self.hermod.tool_log.read_text().split()

    def hold_slack(self, report: str, method: str, nth: int = 1, *, arrived: bool) -> Condition:
        """Hold the n-th call of a method for a report: its answer (``arrived``), or what is then lost on the way."""
        self.holds.append(hold := asyncio.Event())
        fault = self.slack.inject(method, channel=f"C{report.upper()}", every=nth, hold=hold, after=arrived, drop=True)
        return lambda: fault.reached

    def release(self) -> None:
        """Let go what was held: nobody waits for it any more, or it is to go on."""
        self.release_tools()
        for hold in self.holds:
            hold.set()

    def release_tools(self) -> None:
        for path in self.held_tools:
            path.unlink(missing_ok=True)

    # -- what came of it ---------------------------------------------------------------------------

    def headlines(self, report: Report) -> list[dict[str, Any]]:
        """What Hermod said in the channel itself."""
        return [m for m in self.slack.bot_messages(report.channel) if m.get("thread_ts", m["ts"]) == m["ts"]]

    def below(self, report: Report) -> list[dict[str, Any]]:
        """What Hermod said in the thread of the only headline."""
        roots = {m["ts"] for m in self.headlines(report)}
        return [m for m in self.slack.bot_messages(report.channel) if m["ts"] not in roots]

    async def wait_settled(self, report: Report) -> None:
        """Wait until nothing of a report is left to be done."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self._is_settled(report):  # noqa: ASYNC110 - rows of another process
                await asyncio.sleep(0.05)

    async def _is_settled(self, report: Report) -> bool:
        run = await self.find_run(report)
        if run is None or run.ended_at is None or not (roots := self.headlines(report)):
            return False
        posts = await self.store.load_outbox(report.thread_key)
        below = await self.store.load_outbox(f"{report.job.place}/{roots[0]['ts']}")
        return len(below) >= BODY_PARTS and all(post.state.final for post in (*posts, *below))

    async def check(self, report: Report, seen: Seen) -> None:
        """Everything stands there once, and no finished step was done again."""
        run = await self.find_run(report)
        assert run is not None
        assert run.error == ""
        (headline,) = self.headlines(report)
        assert f"All is weighed for <{report.name}>" in headline["text"].replace("&lt;", "<").replace("&gt;", ">")
        below = self.below(report)
        keys = [m["metadata"]["event_payload"]["key"] for m in below if "metadata" in m]
        assert keys == [f"{run.run_id}/body/{n}" for n in range(1, BODY_PARTS + 1)]
        said = " ".join(str(m.get("blocks") or m["text"]) for m in below)
        numbers = [int(n) for n in re.findall(r"Paragraph (\d+):", said)]
        assert numbers == list(range(PARAGRAPHS))
        files = sorted((f for m in below for f in m.get("files", ())), key=lambda f: str(f["name"]))
        assert [f["name"] for f in files] == [f"weigh-{thing}.csv" for thing in THINGS]
        for thing, info in zip(THINGS, files, strict=True):
            table = self.slack.blobs[info["id"]].decode().splitlines()
            assert table[1:] == [f"{thing} {n},{report.name},{n}" for n in range(ROWS)]
        (time,) = await self.store.list_job_runs(report.job.job_id)
        assert (time.run_key, time.state, time.run_id) == (report.run_key, "done", run.run_id)
        self.check_steps(report, seen)

    def check_steps(self, report: Report, seen: Seen) -> None:
        again = self.list_begun(report) - seen.begun
        assert not again.keys() & seen.done, "a finished step was done again"
        assert seen.begun.keys() | again.keys() == set(STEPS)
        assert set(again.values()) | set(seen.begun.values()) <= {1}

    async def ask(self, report: Report) -> None:
        """A question in the thread is answered there, once, from what the report stands on."""
        (headline,) = self.headlines(report)
        before = len(self.below(report))
        tools = self.hermod.tool_log.read_text()
        await self.slack.say("explain it", channel=report.channel, thread_ts=headline["ts"])
        await self.slack.wait_until(lambda: len(self.slack.replies(report.channel)) > 1 + BODY_PARTS)
        (answer,) = [m for m in self.slack.replies(report.channel) if m["text"].startswith("It rests on")]
        assert answer["thread_ts"] == headline["ts"]
        assert answer["text"] == f"It rests on 2 results for {report.name}."
        assert len(self.below(report)) == before + 1
        assert self.hermod.tool_log.read_text() == tools
        assert len(self.headlines(report)) == 1


STEPS = ("decomposition", "alpha 0", "alpha tool", "alpha 1", "beta 0", "beta tool", "beta 1", "synthesis")
"""All that a report consists of."""


def name_step(key: str) -> str:
    """Name a step of the journal."""
    part, _, step = key.partition("/")
    if (thing := {"w1": "alpha", "w2": "beta"}.get(part)) is None:
        return part
    return f"{thing} tool" if step.startswith("tool:") else f"{thing} {int(step.rpartition(':')[2]) - 1}"


def name_request(request: Request) -> str:
    """Name the step that a model's request is of; empty for a question in a thread."""
    if request.system.startswith("You divide a task"):
        return "decomposition"
    if request.system.startswith("You write the answer"):
        return "synthesis"
    found = re.match(r"Weigh (alpha|beta) for ", request.last_said)
    return f"{found[1]} {request.step}" if found else ""


def whole_text(request: Request) -> str:
    return " ".join(str(m.get("content")) for m in request.messages)


def answer(request: Request) -> Reply:
    """What the model says: the same at each step, however often it is asked."""
    (name,) = set(re.findall(r"<(\w+)>", whole_text(request)))
    match name_request(request).split():
        case ["decomposition"]:
            made = ", ".join(
                f'{{"id": "a{n}", "worker": "weigher", "task": "Weigh {thing} for <{name}>.", "depends_on": []}}'
                for n, thing in enumerate(THINGS, 1)
            )
            return Reply(None, [Call("final_answer", f'{{"assignments": [{made}]}}')])
        case [thing, "0"]:
            return Reply(None, [Call("weigh", f'{{"thing": "{thing}", "report": "{name}"}}')])
        case [thing, _]:
            return Reply(f"{thing} weighs enough for <{name}>.")
        case ["synthesis"]:
            filler = (
                "it weighs what it weighs, and nobody has to do anything about it, as far as anybody can tell; " * 4
            )
            body = "\n\n".join(f"Paragraph {n}: {filler}[weigher:a1]" for n in range(PARAGRAPHS))
            return Reply(f"All is weighed for <{name}> [weigher:a1] [weigher:a2].\n---\n{body}")
        case _:
            results = sum(m["role"] == "tool" for m in request.messages)
            return Reply(f"It rests on {results} results for {name}.")


@asynccontextmanager
async def open_office(folder: Path, *, storage: str = "", target: str = "") -> AsyncIterator[Office]:
    (folder / "weighing.py").write_text(TOOL)
    url = storage or f"sqlite:///{folder}/hermod.db"
    store = open_store(url)
    await store.open()
    try:
        # a process that stands still acknowledges nothing, and that is not what is looked at here
        async with SlackServer(ack_timeout=PATIENCE_S) as slack, OpenAIServer() as model:
            model.fallback = answer
            make = partial(
                HermodProcess,
                folder,
                slack_url=slack.base_url,
                model_url=model.base_url,
                extra=SETTINGS.format(target=target or f"sqlite:///{folder}/shop.db"),
                environ={"HERMOD_TOOLS__MODULES__0": "weighing", "HERMOD_STORAGE__URL": url},
            )
            office = Office(slack=slack, model=model, store=store, hermod=make(name="first"), make=make)
            try:
                await office.hermod.start()
                await office.hermod.wait_ready()
                yield office
                assert slack.violations == model.violations == []
                assert await office.hermod.stop() == 0
                assert "Traceback" not in office.hermod.log_path.read_text()
            finally:
                office.release()
                await office.hermod.kill()
    finally:
        await store.close()


async def wait_moment(office: Office, report: Report, reached: Condition, settled: Sequence[str]) -> None:
    """Wait until a report stands where it is to be interrupted, with all that comes to an end before that recorded."""
    async with asyncio.timeout(PATIENCE_S):
        while not (reached() and await office.list_done(report) >= set(settled)):  # noqa: ASYNC110 - rows, as above
            await asyncio.sleep(0.02)


Arrange = Callable[[Office, str], Condition]


@dataclass(frozen=True)
class Moment:
    """Where a report is interrupted: what holds it there, and what is recorded before that."""

    name: str
    arrange: Arrange
    settled: tuple[str, ...] = ()


def at_model(step: str) -> Arrange:
    return lambda office, name: office.hold_model(name, step)


def at_tool(thing: str) -> Arrange:
    return lambda office, name: office.hold_tool(name, thing)


def before(method: str, nth: int = 1) -> Arrange:
    return lambda office, name: office.hold_slack(name, method, nth, arrived=False)


def behind(method: str, nth: int = 1) -> Arrange:
    return lambda office, name: office.hold_slack(name, method, nth, arrived=True)


def both(*arranged: Arrange) -> Arrange:
    def arrange(office: Office, name: str) -> Condition:
        conditions = [one(office, name) for one in arranged]
        return lambda: all(condition() for condition in conditions)

    return arrange


def in_doubt(office: Office, name: str) -> Condition:
    """The headline arrived, its answer got lost, and it is being looked for."""
    office.slack.inject("chat.postMessage", channel=f"C{name.upper()}", after=True, drop=True)
    return office.hold_slack(name, "conversations.history", arrived=False)


POST, UPLOADED = "chat.postMessage", "files.completeUploadExternal"
WORKED = STEPS[:-1]

MOMENTS = {
    "making": (
        Moment("looking", before("conversations.info")),
        Moment("dividing", at_model("decomposition")),
        Moment("asking", both(at_model("alpha 0"), at_model("beta 0")), ("decomposition",)),
        Moment("onetool", at_tool("alpha"), ("alpha 0", "beta 1")),
        Moment("twotools", both(at_tool("alpha"), at_tool("beta")), ("alpha 0", "beta 0")),
        Moment("mixed", both(at_model("alpha 1"), at_tool("beta")), ("alpha tool", "beta 0")),
        Moment("oneleft", at_model("beta 1"), ("alpha 1", "beta tool")),
        Moment("writing", at_model("synthesis"), WORKED),
    ),
    "posting": (
        Moment("sending", before(POST), STEPS),
        Moment("arrived", behind(POST), STEPS),
        Moment("doubted", in_doubt, STEPS),
        Moment("opened", before(POST, 2), STEPS),
        Moment("begun", behind(POST, 2), STEPS),
        Moment("middle", before(POST, 3), STEPS),
        Moment("further", behind(POST, 3), STEPS),
        Moment("last", before(POST, 4), STEPS),
    ),
    "files": (
        Moment("bare", behind(POST, 4), STEPS),
        Moment("uploaded", before(UPLOADED), STEPS),
        Moment("onefile", behind(UPLOADED), STEPS),
        Moment("nextfile", before(UPLOADED, 2), STEPS),
        Moment("allfiles", behind(UPLOADED, 2), STEPS),
    ),
}


async def come_to(office: Office, moments: Sequence[Moment]) -> list[Report]:
    """Have a report for each moment made, until all of them stand there."""
    reached = {moment.name: moment.arrange(office, moment.name) for moment in moments}
    reports = [await office.add(moment.name) for moment in moments]
    for moment, report in zip(moments, reports, strict=True):
        await wait_moment(office, report, reached[moment.name], moment.settled)
    return reports


async def see_frozen(office: Office, reports: Sequence[Report]) -> list[Seen]:
    """Let the process stand still, and see what was done until now: nothing more happens."""
    office.hermod.freeze()
    return [await office.see(report) for report in reports]


async def check_all(office: Office, reports: Sequence[Report], seen: Sequence[Seen]) -> None:
    """Wait until all reports are there, whole and once, and ask in each thread."""
    for report, known in zip(reports, seen, strict=True):
        await office.wait_settled(report)
        await office.check(report, known)
    for report in reports:
        await office.ask(report)


async def kill_in_the_middle(office: Office, moments: Sequence[Moment]) -> None:
    """Interrupt reports at these moments with kill -9; all of them are whole after the restart."""
    reports = await come_to(office, moments)
    seen = await see_frozen(office, reports)
    await office.hermod.kill()
    office.release()
    await office.hermod.start()
    await check_all(office, reports, seen)


@pytest.mark.parametrize("stage", MOMENTS)
async def test_a_report_survives_kill_9_while_it_is(tmp_path: Path, stage: str) -> None:
    async with open_office(tmp_path) as office:
        await kill_in_the_middle(office, MOMENTS[stage])


async def test_a_report_survives_kill_9_before_anybody_works_on_it(tmp_path: Path) -> None:
    async with open_office(tmp_path) as office:
        office.hermod.freeze()
        unseen = await office.add("unseen")  # due, and the process dies before it looks
        fired = await office.add("fired")
        await office.hermod.kill()
        firing = build_firing(
            fired.job.place,
            author=SETTINGS_OWNER,
            job_id=fired.job.job_id,
            job=fired.name,
            spec=load_spec(fired.job.spec),
            occurrence=Occurrence(at=fired.due, key=fired.run_key, local=""),
        )
        next_at, now = fired.due + timedelta(days=365), datetime.now(UTC)
        outcomes = await office.store.fire_job(
            fired.job, [build_new_firing(firing, now)], next_at=next_at, now=now, overlap="skip"
        )
        assert outcomes == ("fired",)  # and the process that did this dies before anybody claims it
        await office.hermod.start()
        await check_all(office, [unseen, fired], [Seen(done=frozenset(), begun=Counter())] * 2)


async def test_a_delivered_report_is_left_alone_by_a_process_that_starts_after_kill_9(tmp_path: Path) -> None:
    async with open_office(tmp_path) as office:
        first = await office.add("first")
        await office.wait_settled(first)
        (seen,) = await see_frozen(office, [first])
        assert seen.done == set(STEPS)
        await office.hermod.kill()
        await office.hermod.start()
        second = await office.add("second")
        await check_all(office, [second, first], [Seen(done=frozenset(), begun=Counter()), seen])


@pytest.mark.timeout(240)
async def test_a_report_survives_kill_9_with_its_rows_on_postgres(tmp_path: Path, any_postgres: Lab) -> None:
    rows, shop = [
        any_postgres.server.url(await any_postgres.create_database(extension=extension)) for extension in (False, True)
    ]
    moments = pick("looking", "onetool", "writing", "arrived", "middle", "onefile")
    async with open_office(tmp_path, storage=rows, target=shop) as office:
        await kill_in_the_middle(office, moments)
    assert not (tmp_path / "hermod.db").exists()


def pick(*names: str) -> list[Moment]:
    return [moment for stage in MOMENTS.values() for moment in stage if moment.name in names]


async def test_a_process_that_stands_still_in_the_middle_of_reports_posts_nothing_twice_when_it_goes_on(
    tmp_path: Path,
) -> None:
    moments = pick("mixed", "writing", "sending", "arrived", "middle", "further", "bare", "onefile")
    async with open_office(tmp_path) as office:
        reports = await come_to(office, moments)
        late, seen = office.hermod, await see_frozen(office, reports)
        office.release_tools()  # what was asked of Slack and the model stays under way until it goes on
        office.hermod = office.make(name="second")
        try:
            await office.hermod.start()
            for report in reports:  # once the leases have ended: a process that stands still is not dead
                await office.wait_settled(report)
            office.release()
            late.thaw()
            await until(lambda: any(e.get("event") == "claim_lost" for e in late.events()))
            assert await late.stop() == 0  # what it had under way is through
        finally:
            await late.kill()
        assert any(e.get("event") == "run_ended" for e in office.hermod.events())
        await check_all(office, reports, seen)


async def test_reports_that_sigterm_interrupts_are_finished_by_this_process_or_by_the_next_one(tmp_path: Path) -> None:
    moments = pick("dividing", "onetool", "writing", "sending", "arrived", "middle", "further", "bare", "onefile")
    async with open_office(tmp_path) as office:
        reports = await come_to(office, moments)
        seen = await see_frozen(office, reports)
        stopping = asyncio.create_task(office.hermod.stop())
        office.hermod.thaw()
        await until(lambda: any(e.get("event") == "draining" for e in office.hermod.events()))
        office.release()
        assert await stopping == 0
        await office.hermod.start()
        await check_all(office, reports, seen)
