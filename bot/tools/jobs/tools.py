"""The tools of this folder, as a model sees them.

They count as READ. A new job, an edit and a deletion change nothing: they are kept as a proposal that the person who
asked has to confirm in the same thread, in words that no model writes. Pausing, resuming and running now are done at
once, since they are undone as easily, for people of the job's channel only; each is a line of the audit chain. As WRITE
tools they would be closed to everybody until ``[access] tools`` names them, and ask a second time for what is asked for
by the confirmation already. ``[access] tools`` applies to them by name all the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, assert_never

from pydantic import BaseModel, BeforeValidator, Field

from agent_core.context import RunContext
from agent_core.errors import ToolFailed
from agent_core.llm.types import ToolExample
from agent_core.tools.registry import ToolRegistry
from bot.access import LOCAL_PLATFORM
from bot.jobs.desk import CHANGE, LIST, SCHEDULE, Asking, JobDesk, ListedJob
from bot.jobs.job import Firing
from bot.jobs.keeping import BadJob, CheckedJob
from bot.jobs.telling import (
    join_times,
    read_spec_or_none,
    tell_instant,
    tell_last,
    tell_policies,
    tell_state,
    tell_stopping,
    tell_wait,
)
from bot.jobs.wishes import JobWish
from bot.storage.jobs import JobRow, JobState
from bot.turn import Turn

SCHEDULE_DESCRIPTION = """\
Schedule a report. It is posted here at the given times, but for now only proposed: show the person the whole answer \
with the next times, and tell them to write `confirm`. Never say that it is scheduled."""

LIST_DESCRIPTION = "List the scheduled jobs (reports) of this channel: when, next time, state, owner."

CHANGE_DESCRIPTION = """\
Pause, resume, run, edit, delete a scheduled job, or stop its running report. Edit, delete wait for `confirm`."""

_MENTION = r"\s*(?:<@[^>]*>\s*)?"
_QUESTION = re.compile(
    _MENTION + r"(?:when|why|who|whose|where|what|which|how|does|did|is|was|has|should)\b"
    r"(?!\s+(?:about|not|don'?t|possible|it\s+possible))[^.!?;,\n]*[.!?\s]*",
    re.IGNORECASE,
)
_ZH_QUESTION = re.compile(r"什么时候|何时|几点|为什么|谁|怎么|吗[？?。\s]*\Z")
_ZH_ORDER = re.compile(r"请|帮|能|可以|[，,。；;].")
_FORBIDS = re.compile(_MENTION + r"(?:please\s+)?(?:don['’]?t|do\s+not|never)\b|.{0,20}(?:不要|别)", re.IGNORECASE)

ONE_PERSON = "several people asked at once, and a job belongs to one; let one of them ask for it alone"
NOT_FROM_REPORT = "a report makes and changes no jobs; a person has to ask for it"


def _none_is_nothing(value: object) -> object:
    if value is None:
        return ""
    return value.replace("\0", " ") if isinstance(value, str) else value


_Text = Annotated[str, BeforeValidator(_none_is_nothing)]
"""A text that may be left out (a schema without null is half as long), without a sign that no database takes."""


class ScheduleArguments(BaseModel):
    """Arguments of ``schedule_report``."""

    when: Annotated[
        str,
        Field(description="The person's words, e.g. 'every weekday at 9 in Berlin', '每周一8点半', or cron fields."),
    ]
    task: Annotated[_Text, Field(description="What to find out.")] = ""
    timezone: Annotated[_Text, Field(description="If `when` has none.")] = ""
    template: _Text = ""
    targets: list[str] = []
    name: _Text = ""
    channel: Annotated[_Text, Field(description="Address; default: here.")] = ""


class ListArguments(BaseModel):
    """Arguments of ``list_jobs``."""


_ALIASES = {"暂停": "pause", "恢复": "resume", "运行": "run", "删除": "delete", "remove": "delete", "run_now": "run"}


def _read_alias(value: object) -> object:
    return _ALIASES.get(value, value) if isinstance(value, str) else value


class ChangeArguments(BaseModel):
    """Arguments of ``change_job``; ``when`` and ``task`` are for ``edit``."""

    name: str
    action: Annotated[
        Literal["pause", "resume", "run", "stop", "delete", "edit"],
        BeforeValidator(_read_alias),
        # further words that mean them, for a reader that only finds words
        Field(
            json_schema_extra={
                "enum": ["pause", "resume", "run", "stop", "delete", "edit", "暂停", "恢复", "运行", "删除", "remove"]
            }
        ),
    ]
    when: _Text = ""
    task: _Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedJob:
    """A job that waits to be confirmed, in the order in which it is shown. ``next_times``: local, with their offsets.

    They and ``targets`` are texts: a list would be shown before everything that is none.
    """

    ok: Literal[True] = True
    status: str
    job: str
    channel: str
    next_times: str
    cron: str
    timezone: str
    owner: str
    task: str
    template: str
    targets: str
    policy: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """A job of the list; ``next`` and ``last_run`` are local times of its zone."""

    name: str
    when: str
    next: str | None
    state: str
    owner: str
    channel: str
    last_run: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLines:
    """The answer of ``list_jobs``."""

    ok: Literal[True] = True
    rows: tuple[JobLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was done, or waits to be confirmed, in a sentence."""

    ok: Literal[True] = True
    result: str


def register_job_tools(registry: ToolRegistry, desk: JobDesk, *, templates: Sequence[str] = ()) -> None:
    """Register ``schedule_report``, ``list_jobs`` and ``change_job``.

    Args:
        registry: where they go.
        desk: does what they ask for.
        templates: names of the reports' templates, for the model.

    Raises:
        ConfigError: the names are taken.
    """

    async def schedule_report(ctx: RunContext, arguments: ScheduleArguments) -> ProposedJob:
        asking, said = _read_asking(ctx)
        wish = JobWish(
            when=arguments.when,
            task=arguments.task,
            timezone=arguments.timezone,
            template=arguments.template,
            targets=tuple(arguments.targets),
            name=arguments.name,
            channel=arguments.channel,
            said=said,
        )
        try:
            checked = await desk.propose_new(asking, wish)
        except BadJob as e:
            raise _refuse(e) from None
        return _build_proposed(checked, asking, f"Only proposed. {tell_wait(desk.slash_of(asking))}")

    async def list_jobs(ctx: RunContext, arguments: ListArguments) -> JobLines:
        asking, _ = _read_asking(ctx)
        try:
            return JobLines(rows=tuple(_build_line(job) for job in await desk.list(asking)))
        except BadJob as e:
            raise _refuse(e) from None

    async def change_job(ctx: RunContext, arguments: ChangeArguments) -> Done | ProposedJob:
        asking, said = _read_asking(ctx)
        try:
            return await _change(desk, asking, arguments, said)
        except BadJob as e:
            raise _refuse(e) from None

    registry.register(
        schedule_report,
        name=SCHEDULE,
        description=f"{SCHEDULE_DESCRIPTION} Templates: {', '.join(templates)}." if templates else SCHEDULE_DESCRIPTION,
        arguments=ScheduleArguments,
        examples=_SCHEDULE_EXAMPLES,
    )
    registry.register(
        list_jobs, name=LIST, description=LIST_DESCRIPTION, arguments=ListArguments, examples=_LIST_EXAMPLES
    )
    registry.register(
        change_job, name=CHANGE, description=CHANGE_DESCRIPTION, arguments=ChangeArguments, examples=_CHANGE_EXAMPLES
    )


def _read_asking(ctx: RunContext) -> tuple[Asking, str]:
    """Return who asks, where, and all that they said in this turn.

    Raises:
        ToolFailed: that is nobody, several people, or a report.
    """
    turn = ctx.deps
    if not isinstance(turn, Turn) or not turn.inbound:
        raise ToolFailed("I cannot tell who asks", code="bad_job", fix="use `hermod jobs` at the command line")
    if any(isinstance(heard, Firing) for heard in turn.inbound):
        raise ToolFailed(NOT_FROM_REPORT, code="bad_job")
    if len({heard.author.id for heard in turn.inbound}) > 1:
        raise ToolFailed(ONE_PERSON, code="bad_job")
    if turn.thread.platform == LOCAL_PLATFORM:
        raise ToolFailed(
            "a report is posted to a channel, and here is none", code="bad_job", fix="use `hermod jobs`, or ask in chat"
        )
    said = "\n".join(text for heard in turn.inbound if isinstance(text := getattr(heard, "text", None), str))
    return Asking(thread=turn.thread, author=turn.inbound[-1].author), said


async def _change(desk: JobDesk, asking: Asking, arguments: ChangeArguments, said: str) -> Done | ProposedJob:
    name, command = arguments.name, desk.slash_of(asking)
    if _only_asks(said) or (arguments.action in ("run", "stop") and _FORBIDS.match(said)):
        raise BadJob(
            f"that is no order to {arguments.action} the job, so nothing was done. `{command} show {name}` tells its "
            f"times and state; `{command} {arguments.action} {name}` has it done"
        )
    match arguments.action:
        case "pause":
            row = await desk.pause(asking, name)
            return Done(result=f"The job {row.name} is paused; `{command} resume {row.name}` lets it go on.")
        case "resume":
            return Done(result=_tell_resumed(await desk.resume(asking, name)))
        case "run":
            firing = await desk.run_now(asking, name)
            where = f"{firing.thread.platform}:{firing.thread.workspace}/{firing.thread.channel}"
            return Done(result=f"A report of {firing.job} is being made; it is posted in {where}.")
        case "stop":
            return Done(result=tell_stopping(await desk.stop(asking, name), command))
        case "delete":
            row = await desk.propose_delete(asking, name)
            return Done(result=f"The job {row.name} is not deleted yet. {tell_wait(command)}")
        case "edit":
            wish = JobWish(when=arguments.when, task=arguments.task, said=said)
            checked = await desk.propose_change(asking, name, wish)
            return _build_proposed(checked, asking, f"Not changed yet. {tell_wait(command)}")
        case _:
            assert_never(arguments.action)


def _only_asks(said: str) -> bool:
    """True for one question about a job: to find ``run`` in "when does it run?" is no reason to run it."""
    return _QUESTION.fullmatch(said) is not None or (
        _ZH_QUESTION.search(said) is not None and _ZH_ORDER.search(said) is None
    )


def _tell_resumed(row: JobRow) -> str:
    coming = "it has no further time" if row.next_at is None else f"its next time is {tell_instant(row.next_at, row)}"
    return f"The job {row.name} goes on; {coming}."


def _build_proposed(checked: CheckedJob, asking: Asking, status: str) -> ProposedJob:
    spec = checked.spec
    return ProposedJob(
        status=status,
        job=checked.name,
        channel=checked.channel or checked.place,
        next_times=join_times(checked.next_five),
        cron=spec.cron,
        timezone=spec.zone,
        owner=asking.author.name,
        task=spec.task,
        template=spec.template,
        targets=", ".join(spec.targets),
        policy=tell_policies(spec),
        warnings=checked.warnings,
    )


def _build_line(job: ListedJob) -> JobLine:
    row = job.row
    spec = read_spec_or_none(row)
    active = row.state is JobState.ACTIVE and row.next_at is not None
    return JobLine(
        name=row.name,
        when="unreadable" if spec is None else f"{spec.cron} {spec.zone}",
        next=tell_instant(row.next_at, row) if active and row.next_at is not None else None,
        state=tell_state(row),
        owner=row.owner_name or row.owner or "the settings",
        channel=row.place,
        last_run=None if job.run is None else tell_last(job),
    )


def _refuse(error: BadJob) -> ToolFailed:
    return ToolFailed(str(error), code="bad_job")


_SCHEDULE_EXAMPLES = tuple(
    ToolExample(question=question, arguments={"when": when or question})
    for question, when in (
        ("every weekday at 9 in Berlin post the database report here", ""),
        ("post the weekly report every monday at 8:15 Europe/Berlin", "every monday at 8:15 Europe/Berlin"),
        ("set up a report every friday at 17:00 UTC", "every friday at 17:00 UTC"),
        ("post our hourly report every 2 hours, UTC", "every 2 hours, UTC"),
        ("每个工作日早上9点（柏林）在这里发数据库报告", ""),
        ("安排定时报告：每周一8点半（北京时间）", "每周一8点半（北京时间）"),
        ("每天9点柏林时间发报告", "每天9点柏林时间"),
    )
)
_LIST_EXAMPLES = tuple(
    ToolExample(question=question, arguments={})
    for question in (
        "show me the scheduled jobs",
        "which reports are scheduled here?",
        "are there scheduled reports?",
        "list scheduled reports",
        "show scheduled reports",
        "有哪些定时任务？",
        "列出定时报告",
    )
)
_CHANGE_EXAMPLES = tuple(
    ToolExample(question=question, arguments={"name": name, "action": action})
    for question, name, action in (
        ("pause the job daily", "daily", "pause"),
        ("pause the scheduled report job weekly", "weekly", "pause"),
        ("resume the scheduled job daily", "daily", "resume"),
        ("run the job weekly now", "weekly", "run"),
        ("delete the job daily", "daily", "delete"),
        ("remove the scheduled job weekly", "weekly", "delete"),
        ("stop the job daily", "daily", "pause"),
        ("stop the report of daily that is being made", "daily", "stop"),
        ("暂停任务 daily", "daily", "pause"),
        ("恢复任务 daily", "daily", "resume"),
        ("立即运行任务 weekly", "weekly", "run"),
        ("删除任务 daily", "daily", "delete"),
    )
)
