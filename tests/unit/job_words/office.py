"""Jobs around one store and one chat in memory, put together as the app does it; time stands still."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from adapters.chat import Author, Command, Message, ThreadRef
from adapters.places import ChannelLook, PersonLook
from agent_core.context import RunContext
from agent_core.llm.tokens import TokenCounter
from agent_core.llm.types import ToolCall
from agent_core.tools.base import ToolResult
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from bot.access import AccessAuthorizer, AccessPolicy, Caller
from bot.audit import AuditLog
from bot.commands import CommandRunner, Question, Told
from bot.forget import ThreadMemory
from bot.jobs.commands import build_job_commands
from bot.jobs.desk import JobDesk
from bot.jobs.keeping import JobKeeper
from bot.messages import Heard
from bot.storage import open_store
from bot.storage.base import Store
from bot.storage.jobs import JobRow
from bot.tools.jobs.tools import register_job_tools
from bot.turn import Turn
from bot.words import ThreadWords
from tests.contract.store.makers import begin, claim, outcome
from tests.unit.bot.recording import MemoryChat
from tests.unit.engine.running import WordCounter

ALICE = Author(id="U1", name="alice")
BOB = Author(id="U2", name="bob")
START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


class StandingClock:
    """Stands until a test moves it."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at - START).total_seconds()

    async def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class PlacesChat(MemoryChat):
    """A chat that can tell of its channels: ``looks`` by channel, all others are open."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: dict[str, ChannelLook] = {}

    async def look_at_channel(self, workspace: str, channel: str) -> ChannelLook:
        return self.looks.get(channel, ChannelLook(state="open", name=f"#{channel.lower()}"))

    async def look_at_person(self, workspace: str, user: str) -> PersonLook:
        return PersonLook(state="unknown")

    def thread_below(self, thread: ThreadRef, remote_id: str) -> ThreadRef:
        raise AssertionError("nothing is posted here")


class Office:
    """Everything that people can say about jobs. ``waked``: how often the dispatcher was told of a new firing."""

    def __init__(self, store: Store, file: Path, *, policy: AccessPolicy | None = None, prefix: str = "") -> None:
        self.store = store
        self.file = file
        self.clock = StandingClock()
        self.chat = PlacesChat()
        self.waked = 0
        self._ids = itertools.count(1)
        policy = policy or AccessPolicy()
        keeper = JobKeeper(
            store,
            self.clock,
            adapters={"slack": self.chat},
            targets=("shop", "billing"),
            workers=("sql_optimizer",),
            templates=("daily-database", "weekly-regression"),
            wake=self._wake,
        )
        self.desk = JobDesk(store, keeper, self.clock, policy=policy, prefix=prefix)
        self.registry = ToolRegistry()
        register_job_tools(self.registry, self.desk, templates=("daily-database", "weekly-regression"))
        self.executor = ToolExecutor(self.registry, authorizer=AccessAuthorizer(policy))
        own = build_job_commands(self.desk)
        self.commands = CommandRunner(self.executor, registry=self.registry, own=own, prefix=prefix)

        async def counter() -> TokenCounter:
            return WordCounter()

        memory = ThreadMemory(store, AuditLog(store, self.clock))
        self.words = ThreadWords(store, counter, lambda: (), self.clock, memory=memory, jobs=self.desk)

    def _wake(self) -> None:
        self.waked += 1

    def message(self, text: str, *, author: Author = ALICE, channel: str = "C1", thread: str = "1.0") -> Message:
        return Message(
            thread=ThreadRef(platform="slack", workspace="T1", channel=channel, thread=thread),
            id=f"m{next(self._ids)}",
            author=author,
            text=text,
            mentioned=True,
            sent_at=self.clock.now(),
        )

    async def say(self, text: str, *, author: Author = ALICE, channel: str = "C1", thread: str = "1.0") -> str | None:
        """Say a word in a thread; None: it is an ordinary question."""
        return await self.words.answer(self.message(text, author=author, channel=channel, thread=thread))

    async def command(
        self, text: str, *, name: str = "jobs", author: Author = ALICE, channel: str = "C1", mention: str = ""
    ) -> Told:
        """Give a command: as a slash command, or as a mention in the thread ``mention``."""
        given: Message | Command
        if mention:
            given = self.message(f"{name} {text}", author=author, channel=channel, thread=mention)
        else:
            number = f"command-{next(self._ids)}"
            thread = ThreadRef(platform="slack", workspace="T1", channel=channel, thread=number)
            given = Command(thread=thread, id=number, author=author, name=name, text=text, sent_at=self.clock.now())
        ctx = self.context(given)
        reading = self.commands.read(ctx, given)
        assert not isinstance(reading, Question), "it is a question, no command"
        return await self.commands.run(ctx, reading)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, object],
        *heard: Heard,
        author: Author = ALICE,
        channel: str = "C1",
        thread: str = "1.0",
        said: str = "",
    ) -> ToolResult:
        """Run a tool as the run of a turn does: of these messages, else of one by ``author``."""
        heard = heard or (self.message(said, author=author, channel=channel, thread=thread),)
        call = ToolCall(id="c1", name=tool, arguments=json.dumps(dict(arguments)))
        return await self.executor.run_one(self.context(*heard), call)

    def context(self, *heard: Heard) -> RunContext:
        thread = heard[0].thread
        callers = tuple(dict.fromkeys(Caller.of(thread, h.author) for h in heard))
        turn = Turn(thread=thread, callers=callers, inbound=heard)
        return RunContext.create(thread.key, clock=self.clock, deps=turn)

    async def job(self, name: str) -> JobRow:
        row = await self.store.load_job(name)
        assert row is not None
        return row

    async def make(self, name: str = "daily", *, author: Author = ALICE, channel: str = "C1") -> JobRow:
        """A job that was proposed and confirmed."""
        arguments = {"when": "every weekday at 9 in Berlin", "task": "what got slower?", "name": name}
        result = await self.call("schedule_report", arguments, author=author, channel=channel, thread="0.1")
        assert result.ok, result.content
        said = await self.say("confirm", author=author, channel=channel, thread="0.1")
        assert said is not None
        assert "is scheduled" in said
        return await self.job(name)

    async def end_report(self, *, error: str = "", reason: str = "") -> None:
        """Carry out the report that waits, and end it like this."""
        claimed = await claim(self.store, now=self.clock.now())
        run_id = f"r{next(self._ids)}"
        await begin(self.store, claimed, run_id)
        await self.store.finish_run(claimed, run_id, outcome(error=error, reason=reason))
        await self.store.release_claim(claimed)

    def audited(self) -> list[tuple[str, str, str]]:
        """Action, actor and job of every line about jobs in the audit chain."""
        with closing(sqlite3.connect(self.file)) as connection:
            rows = connection.execute("SELECT action, actor, detail FROM audit ORDER BY seq").fetchall()
        return [
            (action, actor, json.loads(detail)["job"]) for action, actor, detail in rows if action.startswith("job.")
        ]


@asynccontextmanager
async def open_office(folder: Path, *, policy: AccessPolicy | None = None, prefix: str = "") -> AsyncIterator[Office]:
    file = folder / "hermod.db"
    store = open_store(f"sqlite:///{file}")
    await store.open()
    try:
        yield Office(store, file, policy=policy, prefix=prefix)
    finally:
        await store.close()
