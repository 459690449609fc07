"""A task that is divided among workers, looked into side by side, and answered with who found what."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from pydantic import BaseModel, Field, create_model, field_validator

from agent_core.agent import Agent
from agent_core.context import RunContext
from agent_core.errors import ConfigError, LimitReached, ModelFailed, RunCancelled, RunError
from agent_core.llm.provider import OFFLINE
from agent_core.llm.types import ModelMessage
from agent_core.memory.conversation import Conversation
from agent_core.prompts import Prompts, describe_time
from agent_core.runtime.events import RunEnded, RunStarted, StateChanged
from agent_core.runtime.loop import AgentLoop
from agent_core.runtime.state import RunRecord, RunState, Step
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.results import cap_text
from agent_core.workers import CALL_WORKER, Worker, build_part, describe_workers, run_worker, shorten_deadline
from reading.words import has_chinese

FINDING_CHARS = 12_000
"""Of one finding, what other workers and the writer of the answer read."""

_CITATION = re.compile(r"( ?)\[([\w-]+:a\d+(?:[,;] *[\w-]+:a\d+)*)\](?!\()")
_SELF = Agent(name="supervisor", tools=())
_ENGLISH = {
    "undivided": "I could not divide this among the workers, so none of them was asked: {reason}.",
    "offline": "Written without a language model: this is what the workers' tools returned.",
    "unwritten": "The findings are listed as they are, since nobody could put them together: {reason}.",
    "gaps": "Not found out:",
    "dropped": "(Marks that name no finding were removed: {labels}.)",
    "sources": "From: {labels}",
}
_CHINESE = {
    "undivided": "我无法把这个任务分配给各个工作者，因此没有询问任何一个：{reason}。",
    "offline": "以下内容未使用语言模型：这是各个工作者的工具返回的结果。",
    "unwritten": "无法把各项发现汇总成文，因此原样列出：{reason}。",
    "gaps": "未能查明：",
    "dropped": "（已删除不对应任何发现的引用标记：{labels}。）",
    "sources": "来源：{labels}",
}


class Assignment(BaseModel, frozen=True):
    """A part of the task for one worker."""

    id: str = Field(pattern=r"^a[1-9][0-9]?$", description="a1, a2, ...")
    worker: str
    task: str = Field(min_length=1, max_length=8_000, description="Complete in itself.")
    depends_on: tuple[str, ...] = Field(default=(), description="Ids of assignments whose findings it needs.")

    @property
    def label(self) -> str:
        """How its finding is cited."""
        return f"{self.worker}:{self.id}"


class Plan(BaseModel):
    """The assignments that a task is divided into."""

    assignments: tuple[Assignment, ...]

    @field_validator("assignments")
    @classmethod
    def _check(cls, assignments: tuple[Assignment, ...]) -> tuple[Assignment, ...]:
        waiting = {a.id: set(a.depends_on) for a in assignments}
        if len(waiting) < len(assignments):
            raise ValueError("an id stands twice")
        if unknown := set().union(*waiting.values()) - waiting.keys():
            raise ValueError(f"depends_on names {sorted(unknown)}, which are no ids of assignments")
        while ready := {id for id, needs in waiting.items() if not needs}:
            waiting = {id: needs - ready for id, needs in waiting.items() if id not in ready}
        if waiting:
            raise ValueError(f"{sorted(waiting)} wait for each other in a circle")
        return assignments


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of an assignment: its text, or why there is a gap (then the text is what is known so far)."""

    assignment: Assignment
    text: str
    gap: str = ""
    record: RunRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMessage:
    """Who told whom what; ``at`` is aware UTC."""

    at: datetime
    sender: str
    recipient: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorRecord:
    """All that is known of a supervised run; ``record`` has the steps of all runs inside it, and their usage.

    ``written`` is the answer as somebody wrote it, without marks that name no finding (``dropped``) and without the
    notes behind it; empty where the findings are listed as they are.
    """

    record: RunRecord
    findings: tuple[Finding, ...]
    messages: tuple[WorkerMessage, ...]
    written: str = ""
    dropped: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Work:
    ctx: RunContext
    record: RunRecord
    findings: tuple[Finding, ...] = ()
    messages: list[WorkerMessage] = field(default_factory=list)
    written: str = ""
    dropped: tuple[str, ...] = ()

    @property
    def words(self) -> Mapping[str, str]:
        return _CHINESE if has_chinese(self.record.query) else _ENGLISH

    def move(self, state: RunState) -> None:
        self.record = self.record.move(state)
        self.ctx.emit(StateChanged(run_id=self.ctx.run_id, state=state))

    def end(self, answer: str, error: RunError | None) -> None:
        """End the run, if it has not ended yet."""
        if self.record.state.final:
            return
        self.record = replace(self.record, answer=answer, error=error)
        self.move(RunState.FINISHED if error is None else RunState.ERROR)

    def tell(self, sender: str, recipient: str, text: str) -> None:
        self.messages.append(WorkerMessage(at=self.ctx.clock.now(), sender=sender, recipient=recipient, text=text))

    def add(self, steps: Sequence[Step], purpose: str) -> None:
        n = len(self.record.steps)
        self.record = self.record.add_steps(*(replace(s, n=n + i, purpose=purpose) for i, s in enumerate(steps, 1)))


class Supervisor:
    """Divides tasks among workers. Safe for many runs at once.

    Args:
        loop: runs the workers, and the agents that divide and write.
        executor: the loop's; tells which tools a worker has for the person behind a run.
        workers: from ``build_workers``, at least one.
        prompts: has ``decomposition`` and ``synthesis``.
        max_assignments, max_parallel: bounds of one task.
        plan: carried out when no model divides the task; empty: then each worker that has tools gets the whole task.
    """

    def __init__(
        self,
        *,
        loop: AgentLoop,
        executor: ToolExecutor,
        workers: Mapping[str, Worker],
        prompts: Prompts,
        max_assignments: int = 8,
        max_parallel: int = 4,
        plan: Sequence[Assignment] = (),
    ) -> None:
        if not workers:
            raise ConfigError("a supervisor needs at least one worker")
        self._loop, self._executor, self._workers, self._prompts = loop, executor, workers, prompts
        self._max_assignments, self._max_parallel = max_assignments, max_parallel
        self._plan, self._own_plan = _build_plan_model(workers, max_assignments), Plan(assignments=tuple(plan))
        if unknown := sorted({a.worker for a in plan} - workers.keys()):
            raise ConfigError(f"the plan names {unknown}, which are no workers; known are {sorted(workers)}")

    async def run(self, ctx: RunContext, task: str, conversation: Conversation) -> SupervisorRecord:
        """Do ``task`` and append it and its answer to ``conversation``.

        A worker that fails is a gap with its reason in the answer. All runs inside share budget and deadline, and
        their steps stand in the journal of ``ctx``, so that a run that is resumed goes on from there. Limits and a
        task that cannot be divided end the run with state ERROR; they are not raised.

        Raises:
            asyncio.CancelledError: somebody cancelled the run; the workers are stopped.
        """
        question = ModelMessage(role="user", content=ctx.redactor.redact(task))
        said = [m for m in conversation.messages if m.role in ("user", "assistant") and not m.tool_calls]
        template = " ".join(self._prompts[name].label for name in ("decomposition", "synthesis"))
        record = RunRecord(
            run_id=ctx.run_id, agent=_SELF.name, template=template, query=question.content, started_at=ctx.clock.now()
        )
        work = _Work(ctx=ctx, record=record)
        ctx.emit(RunStarted(run_id=ctx.run_id, thread_id=ctx.thread_id, agent=replace(_SELF, template=template)))
        conversation.append(question)
        try:
            await self._work(work, said)
        except asyncio.CancelledError:
            work.end("", RunCancelled("the run was stopped"))
            raise
        finally:
            work.end("", RunError("the run broke off"))
            work.record = replace(work.record, ended_at=ctx.clock.now())
            ctx.emit(RunEnded(run_id=ctx.run_id, record=work.record))
        conversation.append(ModelMessage(role="assistant", content=work.record.answer))
        return SupervisorRecord(
            record=work.record,
            findings=work.findings,
            messages=tuple(work.messages),
            written=work.written,
            dropped=work.dropped,
        )

    async def _work(self, work: _Work, said: Sequence[ModelMessage]) -> None:
        work.move(RunState.THINKING)
        planned = await self._ask("decomposition", work, work.record.query, said)
        work.add(planned.steps, "plan")
        if _is_offline(planned):
            assignments = self._own_plan.assignments or self._assign_to_all(work)
        elif isinstance(planned.output, Plan):
            assignments = planned.output.assignments
        else:
            error = planned.error or ModelFailed("the answer was no plan")
            return work.end(work.words["undivided"].format(reason=error), error)
        work.record = replace(work.record, plan=tuple(f"[{a.label}] {a.task}" for a in assignments))
        work.move(RunState.ACTING)
        work.findings = await self._collect(work, assignments)
        work.move(RunState.OBSERVING)
        for finding in work.findings:
            inside = finding.record.steps if finding.record else ()
            work.add((_as_step(finding, work.ctx), *inside), finding.assignment.label)
        work.move(RunState.THINKING)
        if not any(f.text for f in work.findings):
            limits = [f.record.error for f in work.findings if f.record and isinstance(f.record.error, LimitReached)]
            return work.end(_list_findings(work), limits[0] if limits else ModelFailed("no worker found anything"))
        if _is_offline(planned):
            return work.end(_list_findings(work, work.words["offline"]), None)
        await self._synthesise(work)

    async def _ask(self, name: str, work: _Work, text: str, said: Sequence[ModelMessage] = ()) -> RunRecord:
        """Run the agent without tools that divides the task, or that writes the answer."""
        template, output = self._prompts[name], self._plan if name == "decomposition" else None
        values = {"now": describe_time(work.ctx.clock.now())}
        if output is not None:
            values |= {"workers": describe_workers(self._workers), "limit": str(self._max_assignments)}
        system, label = template.fill(**values), template.label
        agent = Agent(name=name, instructions=system, tools=(), stream=False, template=label, output=output)
        conversation = Conversation()
        conversation.extend(said)
        question = ModelMessage(role="user", content=text)
        return await self._loop.run(agent, build_part(work.ctx, name), conversation, [question])

    def _assign_to_all(self, work: _Work) -> tuple[Assignment, ...]:
        able = [w for w in self._workers.values() if self._executor.specs(work.ctx, w.agent.tools)]
        task = work.record.query
        return tuple(Assignment(id=f"a{n}", worker=w.name, task=task) for n, w in enumerate(able, 1))

    async def _collect(self, work: _Work, assignments: Sequence[Assignment]) -> tuple[Finding, ...]:
        """Carry out the assignments, side by side where none needs the finding of another."""
        ctx, gate = shorten_deadline(work.ctx), asyncio.Semaphore(self._max_parallel)
        tasks: dict[str, asyncio.Task[Finding]] = {}

        async def carry_out(n: int, assignment: Assignment) -> Finding:
            given = [await tasks[id] for id in assignment.depends_on]
            if given and not any(f.text for f in given):
                return Finding(assignment=assignment, text="", gap="not begun, as what it depends on came to nothing")
            async with gate:
                return await self._carry_out(work, build_part(ctx, f"w{n}"), assignment, given)

        try:
            async with asyncio.TaskGroup() as group:
                tasks |= {a.id: group.create_task(carry_out(n, a)) for n, a in enumerate(assignments, 1)}
        except BaseExceptionGroup as failed:  # only what no run may survive, such as a broken journal
            raise failed.exceptions[0] from failed
        return tuple(task.result() for task in tasks.values())

    async def _carry_out(
        self, work: _Work, ctx: RunContext, assignment: Assignment, given: Sequence[Finding]
    ) -> Finding:
        worker = self._workers[assignment.worker]
        task = "\n\n".join([assignment.task, *map(_render, given)])
        work.tell(_SELF.name, assignment.label, task)
        record = await run_worker(worker, task, ctx, loop=self._loop, executor=self._executor)
        gap = "" if record.error is None else str(record.error)
        if _is_offline(record) and all(step.kind == "model" for step in record.steps):
            gap = "none of its tools fits"
        partly = isinstance(record.error, LimitReached) and any(step.ok for step in record.steps)
        text = record.answer if partly or not gap else ""
        work.tell(assignment.label, _SELF.name, text or gap)
        return Finding(assignment=assignment, text=text, gap=gap, record=record)

    async def _synthesise(self, work: _Work) -> None:
        blocks = [_render(f) for f in work.findings if f.text]
        written = await self._ask("synthesis", work, "\n\n".join([work.record.query, *blocks]))
        work.add(written.steps, "synthesis")
        if written.error is None and not _is_offline(written):
            return work.end("\n\n".join([_check_citations(written.answer, work), *_list_gaps(work)]), None)
        reason = written.error or "no language model answered"
        error = written.error if isinstance(written.error, LimitReached) else None
        work.end(_list_findings(work, work.words["unwritten"].format(reason=reason)), error)


def _build_plan_model(workers: Mapping[str, Worker], max_assignments: int) -> type[Plan]:
    """Narrow ``Plan`` to these workers and this many assignments."""
    pattern = f"^(?:{'|'.join(map(re.escape, workers))})$"
    worker = Field(pattern=pattern, json_schema_extra={"enum": list(workers)})
    assignment = create_model("Assignment", __base__=Assignment, worker=(str, worker))
    several = (tuple[assignment, ...], Field(min_length=1, max_length=max_assignments))
    return create_model("Plan", __base__=Plan, assignments=several)


def _is_offline(record: RunRecord) -> bool:
    models = [step.name for step in record.steps if step.kind == "model"]
    return bool(models) and models[-1] == OFFLINE


def _as_step(finding: Finding, ctx: RunContext) -> Step:
    """Tell an assignment as the call that it amounts to; the steps of its run follow it."""
    record = finding.record
    started_at = record.started_at if record else ctx.clock.now()
    ended_at = (record and record.ended_at) or started_at
    return Step(
        n=0,
        kind="tool",
        name=CALL_WORKER,
        started_at=started_at,
        duration_s=(ended_at - started_at).total_seconds(),
        ok=not finding.gap,
        detail=finding.text,
        arguments=finding.assignment.model_dump_json(),
        error=finding.gap,
        attempts=1 if record else 0,
    )


# -- text ----------------------------------------------------------------------------------------------


def _render(finding: Finding) -> str:
    """Write a finding for a model; its text cannot end the mark that says whose it is."""
    text = cap_text(finding.text, FINDING_CHARS)[0].replace("finding>", "finding >").replace("<finding", "< finding")
    gap = f' incomplete="{finding.gap}"' if finding.gap else ""
    return f'<finding from="[{finding.assignment.label}]"{gap}>\n{text}\n</finding>'


def _list_findings(work: _Work, note: str = "") -> str:
    """List what was found as it is, the same text once."""
    found: dict[str, list[str]] = {}
    for f in work.findings:
        found.setdefault(f.text, []).append(f"[{f.assignment.label}]")
    listed = (f"**{' '.join(labels)}**\n\n{text}" for text, labels in found.items() if text)
    return "\n\n".join(filter(None, [note, *listed, *_list_gaps(work)]))


def _list_gaps(work: _Work) -> list[str]:
    lines = [f"- [{f.assignment.label}] {f.assignment.task}: {f.gap}" for f in work.findings if f.gap]
    return ["\n".join([work.words["gaps"], *lines])] if lines else []


def _check_citations(text: str, work: _Work) -> str:
    """Remove citations of findings that do not exist, and say so; where there is none at all, name the findings."""
    known = {f.assignment.label for f in work.findings if f.text}
    cited, dropped = set[str](), list[str]()

    def check(match: re.Match[str]) -> str:
        labels = re.split("[,;] *", match[2])
        kept = [label for label in labels if label in known]
        cited.update(kept)
        dropped.extend(label for label in labels if label not in known)
        return match[1] + " ".join(f"[{label}]" for label in kept) if kept else ""

    text = work.written = _CITATION.sub(check, text)
    work.dropped = tuple(dropped)
    notes = [work.words["dropped"].format(labels=", ".join(dropped))] if dropped else []
    if not cited:
        notes.append(work.words["sources"].format(labels=" ".join(f"[{label}]" for label in sorted(known))))
    return "\n\n".join([text, *notes])
