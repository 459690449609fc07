"""A job as it is wished for, and everything that is looked at before it is made."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from itertools import islice

from adapters.chat import ChatAdapter
from adapters.places import HasPlaces
from bot.jobs.calendar import BadSchedule, Occurrence, Schedule, parse_schedule
from bot.jobs.job import JobSpec, build_report_thread, parse_place

NAME_FORM = "a job's name has 1 to 63 lower-case letters, digits and '-', such as 'daily-shop'"
TASK_MAX = 4000
SHORTEST_DEADLINE_S, LONGEST_DEADLINE_S = 30.0, 3600.0
LONGEST_GRACE_S = 604_800.0
SHOWN_TIMES = 5
"""How many of its next times a person is shown before a job is made."""

IsTaken = Callable[[str], Awaitable[bool]]
"""Tells whether a name is that of a job."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class BadJob(ValueError):
    """What was asked for cannot be done; the message says what is wrong, and shows the right form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDraft:
    """A job as it is wished for; nothing of it is checked yet. An empty ``name`` is made up."""

    place: str
    spec: JobSpec
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedJob:
    """A job that can be made. Made by ``JobKeeper.check``.

    Args:
        name, place, spec: as they will be kept.
        channel: the channel's name for people, such as ``#ops``; empty when it is not known.
        next_five: its next times (fewer when there are no more).
        warnings: what could not be made sure of, a sentence each.
    """

    name: str
    place: str
    spec: JobSpec
    channel: str
    next_five: tuple[Occurrence, ...]
    warnings: tuple[str, ...] = ()


class DraftChecks:
    """Looks at drafts; changes nothing.

    Args:
        adapters: the configured platforms by name; those with ``HasPlaces`` are asked about a channel.
        targets, workers, templates: the names that a job may use.
        is_taken: whether a job has a name already.
    """

    def __init__(
        self,
        *,
        adapters: Mapping[str, ChatAdapter],
        targets: Collection[str],
        workers: Collection[str],
        templates: Collection[str],
        is_taken: IsTaken,
    ) -> None:
        self._adapters = adapters
        self._targets = tuple(targets)
        self._workers = tuple(workers)
        self._templates = tuple(templates)
        self._is_taken = is_taken

    async def check(self, draft: JobDraft, *, now: datetime, of: str) -> CheckedJob:
        """See ``JobKeeper.check``."""
        spec, schedule = self._check_spec(draft.spec, now)
        place, channel, warnings = await self._check_place(draft.place)
        name = await self._check_name(draft.name, spec, of)
        return CheckedJob(
            name=name,
            place=place,
            spec=spec,
            channel=channel,
            next_five=tuple(islice(schedule.after(now), SHOWN_TIMES)),
            warnings=warnings,
        )

    def _check_spec(self, spec: JobSpec, now: datetime) -> tuple[JobSpec, Schedule]:
        try:
            schedule = parse_schedule(spec.cron, spec.zone, now=now)
        except BadSchedule as e:
            raise BadJob(str(e)) from None
        task = spec.task.strip()
        if not task:
            raise BadJob(
                "the task is empty; say what the report is to find out, such as 'what got slower since last week'"
            )
        if len(task) > TASK_MAX:
            raise BadJob(f"the task has {len(task)} characters; say it in at most {TASK_MAX}")
        if not SHORTEST_DEADLINE_S <= spec.deadline_s <= LONGEST_DEADLINE_S:
            raise BadJob(f"deadline_s is {spec.deadline_s:g}; it has to be from 30 to 3600 seconds, such as 600")
        if not 0 <= spec.grace_s <= LONGEST_GRACE_S:
            raise BadJob(f"grace_s is {spec.grace_s:g}; it has to be from 0 to 604800 seconds, such as 3600")
        return replace(
            spec,
            cron=schedule.cron,
            zone=schedule.zone,
            task=task,
            template=find_known(spec.template, self._templates, "template") if spec.template else "",
            workers=tuple(dict.fromkeys(find_known(one, self._workers, "worker") for one in spec.workers)),
            targets=tuple(dict.fromkeys(find_known(one, self._targets, "target") for one in spec.targets)),
        ), schedule

    async def _check_place(self, place: str) -> tuple[str, str, tuple[str, ...]]:
        place = place.strip()
        try:
            platform, workspace, channel = parse_place(place)
            build_report_thread(place, "", "")
        except ValueError:
            raise BadJob(
                f"{place[:100]!r} is not the address of a channel; write slack:TEAM/CHANNEL or discord:GUILD/CHANNEL, "
                "such as slack:T0123ABCD/C0123ABCD"
            ) from None
        adapter = self._adapters.get(platform)
        if adapter is None:
            raise BadJob(
                f"nothing can be posted to {place}: {platform} is not configured; "
                f"{name_known(platform, list(self._adapters), 'platforms')}"
            )
        if not isinstance(adapter, HasPlaces):
            return place, "", (f"whether I may post in {place} could not be looked up",)
        look = await adapter.look_at_channel(workspace, channel)
        if look.state in ("closed", "gone"):
            what = look.what or ("it is gone" if look.state == "gone" else "I may not post there")
            raise BadJob(
                f"nothing can be posted to {look.name or place}: {what}" + (f"; {look.fix}" if look.fix else "")
            )
        if look.state == "unknown":
            why = f" ({look.what})" if look.what else ""
            return place, look.name, (f"whether I may post in {look.name or place} could not be looked up{why}",)
        return place, look.name, ()

    async def _check_name(self, name: str, spec: JobSpec, of: str) -> str:
        own = of.strip().lower()
        if not name.strip():
            return own or await make_up_name(spec, self._is_taken)
        wished = name.strip().lower()
        if not _NAME.fullmatch(wished):
            raise BadJob(f"{name.strip()[:63]!r} cannot be a name: {NAME_FORM}")
        if wished != own and await self._is_taken(wished):
            free = await find_free_name(wished, self._is_taken)
            raise BadJob(f"there is a job {wished!r} already; choose another name, such as {free!r}")
        return wished


def find_known(name: str, known: Collection[str], kind: str) -> str:
    """Return the known name that is meant, whatever its case.

    Raises:
        BadJob: there is none; with what there is.
    """
    by_name = {one.lower(): one for one in known}
    if (found := by_name.get(name.strip().lower())) is not None:
        return found
    raise BadJob(
        f"there is no {kind} {name.strip()[:63]!r}; {name_known(name.strip().lower(), list(known), f'{kind}s')}"
    )


async def make_up_name(spec: JobSpec, is_taken: Callable[[str], Awaitable[bool]]) -> str:
    """Make up a free name of a job, from its template and targets."""
    words = "-".join([spec.template or "report", *spec.targets[:2]])
    return await find_free_name(re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:50] or "report", is_taken)


async def find_free_name(name: str, is_taken: Callable[[str], Awaitable[bool]]) -> str:
    """Return ``name``, or with a number that makes it free."""
    wished, n = name, 1
    while await is_taken(wished):
        n += 1
        wished = f"{name[:55].rstrip('-')}-{n}"
    return wished


def name_known(name: str, known: list[str], kind: str) -> str:
    """Say what there is, and which of it was probably meant."""
    if not known:
        return f"there are no {kind} yet"
    folded = {one.lower(): one for one in known}
    near = get_close_matches(name.lower(), folded, n=1)
    wish = f"did you mean {folded[near[0]]!r}? " if near else ""
    shown = ", ".join(sorted(known)[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    return f"{wish}there are: {shown}"


def find_next(spec: JobSpec, now: datetime) -> datetime | None:
    """Return the first time of a job after ``now``, None when there is none.

    Raises:
        BadJob: cron fields or zone cannot be read.
    """
    try:
        found = parse_schedule(spec.cron, spec.zone, now=now).next(now)
    except BadSchedule as e:
        raise BadJob(str(e)) from None
    return None if found is None else found.at
