"""Readings of counters, the texts of their entries, and the leases of those who take them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from bot.storage.base import Store
from bot.storage.snapshots import Snapshot, Statement
from tests.contract.store.backends import Backend
from tests.contract.store.makers import at


def reading(seconds: float, target: str = "shop", rows: Mapping[str, str] | None = None) -> Snapshot:
    return Snapshot(
        target=target, taken_at=at(seconds), head=f"at {seconds}", rows={"k": "1"} if rows is None else rows
    )


def text_of(key: str, fingerprint: str = "f1", *, own: bool = False) -> Statement:
    return Statement(key=key, fingerprint=fingerprint, sql=f"select {key}", db="shop", user="app", own=own)


async def test_the_nearest_reading_on_each_side_is_found(store: Store) -> None:
    for seconds in (30, 10, 20):
        await store.save_snapshot(reading(seconds))
    await store.save_snapshot(reading(15, "other"))
    assert await store.find_snapshot("shop", at=at(20), side="before") == reading(20)
    assert await store.find_snapshot("shop", at=at(20), side="after") == reading(30)
    assert await store.find_snapshot("shop", at=at(19.999999), side="before") == reading(10)
    assert await store.find_snapshot("shop", at=at(9), side="before") is None
    assert await store.find_snapshot("shop", at=at(30), side="after") is None
    assert await store.find_snapshot("none", at=at(30), side="before") is None
    assert await store.list_snapshots("shop", start=at(10), end=at(29)) == (at(10), at(20))


async def test_of_two_readings_at_one_instant_the_later_one_counts_as_newest(store: Store) -> None:
    await store.save_snapshot(reading(10))
    await store.save_snapshot(replace(reading(10), head="second", rows={"k": "2"}))
    found = await store.find_snapshot("shop", at=at(10), side="before")
    assert found is not None
    assert (found.head, found.rows) == ("second", {"k": "2"})


@pytest.mark.parametrize("seed", range(6))
async def test_every_reading_comes_back_as_it_was_whatever_changed_in_between(store: Store, seed: int) -> None:
    """Entries come, change, go and come back; some readings arrive late; old ones are dropped meanwhile."""
    dice = random.Random(seed)
    rows: dict[str, str] = {}
    saved: dict[float, Snapshot] = {}
    for n in range(200):
        for _ in range(dice.choice([0, 1, 3, 12])):
            key = f"k{dice.randrange(15)}"
            if dice.random() < 0.25:
                rows.pop(key, None)
            else:
                rows[key] = str(dice.randrange(4))
        second = float(n) if dice.random() < 0.9 else max(0.0, n - dice.choice([1.5, 20.5]))
        if second in saved:
            continue
        saved[second] = reading(second, rows=dict(rows))
        await store.save_snapshot(saved[second])
        if n in (120, 170):
            while await store.drop_snapshots(before=at(n - 90)):
                pass
            saved = {taken: one for taken, one in saved.items() if taken >= n - 90}
    assert await store.list_snapshots("shop", start=at(0), end=at(999)) == tuple(at(s) for s in sorted(saved))
    for second, expected in saved.items():
        assert await store.find_snapshot("shop", at=at(second), side="before") == expected
        picked = await store.find_snapshot("shop", at=at(second), side="before", keys=["k3", "k9", "nothing"])
        assert picked is not None
        assert picked.rows == {k: v for k, v in expected.rows.items() if k in ("k3", "k9")}


async def test_entries_that_did_not_change_take_no_room(store: Store, url: str, backend: Backend) -> None:
    """A hundred quiet readings of a thousand entries are two whole ones, not a hundred."""
    rows = {f"key {n}": f"[{n},1.5,0.25]" for n in range(1000)}
    await store.save_snapshot(reading(0, rows=rows))
    first = backend.measure_bytes(url)
    for n in range(1, 100):
        await store.save_snapshot(reading(n, rows={**rows, "key 5": f"[{n}]"}))
    assert backend.measure_bytes(url) < 4 * first


async def test_old_readings_are_dropped_and_what_later_ones_need_of_them_stays(store: Store) -> None:
    rows = {"a": "1", "b": "1"}
    await store.save_snapshot(reading(0, rows=rows))
    await store.save_snapshot(reading(0, "other"))
    await store.save_statements("shop", [text_of("a"), text_of("b")])
    await store.save_snapshot(reading(60, rows={**rows, "b": "2"}))
    assert await store.drop_snapshots(before=at(0)) == 0
    assert await store.find_snapshot("shop", at=at(1), side="before") == reading(0, rows=rows)
    assert await store.drop_snapshots(before=at(1)) == 2
    assert await store.drop_snapshots(before=at(1)) == 0
    assert await store.find_snapshot("shop", at=at(1), side="before") is None
    assert await store.find_snapshot("other", at=at(1), side="before") is None
    assert await store.find_snapshot("shop", at=at(60), side="before") == reading(60, rows={"a": "1", "b": "2"})
    assert len(await store.load_statements("shop")) == 2
    assert await store.drop_snapshots(before=at(61)) == 1
    assert await store.load_statements("shop") == ()


async def test_texts_are_known_once_and_found_by_key_and_by_shape(store: Store) -> None:
    await store.save_snapshot(reading(0, rows={"a": "1", "b": "1", "c": "1"}))
    await store.save_snapshot(reading(0, "other", rows={"a": "1"}))
    assert set(await store.list_unknown("shop", limit=9)) == {"a", "b", "c"}
    assert len(await store.list_unknown("shop", limit=2)) == 2
    known = [text_of("a"), text_of("b", own=True), text_of("never read")]
    await store.save_statements("shop", known)
    assert await store.list_unknown("shop", limit=9) == ("c",)
    assert await store.list_unknown("other", limit=9) == ("a",)
    assert await store.load_statements("shop") == (text_of("a"), text_of("b", own=True))
    assert await store.load_statements("shop", keys=["b", "c"]) == (text_of("b", own=True),)
    assert await store.load_statements("shop", fingerprint="f1", keys=["a"]) == (text_of("a"),)
    assert await store.load_statements("shop", fingerprint="f2") == ()
    assert await store.load_statements("other") == ()
    assert await store.load_statements("shop", keys=[f"x{n}" for n in range(2000)]) == ()


async def test_two_processes_that_save_at_the_same_time_lose_nothing(store: Store, other: Store) -> None:
    async def save(through: Store, first: int) -> None:
        for n in range(first, 60, 2):
            await through.save_snapshot(reading(n, rows={"steady": "1", f"k{n % 7}": str(n)}))

    async with asyncio.timeout(60):
        await asyncio.gather(save(store, 0), save(other, 1))
    for n in range(60):
        expected = reading(n, rows={"steady": "1", f"k{n % 7}": str(n)})
        assert await store.find_snapshot("shop", at=at(n), side="before") == expected


async def test_a_lease_has_one_holder_until_it_is_over_or_given_back(store: Store, other: Store) -> None:
    assert await store.hold_lease("collect", "p1", lease_s=60, now=at(0)) == "p1"
    assert await other.hold_lease("collect", "p2", lease_s=60, now=at(59)) == "p1"
    assert await other.hold_lease("something else", "p2", lease_s=60, now=at(59)) == "p2"
    assert await store.hold_lease("collect", "p1", lease_s=60, now=at(59)) == "p1"
    assert await other.hold_lease("collect", "p2", lease_s=60, now=at(118)) == "p1"
    assert await other.hold_lease("collect", "p2", lease_s=60, now=at(119)) == "p2"
    await store.end_lease("collect", "p1")  # it is no longer ours to give
    assert await store.hold_lease("collect", "p1", lease_s=60, now=at(120)) == "p2"
    await other.end_lease("collect", "p2")
    assert await store.hold_lease("collect", "p1", lease_s=60, now=at(120)) == "p1"


async def test_of_many_that_ask_at_once_one_gets_the_lease(store: Store, other: Store) -> None:
    asked = [(store, other)[n % 2].hold_lease("collect", f"p{n}", lease_s=60, now=at(0)) for n in range(20)]
    assert len(set(await asyncio.gather(*asked))) == 1
