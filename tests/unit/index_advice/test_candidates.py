"""What is tried for a use of a table, and what is not."""

from __future__ import annotations

from dataclasses import replace

from bot.tools.index_advice.candidates import build_moves, find_redundant, is_covered
from bot.tools.index_advice.catalog import ExistingIndex, Table
from bot.tools.index_advice.conditions import read_condition
from bot.tools.index_advice.shape import IndexShape, KeyPart
from bot.tools.index_advice.uses import TableUse
from bot.tools.index_advice.words import describe_write_cost
from tests.unit.index_advice.test_conditions import column, table

ORDERS = table(
    "orders",
    column("id", n_distinct=-1.0),
    column("customer_id", n_distinct=5000.0),
    column("status", "text", n_distinct=3.0, common={"open": 0.9, "lost": 0.001}),
    column("secret", "text", n_distinct=-1.0, common={"planted": 0.001}),
    column("closed_at", "timestamp", null_frac=0.01),
    column("flagged", "bool", common={"t": 0.01, "f": 0.99}),
    column("name", "text", plain_order=False),
    column("body", "text", width=5000),
    column("shape", "point"),
)


def existing(
    name: str, *keys: str, unique: bool = False, where: str = "", include: tuple[str, ...] = ()
) -> ExistingIndex:
    return ExistingIndex(
        name=name,
        method="btree",
        keys=tuple(KeyPart(key) for key in keys),
        include=include,
        where=where,
        unique=unique,
        valid=True,
        constraint=False,
        scans=0,
        size_bytes=1,
        ddl="",
    )


def use(
    condition: str, *, order: tuple[KeyPart, ...] = (), columns: frozenset[str] | None = None, on: Table = ORDERS
) -> TableUse:
    return TableUse(
        alias="o",
        table=on,
        comparisons=read_condition(condition, {"o": on}),
        order=order,
        columns=columns,
        scanned_rows=on.rows,
        kept_share=0.001,
    )


def described(one: TableUse) -> list[str]:
    return [" + ".join(shape.describe() for shape in move) for move in build_moves(one)]


def test_equalities_come_first_then_one_range_or_the_order() -> None:
    tried = described(use("((o.status = $1) AND (o.customer_id = $2) AND (o.id > $3))"))
    assert tried[:2] == ["orders (customer_id, status, id)", "orders (customer_id, status)"]
    assert "orders (customer_id)" in tried
    assert "orders (id)" in tried
    assert "orders (id, customer_id)" not in tried
    ordered = described(use("(o.customer_id = $1)", order=(KeyPart("closed_at", True, True),)))
    assert ordered[0] == "orders (customer_id, closed_at)"  # it is read backwards


def test_a_partial_index_is_for_a_rare_category_what_is_missing_or_flagged() -> None:
    assert any(one.endswith("WHERE status = 'lost'::text") for one in described(use("(o.status = 'lost'::text)")))
    assert "orders (customer_id) WHERE closed_at IS NULL" in described(
        use("((o.closed_at IS NULL) AND (o.customer_id = $1))")
    )
    assert "orders (customer_id) WHERE flagged" in described(use("(o.flagged AND (o.customer_id = $1))"))
    assert not any("WHERE" in one for one in described(use("((o.status = 'open'::text) AND (o.customer_id = 1))")))
    assert not any("WHERE" in one for one in described(use("((NOT o.flagged) AND (o.customer_id = 1))")))


def test_a_value_of_few_rows_never_gets_into_the_ddl() -> None:
    assert "planted" not in str(described(use("((o.secret = 'planted'::text) AND (o.customer_id = 1))")))


def test_a_prefix_gets_the_operator_class_that_serves_it() -> None:
    assert described(use("(o.name ~~ 'abc%'::text)")) == ["orders (name text_pattern_ops)"]
    assert described(use("(o.status ~~ 'abc%'::text)")) == ["orders (status)"]


def test_what_no_b_tree_can_hold_is_not_tried() -> None:
    assert described(use("(o.body = $1)")) == []
    assert described(use("(o.name ~~ '%abc'::text)")) == []
    partition = replace(ORDERS, ordinary=False)
    assert described(use("(o.customer_id = 1)", on=partition)) == []


def test_an_or_is_served_by_one_index_for_each_arm() -> None:
    assert described(use("((o.id = 1) OR (o.customer_id = 2))")) == ["orders (id) + orders (customer_id)"]
    with_one = replace(ORDERS, indexes=(existing("orders_pkey", "id", unique=True),))
    assert described(use("((o.id = 1) OR (o.customer_id = 2))", on=with_one)) == ["orders (customer_id)"]


def test_columns_are_carried_only_where_nothing_else_is_read() -> None:
    few = frozenset({"customer_id", "id", "status"})
    assert "orders (customer_id) INCLUDE (id, status)" in described(use("(o.customer_id = $1)", columns=few))
    wide = frozenset({"customer_id", "body"})
    for columns in (wide, None):
        assert not any("INCLUDE" in one for one in described(use("(o.customer_id = $1)", columns=columns)))


def test_nothing_is_tried_that_an_existing_index_does() -> None:
    covered = replace(ORDERS, indexes=(existing("both", "customer_id", "status"),))
    assert described(use("(o.customer_id = $1)", on=covered)) == []
    backwards = IndexShape(schema="public", table="orders", keys=(KeyPart("customer_id", True, True),))
    assert is_covered(backwards, covered.indexes)
    partial = replace(ORDERS, indexes=(existing("some", "customer_id", where="status = 'open'::text"),))
    assert described(use("(o.customer_id = $1)", on=partial)) == ["orders (customer_id)"]
    broken = replace(ORDERS, indexes=(replace(existing("broken", "customer_id"), valid=False),))
    assert described(use("(o.customer_id = $1)", on=broken)) == ["orders (customer_id)"]


def test_a_prefix_becomes_redundant_and_a_constraint_never() -> None:
    shape = IndexShape(schema="public", table="orders", keys=(KeyPart("customer_id"), KeyPart("status")))
    indexes = (
        existing("prefix", "customer_id"),
        existing("unique", "customer_id", unique=True),
        replace(existing("kept", "customer_id"), constraint=True),
        existing("partial", "customer_id", where="flagged"),
        existing("other", "status"),
        existing("carrying", "customer_id", include=("id",)),
    )
    assert find_redundant(shape, indexes) == ("prefix",)


def test_an_index_is_written_as_postgres_takes_it() -> None:
    shape = IndexShape(
        schema="public",
        table="Order",
        keys=(KeyPart("a", True, True), KeyPart("b", True, False), KeyPart("c", False, True), KeyPart("lower(d)")),
        include=("e",),
        where="f IS NULL",
    )
    assert shape.build_ddl("x", concurrently=True) == (
        'CREATE INDEX CONCURRENTLY x ON public."Order" (a DESC, b DESC NULLS LAST, c NULLS FIRST, lower(d)) '
        "INCLUDE (e) WHERE f IS NULL"
    )
    expression = IndexShape(schema="s", table="t", keys=(KeyPart("data ->> 'k'::text"),))
    assert expression.build_ddl() == "CREATE INDEX ON s.t ((data ->> 'k'::text))"


def test_a_name_is_short_and_free() -> None:
    shape = IndexShape(schema="s", table="t" * 70, keys=(KeyPart("a"),))
    first = shape.build_name(())
    second = shape.build_name({first})
    assert len(first) <= 63
    assert len(second) <= 63
    assert first != second


def test_an_order_downwards_is_served_by_the_index_upwards_that_is_read_backwards() -> None:
    down = use("(o.customer_id = $1)", order=(KeyPart("closed_at", True, True),))
    up = use("(o.customer_id = $1)", order=(KeyPart("closed_at"),))
    assert described(down) == described(up)
    mixed = described(use("(o.customer_id = $1)", order=(KeyPart("closed_at", True, True), KeyPart("id"))))
    assert mixed[0] == "orders (customer_id, closed_at, id DESC)"


def test_what_an_index_costs_those_who_write_is_said_in_a_line() -> None:
    written = replace(ORDERS, inserted=60_000, updated=40, deleted=0, hot=30)
    shape = IndexShape(schema="public", table="orders", keys=(KeyPart("customer_id"),))
    words = describe_write_cost(shape, written)
    assert words.startswith("index number 1 of orders, which took 60,000 inserts, 40 updates so far; 30 updates")
    assert len(words) <= 140
    quiet = describe_write_cost(shape, replace(ORDERS, inserted=0, updated=0, deleted=0, hot=0))
    assert quiet == "index number 1 of orders, which took no writes so far"
