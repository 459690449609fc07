"""What a scheduled job does, and when: the part of a job that people write."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import TypeAdapter
from pydantic_core import to_json

from adapters.chat import COMMAND_THREAD, Author, ThreadRef
from bot.jobs.calendar import Occurrence
from bot.jobs.due import CatchUp

SETTINGS_OWNER = Author(id="settings", name="hermod.toml")
"""Who is behind a job of the settings: the operator."""

REPORT_THREAD = f"{COMMAND_THREAD}report-"
"""Begins the ``thread`` of a report until its headline is posted: it stands in the channel itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job as it is asked for.

    Args:
        cron, zone: when, see ``bot.jobs.calendar``.
        task: what the report is to find out.
        template: the report's template by name; empty: the default one.
        workers, targets: by name; empty: all that the owner may use there.
        catch_up, grace_s: see ``bot.jobs.due``.
        overlap: what happens to a time while an earlier one is not over.
        deadline_s: how long making the report may take.
    """

    cron: str
    zone: str
    task: str
    template: str = ""
    workers: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    catch_up: CatchUp = "latest"
    grace_s: float = 3600.0
    overlap: Literal["skip", "queue"] = "skip"
    deadline_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """A time of a job that came, as the inbox keeps it. It is carried out like a message of the job's owner.

    Args:
        thread: where it is carried out, see ``build_report_thread``.
        id: names the firing in its channel, like the id of a message.
        author: the owner, with whose rights the report is made.
        job_id, job: the job, and its name.
        run_key: of the occurrence.
        local: the local time for people, such as ``2026-03-29 09:00 +02:00``; empty when a person asked for it.
        spec: the job as it was when it fired.
        sent_at: when it was due, aware UTC.
        asked_in: key of the thread where a person asked to run it now; empty for the clock.
    """

    thread: ThreadRef
    id: str
    author: Author
    job_id: str
    job: str
    run_key: str
    local: str
    spec: JobSpec
    sent_at: datetime
    asked_in: str = ""


_SPEC = TypeAdapter(JobSpec)


def dump_spec(spec: JobSpec) -> str:
    """Write a spec as JSON text."""
    return to_json(spec).decode()


def load_spec(text: str) -> JobSpec:
    """Read what ``dump_spec`` wrote.

    Raises:
        ValueError: it is something else.
    """
    return _SPEC.validate_json(text)


def parse_place(place: str) -> tuple[str, str, str]:
    """Read ``slack:T1/C1`` as platform, workspace and channel.

    Raises:
        ValueError: it is not such an address.
    """
    platform, colon, rest = place.partition(":")
    workspace, slash, channel = rest.partition("/")
    if not (colon and slash and platform and workspace and channel) or "/" in channel:
        raise ValueError(
            f"not the address of a channel: {place!r} (expected slack:TEAM/CHANNEL or discord:GUILD/CHANNEL)"
        )
    return platform, workspace, channel


def build_report_thread(place: str, job_id: str, run_key: str) -> ThreadRef:
    """Return where a time of a job is carried out: a thread of its own, whose posts stand in the channel itself.

    Raises:
        ValueError: ``place`` is not the address of a channel.
    """
    platform, workspace, channel = parse_place(place)
    digest = hashlib.blake2b(f"{job_id}\0{run_key}".encode(), digest_size=8).hexdigest()
    return ThreadRef(platform=platform, workspace=workspace, channel=channel, thread=f"{REPORT_THREAD}{digest}")


def build_firing(
    place: str,
    *,
    author: Author,
    job_id: str,
    job: str,
    spec: JobSpec,
    occurrence: Occurrence,
    asked_in: str = "",
) -> Firing:
    """Build the firing of a job for one occurrence.

    Raises:
        ValueError: ``place`` is not the address of a channel.
    """
    thread = build_report_thread(place, job_id, occurrence.key)
    return Firing(
        thread=thread,
        id=thread.thread,
        author=author,
        job_id=job_id,
        job=job,
        run_key=occurrence.key,
        local=occurrence.local,
        spec=spec,
        sent_at=occurrence.at,
        asked_in=asked_in,
    )
