"""``hermod jobs``: the scheduled reports, looked at and changed from this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import islice
from pathlib import Path

from adapters.chat import AdapterError, ChatAdapter
from agent_core.context import Clock, SystemClock
from bot.app import open_storage
from bot.cli.setup import print_error, print_failure, print_json, print_text, set_up
from bot.installations import open_installations
from bot.jobs.building import build_configured, build_keeper
from bot.jobs.calendar import Occurrence, parse_schedule
from bot.jobs.draft import SHOWN_TIMES
from bot.jobs.job import SETTINGS_OWNER, JobSpec
from bot.jobs.keeping import OPERATOR, BadJob, JobDraft, JobKeeper, read_spec
from bot.jobs.telling import tell_outcome
from bot.jobs.workspaces import find_workspace
from bot.platforms import build_adapters
from bot.settings import Settings
from bot.storage.base import Store
from bot.storage.jobs import JobRow, JobRunRow, JobState

Change = Callable[[JobKeeper], Awaitable[JobRow]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """What the commands stand on. Made by ``open_jobs``."""

    settings: Settings
    store: Store
    clock: Clock
    keeper: JobKeeper


@asynccontextmanager
async def open_jobs(settings: Settings, adapters: Mapping[str, ChatAdapter]) -> AsyncIterator[Jobs]:
    """Open the storage, with the jobs of these settings in it.

    Raises:
        ConfigError, StoreError: the settings or the storage cannot be used.
    """
    clock = SystemClock()
    async with open_storage(settings) as store:
        if not await build_configured(settings, store, clock).sync(quick=True):
            print_error("hermod: a channel of [reports] could not be looked up, so its job is not there yet")
        keeper = build_keeper(settings, store, clock, adapters=adapters, wake=lambda: None)
        yield Jobs(settings=settings, store=store, clock=clock, keeper=keeper)


async def run_jobs_list(*, config: Path | None, as_json: bool) -> int:
    """``hermod jobs list``."""
    async with open_jobs(set_up(config), {}) as jobs:
        rows = await jobs.store.list_jobs()
        last = {run.job_id: run for run in await jobs.store.list_last_runs()}
    if as_json:
        runs = [None if row.job_id not in last else _describe_run(last[row.job_id]) for row in rows]
        print_json({"items": [{**describe_job(row), "last": run} for row, run in zip(rows, runs, strict=True)]})
        return 0
    for row in rows:
        run = last.get(row.job_id)
        print_text(_summarise(row) + ("" if run is None else f"  last {_instant(run.fired_at)} {tell_outcome(run)}"))
    if not rows:
        print_text("no jobs yet; add [reports.NAME] to hermod.toml, or see `hermod jobs add --help`")
    return 0


async def run_jobs_show(name: str, *, config: Path | None, as_json: bool) -> int:
    """``hermod jobs show``."""
    async with open_jobs(set_up(config), {}) as jobs:
        try:
            row = await jobs.keeper.find(name)
        except BadJob as e:
            print_failure(str(e), code="unknown_job", as_json=as_json)
            return 1
        runs = await jobs.store.list_job_runs(row.job_id)
        times = _find_times(row, jobs.clock.now())
    if as_json:
        shown = {**describe_job(row), "next": _show_times(times), "runs": [_describe_run(run) for run in runs]}
        print_json({"items": [shown]})
        return 0
    for key, value in describe_job(row).items():
        if value not in ("", None, []):
            print_text(f"{key:<10} {', '.join(value) if isinstance(value, list) else value}")
    for occurrence in times:
        print_text(f"{'next':<10} {occurrence.local}")
    for run in runs:
        where = f"  hermod trace {run.run_id}" if run.run_id else ""
        why = tell_outcome(run).removeprefix(run.state).removeprefix(": ")
        print_text(f"{run.state:<10} {_instant(run.fired_at)}  {run.run_key}{where}{why and '  ' + why}")
    return 0


async def run_jobs_next(name: str, *, config: Path | None, as_json: bool) -> int:
    """``hermod jobs next``."""
    async with open_jobs(set_up(config), {}) as jobs:
        try:
            row = await jobs.keeper.find(name)
            read_spec(row)
        except BadJob as e:
            print_failure(str(e), code="unknown_job", as_json=as_json)
            return 1
        times = _find_times(row, jobs.clock.now())
    if row.state is JobState.PAUSED:
        print_error(f"hermod: the job is paused ({row.reason}); it would run at:")
    if as_json:
        print_json({"items": _show_times(times)})
    else:
        for occurrence in times:
            print_text(f"{occurrence.local}  {_instant(occurrence.at)}")
    return 0


async def run_jobs_pause(name: str, reason: str, *, config: Path | None, as_json: bool) -> int:
    """``hermod jobs pause``."""
    return await _change(lambda keeper: keeper.pause(name, reason, by=OPERATOR), "paused", config, as_json=as_json)


async def run_jobs_resume(name: str, *, config: Path | None, as_json: bool) -> int:
    """``hermod jobs resume``."""
    return await _change(lambda keeper: keeper.resume(name, by=OPERATOR), "active again", config, as_json=as_json)


async def run_jobs_stop(name: str, *, config: Path | None, as_json: bool) -> int:
    """``hermod jobs stop``."""
    said = "being stopped; its channel is told"
    return await _change(lambda keeper: keeper.stop(name, author=SETTINGS_OWNER), said, config, as_json=as_json)


async def run_jobs_delete(name: str, *, config: Path | None, as_json: bool) -> int:
    """``hermod jobs delete``."""
    return await _change(lambda keeper: keeper.delete(name, by=OPERATOR), "deleted", config, as_json=as_json)


async def run_jobs_add(name: str, channel: str, spec: JobSpec, *, config: Path | None, as_json: bool) -> int:
    """``hermod jobs add``: make a job of the operator, and show its next times."""
    settings = set_up(config)
    async with open_installations(settings) as installations:
        adapters = build_adapters(settings, installations)
        try:
            async with open_jobs(settings, adapters) as jobs:
                place = await _complete_place(settings, channel)
                checked = await jobs.keeper.check(JobDraft(place=place, spec=spec, name=name), now=jobs.clock.now())
                row = await jobs.keeper.make(checked, by=OPERATOR)
        except (BadJob, AdapterError) as e:
            print_failure(str(e), code="bad_job", as_json=as_json)
            return 1
        finally:
            for adapter in adapters.values():
                await adapter.stop()
    for warning in checked.warnings:
        print_error(f"hermod: {warning}")
    if as_json:
        print_json({"items": [{**describe_job(row), "next": _show_times(checked.next_five)}]})
        return 0
    print_text(f"added {_summarise(row)}")
    for occurrence in checked.next_five:
        print_text(f"  {occurrence.local}")
    return 0


async def _change(change: Change, became: str, config: Path | None, *, as_json: bool) -> int:
    async with open_jobs(set_up(config), {}) as jobs:
        try:
            row = await change(jobs.keeper)
        except BadJob as e:
            print_failure(str(e), code="bad_job", as_json=as_json)
            return 1
    if as_json:
        print_json({"items": [describe_job(row)]})
    else:
        print_text(f"{row.name} is {became}")
    return 0


async def _complete_place(settings: Settings, channel: str) -> str:
    platform, colon, rest = channel.partition(":")
    short = colon and rest and "/" not in rest and getattr(settings, platform, None) is not None
    return f"{platform}:{await find_workspace(settings, platform)}/{rest}" if short else channel


# -- showing ---------------------------------------------------------------------------------------


def describe_job(row: JobRow) -> dict[str, object]:
    """A job as data, for ``--json``: the row, and what it does by the names of the settings."""
    data: dict[str, object] = {
        "name": row.name,
        "state": row.state.value,
        "reason": row.reason,
        "next_at": None if row.next_at is None or row.state is JobState.PAUSED else _instant(row.next_at),
        "origin": row.origin,
        "channel": row.place,
        "owner": row.owner,
        "owner_name": row.owner_name,
    }
    try:
        spec = read_spec(row)
    except BadJob as e:
        return {**data, "reason": row.reason or str(e)}
    for field in fields(spec):
        value = getattr(spec, field.name)
        name = "timezone" if field.name == "zone" else field.name
        data[name] = list(value) if isinstance(value, tuple) else value
    return data


def _summarise(row: JobRow) -> str:
    data = describe_job(row)
    when = f"{data.get('cron', '?')}  {data.get('timezone', '?')}"
    state = f"paused: {row.reason}" if row.state is JobState.PAUSED else f"next {data['next_at'] or 'never'}"
    return f"{row.name}  {when}  {row.place}  {state}"


def _describe_run(run: JobRunRow) -> dict[str, object]:
    return {
        "run_key": run.run_key,
        "fired_at": _instant(run.fired_at),
        "state": run.state,
        "thread": run.thread_key,
        "run_id": run.run_id,
        "error": run.error,
        "reason": run.reason,
    }


def _find_times(row: JobRow, now: datetime) -> tuple[Occurrence, ...]:
    try:
        spec = read_spec(row)
        schedule = parse_schedule(spec.cron, spec.zone, now=now)
    except ValueError:
        return ()
    return tuple(islice(schedule.after(now), SHOWN_TIMES))


def _show_times(times: tuple[Occurrence, ...]) -> list[dict[str, object]]:
    return [{"local": one.local, "at": _instant(one.at)} for one in times]


def _instant(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
