"""What people thought of answers, what a person used, and what is kept of a thread, in numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_core.context import StepState
from bot.storage.base import FeedbackRow, Kept, Store, StoreError, SummaryRow
from tests.contract.store.makers import (
    T0,
    A,
    B,
    answer,
    at,
    begin,
    claim,
    new_entry,
    new_post,
    new_usage,
    outcome,
    put,
)

UP = FeedbackRow(run_id="r1", thread_key=A, author="slack:U1", value="up", at=T0)


async def test_the_newest_opinion_of_a_person_counts_and_everybody_has_their_own(store: Store) -> None:
    await put(store, "e1")
    await answer(store, "r1")
    await store.save_feedback(UP)
    await store.save_feedback(replace(UP, author="slack:U2", at=at(1)))
    changed = replace(UP, value="down", at=at(2))
    await store.save_feedback(changed)
    assert await store.load_feedback(since=T0) == (changed, replace(UP, author="slack:U2", at=at(1)))
    assert await store.load_feedback(since=T0, limit=1) == (changed,)
    assert await store.load_feedback(since=at(3)) == ()


async def test_an_opinion_about_a_run_that_never_was_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="no run 'r9'"):
        await store.save_feedback(replace(UP, run_id="r9"))


async def test_usage_and_threads_are_told_by_person(store: Store) -> None:
    for event, thread, run_id, author in (("e1", A, "r1", "slack:U1"), ("e2", B, "r2", "slack:U2")):
        await put(store, event, thread=thread)
        claimed = await claim(store)
        await begin(store, claimed, run_id)
        usage = replace(new_usage(run_id), author=author, thread_key=thread)
        await store.finish_run(claimed, run_id, outcome(usage=(usage,)))
        await store.release_claim(claimed)
    assert [r.run_id for r in await store.load_usage(since=T0, author="slack:U2")] == ["r2"]
    assert [r.run_id for r in await store.load_usage(since=T0)] == ["r1", "r2"]
    assert [s.thread_key for s in await store.list_sessions(author="slack:U1")] == [A]
    assert await store.list_sessions(author="slack:U3") == ()
    assert len(await store.list_sessions()) == 2


async def test_what_is_kept_of_a_thread_is_counted_and_forgetting_tells_the_same_numbers(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    await store.begin_step(claimed, "r1", new_entry("tool:1"), T0)
    await store.finish_step(claimed, "r1", "tool:1", StepState.DONE, "42", T0)
    assert await store.count_kept(A) == Kept(), "what is under way is not kept yet, and would not be dropped"
    summary = SummaryRow(
        thread_key=A, text="so far", through_seq=1, tokens_before=9, tokens_after=2, author="model", updated_at=T0
    )
    await store.finish_run(claimed, "r1", replace(outcome("hi", "hello"), record="{}", summary=summary))
    await store.save_output(A, "call_1", "long", T0)
    await store.release_claim(claimed)
    await put(store, "e2", thread=B)
    await answer(store, "r2")
    await store.add_outbox(new_post("still waits"))

    kept = await store.count_kept(A)
    tokens = sum(m.tokens for m in await store.load_messages(A))
    assert kept == Kept(messages=2, tokens=tokens, summary=1, outputs=1, steps=1, traces=1, texts=1)
    assert await store.forget_thread(A) == kept
    assert await store.count_kept(A) == Kept()
    assert await store.forget_thread(A) == Kept()
    assert (await store.count_kept(B)).messages == 1


async def test_a_summary_that_was_dropped_is_no_summary(store: Store) -> None:
    await put(store, "e1")
    await answer(store, "r1")
    await store.save_summary(
        SummaryRow(thread_key=A, text="", through_seq=1, tokens_before=1, tokens_after=0, author="U1", updated_at=T0)
    )
    assert (await store.count_kept(A)).summary == 0
