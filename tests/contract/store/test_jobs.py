"""Jobs: kept by name and revision, found when they are due, and each of their times is carried out once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Literal

import pytest

from bot.storage.base import Claim, InboxState, OutboxState, RunOutcome, Store
from bot.storage.jobs import FiringOutcome, JobRow, JobState
from tests.contract.store.backends import Backend
from tests.contract.store.makers import (
    T0,
    A,
    answer,
    at,
    begin,
    claim,
    claim_nothing,
    new_firing,
    new_job,
    new_post,
    outcome,
    put,
)

ROUNDS = 50
Overlap = Literal["skip", "queue"]


async def save(store: Store, *jobs: JobRow) -> tuple[JobRow, ...]:
    """Insert jobs, and return them as they are stored."""
    for job in jobs:
        assert await store.save_job(job, expected=None)
    return tuple([await reload(store, job) for job in jobs])


async def reload(store: Store, job: JobRow) -> JobRow:
    found = await store.load_job(job.name)
    assert found is not None
    return found


async def fire(
    store: Store, job: JobRow, *run_keys: str, thread: str = "", overlap: Overlap = "skip"
) -> tuple[FiringOutcome, ...] | None:
    """Decide about times of a job as it is stored; its next time stays."""
    current = await reload(store, job)
    firings = [new_firing(job, key, thread=thread) for key in run_keys]
    return await store.fire_job(current, firings, next_at=current.next_at, now=T0, overlap=overlap)


async def list_states(store: Store, job: JobRow) -> list[tuple[str, str]]:
    return [(run.run_key, run.state) for run in await store.list_job_runs(job.job_id)]


# -- keeping jobs ------------------------------------------------------------------------------------


async def test_a_job_comes_back_as_it_was_saved(store: Store) -> None:
    paused = replace(
        new_job("weekly", next_at=None), origin="settings", owner="", state=JobState.PAUSED, reason="owner is gone"
    )
    await save(store, new_job(), paused)
    assert await store.load_job("daily") == new_job()
    assert await store.load_job("weekly") == paused
    assert await store.load_job("monthly") is None


async def test_capitals_of_a_name_do_not_matter(store: Store) -> None:
    assert await store.save_job(new_job("Daily-DB"), expected=None)
    for name in ("daily-db", "Daily-DB", "DAILY-DB"):
        found = await store.load_job(name)
        assert found is not None
        assert found.name == "daily-db"
    assert not await store.save_job(replace(new_job("dAILY-db"), job_id="another"), expected=None)
    (weekly,) = await save(store, new_job("weekly"))
    assert not await store.save_job(replace(weekly, name="DAILY-db"), expected=1)


async def test_a_new_job_has_revision_one_and_each_change_the_next_one(store: Store) -> None:
    assert await store.save_job(replace(new_job(), revision=77), expected=None)
    assert (await reload(store, new_job())).revision == 1
    changed = replace(new_job(), spec="{}", place="slack:T1/C2", next_at=at(5), updated_at=at(1), revision=99)
    assert await store.save_job(changed, expected=1)
    assert await store.load_job("daily") == replace(changed, revision=2)
    assert await store.save_job(replace(changed, name="renamed"), expected=2)
    assert await store.load_job("daily") is None
    assert await store.load_job("renamed") == replace(changed, name="renamed", revision=3)


@pytest.mark.parametrize("other", [{"job_id": "another"}, {"name": "another"}], ids=["the name", "the id"])
async def test_a_job_whose_name_or_id_is_taken_is_not_saved(store: Store, other: dict[str, str]) -> None:
    await save(store, new_job())
    intruder = replace(new_job(), spec="other", **other)  # type: ignore[arg-type]
    assert not await store.save_job(intruder, expected=None)
    assert await store.list_jobs() == (new_job(),)


async def test_a_job_is_not_renamed_to_a_name_that_is_taken(store: Store) -> None:
    daily, weekly = await save(store, new_job(), new_job("weekly"))
    assert not await store.save_job(replace(weekly, name="daily", spec="other"), expected=1)
    assert await store.list_jobs() == (daily, weekly)


async def test_a_change_of_another_revision_changes_nothing(store: Store) -> None:
    await save(store, new_job())
    assert await store.save_job(replace(new_job(), spec="first"), expected=1)
    for expected in (0, 1, 3):
        assert not await store.save_job(replace(new_job(), spec="second"), expected=expected)
    assert (await reload(store, new_job())).spec == "first"
    assert not await store.save_job(new_job("nobody"), expected=1)
    assert await store.load_job("nobody") is None


async def test_of_two_changes_of_one_revision_at_once_one_is_made(store: Store, other: Store) -> None:
    await save(store, new_job())
    for revision in range(1, ROUNDS + 1):
        made = await asyncio.gather(
            store.save_job(replace(new_job(), spec="ann"), expected=revision),
            other.save_job(replace(new_job(), spec="bob"), expected=revision),
        )
        assert sorted(made) == [False, True]
        found = await reload(store, new_job())
        assert (found.spec, found.revision) == ("ann" if made[0] else "bob", revision + 1)


async def test_of_two_new_jobs_of_one_name_at_once_one_is_made(store: Store, other: Store) -> None:
    for n in range(ROUNDS):
        job = new_job(f"job-{n}")
        made = await asyncio.gather(
            store.save_job(job, expected=None), other.save_job(replace(job, job_id=f"another {n}"), expected=None)
        )
        assert sorted(made) == [False, True]
    assert len(await store.list_jobs()) == ROUNDS


async def test_of_two_jobs_that_are_given_one_name_at_once_one_gets_it(store: Store, other: Store) -> None:
    for n in range(ROUNDS):
        jobs = await save(store, new_job(f"a-{n}"), new_job(f"b-{n}"))
        made = await asyncio.gather(
            *(s.save_job(replace(job, name=f"c-{n}"), expected=1) for s, job in zip((store, other), jobs, strict=True))
        )
        assert sorted(made) == [False, True]
    assert sum(job.name.startswith("c-") for job in await store.list_jobs()) == ROUNDS


async def test_jobs_are_listed_by_name_and_of_one_channel(store: Store) -> None:
    names = ["b", "a-b", "ab", "a1", "a-"]
    await save(store, *(new_job(name) for name in names), new_job("aa", place="slack:T1/C2"))
    assert [job.name for job in await store.list_jobs()] == ["a-", "a-b", "a1", "aa", "ab", "b"]
    assert [job.name for job in await store.list_jobs(place="slack:T1/C2")] == ["aa"]
    assert [job.name for job in await store.list_jobs(place="slack:T1/C1")] == ["a-", "a-b", "a1", "ab", "b"]
    assert await store.list_jobs(place="slack:T1/C") == ()


async def test_a_deleted_job_is_gone_with_its_times_and_what_is_in_the_inbox_is_still_carried_out(store: Store) -> None:
    daily, weekly = await save(store, new_job(), new_job("weekly"))
    await fire(store, daily, "monday")
    await fire(store, weekly, "monday")
    assert await store.delete_job(daily.job_id)
    assert not await store.delete_job(daily.job_id)
    assert await store.list_jobs() == (weekly,)
    assert await store.list_job_runs(daily.job_id) == ()
    assert await list_states(store, weekly) == [("monday", "waiting")]
    carried_out = (await claim(store)).items + (await claim(store)).items
    assert [i.event_key for i in carried_out] == ["job:id of daily/monday", "job:id of weekly/monday"]


# -- what is due -------------------------------------------------------------------------------------


async def test_active_jobs_that_are_due_are_found_the_longest_due_first(store: Store) -> None:
    await save(
        store,
        new_job("now", next_at=T0),
        new_job("soon", next_at=at(0.000001)),
        new_job("late", next_at=at(-3600)),
        new_job("later", next_at=at(-60)),
        new_job("over", next_at=None),
        replace(new_job("paused", next_at=at(-9)), state=JobState.PAUSED, reason="by hand"),
    )
    assert [job.name for job in await store.list_due_jobs(now=T0)] == ["late", "later", "now"]
    assert [job.name for job in await store.list_due_jobs(now=T0, limit=2)] == ["late", "later"]
    assert await store.list_due_jobs(now=T0, limit=0) == ()
    assert await store.list_due_jobs(now=at(-3601)) == ()


# -- times -------------------------------------------------------------------------------------------


async def test_a_time_that_fires_is_in_the_inbox_and_the_job_moves_on(store: Store) -> None:
    (job,) = await save(store, new_job())
    fired = await store.fire_job(job, [new_firing(job, "monday")], next_at=at(60), now=at(1), overlap="skip")
    assert fired == ("fired",)
    assert await reload(store, job) == replace(job, next_at=at(60)), "the revision stays"
    assert await store.list_due_jobs(now=at(59)) == ()
    (item,) = (await claim(store)).items
    expected = new_firing(job, "monday").item
    assert (item.event_key, item.thread_key, item.kind, item.payload, item.received_at) == (
        expected.event_key,
        expected.thread_key,
        "firing",
        expected.payload,
        T0,
    )
    assert (item.seq, item.state) == (1, InboxState.OPEN)
    (run,) = await store.list_job_runs(job.job_id)
    assert (run.job_id, run.run_key, run.fired_at, run.thread_key) == (
        job.job_id,
        "monday",
        at(1),
        expected.thread_key,
    )


async def test_a_job_without_a_further_time_is_never_due_again(store: Store) -> None:
    (job,) = await save(store, new_job())
    assert await store.fire_job(job, [new_firing(job, "last")], next_at=None, now=T0, overlap="skip") == ("fired",)
    assert (await reload(store, job)).next_at is None
    assert await store.list_due_jobs(now=at(10**9)) == ()
    again = await store.fire_job(
        await reload(store, job), [new_firing(job, "by hand")], next_at=None, now=T0, overlap="queue"
    )
    assert again == ("fired",)


async def test_a_job_may_move_on_without_a_time(store: Store) -> None:
    (job,) = await save(store, new_job())
    assert await store.fire_job(job, [], next_at=at(60), now=T0, overlap="skip") == ()
    assert (await reload(store, job)).next_at == at(60)
    await claim_nothing(store)


async def test_a_paused_job_fires_all_the_same(store: Store) -> None:
    (job,) = await save(store, replace(new_job(), state=JobState.PAUSED, reason="by hand"))
    assert await fire(store, job, "by hand") == ("fired",)
    assert await reload(store, job) == job


async def test_a_time_that_was_decided_about_is_a_duplicate(store: Store) -> None:
    (job,) = await save(store, new_job())
    assert await fire(store, job, "monday", "tuesday") == ("fired", "skipped")
    assert await fire(store, job, "tuesday", "monday") == ("duplicate", "duplicate")
    await answer(store, "r1")
    assert await fire(store, job, "monday", "tuesday", "wednesday") == ("duplicate", "duplicate", "fired")
    assert await list_states(store, job) == [("wednesday", "waiting"), ("tuesday", "skipped"), ("monday", "done")]


async def test_a_time_whose_event_is_known_is_a_duplicate(store: Store) -> None:
    (job,) = await save(store, new_job())
    await store.accept(new_firing(job, "monday").item, queue_limit=1)
    assert await fire(store, job, "monday") == ("duplicate",)
    assert len((await claim(store)).items) == 1
    await claim_nothing(store)


async def test_no_queue_is_too_long_for_a_time(store: Store) -> None:
    (job,) = await save(store, new_job())
    keys = [f"{n:03}" for n in range(200)]
    assert await fire(store, job, *keys, thread=A, overlap="queue") == ("fired",) * 200
    assert [i.seq for i in (await claim(store)).items] == list(range(1, 201))


async def test_a_job_that_is_not_what_was_looked_at_any_more_does_not_fire(store: Store) -> None:
    (job,) = await save(store, new_job())
    other_revision, other_time = replace(job, revision=2), replace(job, next_at=at(1))
    no_time, nobody = replace(job, next_at=None), replace(job, job_id="nobody")
    for changed in (other_revision, other_time, no_time, nobody):
        fired = await store.fire_job(changed, [new_firing(job, "monday")], next_at=at(60), now=T0, overlap="queue")
        assert fired is None
    assert await store.delete_job(job.job_id)
    assert await store.fire_job(job, [new_firing(job, "monday")], next_at=at(60), now=T0, overlap="queue") is None
    assert await store.list_job_runs(job.job_id) == ()
    await claim_nothing(store)


async def test_a_job_that_is_gone_or_changed_keeps_its_next_time(store: Store) -> None:
    (job,) = await save(store, new_job())
    assert await store.save_job(replace(job, spec="other"), expected=1)
    assert await store.fire_job(job, [], next_at=at(60), now=T0, overlap="skip") is None
    assert await reload(store, job) == replace(job, spec="other", revision=2)


# -- overlap -----------------------------------------------------------------------------------------


async def test_a_time_is_skipped_while_an_earlier_one_waits_or_runs(store: Store) -> None:
    (job,) = await save(store, new_job())
    assert await fire(store, job, "1") == ("fired",)
    assert await fire(store, job, "2") == ("skipped",)
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    assert await fire(store, job, "3") == ("skipped",)
    await store.finish_run(claimed, "r1", outcome())
    await store.release_claim(claimed)
    assert await fire(store, job, "4") == ("fired",)
    assert await list_states(store, job) == [("4", "waiting"), ("3", "skipped"), ("2", "skipped"), ("1", "done")]
    claimed = await claim(store)
    assert [i.event_key for i in claimed.items] == [f"job:{job.job_id}/4"], "what was skipped is not in the inbox"


async def test_a_time_is_skipped_while_an_earlier_one_of_the_same_call_waits(store: Store) -> None:
    (job,) = await save(store, new_job())
    assert await fire(store, job, "1", "2", "3") == ("fired", "skipped", "skipped")


async def test_a_run_that_failed_is_over(store: Store) -> None:
    (job,) = await save(store, new_job())
    await fire(store, job, "1")
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    await store.finish_run(claimed, "r1", outcome(error="no model answered"))
    assert await fire(store, job, "2") == ("fired",)
    assert await list_states(store, job) == [("2", "waiting"), ("1", "failed")]


async def test_times_queue_where_the_job_says_so(store: Store) -> None:
    (job,) = await save(store, new_job())
    assert await fire(store, job, "1", "2", overlap="queue") == ("fired", "fired")
    assert await fire(store, job, "3", overlap="queue") == ("fired",)
    assert await fire(store, job, "4", overlap="skip") == ("skipped",)
    await answer(store, "r1")
    assert await fire(store, job, "5", overlap="skip") == ("skipped",), "two of the queue are not over"
    await answer(store, "r2")
    await answer(store, "r3")
    assert await fire(store, job, "6", overlap="skip") == ("fired",)


async def test_times_of_another_job_and_messages_are_no_reason_to_skip(store: Store) -> None:
    daily, weekly = await save(store, new_job(), new_job("weekly"))
    await put(store, "e1")
    assert await fire(store, daily, "1", thread=A) == ("fired",)
    assert await fire(store, weekly, "1", thread=A) == ("fired",)


# -- what became of times ----------------------------------------------------------------------------


async def test_it_is_told_what_became_of_a_time(store: Store) -> None:
    (job,) = await save(store, new_job())
    await fire(store, job, "1", "2")
    thread = new_firing(job, "1").item.thread_key
    second, first = await store.list_job_runs(job.job_id)
    assert (first.state, first.thread_key, first.run_id) == ("waiting", thread, None)
    assert (second.state, second.thread_key, second.run_id) == ("skipped", "", None)
    claimed = await claim(store)
    await begin(store, claimed, "r1")
    first = (await store.list_job_runs(job.job_id))[1]
    assert (first.state, first.thread_key, first.run_id) == ("running", thread, "r1")
    await store.finish_run(claimed, "r1", outcome())
    first = (await store.list_job_runs(job.job_id))[1]
    assert (first.state, first.thread_key, first.run_id) == ("done", thread, "r1")


async def end(store: Store, run_id: str, result: RunOutcome) -> Claim:
    """Carry out what waits, and end it like this; the claim is still held."""
    claimed = await claim(store)
    await begin(store, claimed, run_id)
    await store.finish_run(claimed, run_id, result)
    return claimed


async def test_a_report_that_failed_is_no_done_one_and_says_why(store: Store) -> None:
    (job,) = await save(store, new_job())
    await fire(store, job, "1")
    await store.release_claim(await end(store, "r1", outcome(error="deadline", reason="600 s were not enough")))
    (run,) = await store.list_job_runs(job.job_id)
    assert (run.state, run.error, run.reason) == ("failed", "deadline", "600 s were not enough")
    found = await store.load_run("r1")
    assert found is not None
    assert found[0].reason == "600 s were not enough"


async def test_a_report_that_was_stopped_or_lacks_a_part_says_so(store: Store) -> None:
    (job,) = await save(store, new_job())
    await fire(store, job, "1")
    await store.release_claim(await end(store, "r1", outcome(error="cancelled", reason="stopped by Ann")))
    await fire(store, job, "2")
    await store.release_claim(await end(store, "r2", outcome(reason="1 of 4 parts came to nothing")))
    second, first = await store.list_job_runs(job.job_id)
    assert (first.state, first.reason) == ("stopped", "stopped by Ann")
    assert (second.state, second.error, second.reason) == ("done", "", "1 of 4 parts came to nothing")


async def test_a_report_whose_headline_was_refused_failed(store: Store) -> None:
    (job,) = await save(store, new_job())
    await fire(store, job, "1")
    thread = new_firing(job, "1").item.thread_key
    claimed = await end(store, "r1", outcome(posts=(new_post("r1/1", thread, run_id="r1"),)))
    (post,) = await store.load_outbox(thread)
    await store.begin_send(claimed, post.id, now=T0)
    assert await list_states(store, job) == [("1", "done")]
    await store.finish_send(claimed, post.id, OutboxState.FAILED, remote_id="", reason="channel_not_found", next_at=T0)
    (run,) = await store.list_job_runs(job.job_id)
    assert (run.state, run.error, run.reason) == ("failed", "", "channel_not_found")


async def test_a_thread_that_is_forgotten_keeps_no_reason(store: Store) -> None:
    (job,) = await save(store, new_job())
    await fire(store, job, "1")
    await store.release_claim(await end(store, "r1", outcome(error="failed", reason="relation pay of Ann is gone")))
    await store.forget_thread(new_firing(job, "1").item.thread_key)
    (run,) = await store.list_job_runs(job.job_id)
    assert (run.state, run.error, run.reason) == ("failed", "failed", "")


async def test_the_last_time_of_every_job_is_found_at_once(store: Store) -> None:
    daily, weekly, _ = await save(store, new_job(), new_job("weekly"), new_job("never"))
    assert await store.list_last_runs() == ()
    await fire(store, weekly, "1")
    await fire(store, daily, "1")
    await fire(store, daily, "2")
    last = await store.list_last_runs()
    assert [(run.job_id, run.run_key, run.state) for run in last] == [
        (daily.job_id, "2", "skipped"),
        (weekly.job_id, "1", "waiting"),
    ]
    assert last[1] == (await store.list_job_runs(weekly.job_id))[0]
    await store.delete_job(daily.job_id)
    assert [run.job_id for run in await store.list_last_runs()] == [weekly.job_id]


async def test_the_newest_times_come_first_and_no_more_than_asked_for(store: Store) -> None:
    (job,) = await save(store, new_job())
    await fire(store, job, *"abcde", overlap="queue")
    await fire(store, job, "0", overlap="queue")
    assert [run.run_key for run in await store.list_job_runs(job.job_id, limit=3)] == ["0", "e", "d"]
    assert await store.list_job_runs(job.job_id, limit=0) == ()
    assert await store.list_job_runs("nobody") == ()


async def test_a_time_whose_inbox_row_is_gone_is_over(store: Store, backend: Backend, url: str) -> None:
    (job,) = await save(store, new_job())
    await fire(store, job, "1")
    backend.run_sql(url, "DELETE FROM inbox")
    (run,) = await store.list_job_runs(job.job_id)
    assert (run.state, run.run_id) == ("done", None)
    assert await fire(store, job, "1", "2") == ("duplicate", "fired")


# -- several at once ---------------------------------------------------------------------------------


async def test_two_stores_that_fire_the_same_time_at_once_make_one_row(store: Store, other: Store) -> None:
    """APScheduler on one job store fires twice: https://github.com/agronholm/apscheduler/issues/129"""
    await save(store, new_job())
    for n in range(ROUNDS):
        (seen,) = await store.list_due_jobs(now=at(n))
        assert (seen,) == await other.list_due_jobs(now=at(n))
        firing = new_firing(seen, str(n), thread=A)
        outcomes = await asyncio.gather(
            *(s.fire_job(seen, [firing], next_at=at(n + 1), now=at(n), overlap="queue") for s in (store, other))
        )
        assert sorted(outcomes, key=str) == [("fired",), None]
    assert [run.run_key for run in await store.list_job_runs(seen.job_id, limit=99)] == [
        str(n) for n in reversed(range(ROUNDS))
    ]
    assert [i.event_key for i in (await claim(store)).items] == [f"job:{seen.job_id}/{n}" for n in range(ROUNDS)]


async def test_two_stores_that_fire_the_same_key_with_the_same_next_time_make_one_row(
    store: Store, other: Store
) -> None:
    (job,) = await save(store, new_job())
    for n in range(ROUNDS):
        firing = new_firing(job, str(n), thread=A)
        outcomes = await asyncio.gather(
            *(s.fire_job(job, [firing], next_at=job.next_at, now=T0, overlap="queue") for s in (store, other))
        )
        assert sorted(outcomes, key=str) == [("duplicate",), ("fired",)]


async def test_of_two_times_of_a_job_at_once_one_is_skipped(store: Store, other: Store) -> None:
    for n in range(ROUNDS):
        (job,) = await save(store, new_job(f"job-{n}"))
        outcomes = await asyncio.gather(fire(store, job, "1"), fire(other, job, "2"))
        assert sorted(outcomes, key=str) == [("fired",), ("skipped",)]


async def test_a_time_fires_before_a_change_of_its_job_or_not_at_all(store: Store, other: Store) -> None:
    for n in range(ROUNDS):
        (job,) = await save(store, new_job(f"job-{n}"))
        edited = replace(job, spec="other", next_at=at(999))
        work = [
            store.fire_job(job, [new_firing(job, "1")], next_at=at(60), now=T0, overlap="skip"),
            other.save_job(edited, expected=1),
        ]
        fired, saved = await asyncio.gather(*work[:: -1 if n % 2 else 1])
        if n % 2:
            fired, saved = saved, fired
        assert saved is True, "firing is no change that a person has to look at again"
        assert fired in (("fired",), None)
        assert await reload(store, job) == replace(edited, revision=2)
        assert await list_states(store, job) == ([("1", "waiting")] if fired else [])


async def test_a_change_that_was_begun_before_a_time_fired_does_not_fire_it_again(store: Store) -> None:
    (seen,) = await save(store, new_job())
    await store.fire_job(seen, [new_firing(seen, "1")], next_at=at(60), now=T0, overlap="skip")
    assert await store.save_job(replace(seen, spec="other"), expected=1), "with the next time that has fired"
    (due,) = await store.list_due_jobs(now=T0)
    fired = await store.fire_job(due, [new_firing(seen, "1")], next_at=at(60), now=T0, overlap="skip")
    assert fired == ("duplicate",)
    assert await store.list_due_jobs(now=T0) == ()


async def test_a_time_fires_before_its_job_is_deleted_or_not_at_all(store: Store, other: Store) -> None:
    waiting = 0
    for n in range(ROUNDS):
        (job,) = await save(store, new_job(f"job-{n}"))
        work = [
            store.fire_job(job, [new_firing(job, "1")], next_at=at(60), now=T0, overlap="skip"),
            other.delete_job(job.job_id),
        ]
        fired, deleted = await asyncio.gather(*work[:: -1 if n % 2 else 1])
        if n % 2:
            fired, deleted = deleted, fired
        assert deleted is True
        assert fired in (("fired",), None)
        waiting += fired is not None
        assert await store.list_job_runs(job.job_id) == ()
    assert await store.list_jobs() == ()
    assert (await store.count_rows()).inbox_open == waiting
