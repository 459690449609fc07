"""Jobs in words for people: proposals, what was done, lists. Canonical Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Literal
from zoneinfo import ZoneInfo

from bot.jobs.calendar import Occurrence, parse_schedule
from bot.jobs.draft import CheckedJob
from bot.jobs.job import JobSpec, load_spec
from bot.jobs.proposals import PROPOSAL_S, load_wanted
from bot.storage.jobs import JobRow, JobRunRow, JobState, Proposal

if TYPE_CHECKING:
    from bot.jobs.desk import ListedJob

TASK_SHOWN = 300
SHOWN_TIMES = 3

_CATCH_UP = {
    "none": "a missed time is left out",
    "latest": "of missed times the latest one is made up for, up to {grace} late",
    "all": "missed times are made up for, up to {grace} late",
}
_OVERLAP = {
    "skip": "a time is skipped while an earlier report is not over",
    "queue": "a time waits while an earlier report is not over",
}


def tell_policies(spec: JobSpec) -> str:
    """Say what becomes of missed times, and of one that comes while an earlier report is being made."""
    hours = spec.grace_s / 3600
    grace = f"{hours:g} h" if hours >= 1 else f"{spec.grace_s / 60:g} min"
    return f"{_CATCH_UP[spec.catch_up].format(grace=grace)}; {_OVERLAP[spec.overlap]}"


def tell_wait(command: str) -> str:
    """Say how a proposal is confirmed; ``command``: how ``jobs`` is written there, see ``JobDesk.slash_of``."""
    words = (f"`{command} confirm`", f"`{command} cancel`") if command.startswith("/") else ("`confirm`", "`cancel`")
    return f"Write {words[0]} within {PROPOSAL_S / 60:g} minutes to have it done, or {words[1]}."


def tell_others(proposals: Sequence[Proposal]) -> str:
    """Say whose word is needed, to somebody for whom nothing waits in a place."""
    waiting = [_tell_asker(proposal) for proposal in proposals]
    listed = f"{', '.join(waiting[:-1])} and {waiting[-1]}" if len(waiting) > 1 else waiting[0]
    return (
        f"Nothing has changed. What I proposed here waits for the word of the person who asked for it: {listed}. "
        "Ask me for it yourself if you want it in their place."
    )


def _tell_asker(proposal: Proposal) -> str:
    user = proposal.author.partition(":")[2]
    try:
        wanted = load_wanted(proposal.body)
    except ValueError:
        return user
    return f"{wanted.by or user} (to {wanted.action} `{wanted.renamed or wanted.name}`)"


def tell_proposal(checked: CheckedJob, *, owner: str, command: str, action: Literal["make", "change"]) -> str:
    """Show a job as it is to be, and how it is confirmed."""
    lines = [f"**New job `{checked.name}`.** Nothing is scheduled before it is confirmed.", ""]
    if action == "change":
        lines = [f"**The job `{checked.name}` as it is to be.** Nothing is changed before it is confirmed.", ""]
    lines += [
        f"- where: {_place(checked.place, checked.channel)}",
        f"- next times: {join_times(checked.next_five)}",
        *_tell_spec(checked.spec),
        f"- owner: {owner}, with whose rights the report is made",
        *(f"- beware: {warning}" for warning in checked.warnings),
    ]
    return "\n".join([*lines, "", tell_wait(command)])


def tell_deletion(row: JobRow, command: str) -> str:
    """Say that a job is to be deleted, and how that is confirmed."""
    return f"The job `{row.name}` ({tell_when(row)}) is to be deleted. {tell_wait(command)}"


def tell_stopping(row: JobRow, command: str) -> str:
    """Say that a report is told to end."""
    return (
        f"The report of `{row.name}` is being stopped; its channel is told when it has ended. The job goes on: "
        f"`{command} pause {row.name}` would pause it."
    )


def tell_made(row: JobRow, checked: CheckedJob, command: str) -> str:
    """Say that a job was made."""
    return (
        f"The job `{row.name}` is scheduled: {tell_when(row)}, in {_place(checked.place, checked.channel)}. "
        f"Next times: {join_times(checked.next_five[:SHOWN_TIMES])}.\n{_tell_hold(row, command)}"
    )


def tell_changed(row: JobRow, checked: CheckedJob, command: str) -> str:
    """Say that a job was changed."""
    paused = " It is still paused." if row.state is JobState.PAUSED else ""
    return (
        f"The job `{row.name}` is changed: {tell_when(row)}, in {_place(checked.place, checked.channel)}; its owner is "
        f"{row.owner_name} now.{paused} Next times: {join_times(checked.next_five[:SHOWN_TIMES])}.\n"
        f"{_tell_hold(row, command)}"
    )


def tell_deleted(row: JobRow) -> str:
    """Say that a job was deleted."""
    return f"The job `{row.name}` is deleted; a report of it that is being made is still posted."


def tell_state(row: JobRow) -> str:
    """``active``, or why it is paused."""
    return "active" if row.state is JobState.ACTIVE else f"paused ({row.reason})"


def tell_outcome(run: JobRunRow) -> str:
    """What became of a time of a job in a line: ``done``, or ``failed: `` and why."""
    why = run.reason or run.error
    if run.state == "failed" and not run.error:
        why = f"it could not be posted: {why or 'the platform refused it'}"
    return f"{run.state}: {why}" if why else run.state


def tell_when(row: JobRow) -> str:
    """The cron fields and the zone of a job."""
    spec = read_spec_or_none(row)
    return "unreadable" if spec is None else f"`{spec.cron}` {spec.zone}"


def tell_last(job: ListedJob) -> str:
    """When a job was last due, and what became of that; ``never ran`` before the first time."""
    if job.run is None:
        return "never ran"
    return f"{tell_instant(job.run.fired_at, job.row)} ({tell_outcome(job.run)})"


def tell_instant(instant: datetime, row: JobRow) -> str:
    """An instant in the zone of a job: ``2026-03-29 09:00 +02:00``."""
    spec = read_spec_or_none(row)
    try:
        zone = ZoneInfo("UTC" if spec is None else spec.zone)
    except (KeyError, ValueError):
        zone = ZoneInfo("UTC")
    local = instant.astimezone(zone)
    offset = f"{local:%z}"
    return f"{local:%Y-%m-%d %H:%M} {offset[:3]}:{offset[3:5]}"


def tell_list(jobs: Sequence[ListedJob], *, place: str, command: str) -> str:
    """List jobs, one a line."""
    if not jobs:
        return f"There are no jobs here yet. For example: `{command} add every weekday at 9 in Berlin: database report`"
    lines = ["Scheduled jobs:"]
    for job in jobs:
        row = job.row
        elsewhere = "" if row.place == place else f", in {row.place}"
        coming = (
            "" if row.state is JobState.PAUSED or row.next_at is None else f", next {tell_instant(row.next_at, row)}"
        )
        last = tell_last(job) if job.run is None else f"last {tell_last(job)}"
        lines.append(
            f"- `{row.name}`: {tell_when(row)}{elsewhere}, {tell_state(row)}{coming}; owner {_owner(row)}; {last}"
        )
    return "\n".join(
        [*lines, "", f"`{command} show NAME` tells more; `pause`, `resume`, `run`, `stop`, `edit`, `delete` work too."]
    )


def tell_job(job: ListedJob, *, now: datetime) -> str:
    """Show one job whole."""
    row, spec = job.row, read_spec_or_none(job.row)
    lines = [f"**Job `{row.name}`**, {tell_state(row)}", "", f"- where: {row.place}", f"- owner: {_owner(row)}"]
    if spec is None:
        return "\n".join([*lines, "- what it does cannot be read; delete it and make it again"])
    lines += _tell_spec(spec)
    times = parse_schedule(spec.cron, spec.zone, now=now).after(now)
    if row.state is JobState.ACTIVE:
        lines.append(f"- next times: {join_times(islice(times, SHOWN_TIMES))}")
    return "\n".join([*lines, f"- last: {tell_last(job)}"])


def read_spec_or_none(row: JobRow) -> JobSpec | None:
    """What a job does; None where that cannot be read."""
    try:
        return load_spec(row.spec)
    except ValueError:
        return None


def _tell_spec(spec: JobSpec) -> list[str]:
    task = " ".join(spec.task.split())
    shown = task if len(task) <= TASK_SHOWN else f"{task[:TASK_SHOWN]}…"
    made = [f"template {spec.template}"] if spec.template else []
    made += [f"targets {', '.join(spec.targets)}"] if spec.targets else []
    return [
        f"- when: `{spec.cron}` in {spec.zone}",
        f"- what: {shown}" + (f" ({'; '.join(made)})" if made else ""),
        f"- policy: {tell_policies(spec)}",
    ]


def _tell_hold(row: JobRow, command: str) -> str:
    words = f"`{command} pause {row.name}`", f"`{command} delete {row.name}`"
    said = "" if command.startswith("/") else "Mention me with "
    return f"{said}{words[0]} to pause it, {words[1]} to delete it."


def join_times(times: Iterable[Occurrence]) -> str:
    """Times of a job in a line, ``none`` where there are no more."""
    return "; ".join(time.local for time in times) or "none"


def _place(place: str, channel: str) -> str:
    return f"{channel} ({place})" if channel else place


def _owner(row: JobRow) -> str:
    return row.owner_name or row.owner or "the settings"
