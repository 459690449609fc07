"""What a person said of a job, read: the schedule, the zone, the task."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from bot.jobs.calendar import BadSchedule
from bot.jobs.draft import BadJob
from bot.jobs.job import JobSpec
from bot.jobs.phrases import BadPhrase, Unsayable, When, parse_when, read_around
from bot.jobs.zones import resolve_zone

USUAL_TASK = "a database report: slow queries, what got slower, and the health of indexes and tables"

_ORDER = re.compile(
    r"\A(?:please\s+)?(?:can\s+you\s+|could\s+you\s+)?(?:post|send|write|make|give|show|schedule|publish|deliver)\s+"
    r"(?:(?:me|us)\s+)?|\A(?:请)?(?:在(?:这里|这儿|本频道|此))?(?:发送|发布|发|写|做|生成)(?:一份|一个)?",
    re.IGNORECASE,
)
_PLACE_HERE = re.compile(
    r"\s*\b(?:here|(?:in|to|into)\s+(?:this|the)\s+(?:channel|thread)|please)\s*[.!]?\Z|(?:到这里|在这里|到本频道)\Z",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWish:
    """What a person said of a job; empty where they said nothing.

    Args:
        when: words or cron fields, see ``bot.jobs.phrases``; what else stands in them is the task.
        said: the whole message that ``when`` was taken from, for words that got lost on the way.
        channel: an address or a link; empty: where it was asked.
    """

    when: str = ""
    task: str = ""
    timezone: str = ""
    template: str = ""
    targets: tuple[str, ...] = ()
    name: str = ""
    channel: str = ""
    said: str = ""


def read_when(wish: JobWish) -> tuple[When, str]:
    """Return the schedule and the task of a new job.

    Raises:
        BadJob: the schedule cannot be read, or words of it are left over beside a task.
    """
    when, whole = _parse(wish)
    rest, task = tidy_task(when.rest), wish.task.strip()
    if task and rest and not whole and rest.casefold() not in task.casefold():
        raise BadJob(f"I cannot read {rest[:80]!r} as a part of the time; leave it out, or say it in other words")
    return when, task or rest or USUAL_TASK


def _parse(wish: JobWish) -> tuple[When, bool]:
    """Return the schedule, and whether it was read out of the whole message.

    Raises:
        BadJob: it cannot be read.
    """
    wished, said = wish.when.strip(), wish.said.strip()
    try:
        when = parse_when(wished)
        around = read_around(wished, said)
        if around is not None and around.cron == when.cron and when.zone is None:
            when = replace(when, zone=around.zone)
        return when, wished == said
    except Unsayable as e:
        raise BadJob(str(e)) from None
    except BadPhrase as refused:
        if wished and wished.casefold() in said.casefold():
            try:  # a word such as "every" may have got lost between the message and the argument
                return parse_when(said), True
            except BadPhrase as again:
                raise BadJob(str(again)) from None
        raise BadJob(str(refused)) from None


def tidy_task(text: str) -> str:
    """Return a task without the order around it: "post the database report here" is "the database report"."""
    text = _ORDER.sub("", text.strip(), count=1)
    while (shorter := _PLACE_HERE.sub("", text)) != text:
        text = shorter
    return text.strip(" \t\r\n,，.。:：;；")


def find_zone(when: When, named: str, usual: str = "") -> str:
    """Return the zone of a schedule; ``usual`` where none was said.

    Raises:
        BadJob: it was not said, there is none of that name, or two were said.
    """
    try:
        said = resolve_zone(named) if named.strip() else ""
    except BadSchedule as e:
        raise BadJob(str(e)) from None
    if said and when.zone and said != when.zone:
        raise BadJob(f"the time zone is {when.zone} in the words and {said} beside them; say one of them")
    zone = when.zone or said or usual
    if not zone and when.needs_zone:
        raise BadJob(
            "in which time zone? Say a city, such as 'every weekday at 9 in Berlin', or a zone: 'Europe/Berlin', 'UTC'"
        )
    return zone or "UTC"


def apply_edit(spec: JobSpec, wish: JobWish) -> JobSpec:
    """Return a job as it is to be; what the wish leaves out stays.

    Raises:
        BadJob: the schedule or the zone cannot be read.
    """
    task = wish.task.strip() or spec.task
    cron, zone = spec.cron, spec.zone
    if wish.when.strip():
        when, whole = _parse(wish)
        if not wish.task.strip() and not whole:
            task = tidy_task(when.rest) or spec.task
        cron, zone = when.cron, find_zone(when, wish.timezone, spec.zone)
    elif wish.timezone.strip():
        zone = find_zone(When(cron=cron, zone=None, rest=""), wish.timezone)
    return replace(
        spec,
        cron=cron,
        zone=zone,
        task=task,
        template=wish.template or spec.template,
        targets=wish.targets or spec.targets,
    )


def build_name(spec: JobSpec) -> str:
    """Build a name that people recognise a job by: how often it runs, and on what, as in ``weekday-shop``."""
    _, hour, of_month, _, of_week = spec.cron.split()
    if hour.startswith("*"):
        often = "hourly"
    elif of_month != "*" or "#" in of_week or "L" in of_week:
        often = "monthly"
    else:
        often = {"*": "daily", "MON-FRI": "weekday"}.get(of_week, "weekly")
    about = re.sub(r"[^a-z0-9]+", "-", (spec.targets[0] if spec.targets else "").lower()).strip("-")
    return f"{often}-{about[:30]}".rstrip("-")
