"""What follows a report's headline: it is kept until the headline is there, and then begins the thread below it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent_core.context import StepState
from bot.storage.base import (
    Claim,
    Fenced,
    Kept,
    NewInboxItem,
    OutboxState,
    Store,
    StoreError,
    SummaryRow,
)
from bot.storage.jobs import Opening, Proposal
from bot.storage.sqlite_claims import PAST_TRIES
from tests.contract.store.backends import Backend
from tests.contract.store.makers import (
    LEASE_S,
    T0,
    A,
    B,
    answer,
    at,
    begin,
    claim,
    claim_nothing,
    new_entry,
    new_firing,
    new_job,
    new_opening,
    new_post,
    new_seed,
    new_usage,
    outcome,
    put,
)

CANARY = "canary"
JOB = new_job()
REPORT = "slack:T1/C1/command-report-1"
BELOW = "slack:T1/C1/1800.5"
EMPTY = Kept()
ROUNDS = 20


async def make_report(
    store: Store, *, run_id: str = "r1", thread: str = REPORT, sequel: str = CANARY, said: tuple[str, ...] = ()
) -> tuple[Claim, int]:
    """Carry a time of a job out up to its headline, which is just being sent; return the claim and the headline."""
    assert await store.save_job(new_job(run_id), expected=None)
    job = await store.load_job(run_id)
    assert job is not None
    firing = new_firing(job, "1", thread=thread)
    assert await store.fire_job(job, [firing], next_at=None, now=T0, overlap="skip") == ("fired",)
    claimed = await claim(store, prefixes=(thread,))
    await begin(store, claimed, run_id)
    await store.begin_step(claimed, run_id, new_entry("tool:1"), T0)
    await store.finish_step(claimed, run_id, "tool:1", StepState.DONE, CANARY, T0)
    post = replace(new_post(f"{run_id}/1", thread, run_id=run_id), body=CANARY)
    usage = replace(new_usage(run_id), thread_key=thread, author="slack:U1")
    ended = replace(outcome(*said, posts=(post,), usage=(usage,)), sequel=sequel, record=CANARY)
    await store.finish_run(claimed, run_id, ended)
    (headline,) = await store.load_due(thread, now=T0)
    await store.begin_send(claimed, headline.id, now=T0)
    return claimed, headline.id


async def open_below(store: Store, claimed: Claim, headline: int, opening: Opening | None = None) -> None:
    await store.open_thread(claimed, headline, "r1", opening or new_opening(BELOW), remote_id="1800.5", now=at(5))


async def list_bodies(store: Store, thread: str = BELOW) -> list[tuple[int, str]]:
    return [(m.seq, m.body) for m in await store.load_messages(thread)]


async def check_unopened(store: Store) -> None:
    """Nothing of the opening is there, and all that it needs still is."""
    assert await store.load_sequel("r1") == CANARY
    assert [post.state for post in await store.load_outbox(REPORT)] == [OutboxState.SENDING]
    assert not await store.knows_thread(BELOW)
    assert await list_bodies(store) == []
    assert await store.load_outbox(BELOW) == ()
    assert await store.load_output(BELOW, "call_1") is None


# -- the sequel --------------------------------------------------------------------------------------


async def test_what_follows_the_first_post_is_kept_with_the_end_of_its_run(store: Store) -> None:
    await make_report(store)
    assert await store.load_sequel("r1") == CANARY


async def test_most_runs_are_followed_by_nothing(store: Store) -> None:
    await put(store, "e1")
    await answer(store, "r1")
    assert await store.load_sequel("r1") is None
    assert await store.load_sequel("nobody") is None


async def test_a_run_that_may_not_end_leaves_nothing_behind(store: Store) -> None:
    await put(store, "e1")
    late = await claim(store, "p1")
    await begin(store, late, "r1")
    heir = await claim(store, "p2", now=at(LEASE_S))
    with pytest.raises(Fenced):
        await store.finish_run(late, "r1", replace(outcome(), sequel="late"))
    assert await store.load_sequel("r1") is None
    await store.finish_run(heir, "r1", replace(outcome(), sequel="in time"))
    with pytest.raises(StoreError, match="already over"):
        await store.finish_run(heir, "r1", replace(outcome(), sequel="twice"))
    assert await store.load_sequel("r1") == "in time"


# -- opening -----------------------------------------------------------------------------------------


async def test_a_thread_begins_with_its_history_its_outputs_and_its_posts(store: Store) -> None:
    claimed, headline = await make_report(store)
    await open_below(store, claimed, headline)
    (post,) = await store.load_outbox(REPORT)
    assert (post.state, post.remote_id) == (OutboxState.DELIVERED, "1800.5")
    assert await store.load_sequel("r1") is None
    messages = await store.load_messages(BELOW)
    assert [(m.seq, m.role, m.body, m.tokens, m.run_id, m.created_at) for m in messages] == [
        (1, "assistant", '{"content": "found"}', 7, "r1", at(3)),
        (2, "assistant", '{"content": "row 3 is slow"}', 9, "r1", at(3)),
    ]
    assert await store.load_output(BELOW, "call_1") == "the whole table"
    assert await store.load_output(BELOW, "call_2") == "the plan"
    assert await store.load_output(REPORT, "call_1") is None
    await store.release_claim(claimed)
    posting = await claim(store, now=at(5))
    assert posting.thread_key == BELOW
    assert [p.key for p in posting.outbox] == [f"{BELOW}/body/1", f"{BELOW}/body/2"]
    assert (posting.items, posting.run, posting.past_left) == ((), None, 0)
    await claim_nothing(store, now=at(5))


async def test_what_begins_in_one_transaction_keeps_its_order(store: Store) -> None:
    """Instants that are the same must not decide: https://github.com/vm0-ai/vm0/pull/24400"""
    claimed, headline = await make_report(store)
    names = [f"{n:02}" for n in range(20)][::-1]
    opening = Opening(
        thread_key=BELOW,
        messages=tuple(new_seed(name) for name in names),
        outbox=tuple(new_post(name, BELOW) for name in names),
    )
    await open_below(store, claimed, headline, opening)
    assert [body for _, body in await list_bodies(store)] == [new_seed(name).body for name in names]
    assert [post.key for post in await store.load_outbox(BELOW)] == names
    assert [post.key for post in await store.load_due(BELOW, now=at(5))] == names


async def test_a_thread_tells_where_it_was_opened_from(store: Store) -> None:
    claimed, headline = await make_report(store)
    assert await store.load_origin(BELOW) is None
    await store.open_thread(claimed, headline, "r1", new_opening(BELOW), remote_id="1800.5", now=at(9))
    assert [await store.load_origin(key) for key in (BELOW, REPORT, "slack:T1/C1/never")] == [REPORT, None, None]


async def test_a_thread_may_begin_with_nothing(store: Store) -> None:
    claimed, headline = await make_report(store)
    await open_below(store, claimed, headline, Opening(thread_key=BELOW))
    assert await store.knows_thread(BELOW)
    assert await list_bodies(store) == []
    await store.release_claim(claimed)
    await claim_nothing(store, now=at(5))


async def test_the_draft_of_the_run_is_over_with_its_headline(store: Store) -> None:
    await put(store, "e1", thread=REPORT)
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    await store.save_draft(claimed, "r1", "1799.9", T0)
    post = new_post("r1/1", REPORT, run_id="r1")
    await store.finish_run(claimed, "r1", replace(outcome(posts=(post,)), sequel=CANARY))
    (headline,) = await store.load_due(REPORT, now=T0)
    await open_below(store, claimed, headline.id)
    assert await store.load_draft("r1") is None


async def test_a_thread_that_was_opened_is_known_and_its_past_needs_no_reading(store: Store) -> None:
    claimed, headline = await make_report(store)
    assert not await store.knows_thread(BELOW)
    await open_below(store, claimed, headline)
    assert await store.knows_thread(BELOW)
    said = NewInboxItem(
        event_key="e1", thread_key=BELOW, kind="message", payload="{}", received_at=at(9), said_id="m1", inside=True
    )
    accepted = await store.accept(said, queue_limit=9)
    assert (accepted.outcome, accepted.seq) == ("new", 1)
    session = await claim(store, "p2", now=at(9), prefixes=(BELOW,))
    assert session.past_left == 0
    await begin(store, session, "r2")
    await store.finish_run(session, "r2", outcome("which one?"))
    assert [seq for seq, _ in await list_bodies(store)] == [1, 2, 3]


async def test_a_thread_that_people_were_faster_to_write_in_is_added_to(store: Store) -> None:
    claimed, headline = await make_report(store)
    said = NewInboxItem(
        event_key="e1", thread_key=BELOW, kind="message", payload="{}", received_at=T0, said_id="m1", inside=True
    )
    await store.accept(said, queue_limit=9)
    session = await claim(store, "p2", prefixes=(BELOW,))
    assert session.past_left == PAST_TRIES
    await begin(store, session, "r2")
    await store.add_outbox(new_post("status", BELOW))
    await open_below(store, claimed, headline)
    await store.save_past(session, "r2", new_seed("what was said before, read a moment too late"))
    await store.finish_run(session, "r2", outcome("thanks"))
    assert await list_bodies(store) == [
        (1, '{"content": "found"}'),
        (2, '{"content": "row 3 is slow"}'),
        (3, "thanks"),
    ]
    keys = [post.key for post in await store.load_outbox(BELOW)]
    assert keys == ["status", f"{BELOW}/body/1", f"{BELOW}/body/2"]
    await store.release_claim(session)
    assert (await claim(store, "p3", now=at(5), prefixes=(BELOW,))).past_left == 0


async def test_the_history_of_a_thread_that_exists_goes_on(store: Store) -> None:
    await put(store, "e1", "e2", thread=BELOW)
    await answer(store, "r0")
    claimed, headline = await make_report(store)
    await open_below(store, claimed, headline)
    assert [seq for seq, _ in await list_bodies(store)] == [1, 2, 3, 4]
    assert (await list_bodies(store))[0] == (1, "e1")


async def test_a_report_may_go_on_where_its_headline_stands(store: Store) -> None:
    claimed, headline = await make_report(store)
    await open_below(store, claimed, headline, new_opening(REPORT))
    assert len(await list_bodies(store, REPORT)) == 2
    states = [post.state for post in await store.load_outbox(REPORT)]
    assert states == [OutboxState.DELIVERED, OutboxState.PENDING, OutboxState.PENDING]
    assert [row.thread_key for row in await store.list_sessions()] == [REPORT]
    await store.forget_thread(REPORT)
    assert await list_bodies(store, REPORT) == []


async def test_a_report_that_goes_on_where_its_headline_stands_is_still_listed(store: Store) -> None:
    claimed, headline = await make_report(store)
    await open_below(store, claimed, headline, Opening(thread_key=REPORT))
    assert [(row.thread_key, row.runs) for row in await store.list_sessions()] == [(REPORT, 1)]


# -- who may, and how often --------------------------------------------------------------------------


async def test_whoever_lost_the_claim_opens_nothing(store: Store) -> None:
    late, headline = await make_report(store)
    heir = await claim(store, "heir", now=at(LEASE_S))
    with pytest.raises(Fenced):
        await open_below(store, late, headline)
    await check_unopened(store)
    await open_below(store, heir, headline)
    assert len(await list_bodies(store)) == 2


async def test_a_thread_is_opened_once(store: Store) -> None:
    claimed, headline = await make_report(store)
    await open_below(store, claimed, headline)
    with pytest.raises(StoreError, match="already delivered"):
        await open_below(store, claimed, headline)
    assert len(await list_bodies(store)) == 2
    assert len(await store.load_outbox(BELOW)) == 2


async def test_a_headline_that_failed_opens_nothing(store: Store) -> None:
    claimed, headline = await make_report(store)
    await store.finish_send(claimed, headline, OutboxState.FAILED, remote_id=None, reason="archived", next_at=T0)
    with pytest.raises(StoreError, match="already failed"):
        await open_below(store, claimed, headline)
    assert await store.load_sequel("r1") == CANARY
    assert not await store.knows_thread(BELOW)


async def test_only_a_post_and_a_run_of_the_claimed_thread_open_one(store: Store) -> None:
    await put(store, "e1", thread=A)
    await answer(store, "r0", posts=(new_post("r0/1", A),))
    (foreign,) = await store.load_outbox(A)
    claimed, headline = await make_report(store)
    with pytest.raises(StoreError, match="no post"):
        await open_below(store, claimed, foreign.id)
    for run_id in ("r0", "nobody"):
        with pytest.raises(StoreError, match=f"no run {run_id}"):
            await store.open_thread(claimed, headline, run_id, new_opening(BELOW), remote_id="1800.5", now=at(5))
    await check_unopened(store)


async def test_a_claim_that_is_lost_while_a_thread_opens_opens_it_once_all_the_same(store: Store, other: Store) -> None:
    for n in range(ROUNDS):
        report, below = f"{REPORT}{n}", f"{BELOW}{n}"
        late, headline = await make_report(store, run_id=f"r{n}", thread=report)
        opened, heir = await asyncio.gather(
            store.open_thread(late, headline, f"r{n}", new_opening(below), remote_id=below, now=at(LEASE_S)),
            other.claim_thread("heir", prefixes=(report,), lease_s=LEASE_S, now=at(LEASE_S)),
            return_exceptions=True,
        )
        assert not isinstance(heir, BaseException)
        if isinstance(opened, Fenced):
            assert heir is not None
            assert [post.id for post in heir.outbox] == [headline]
            await other.open_thread(heir, headline, f"r{n}", new_opening(below), remote_id=below, now=at(LEASE_S))
        else:
            assert opened is None
            assert heir is None or heir.outbox == ()
        assert [seq for seq, _ in await list_bodies(store, below)] == [1, 2]
        assert [post.remote_id for post in await store.load_outbox(report)] == [below]


async def test_a_message_that_arrives_while_its_thread_opens_finds_no_past_to_read(store: Store, other: Store) -> None:
    for n in range(ROUNDS):
        below = f"{BELOW}{n}"
        claimed, headline = await make_report(store, run_id=f"r{n}", thread=f"{REPORT}{n}")
        said = NewInboxItem(
            event_key=f"e{n}", thread_key=below, kind="message", payload="{}", received_at=T0, said_id="m", inside=True
        )
        work = [
            store.open_thread(claimed, headline, f"r{n}", new_opening(below), remote_id=below, now=at(5)),
            other.accept(said, queue_limit=9),
        ]
        await asyncio.gather(*work[:: -1 if n % 2 else 1])
        session = await claim(store, now=at(5), prefixes=(below,))
        assert (session.past_left, len(session.items), len(session.outbox)) == (0, 1, 2)


async def test_a_thread_that_is_forgotten_while_it_opens_is_whole_or_forgotten(store: Store, other: Store) -> None:
    for n in range(ROUNDS):
        below = f"{BELOW}{n}"
        claimed, headline = await make_report(store, run_id=f"r{n}", thread=f"{REPORT}{n}")
        work = [
            store.open_thread(claimed, headline, f"r{n}", new_opening(below), remote_id=below, now=at(5)),
            other.forget_thread(below),
            other.forget_thread(f"{REPORT}{n}"),
        ]
        await asyncio.gather(*work[:: -1 if n % 2 else 1])
        assert len(await store.load_messages(below)) in (0, 2)
        assert await store.load_sequel(f"r{n}") is None
        await store.forget_thread(below)
        assert await store.count_kept(below) == EMPTY


# -- forgetting --------------------------------------------------------------------------------------


async def test_forgetting_the_thread_covers_the_report_too(store: Store, backend: Backend, url: str) -> None:
    claimed, headline = await make_report(store, said=(CANARY,))
    await store.save_output(REPORT, "call_9", CANARY, T0)
    await store.save_summary(
        SummaryRow(
            thread_key=REPORT,
            text=CANARY,
            through_seq=1,
            tokens_before=9,
            tokens_after=1,
            author="model",
            updated_at=T0,
        )
    )
    await open_below(store, claimed, headline)
    await store.release_claim(claimed)
    await make_report(store, run_id="r2", thread="slack:T1/C1/command-report-2")
    expected = Kept(messages=3, tokens=7 + 9 + len(CANARY), summary=1, outputs=3, steps=1, traces=1, texts=2)
    assert await store.count_kept(BELOW) == expected
    assert await store.forget_thread(BELOW) == expected
    assert await store.count_kept(BELOW) == await store.count_kept(REPORT) == EMPTY
    found = await store.load_run("r1")
    assert found is not None
    assert (found[0].record, found[1]) == ("", ())
    assert await store.load_messages(REPORT) == await store.load_messages(BELOW) == ()
    assert await store.load_summary(REPORT) is None
    assert await store.load_output(REPORT, "call_9") is None
    assert [post.body for post in await store.load_outbox(REPORT)] == [""]
    assert [post.body for post in await store.load_outbox(BELOW)] == [
        f"body of {BELOW}/body/1",
        f"body of {BELOW}/body/2",
    ], "what is still to be posted is posted"
    other = await store.load_run("r2")
    assert other is not None
    assert (other[0].record, len(other[1])) == (CANARY, 1), "another report is not touched"
    assert await store.load_sequel("r2") == CANARY
    assert [(run.run_key, run.state) for run in await store.list_job_runs("id of r1")] == [("1", "done")]


async def test_a_question_below_a_report_is_forgotten_with_it(store: Store) -> None:
    claimed, headline = await make_report(store)
    await open_below(store, claimed, headline)
    await store.release_claim(claimed)
    await put(store, "e1", thread=BELOW)
    session = await claim(store, now=at(9), prefixes=(BELOW,))
    for post in session.outbox:
        await store.finish_send(session, post.id, OutboxState.DELIVERED, remote_id="1", reason="", next_at=at(9))
    await begin(store, session, "r2")
    await store.finish_run(session, "r2", outcome("explain row 3"))
    kept = await store.forget_thread(BELOW)
    assert (kept.messages, kept.traces, kept.texts) == (3, 2, 5)
    assert await store.count_kept(BELOW) == EMPTY
    assert await store.knows_thread(BELOW)


async def test_the_sequel_of_a_headline_that_failed_is_forgotten(store: Store) -> None:
    claimed, headline = await make_report(store)
    await store.finish_send(claimed, headline, OutboxState.FAILED, remote_id=None, reason="archived", next_at=T0)
    before = await store.count_kept(REPORT)
    assert (await store.forget_thread(REPORT)) == before
    assert before.texts == 3, "the firing, the headline and the sequel"
    assert await store.load_sequel("r1") is None


async def test_the_sequel_of_a_headline_that_is_under_way_stays_with_it(store: Store) -> None:
    claimed, headline = await make_report(store)
    kept = await store.forget_thread(REPORT)
    assert kept.texts == 1, "the firing"
    await check_unopened(store)
    await open_below(store, claimed, headline)
    assert len(await list_bodies(store)) == 2


async def test_proposals_of_a_thread_are_forgotten(store: Store) -> None:
    await put(store, "e1")
    for thread in (A, B):
        await store.save_proposal(Proposal(thread_key=thread, author="slack:U1", body=CANARY, created_at=T0))
    assert (await store.forget_thread(A)).texts == 1
    assert await store.take_proposal(A, "slack:U1", after=at(-1)) is None
    assert await store.take_proposal(B, "slack:U1", after=at(-1)) is not None


# -- sessions ----------------------------------------------------------------------------------------


async def test_a_report_and_its_thread_are_one_session(store: Store) -> None:
    claimed, headline = await make_report(store)
    (report,) = await store.list_sessions()
    assert (report.thread_key, report.runs, report.messages) == (REPORT, 1, 0)
    await open_below(store, claimed, headline)
    (session,) = await store.list_sessions()
    assert (session.thread_key, session.runs, session.messages, session.tokens) == (BELOW, 1, 2, 16)
    assert (session.last_at, session.busy) == (at(5), False)
    assert await store.list_sessions(author="slack:U1") == (session,)
    assert await store.list_sessions(author="slack:U2") == ()


async def test_a_report_with_a_history_of_its_own_is_a_session_of_its_own(store: Store) -> None:
    claimed, headline = await make_report(store, said=("what was asked",))
    await open_below(store, claimed, headline)
    sessions = await store.list_sessions()
    assert [(row.thread_key, row.runs, row.messages) for row in sessions] == [(BELOW, 0, 2), (REPORT, 1, 1)]
    assert await store.list_sessions(author="slack:U1") == sessions


async def test_a_question_below_a_report_counts_with_it(store: Store) -> None:
    claimed, headline = await make_report(store)
    await open_below(store, claimed, headline)
    await store.release_claim(claimed)
    await put(store, "e1", thread=BELOW, received_at=at(6))
    session = await claim(store, now=at(9), prefixes=(BELOW,))
    await begin(store, session, "r2")
    usage = replace(new_usage("r2"), thread_key=BELOW, author="slack:U2")
    await store.finish_run(session, "r2", outcome("which one?", usage=(usage,), ended_at=at(9)))
    (row,) = await store.list_sessions()
    assert (row.thread_key, row.runs, row.messages, row.last_at) == (BELOW, 2, 3, at(9))
    for author in ("slack:U1", "slack:U2"):
        assert await store.list_sessions(author=author) == (row,)
