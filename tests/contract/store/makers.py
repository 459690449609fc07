"""Short ways to build the values that the tests are about, and the few moves that most of them begin with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agent_core.context import JournalEntry, StepState
from bot.storage.base import (
    Claim,
    NewInboxItem,
    NewMessage,
    NewOutboxItem,
    RunOutcome,
    RunRow,
    Store,
    UsageRow,
)
from bot.storage.jobs import JobRow, JobState, NewFiring, Opening

T0 = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
A = "slack:T1/C1/1700.1"
B = "slack:T1/C1/1700.2"
D = "discord:G1/9/10"
ALL = ("slack:", "discord:")
LEASE_S = 30.0


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def new_item(event: str, thread: str = A, *, received_at: datetime = T0, payload: str = "{}") -> NewInboxItem:
    return NewInboxItem(event_key=event, thread_key=thread, kind="message", payload=payload, received_at=received_at)


def new_post(key: str, thread: str = A, *, created_at: datetime = T0, run_id: str | None = None) -> NewOutboxItem:
    return NewOutboxItem(key=key, thread_key=thread, run_id=run_id, body=f"body of {key}", created_at=created_at)


def new_run(run_id: str, thread: str = A, *, started_at: datetime = T0) -> RunRow:
    return RunRow(run_id=run_id, thread_key=thread, agent="ops", state="init", started_at=started_at)


def new_entry(key: str, *, kind: str = "tool") -> JournalEntry:
    return JournalEntry(
        key=key,
        kind="tool" if kind == "tool" else "model",
        name="calculator",
        digest=f"digest of {key}",
        state=StepState.INTENT,
        effect="write",
    )


def new_usage(run_id: str, *, used_at: datetime = T0, cost_usd: float | None = 0.25) -> UsageRow:
    return UsageRow(
        run_id=run_id,
        thread_key=A,
        author="U1",
        provider="main",
        model="m",
        requests=2,
        input_tokens=100,
        output_tokens=20,
        cost_usd=cost_usd,
        at=used_at,
        cached_input_tokens=60,
        cache_write_tokens=30,
    )


def new_job(name: str = "daily", *, next_at: datetime | None = T0, place: str = "slack:T1/C1") -> JobRow:
    return JobRow(
        job_id=f"id of {name}",
        name=name,
        origin="chat",
        place=place,
        owner="slack:U1",
        owner_name="Ann",
        spec='{"task": "look"}',
        state=JobState.ACTIVE,
        reason="",
        next_at=next_at,
        thread_key=A,
        created_at=at(-60),
        updated_at=at(-30),
    )


def new_firing(job: JobRow, run_key: str, *, thread: str = "") -> NewFiring:
    item = NewInboxItem(
        event_key=f"job:{job.job_id}/{run_key}",
        thread_key=thread or f"{job.place}/command-report-{job.name}-{run_key}",
        kind="firing",
        payload=f'{{"run_key": "{run_key}"}}',
        received_at=T0,
    )
    return NewFiring(run_key=run_key, item=item)


def new_seed(body: str, *, tokens: int = 7) -> NewMessage:
    return NewMessage(role="assistant", body=f'{{"content": "{body}"}}', tokens=tokens, created_at=at(3))


def new_opening(thread: str) -> Opening:
    return Opening(
        thread_key=thread,
        messages=(new_seed("found"), new_seed("row 3 is slow", tokens=9)),
        outbox=(new_post(f"{thread}/body/1", thread, run_id="r1"), new_post(f"{thread}/body/2", thread, run_id="r1")),
        outputs=(("call_1", "the whole table"), ("call_2", "the plan")),
    )


def outcome(
    *bodies: str,
    posts: tuple[NewOutboxItem, ...] = (),
    usage: tuple[UsageRow, ...] = (),
    ended_at: datetime = T0,
    error: str = "",
    reason: str = "",
) -> RunOutcome:
    return RunOutcome(
        state="error" if error else "finished",
        error=error,
        reason=reason,
        record='{"steps":[]}',
        ended_at=ended_at,
        messages=tuple(NewMessage(role="user", body=body, tokens=len(body), created_at=ended_at) for body in bodies),
        outbox=posts,
        usage=usage,
    )


async def put(store: Store, *events: str, thread: str = A, received_at: datetime = T0) -> None:
    for event in events:
        accepted = await store.accept(new_item(event, thread, received_at=received_at), queue_limit=1000)
        assert accepted.outcome == "new"


async def claim(store: Store, owner: str = "p1", *, now: datetime = T0, prefixes: tuple[str, ...] = ALL) -> Claim:
    claimed = await store.claim_thread(owner, prefixes=prefixes, lease_s=LEASE_S, now=now)
    assert claimed is not None, "there is work, but no thread could be claimed"
    return claimed


async def claim_nothing(store: Store, *, now: datetime = T0, prefixes: tuple[str, ...] = ALL) -> None:
    claimed = await store.claim_thread("nobody", prefixes=prefixes, lease_s=LEASE_S, now=now)
    assert claimed is None


async def begin(store: Store, claimed: Claim, run_id: str) -> None:
    items = [item.id for item in claimed.items]
    await store.begin_run(claimed, new_run(run_id, claimed.thread_key), items)


async def answer(store: Store, run_id: str, *, now: datetime = T0, posts: tuple[NewOutboxItem, ...] = ()) -> None:
    """Claim a thread, finish one run there with what its items say, and give the thread back."""
    claimed = await claim(store, now=now)
    await begin(store, claimed, run_id)
    await store.finish_run(claimed, run_id, outcome(*(i.event_key for i in claimed.items), posts=posts, ended_at=now))
    await store.release_claim(claimed)
