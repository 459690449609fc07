"""What the tests of jobs stand on: a store, a clock that is turned by hand, and the scheduler and keeper over them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from adapters.chat import Author, ChatAdapter, ThreadRef
from adapters.places import ChannelLook, PersonLook
from adapters.terminal import TerminalAdapter
from bot.jobs.job import Firing, JobSpec
from bot.jobs.keeping import Asker, JobDraft, JobKeeper
from bot.jobs.scheduler import JobScheduler
from bot.messages import load_inbound
from bot.storage.base import Store
from bot.storage.jobs import JobRow

NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
PLACE = "slack:T1/C1"
ANNA = Author(id="U1", name="Anna")
BO = Author(id="U2", name="Bo")
THREAD = ThreadRef(platform="slack", workspace="T1", channel="C1", thread="1700.1")
BY_ANNA, BY_BO = Asker.of(THREAD, ANNA), Asker.of(THREAD, BO)
SPEC = JobSpec(cron="0 9 * * *", zone="Europe/Berlin", task="what got slower?")


@dataclass
class HandClock:
    """Shows what it was set to."""

    at: datetime = NOW
    slept: asyncio.Event = field(default_factory=asyncio.Event)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at - NOW).total_seconds()

    async def sleep(self, seconds: float) -> None:
        self.slept.set()
        await asyncio.sleep(0)

    def turn(self, **span: float) -> None:
        self.at += timedelta(**span)


class PlacesAdapter(TerminalAdapter):
    """An adapter that knows its channels."""

    platform = "slack"

    def __init__(self, looks: Mapping[str, ChannelLook]) -> None:
        super().__init__(channel="none")
        self.looks = dict(looks)

    async def look_at_channel(self, workspace: str, channel: str) -> ChannelLook:
        gone = ChannelLook(state="gone", what="there is no such channel", fix="name one that I am a member of")
        return self.looks.get(f"{workspace}/{channel}", gone)

    async def look_at_person(self, workspace: str, user: str) -> PersonLook:
        return PersonLook(state="unknown")

    def thread_below(self, thread: ThreadRef, remote_id: str) -> ThreadRef:
        return ThreadRef(platform=thread.platform, workspace=thread.workspace, channel=thread.channel, thread=remote_id)


LOOKS = {
    "T1/C1": ChannelLook(state="open", name="#ops"),
    "T1/C2": ChannelLook(state="closed", name="#secret", what="I am not a member", fix="write /invite @hermod there"),
    "T1/C3": ChannelLook(state="unknown", what="slack did not answer"),
    "T1/C4": ChannelLook(state="open", name="#more"),
}


@dataclass
class Desk:
    """One process's part in jobs."""

    store: Store
    clock: HandClock = field(default_factory=HandClock)
    woken: int = 0
    adapters: dict[str, ChatAdapter] = field(default_factory=lambda: {"slack": PlacesAdapter(LOOKS)})

    def __post_init__(self) -> None:
        self.keeper = JobKeeper(
            self.store,
            self.clock,
            adapters=self.adapters,
            targets=("Shop", "billing"),
            workers=("sql_optimizer", "analyst"),
            templates=("daily", "weekly"),
            wake=self.wake,
        )
        self.scheduler = JobScheduler(self.store, self.clock, keeper=self.keeper, wake=self.wake)

    def wake(self) -> None:
        self.woken += 1

    async def make(self, name: str = "report", *, spec: JobSpec = SPEC, by: Asker = BY_ANNA) -> JobRow:
        checked = await self.keeper.check(JobDraft(place=PLACE, spec=spec, name=name), now=self.clock.now())
        return await self.keeper.make(checked, by=by, thread_key=THREAD.key)

    async def load(self, name: str = "report") -> JobRow:
        row = await self.store.load_job(name)
        assert row is not None
        return row

    async def fired(self, *, finish: bool = True) -> list[Firing]:
        """Take every firing out of the inbox, as the session does; ``finish`` answers it."""
        return await take_firings(self.store, self.clock.now(), finish=finish)


async def take_firings(store: Store, now: datetime, *, owner: str = "reader", finish: bool = True) -> list[Firing]:
    """Claim every thread that waits, and read what is there."""
    from tests.contract.store.makers import new_run, outcome

    found: list[Firing] = []
    while (claim := await store.claim_thread(owner, prefixes=("slack:",), lease_s=30, now=now)) is not None:
        fresh = [item for item in claim.items if item.run_id is None]
        for item in fresh:
            firing = load_inbound(item.kind, item.payload)
            assert isinstance(firing, Firing)
            assert item.event_key == f"job:{firing.job_id}/{firing.run_key}"
            assert item.thread_key == firing.thread.key
            found.append(firing)
        if fresh:
            run_id = f"run of {claim.thread_key}"
            await store.begin_run(claim, new_run(run_id, claim.thread_key, started_at=now), [i.id for i in fresh])
            if finish:
                await store.finish_run(claim, run_id, outcome(ended_at=now))
        if not finish:
            break
        await store.release_claim(claim)
    return found
