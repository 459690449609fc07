"""Conditions of plans, taken apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.tools.index_advice.catalog import Column, Table
from bot.tools.index_advice.conditions import read_condition, read_key


def column(name: str, type_name: str = "int4", **more: object) -> Column:
    values: dict[str, object] = {
        "type": type_name,
        "domain": False,
        "plain_order": True,
        "width": 4,
        "n_distinct": 100.0,
        "null_frac": 0.0,
        "common": {},
    }
    return Column(name=name, type_name=type_name, **(values | more))  # type: ignore[arg-type]


def table(name: str, *columns: Column, rows: float = 100_000) -> Table:
    return Table(
        oid=1,
        schema="public",
        name=name,
        rows=rows,
        pages=1000,
        size_bytes=8_000_000,
        ordinary=True,
        inserted=0,
        updated=0,
        hot=0,
        deleted=0,
        columns={c.name: c for c in columns},
        indexes=(),
    )


TABLES = {
    "o": table(
        "orders",
        *(column(name) for name in ("id", "a", "b", "customer_id", "open")),
        column("s", "varchar"),
        column("t", "text"),
        column("data", "jsonb"),
        column("Odd", "int4"),
        column("p", "int4", domain=True),
    ),
    "c": table("customers", column("id"), column("name", "text")),
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(o.a = 42)", [("a", "equal", "42")]),
        ("(42 = o.a)", [("a", "equal", "42")]),
        ("((o.a = $1) AND (o.b > $2))", [("a", "equal", None), ("b", "range", None)]),
        ("((o.s)::text = 'x'::text)", [("s", "equal", "x")]),
        ("((o.p)::integer = 3)", [("p", "equal", "3")]),
        ("((o.a)::text = '3'::text)", [("a::text", "equal", "3")]),
        ("(o.a = ANY ('{1,2}'::integer[]))", [("a", "among", "{1,2}")]),
        ("(o.a <> ALL ('{1,2}'::integer[]))", []),
        ("(o.a <> 3)", []),
        ("(o.t ~~ 'abc%'::text)", [("t", "prefix", "abc%")]),
        ("(o.t ~~ '%abc'::text)", [("t", "pattern", "%abc")]),
        ("(o.t ~~ $1)", [("t", "pattern", None)]),
        ("(o.t ~~* 'abc%'::text)", [("t", "pattern", "abc%")]),
        ("(o.a IS NULL)", [("a", "is_null", None)]),
        ("(o.a IS NOT NULL)", [("a", "not_null", None)]),
        ("o.open", [("open", "is_true", None)]),
        ("(NOT o.open)", [("open", "is_false", None)]),
        ('(o."Odd" = 1)', [('"Odd"', "equal", "1")]),
        ("(lower(o.t) = 'x'::text)", [("lower(t)", "equal", "x")]),
        ("((o.data ->> 'city'::text) = 'x'::text)", [("data ->> 'city'::text", "equal", "x")]),
        ("(replace(o.t, 'planted secret'::text, ''::text) = 'x'::text)", []),
        ("(ROW(o.a, o.b) > ROW(1, 2))", [("a", "range", "1")]),
        ("(o.a = (InitPlan 1).col1)", [("a", "equal", None)]),
        ("(o.a = $0)", [("a", "equal", None)]),
        ("(hashed SubPlan 1)", []),
        ("(o.a = o.b)", []),
        ("((o.a + o.b) = 3)", [("a + b", "equal", "3")]),
        ("(o.nowhere = 1)", []),
        ("(x.a = 1)", []),
        ("(o.a = g.g)", [("a", "equal", None)]),
        ("(o.a = (o.b + c.id))", []),
        ("(random() < 0.5)", []),
        ("not even SQL (", []),
    ],
)
def test_a_comparison_tells_its_key_and_what_it_asks_for(text: str, found: list[tuple[str, str, str | None]]) -> None:
    read = read_condition(text, TABLES)
    assert [(c.key, c.kind, c.constant) for c in read] == found
    assert all(c.alias == "o" for c in read)
    assert "planted" not in str(read)


def test_a_join_tells_both_sides_and_can_be_no_partial_index() -> None:
    read = read_condition("(o.customer_id = c.id)", TABLES)
    assert [(c.alias, c.key, c.other, c.predicate) for c in read] == [
        ("o", "customer_id", "c", ""),
        ("c", "id", "o", ""),
    ]


def test_the_arms_of_an_or_are_numbered_and_one_that_nothing_serves_spoils_all() -> None:
    read = read_condition("((o.a = 1) OR (o.b = 2))", TABLES)
    assert [(c.key, c.arm) for c in read] == [("a", 1), ("b", 2)]
    assert read_condition("((o.a = 1) OR (o.t ~~ '%x'::text))", TABLES) == ()
    assert read_condition("((o.a = 1) OR (o.b <> 2))", TABLES) == ()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("o.a", ("o", "a", False, False)),
        ("o.a DESC", ("o", "a", True, True)),
        ("o.a DESC NULLS LAST", ("o", "a", True, False)),
        ("o.a NULLS FIRST", ("o", "a", False, True)),
        ("(lower(o.t))", ("o", "lower(t)", False, False)),
        ("(count(*))", None),
        ("(o.a + c.id)", None),
    ],
)
def test_a_sort_key_tells_its_direction(text: str, key: tuple[str, str, bool, bool] | None) -> None:
    assert read_key(text, TABLES) == key


@given(st.text(alphabet="o.ab =$1()'%<>ANDORNULLIS", max_size=60))
def test_no_condition_however_odd_breaks_the_reading(text: str) -> None:
    for comparison in read_condition(text, TABLES):
        assert comparison.alias in TABLES
        assert set(comparison.columns) <= TABLES[comparison.alias].columns.keys()
