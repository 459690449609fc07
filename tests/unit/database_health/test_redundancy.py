"""Which index does the work of another one."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bot.tools.database_health.redundancy import IndexShape, KeyPart, Redundancy, find_redundant


def shape(key: str, *columns: str, rank: int = 0, **more: object) -> IndexShape:
    parts = tuple(KeyPart(text=column) for column in columns)
    whole = IndexShape(key=key, table="t", method="btree", parts=parts, rank=(rank,))
    return replace(whole, **more)  # type: ignore[arg-type]


def say(found: tuple[Redundancy, ...]) -> set[tuple[str, str, str]]:
    return {(item.index.key, item.kind, item.covered_by.key) for item in found}


def test_of_two_equal_ones_the_better_stays() -> None:
    assert say(find_redundant([shape("x", "a", rank=2), shape("y", "a", rank=1)])) == {("y", "duplicate", "x")}


def test_of_a_chain_of_prefixes_the_longest_stays_and_covers_all() -> None:
    chain = [shape("1", "a"), shape("2", "a", "b"), shape("3", "a", "b", "c")]
    assert say(find_redundant(chain)) == {("1", "prefix_redundant", "3"), ("2", "prefix_redundant", "3")}


def test_twins_that_a_longer_one_covers_are_named_with_each_other_and_with_it() -> None:
    found = find_redundant([shape("1", "a", rank=1), shape("2", "a"), shape("3", "a", "b")])
    assert say(found) == {("2", "duplicate", "1"), ("1", "prefix_redundant", "3")}


def test_other_methods_know_no_prefix() -> None:
    assert find_redundant([shape("1", "a", method="gin"), shape("2", "a", "b", method="gin")]) == ()
    found = find_redundant([shape("1", "a", method="gin"), shape("2", "a", method="gin", rank=1)])
    assert say(found) == {("1", "duplicate", "2")}


def test_stored_columns_have_to_be_in_the_longer_index_as_well() -> None:
    longer = shape("2", "a", "b", included=frozenset({"c"}))
    assert find_redundant([shape("1", "a", included=frozenset({"d"})), longer]) == ()
    found = find_redundant([shape("1", "a", included=frozenset({"b", "c"})), longer])
    assert say(found) == {("1", "prefix_redundant", "2")}


def test_what_something_else_needs_is_never_named() -> None:
    for flags in ({"pinned": True}, {"droppable": False}):
        assert find_redundant([shape("1", "a", **flags), shape("2", "a", "b")]) == ()
    assert find_redundant([shape("1", "a", unique=True, pinned=True), shape("2", "a", unique=True, pinned=True)]) == ()


def test_constraints_are_not_replaced_by_what_enforces_less_or_later() -> None:
    kept = shape("1", "a", unique=True, constraint=True)
    assert say(find_redundant([kept, shape("2", "a", rank=9)])) == {("2", "duplicate", "1")}
    for other in (
        shape("2", "a", unique=True, deferrable=True, rank=9),
        shape("2", "a", unique=True, nulls_not_distinct=True, rank=9),
        shape("2", "a", "b", unique=True, rank=9),
    ):
        assert find_redundant([kept, other]) == ()


shapes = st.builds(
    lambda columns, unique, pinned, predicate, included: (columns, unique, pinned, predicate, included),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "p"]),
    st.frozensets(st.sampled_from("de"), max_size=1),
)


@given(st.lists(shapes, max_size=8))
def test_whatever_is_dropped_something_that_stays_does_its_work(drawn: list[tuple[object, ...]]) -> None:
    given_shapes = [
        shape(str(n), *columns, unique=unique, pinned=pinned, predicate=predicate, included=included)  # type: ignore[misc]
        for n, (columns, unique, pinned, predicate, included) in enumerate(drawn)
    ]
    found = find_redundant(given_shapes)
    gone = {item.index.key for item in found}
    assert len(gone) == len(found)
    left = [one for one in given_shapes if one.key not in gone]
    for item in found:
        lost = item.index
        assert not lost.pinned
        assert any(
            one.parts[: len(lost.parts)] == lost.parts
            and one.predicate == lost.predicate
            and lost.included <= one.included | {part.text for part in one.parts}
            for one in left
        )
        if lost.unique:
            assert any(one.unique and one.parts == lost.parts for one in left)
    # Nothing is left that could still go.
    assert find_redundant(left) == ()
