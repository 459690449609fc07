"""A report runner over a model server, a real store, and tools that say what they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, Unpack

from adapters.chat import Author, ChatAdapter, Limits, Reply, ThreadRef
from agent_core.context import Journal, MemoryJournal, MemoryOutputs, NoRedactor, Redactor, RunContext
from agent_core.context import Limits as RunLimits
from agent_core.llm.openai_compat import OpenAICompatible
from agent_core.llm.provider import Provider
from agent_core.llm.tokens import EstimatingCounter, TokenCounter
from agent_core.llm.wire import load_message
from agent_core.memory.conversation import Conversation
from agent_core.prompts import load_prompts
from agent_core.runtime.events import RunEvent
from agent_core.tools.builtin import register_builtin
from agent_core.tools.registry import ToolRegistry
from agent_core.workers import build_workers
from bot.access import AccessAuthorizer, AccessPolicy, Caller
from bot.answer import Answer
from bot.attachments import Attachments
from bot.jobs.calendar import Occurrence
from bot.jobs.job import Firing, JobSpec, build_firing, dump_spec
from bot.jobs.keeping import JobKeeper
from bot.jobs.report import ReportRunner
from bot.jobs.sequel import build_opening
from bot.jobs.templates import load_report_templates
from bot.presenter import load_reply
from bot.storage.jobs import JobRow, JobState, Opening
from bot.storage.sqlite import SqliteStore
from bot.tools.targets import Target, Targets
from tests.servers.openai import OpenAIServer

DIVIDES, WRITES = "^You divide a task", "^You write the answer"
NOW = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
ANA = Author(id="U1", name="ana")
PLACE = "slack:T1/C1"
BELOW = ThreadRef(platform="slack", workspace="T1", channel="C1", thread="1700000000.000100")
SLOW = "select * from orders where customer_id = $1"


class Wish(TypedDict, total=False):
    """What a job asks for beside its task."""

    template: str
    workers: tuple[str, ...]
    targets: tuple[str, ...]
    deadline_s: float


Rows = list[dict[str, object]]
Gate = Callable[[], Awaitable[None]]


@dataclass
class Desk:
    """What the tools were asked, and what they answer: by target, rows or an error."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    rows: dict[str, Rows] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    gate: Gate | None = None

    def registry(self) -> ToolRegistry:
        """Tools named as those of the workers, with the envelope of the real ones."""
        registry = ToolRegistry()

        async def get_slow_queries(
            target: str | None = None, time_range: str = "last_1d", threshold: float = 1.0
        ) -> object:
            """List slow statements."""
            return await self._answer(
                "get_slow_queries", target, [{"sql": SLOW, "duration": 2.5, "fingerprint": "abc1"}]
            )

        async def compare_windows(a: str, b: str, target: str | None = None) -> object:
            """Compare statements of two time ranges."""
            return await self._answer("compare_windows", target, [])

        async def index_health(target: str | None = None) -> object:
            """Look for faults of indexes."""
            return await self._answer("index_health", target, [])

        async def table_health(target: str | None = None) -> object:
            """Look at tables."""
            return await self._answer("table_health", target, [{"table": "orders", "findings": "", "size_bytes": 1}])

        async def db_health(target: str | None = None) -> object:
            """Check the server."""
            return await self._answer("db_health", target, [{"check": "connections", "status": "ok", "value": 3}])

        async def run_readonly_sql(sql: str, target: str | None = None) -> object:
            """Run a statement."""
            return await self._answer("run_readonly_sql", target, [{"salary": 1}])

        for tool in (get_slow_queries, compare_windows, index_health, table_health, db_health):
            registry.register(tool)
        registry.register(run_readonly_sql, private=True)
        register_builtin(registry)
        return registry

    async def _answer(self, tool: str, target: str | None, rows: Rows) -> object:
        self.asked.append((tool, target or ""))
        if self.gate is not None:
            await self.gate()
        if target in self.down:
            error = {
                "code": "connection_failed",
                "message": f"cannot connect to target {target!r}",
                "fix": "",
                "retryable": False,
            }
            return {"ok": False, "error": error}
        return {"ok": True, "target": target, "coverage": {"complete": True}, "rows": self.rows.get(tool, rows)}


@dataclass(frozen=True)
class Asked:
    """What the tools of a run find: who asked."""

    callers: tuple[Caller, ...]


class Stage:
    """Makes reports. ``run`` is one attempt; attempts at one run share the journal."""

    def __init__(
        self,
        store: SqliteStore,
        provider: Provider,
        *,
        desk: Desk | None = None,
        registry: ToolRegistry | None = None,
        targets: Targets | None = None,
        adapters: Mapping[str, ChatAdapter] | None = None,
        policy: AccessPolicy | None = None,
        folder: Path | None = None,
        max_parallel: int = 4,
        attachments: Attachments | None = None,
    ) -> None:
        self.store, self.desk = store, desk or Desk()
        registry = registry or self.desk.registry()
        self.targets = targets or Targets(
            [
                Target.from_url("shop", "postgresql://h@localhost/shop"),
                Target.from_url("crm", "mysql://h@localhost/crm"),
            ]
        )
        policy = policy or AccessPolicy(targets=tuple(self.targets))
        prompts, templates = load_prompts(), load_report_templates(folder)
        workers = build_workers([], prompts, registry)
        self.events: list[RunEvent] = []
        self.outputs = MemoryOutputs()
        self.keeper = JobKeeper(
            store,
            RunContext.create().clock,
            adapters=dict(adapters or {}),
            targets=tuple(self.targets),
            workers=tuple(workers),
            templates=tuple(templates),
            wake=lambda: None,
        )
        self.runner = ReportRunner(
            provider=provider,
            registry=registry,
            authorizer=AccessAuthorizer(policy),
            workers=workers,
            prompts=prompts,
            templates=templates,
            targets=self.targets,
            policy=policy,
            adapters=dict(adapters or {}),
            store=store,
            keeper=self.keeper,
            counter=_load_counter,
            max_parallel=max_parallel,
            attachments=attachments,
        )

    async def run(
        self,
        task: str = "Post the database report.",
        *,
        journal: Journal | None = None,
        redactor: Redactor | None = None,
        limits: RunLimits | None = None,
        asked_in: str = "",
        at: datetime = NOW,
        **spec: Unpack[Wish],
    ) -> Answer:
        firing = build(task, asked_in=asked_in, at=at, **spec)
        ctx = RunContext.create(
            firing.thread.key,
            limits=limits or RunLimits(),
            journal=journal or MemoryJournal(),
            outputs=self.outputs,
            emit=self.events.append,
            deps=Asked((Caller.of(firing.thread, firing.author),)),
            redactor=redactor or NoRedactor(),
        )
        return await self.runner.run(replace(ctx, run_id="run1"), firing)


async def _load_counter() -> TokenCounter:
    return EstimatingCounter()


def build(task: str, *, asked_in: str = "", at: datetime = NOW, job_id: str = "j1", **spec: Unpack[Wish]) -> Firing:
    """The firing of a job for its 9 o'clock in Berlin."""
    made = JobSpec(cron="0 9 * * *", zone="Europe/Berlin", task=task, **spec)
    occurrence = Occurrence(at=at, key="2026-03-02T09:00", local="2026-03-02 09:00 +01:00")
    return build_firing(
        PLACE, author=ANA, job_id=job_id, job="morning", spec=made, occurrence=occurrence, asked_in=asked_in
    )


async def save_job(store: SqliteStore, *, thread_key: str = "", job_id: str = "j1") -> JobRow:
    """Make the row of that job."""
    spec = build("Post the database report.").spec
    row = JobRow(
        job_id=job_id,
        name="morning",
        origin="chat",
        place=PLACE,
        owner="slack:U1",
        owner_name="ana",
        spec=dump_spec(spec),
        state=JobState.ACTIVE,
        reason="",
        next_at=NOW,
        thread_key=thread_key,
        created_at=NOW,
        updated_at=NOW,
    )
    assert await store.save_job(row, expected=None)
    return row


def open_sequel(answer: Answer) -> Opening:
    """What would follow the headline on Slack."""
    return build_opening(answer.sequel, thread=BELOW, limits=Limits(text_max=12_000), run_id="run1", now=NOW)


def read_body(answer: Answer) -> tuple[str, tuple[Reply, ...]]:
    """The text of all posts below the headline, and the posts."""
    replies = tuple(load_reply(row.body) for row in open_sequel(answer).outbox)
    return "\n\n".join(reply.text for reply in replies), replies


def remember(answer: Answer) -> Conversation:
    """The thread's memory, as a session loads it."""
    conversation = Conversation(EstimatingCounter())
    for row in open_sequel(answer).messages:
        conversation.append(load_message(row.body), row.tokens)
    return conversation


def openai(server: OpenAIServer) -> OpenAICompatible:
    """The official client on a server."""
    return OpenAICompatible(name="main", model="fake-large", api_key="sk-test-key-123456", base_url=server.base_url)


def plan_call(*assignments: tuple[str, str, str] | tuple[str, str, str, Sequence[str]]) -> tuple[str, object]:
    """The plan of a model: ids, workers, tasks, and what they depend on."""
    made = [
        {"id": a[0], "worker": a[1], "task": a[2], "depends_on": list(a[3]) if len(a) == 4 else []} for a in assignments
    ]
    return "final_answer", {"assignments": made}


async def wait_for(condition: Callable[[], bool], *, within_s: float = 30.0) -> None:
    """Let the loop go on until something is so."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
