"""``hermod jobs run``: have a report made now, by a running Hermod where there is one, else by this process."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from adapters.chat import ChatAdapter, Reply, ThreadRef
from adapters.places import HasPlaces
from adapters.terminal import TerminalAdapter
from agent_core.context import SystemClock
from bot.app import App, open_app, open_storage
from bot.cli.jobs import open_jobs
from bot.cli.setup import print_error, print_failure, print_json, print_text, set_up
from bot.dispatcher import Dispatcher
from bot.installations import open_installations
from bot.jobs.calendar import Occurrence
from bot.jobs.configured import build_spec
from bot.jobs.job import SETTINGS_OWNER, Firing, JobSpec, build_firing, parse_place
from bot.jobs.keeping import RUN_NOW, BadJob, JobKeeper, build_new_firing, build_owner, read_spec
from bot.owners import name_owner
from bot.platforms import build_adapters
from bot.settings import Settings
from bot.storage.base import OutboxItem, OutboxState, RunRow, Store
from bot.storage.jobs import JobState

HANDOVER_S = 3.0
"""How long a running Hermod has to take the report up; it looks every second."""

POSTING_S = 60.0
"""How long delivering may take beyond the job's own deadline."""

POLL_S = 0.3
DRY_PLACE = "terminal:local/report"

_OPEN = (OutboxState.PENDING, OutboxState.SENDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a report is.

    Args:
        begun: somebody works on it, or did.
        over: nothing more will happen.
        below: the report's thread, once its headline is posted.
        run: its run.
        error: why it was not delivered whole; empty while it is open, and when all is well.
    """

    begun: bool = False
    over: bool = False
    below: ThreadRef | None = None
    run: RunRow | None = None
    error: str = ""


async def run_job_now(name: str, *, config: Path | None, as_json: bool, verbose: bool) -> int:
    """``hermod jobs run``: 0 once the report is delivered, 1 when that failed."""
    settings = set_up(config, verbose=verbose)
    async with open_installations(settings) as installations:
        adapters = build_adapters(settings, installations)
        try:
            async with open_jobs(settings, adapters) as jobs:
                firing = await _fire(jobs.keeper, name, adapters)
                try:
                    async with asyncio.timeout(firing.spec.deadline_s + POSTING_S):
                        progress = await _follow(settings, jobs.store, firing, adapters)
                except TimeoutError:
                    progress = await look(jobs.store, firing, adapters[firing.thread.platform])
                progress = await _name_pause(jobs.store, firing, progress)
        except BadJob as e:
            print_failure(str(e), code="bad_job", as_json=as_json)
            return 1
        finally:
            for adapter in adapters.values():
                await adapter.stop()
    return _tell(firing, progress, as_json=as_json)


async def run_job_dry(name: str, *, config: Path | None, verbose: bool) -> int:
    """``hermod jobs run --dry-run``: print the report; nothing is posted, and no job is changed."""
    settings = set_up(config, verbose=verbose)
    try:
        async with open_storage(settings) as store:
            job, spec = await _find_spec(settings, store, name)
    except BadJob as e:
        print_failure(str(e), code="bad_job", as_json=False)
        return 1
    posted: list[Reply] = []
    output = sys.stdout if sys.stdout.isatty() else None
    adapter = TerminalAdapter(channel="report", output=output, on_post=posted.append, folder=Path.cwd())
    key = f"{RUN_NOW}{secrets.token_hex(6)}"
    now = SystemClock().now()
    firing = build_firing(
        DRY_PLACE, author=SETTINGS_OWNER, job_id=f"dry-{key}", job=job, spec=spec, occurrence=Occurrence(now, key, "")
    )
    async with open_app(settings, os.environ, adapters={"terminal": adapter}, prefixes=[firing.thread.key]) as app:
        await app.open_quietly()
        await app.store.accept(build_new_firing(firing, now).item, queue_limit=1)
        try:
            async with asyncio.timeout(spec.deadline_s + POSTING_S):
                progress = await _work(app, firing, adapter)
        except TimeoutError:
            progress = await look(app.store, firing, adapter)
        finally:
            await app.stop(0.0)
    if output is None:
        print_text("\n\n".join(reply.text for reply in posted))
    if progress.error or not progress.over:
        print_error(f"hermod: {progress.error or 'the report was not ready in time'}")
        return 1
    return 0


async def look(store: Store, firing: Firing, adapter: ChatAdapter) -> Progress:
    """Tell how far a report is, whoever makes it."""
    runs = await store.list_runs(thread_key=firing.thread.key, limit=1)
    if not runs:
        return Progress()
    run = runs[0]
    posts = await store.load_outbox(firing.thread.key)
    below = next((_find_below(firing.thread, post.remote_id, adapter) for post in posts if post.remote_id), None)
    if below is not None and below != firing.thread:
        posts += await store.load_outbox(below.key)
    if run.ended_at is None or any(post.state in _OPEN for post in posts):
        return Progress(begun=True, run=run, below=below)
    return Progress(begun=True, over=True, run=run, below=below, error=_find_error(run, posts))


def _find_below(thread: ThreadRef, remote_id: str, adapter: ChatAdapter) -> ThreadRef:
    if isinstance(adapter, HasPlaces):
        return adapter.thread_below(thread, remote_id)
    return replace(thread, thread=remote_id)


def _find_error(run: RunRow, posts: tuple[OutboxItem, ...]) -> str:
    failed = next((post.reason or "a post was refused" for post in posts if post.state is OutboxState.FAILED), "")
    if run.state != "finished":
        return f"no report was made ({run.error or run.state}); see hermod trace {run.run_id}"
    if failed:
        return f"the report could not be posted: {failed}"
    return "" if posts else f"nothing was posted; see hermod trace {run.run_id}"


async def _name_pause(store: Store, firing: Firing, progress: Progress) -> Progress:
    """Add to what went wrong why the job is paused: that may be the cause, and has to be mended."""
    row = await store.load_job(firing.job) if progress.error else None
    if row is None or row.state is not JobState.PAUSED:
        return progress
    wish = f"mend that, and let it go on with `hermod jobs resume {row.name}`"
    return replace(progress, error=f"{progress.error}; the job is paused: {row.reason}; {wish}")


async def _fire(keeper: JobKeeper, name: str, adapters: Mapping[str, ChatAdapter]) -> Firing:
    row = await keeper.find(name)
    platform = parse_place(row.place)[0]
    if platform not in adapters:
        raise BadJob(f"the job {row.name!r} posts to {row.place}, and {platform} is not configured; add [{platform}]")
    return await keeper.run_now(row.name, author=build_owner(row))


async def _follow(settings: Settings, store: Store, firing: Firing, adapters: Mapping[str, ChatAdapter]) -> Progress:
    """Wait for a running Hermod to deliver it; make it here when none takes it up."""
    adapter = adapters[firing.thread.platform]
    waited = 0.0
    while not (progress := await look(store, firing, adapter)).over:
        if not progress.begun and waited >= HANDOVER_S:
            prefixes = [firing.thread.key]
            async with open_app(settings, os.environ, adapters=adapters, prefixes=prefixes) as app:
                try:
                    await app.open_quietly()
                    return await _work(app, firing, adapter)
                finally:
                    await app.stop(0.0)
        await asyncio.sleep(POLL_S)
        waited += POLL_S
    return progress


async def _work(app: App, firing: Firing, adapter: ChatAdapter) -> Progress:
    """Work on the report's thread, and then on the one below its headline, until all of it is delivered."""
    below: Dispatcher | None = None
    try:
        while not (progress := await look(app.store, firing, adapter)).over:
            if below is None and progress.below is not None:
                below = Dispatcher(
                    store=app.store,
                    work=app.session,
                    prefixes=[progress.below.key],
                    owner=name_owner(),
                    clock=app.clock,
                )
            await app.dispatcher.work_all()
            if below is not None:
                await below.work_all()
            await asyncio.sleep(POLL_S)  # a post may have to wait for its turn
    finally:
        if below is not None:
            await below.drain(0.0)
    return progress


async def _find_spec(settings: Settings, store: Store, name: str) -> tuple[str, JobSpec]:
    """What a job does, by the settings as they are now, or by its row."""
    for known, report in settings.reports.items():
        if known.lower() == name.strip().lower():
            return known.lower(), build_spec(report, SystemClock().now())
    if (row := await store.load_job(name.strip())) is None:
        raise BadJob(f"there is no job {name.strip()[:63]!r}; `hermod jobs list` names them")
    return row.name, read_spec(row)


def _tell(firing: Firing, progress: Progress, *, as_json: bool) -> int:
    error = progress.error
    if not progress.over:
        error = "the report is not delivered yet; `hermod jobs show` tells what becomes of it"
    if error:
        print_failure(error, code="not_delivered", as_json=as_json)
        return 1
    place = (progress.below or firing.thread).key
    if as_json:
        run_id = None if progress.run is None else progress.run.run_id
        item = {"name": firing.job, "run_key": firing.run_key, "run_id": run_id, "thread": place, "delivered": True}
        print_json({"items": [item]})
    else:
        print_text(f"the report of {firing.job} is delivered: {place}")
    return 0
