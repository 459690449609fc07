"""What a thread remembers: messages after a seq, a summary, whole outputs, and forgetting all of it."""

from __future__ import annotations

from dataclasses import replace

from agent_core.context import StepState
from bot.storage.base import Store, SummaryRow
from tests.contract.store.makers import T0, A, B, answer, at, begin, claim, new_entry, new_item, new_post, outcome, put

CANARY = "canary"
SUMMARY = SummaryRow(
    thread_key=A,
    text="they need an index",
    through_seq=1,
    tokens_before=90,
    tokens_after=9,
    author="model",
    updated_at=T0,
)


async def test_messages_after_a_seq_are_found_newest_first_counted(store: Store) -> None:
    await put(store, "e1", "e2", "e3")
    await answer(store, "r1")
    assert [m.seq for m in await store.load_messages(A, after_seq=1)] == [2, 3]
    assert [m.seq for m in await store.load_messages(A, after_seq=1, limit=1)] == [3]


async def test_a_summary_comes_with_the_run_that_wrote_it_and_can_be_corrected_and_forgotten(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    assert await store.load_summary(A) is None
    await store.finish_run(claimed, "r1", replace(outcome("hi"), summary=SUMMARY))
    assert await store.load_summary(A) == SUMMARY
    corrected = replace(SUMMARY, text="they need two", author="slack:U1", updated_at=at(5))
    await store.save_summary(corrected)
    assert await store.load_summary(A) == corrected
    await store.save_summary(replace(corrected, text=""))
    forgotten = await store.load_summary(A)
    assert forgotten is not None
    assert (forgotten.text, forgotten.through_seq) == ("", 1)


async def test_an_output_is_kept_whole_for_its_own_thread_only(store: Store) -> None:
    await put(store, "e1")
    await put(store, "b1", thread=B)
    await store.save_output(A, "call_1", "x" * 2_000_000, T0)
    await store.save_output(A, "call_1", "y" * 2_000_000, T0)
    assert await store.load_output(A, "call_1") == "y" * 2_000_000
    assert await store.load_output(B, "call_1") is None


async def test_a_message_that_came_into_a_run_is_a_step_of_its_journal(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    entry = replace(new_entry("message:model:2"), kind="message")
    assert await store.begin_step(claimed, "r1", entry, T0) is None
    await store.finish_step(claimed, "r1", entry.key, StepState.DONE, "[]", T0)
    known = await store.begin_step(claimed, "r1", entry, T0)
    assert known is not None
    assert (known.kind, known.result) == ("message", "[]")


async def test_a_forgotten_thread_holds_nothing_of_what_was_said_and_still_knows_what_it_had(store: Store) -> None:
    await put(store, "e1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    await store.begin_step(claimed, "r1", new_entry("tool:1"), T0)
    await store.finish_step(claimed, "r1", "tool:1", StepState.DONE, CANARY, T0)
    await store.finish_run(
        claimed, "r1", replace(outcome(CANARY), record=CANARY, summary=replace(SUMMARY, text=CANARY))
    )
    await store.save_output(A, "call_1", CANARY, T0)
    await store.release_claim(claimed)
    await put(store, "b1", thread=B)
    await answer(store, "r2")

    await store.forget_thread(A)

    found = await store.load_run("r1")
    assert found is not None
    assert (found[0].record, found[1]) == ("", ())
    assert await store.load_messages(A) == ()
    assert await store.load_summary(A) is None
    assert await store.load_output(A, "call_1") is None
    assert len(await store.load_messages(B)) == 1, "another thread's memory is not touched"
    await put(store, "e2")
    again = await store.accept(new_item("e1"), queue_limit=9)
    assert again.outcome == "duplicate", "what was answered is still not answered twice"


async def test_what_is_still_open_survives_forgetting(store: Store) -> None:
    await put(store, "e1")
    await store.add_outbox(new_post("k1"))
    await store.forget_thread(A)
    claimed = await claim(store)
    assert [i.payload for i in claimed.items] == ["{}"]
    assert [o.body for o in claimed.outbox] == ["body of k1"]
