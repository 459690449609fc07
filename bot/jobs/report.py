"""A time of a job that came is carried out: workers look, a report is written, and its thread gets the evidence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import structlog

from adapters.chat import Attachment, ChatAdapter, ThreadRef
from adapters.places import HasPlaces
from agent_core.context import RunContext
from agent_core.llm.pricing import PriceList
from agent_core.llm.provider import OFFLINE, Provider
from agent_core.llm.tokens import TokenCounter
from agent_core.memory.conversation import Conversation
from agent_core.prompts import Prompts
from agent_core.runtime.events import RunEvent
from agent_core.runtime.loop import AgentLoop
from agent_core.runtime.state import Step
from agent_core.supervisor import Finding, Supervisor, SupervisorRecord
from agent_core.tools.approval import Approver, Authorizer
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from agent_core.workers import Worker
from bot.access import AccessPolicy, Caller, UseTarget, decide, find_callers
from bot.answer import Answer
from bot.attachments import Attachments
from bot.jobs.brief import Brief, build_plan, choose_words, write_span, write_task
from bot.jobs.evidence import Evidence, ResultListener, build_evidence_files, build_history, collect_evidence
from bot.jobs.job import SETTINGS_OWNER, Firing
from bot.jobs.job_targets import JobAuthorizer, JobDeps
from bot.jobs.keeping import HERMOD, BadJob, JobKeeper
from bot.jobs.layout import lay_out
from bot.jobs.sequel import dump_sequel
from bot.jobs.templates import DEFAULT_TEMPLATE, Period, ReportTemplate
from bot.presenter import build_notice
from bot.storage.base import Store
from bot.tools.python_sandbox.show import find_output_id
from bot.tools.targets import Target

log = structlog.get_logger("hermod.report")

MOST_ASSIGNMENTS = 40
"""Into which a model may divide a report, however many targets it has."""

UNASKED = frozenset({"researcher"})
"""Workers that only a job that names them has: a report about databases needs no search of the web."""


class ReportRunner:
    """Makes the reports of jobs. One instance makes many at once.

    Its runs go through the journal of their context, so one that is resumed asks no model and runs no tool again. They
    may look at the job's targets only, and have no tool whose results are private.

    Args:
        provider, prices: who is asked, and what that costs.
        registry, authorizer, approver: the tools, and who may use them.
        workers: from ``build_workers``.
        prompts: the engine's templates.
        templates: of reports, by name.
        targets: all configured targets.
        policy: who may look at which of them.
        adapters: by platform; those with ``HasPlaces`` are asked whether a job's owner and channel are still there.
        store, keeper: where notices are queued, and who pauses jobs.
        counter: counts tokens.
        attachments: files that workers' programs made; None without a sandbox.
        max_parallel: workers of one report at a time.
    """

    def __init__(
        self,
        *,
        provider: Provider,
        registry: ToolRegistry,
        authorizer: Authorizer,
        workers: Mapping[str, Worker],
        prompts: Prompts,
        templates: Mapping[str, ReportTemplate],
        targets: Mapping[str, Target],
        policy: AccessPolicy,
        adapters: Mapping[str, ChatAdapter],
        store: Store,
        keeper: JobKeeper,
        counter: Callable[[], Awaitable[TokenCounter]],
        prices: PriceList | None = None,
        approver: Approver | None = None,
        attachments: Attachments | None = None,
        max_parallel: int = 4,
    ) -> None:
        self._executor = ToolExecutor(registry, authorizer=JobAuthorizer(authorizer, targets), approver=approver)
        self._loop = AgentLoop(provider=provider, executor=self._executor, prices=prices)
        self._workers = {name: _without(worker, self._executor.is_private) for name, worker in workers.items()}
        self._prompts, self._templates = prompts, templates
        self._targets, self._policy, self._adapters = targets, policy, adapters
        self._store, self._keeper, self._counter = store, keeper, counter
        self._attachments, self._max_parallel = attachments, max_parallel

    async def run(self, ctx: RunContext, firing: Firing) -> Answer:
        """Make a report: its headline is the answer's text, and its body, files and evidence are the sequel.

        A job whose owner or channel is gone is paused instead, and that is said. Limits and failing models become part
        of the report; they are not raised.

        Args:
            ctx: of the run; the job's own deadline replaces its.
            firing: what is to be carried out.

        Raises:
            asyncio.CancelledError: somebody stopped it.
            StoreError: the storage cannot be used.
        """
        if (paused := await self._look(ctx, firing)) is not None:
            return paused
        callers = find_callers(ctx.deps)
        brief = self._prepare(firing, callers)
        if isinstance(brief, Answer):
            return brief
        heard, emit = ResultListener(), ctx.emit

        def follow(event: RunEvent) -> None:
            heard.on_event(event)
            emit(event)

        ctx = replace(
            ctx,
            deadline=ctx.clock.monotonic() + firing.spec.deadline_s,
            limits=replace(ctx.limits, run_deadline_s=firing.spec.deadline_s),
            deps=JobDeps(callers=callers, targets=frozenset(brief.targets)),
            emit=follow,
            steering=None,
            cache_scope="",
        )
        supervisor = Supervisor(
            loop=self._loop,
            executor=self._executor,
            workers=brief.workers,
            prompts=self._prompts,
            max_assignments=min(MOST_ASSIGNMENTS, max(8, 3 * len(brief.targets) + 2)),
            max_parallel=self._max_parallel,
            plan=build_plan(brief),
        )
        done = await supervisor.run(ctx, write_task(brief), Conversation())
        return await self._finish(ctx, brief, done, heard)

    async def decline(self, firing: Firing, reason: str) -> Answer:
        """Pause a job whose owner may not have its reports any more, and say so where they were posted."""
        await self._pause(firing, reason)
        owner = firing.author.name or firing.author.id
        text = choose_words(firing.spec.task)["denied"].format(job=firing.job, owner=owner, reason=reason)
        return Answer(text=text, error="denied", reason=reason)

    # -- before --------------------------------------------------------------------------------------

    async def _look(self, ctx: RunContext, firing: Firing) -> Answer | None:
        """Pause the job where its owner is gone, or its channel gone or closed; None where the report can be made."""
        at, adapter = firing.thread, self._adapters.get(firing.thread.platform)
        if adapter is None or not isinstance(adapter, HasPlaces):
            return None
        words = choose_words(firing.spec.task)
        channel = await adapter.look_at_channel(at.workspace, at.channel)
        if channel.state in ("gone", "closed"):
            place = channel.name or f"{at.platform}:{at.workspace}/{at.channel}"
            why = f" ({channel.what})" if channel.what else ""
            reason = words[f"channel_{channel.state}_reason"].format(place=place)
            reason = "; ".join(filter(None, [f"{reason}{why}", channel.fix]))
            thread_key = await self._pause(firing, reason)
            said = words[f"channel_{channel.state}"].format(job=firing.job, place=f"{place}{why}")
            said = f"{said} ({channel.fix})" if channel.fix else said
            await self._tell_elsewhere(ctx, firing, thread_key, said)
            return Answer(text="", error="paused", reason=reason)
        if firing.author == SETTINGS_OWNER:
            return None
        person = await adapter.look_at_person(at.workspace, firing.author.id)
        if person.state != "gone":
            return None
        owner = firing.author.name or firing.author.id
        reason = words["owner_reason"].format(owner=owner)
        await self._pause(firing, reason)
        text = words["owner_gone"].format(job=firing.job, owner=owner)
        return Answer(text=text, error="paused", reason=reason)

    async def _pause(self, firing: Firing, reason: str) -> str:
        """Pause the job, unless it is another one by now; return where notices about it go."""
        try:
            row = await self._keeper.find(firing.job)
            if row.job_id == firing.job_id:
                log.warning("job_paused", job=firing.job, reason=reason)
                return (await self._keeper.pause(firing.job, reason, by=HERMOD)).thread_key
        except BadJob:
            log.info("job_gone", job=firing.job)  # deleted since: then there is nothing to pause
        return ""

    async def _tell_elsewhere(self, ctx: RunContext, firing: Firing, thread_key: str, text: str) -> None:
        """Say it where the job was asked for, or was told to run; the log has it where that is in the same channel."""
        for key in filter(None, (thread_key, firing.asked_in)):
            thread = ThreadRef.parse_key(key)
            here = (firing.thread.platform, firing.thread.workspace, firing.thread.channel)
            if (thread.platform, thread.workspace, thread.channel) != here:
                notice = build_notice(thread, text, key=f"{ctx.run_id}/gone", now=ctx.clock.now())
                await self._store.add_outbox(notice)
                return
        log.error("job_paused_untold", job=firing.job, text=text)

    def _prepare(self, firing: Firing, callers: Sequence[Caller]) -> Brief | Answer:
        """Work out what the report is about, or why it cannot be made."""
        spec, words = firing.spec, choose_words(firing.spec.task)
        name = spec.template or DEFAULT_TEMPLATE
        template = self._templates.get(name)
        if template is None:
            known = ", ".join(sorted(self._templates))
            text = words["no_template"].format(job=firing.job, name=name, known=known)
            return Answer(text=text, error="template", reason=f"there is no template {name!r}")
        wanted = set(spec.workers) or self._workers.keys() - UNASKED
        workers = {n: w for n, w in self._workers.items() if n in wanted}
        if not workers:
            text = words["no_workers"].format(job=firing.job, known=", ".join(sorted(self._workers)))
            return Answer(text=text, error="workers", reason="none of its workers is there")
        targets = spec.targets or self._list_targets(callers)
        if not targets:
            text = words["no_targets"].format(job=firing.job)
            return Answer(text=text, error="denied", reason="no target is open to its channel")
        period = Period(start=firing.sent_at - template.length, end=firing.sent_at, zone=spec.zone)
        values = {
            "job": firing.job,
            "task": spec.task.strip() or firing.job,
            "targets": ", ".join(targets),
            "period": period.range,
            "before": period.shift(template.length),
            "week_before": period.shift(timedelta(days=7)),
            "span": write_span(period, words["until"]),
        }
        return Brief(
            firing=firing, template=template, targets=tuple(targets), workers=workers, values=values, words=words
        )

    def _list_targets(self, callers: Sequence[Caller]) -> tuple[str, ...]:
        """List the targets that everybody who asked may use: databases, or else logs and files."""
        mine = [
            target
            for name, target in self._targets.items()
            if callers and all(decide(self._policy, c, action=UseTarget(name=name)).allowed for c in callers)
        ]
        databases = [target.name for target in mine if target.engine in ("postgresql", "mysql")]
        return tuple(databases or [target.name for target in mine])

    # -- after ---------------------------------------------------------------------------------------

    async def _finish(self, ctx: RunContext, brief: Brief, done: SupervisorRecord, heard: ResultListener) -> Answer:
        record, redact = done.record, ctx.redactor.redact
        kind = "" if record.error is None else record.error.kind
        author = f"{brief.firing.thread.platform}:{brief.firing.author.id}"
        if not done.findings:
            said = brief.words["failed"].format(reason=record.error, run_id=ctx.run_id)
            return Answer(text=f"{brief.title}\n{said}", error=kind or "failed", record=record, author=author)
        evidence = await collect_evidence(
            ctx, done.findings, heard, is_private=self._executor.is_private, is_offline=_is_offline
        )
        report = lay_out(
            redact(brief.title),
            redact(done.written),
            evidence,
            chinese=brief.chinese,
            zone=brief.firing.spec.zone,
            dropped=done.dropped,
            reason="" if done.written else _why_unwritten(done, brief),
        )
        headline, body = redact(report.headline), redact(report.body)  # the reason of a failure as well
        task = redact(f"{brief.title}\n\n{brief.values['task']}")
        said = "\n\n".join(filter(None, [headline, body]))
        count = Conversation(await self._counter()).count
        history = await asyncio.to_thread(build_history, task, evidence, said, count=count)
        sequel = dump_sequel(
            body,
            files=await self._build_files(ctx, evidence) if body else (),
            history=history.messages,
            outputs=history.outputs,
        )
        why = f"it was posted, but cut short: {record.error}" if kind else _name_gaps(evidence)
        return Answer(text=headline, error=kind, reason=why, record=record, author=author, sequel=sequel)

    async def _build_files(self, ctx: RunContext, evidence: Sequence[Evidence]) -> tuple[Attachment, ...]:
        files = list(await asyncio.to_thread(build_evidence_files, evidence))
        made = [
            (one.finding.record.run_id, output_id)
            for one in evidence
            for call in one.calls
            if one.finding.record is not None and (output_id := find_output_id(call.result.content))
        ]
        if made and self._attachments is not None:
            files[:0] = self._attachments.build(await self._attachments.load_made(ctx.thread_id, made))
        redact = ctx.redactor.redact
        return tuple(replace(f, content=redact(f.content)) if f.encoding == "text" else f for f in files)


def _without(worker: Worker, is_private: Callable[[str], bool]) -> Worker:
    """Take the tools from a worker whose results may stand neither in a history nor in what is posted for everybody."""
    tools = tuple(name for name in worker.agent.tools or () if not is_private(name))
    return replace(worker, agent=replace(worker.agent, tools=tools))


# -- who wrote it --------------------------------------------------------------------------------------


def _models(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.kind == "model"]


def _is_offline(finding: Finding) -> bool:
    models = [] if finding.record is None else _models(finding.record.steps)
    return bool(models) and models[-1].name == OFFLINE


def _name_gaps(evidence: Sequence[Evidence]) -> str:
    """Say in a line how much was not found out, and the first reason; empty where nothing went wrong."""
    gaps = [one.gap for one in evidence if one.gap and not one.expected]
    return f"{len(gaps)} of {len(evidence)} parts came to nothing, or not to all: {gaps[0]}" if gaps else ""


def _why_unwritten(done: SupervisorRecord, brief: Brief) -> str:
    """Say why nobody put the findings together; empty where no model was meant to."""
    planning = [step for step in _models(done.record.steps) if step.purpose == "plan"]
    if planning and planning[-1].name == OFFLINE:
        return ""
    failed = [step.error for step in _models(done.record.steps) if step.purpose == "synthesis" and step.error]
    if failed:
        return failed[-1]
    return brief.words["no_model"] if done.record.error is None else str(done.record.error)
