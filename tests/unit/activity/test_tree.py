"""From "waits for" to trees: every session once, behind somebody that it really waits for, circles cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bot.tools.activity.tree import Forest, plant


def shape(forest: Forest, key: int) -> dict[int, object]:
    """A tree as nested dicts."""
    return {child: shape(forest, child) for child in forest.children[key]}


def whole(forest: Forest) -> dict[int, object]:
    return {root: shape(forest, root) for root in forest.roots}


def test_a_chain_of_five_is_shown_root_first() -> None:
    forest = plant({2: [1], 3: [2], 4: [3], 5: [4]}, {2: 9.0, 3: 8.0, 4: 7.0, 5: 6.0})
    assert whole(forest) == {1: {2: {3: {4: {5: {}}}}}}
    assert forest.behind == {1: 4, 2: 3, 3: 2, 4: 1, 5: 0}


def test_who_stands_in_the_queue_behind_a_waiter_is_put_behind_it_and_not_beside_it() -> None:
    forest = plant({2: [1], 3: [1, 2]}, {2: 5.0, 3: 4.0})
    assert whole(forest) == {1: {2: {3: {}}}}
    assert forest.others[3] == (1,)


def test_fifty_that_want_what_one_holds_stand_side_by_side_although_they_queue() -> None:
    blockers = {n: range(1, n) for n in range(2, 52)}
    forest = plant(blockers, {}, {n: {1} for n in blockers})
    assert whole(forest) == {1: {n: {} for n in blockers}}
    assert forest.others[4] == (2, 3)
    assert forest.behind[1] == 50


def test_d38_co_waiters_do_not_block_each_other() -> None:
    """A hand-made join over pg_locks let them; https://github.com/Tracer-Cloud/opensre/pull/2934."""
    forest = plant({2: [1], 3: [1], 4: [1]}, {2: 1.0, 3: 3.0, 4: 2.0})
    assert whole(forest) == {1: {3: {}, 4: {}, 2: {}}}
    assert list(shape(forest, 1)) == [3, 4, 2]


def test_a_session_behind_two_roots_stands_once_and_names_the_other_root() -> None:
    forest = plant({3: [1, 2], 4: [2]}, {})
    assert whole(forest) == {2: {4: {}}, 1: {3: {}}}
    assert forest.others[3] == (2,)
    assert forest.behind[2] == 2


def test_repeated_numbers_and_waits_for_oneself_do_not_matter() -> None:
    assert whole(plant({2: [1, 1, 2], 7: [7]}, {})) == {1: {2: {}}}


def test_a_deadlock_is_cut_behind_the_one_that_has_waited_longest() -> None:
    forest = plant({1: [2], 2: [1]}, {1: 0.5, 2: 0.7})
    assert whole(forest) == {2: {1: {}}}
    assert forest.cut == {(2, 1)}


def test_a_circle_behind_a_real_root_hangs_on_that_root() -> None:
    forest = plant({2: [1, 3], 3: [2]}, {2: 1.0, 3: 9.0})
    assert whole(forest) == {1: {2: {3: {}}}}
    assert forest.cut == {(2, 3)}


def test_who_waits_behind_a_circle_is_not_taken_for_its_root() -> None:
    forest = plant({1: [2], 2: [1], 9: [1]}, {9: 100.0, 1: 1.0, 2: 0.5})
    assert whole(forest) == {1: {9: {}, 2: {}}}


def test_a_chain_as_long_as_max_connections_is_no_trouble() -> None:
    forest = plant({n + 1: [n] for n in range(1, 5_000)}, {})
    assert forest.roots == (1,)
    assert forest.behind[1] == 4_999


graphs = st.dictionaries(st.integers(0, 12), st.lists(st.integers(0, 12), max_size=5), max_size=13)


@given(graphs, st.dictionaries(st.integers(0, 12), st.floats(0, 100)), graphs)
def test_whatever_waits_for_whatever_everybody_stands_in_the_trees_exactly_once(
    blockers: dict[int, list[int]], waits: dict[int, float], holders: dict[int, list[int]]
) -> None:
    real = {pid: {b for b in found if b != pid} for pid, found in blockers.items()}
    everyone = {pid for pid, found in real.items() if found} | {b for found in real.values() for b in found}
    forest = plant(blockers, waits, holders)

    seen: list[int] = []

    def visit(key: int) -> None:
        seen.append(key)
        for child in forest.children[key]:
            assert key in real[child]
            assert set(forest.others[child]) == real[child] - {key}
            visit(child)

    for root in forest.roots:
        visit(root)
    assert sorted(seen) == sorted(everyone)
    for root in forest.roots:
        first = {b for b in real.get(root, ()) if b in holders.get(root, ())} or real.get(root, set())
        assert all((root, b) in forest.cut for b in first)
    for waiter, blocker in forest.cut:
        assert blocker in real[waiter]
