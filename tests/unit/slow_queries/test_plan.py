"""Plans as lines and findings, from recorded shapes of EXPLAIN's JSON."""

from __future__ import annotations

import pytest

from bot.tools.slow_queries.plan import list_relations, read_plan


def node(kind: str, rows: float = 1, cost: float = 1.0, **more: object) -> dict[str, object]:
    spaced = {key.replace("_", " "): value for key, value in more.items()}
    return {"Node Type": kind, "Plan Rows": rows, "Total Cost": cost, "Plan Width": 100, **spaced}


def scan(rows: float, filters: str, relation: str = "orders") -> dict[str, object]:
    return node("Seq Scan", rows, 100.0, Relation_Name=relation, Schema="public", Alias=relation, Filter=filters)


def explain(top: dict[str, object]) -> object:
    return [{"Plan": top}]


def test_a_scan_of_many_rows_names_the_columns_it_filters_on() -> None:
    plan = read_plan(
        explain(scan(10, "((orders.customer_id = 42) AND (orders.note ~~* '%s3cret%'::text))")), {"orders": 5e5}
    )
    assert "s3cret" not in str(plan)
    assert "42" not in str(plan.lines)
    assert plan.findings[0] == (
        "a sequential scan reads all of orders (about 500,000 rows) and keeps about 10, filtering on "
        "customer_id, note: an index on orders(customer_id, note) may help"
    )


def test_a_scan_of_a_small_table_or_one_that_keeps_most_rows_gets_no_advice() -> None:
    assert len(read_plan(explain(scan(10, "(a = 1)")), {"orders": 500.0}).findings) == 1
    whole = read_plan(explain(scan(4e5, "(a <> 1)")), {"orders": 5e5})
    assert "may help" not in whole.findings[0]


def test_a_scan_on_the_inner_side_of_a_loop_counts_for_each_outer_row() -> None:
    outer = {
        **node("Index Scan", 2000, 10.0, Relation_Name="customers", Index_Name="pk"),
        "Parent Relationship": "Outer",
    }
    inner = {**scan(3, "(customer_id = c.id)"), "Parent Relationship": "Inner"}
    plan = read_plan(explain(node("Nested Loop", 6000, 9e9, Plans=[outer, inner])), {"orders": 500.0})
    assert "about 2,000 times" in plan.findings[0]
    assert [line.depth for line in plan.lines] == [0, 1, 1]
    assert plan.lines[1].text.startswith("  -> Index Scan using pk on customers")


def test_large_sorts_and_hashes_are_told_with_their_size() -> None:
    plan = read_plan(
        explain(node("Sort", 1e6, 5.0, Sort_Key=["note", "'s3cret'::text"], Plans=[node("Hash", 1e6)])), {}
    )
    assert "a sort of about 1,000,000 rows (95 MiB)" in plan.findings[0]
    assert "a hash table" in plan.findings[1]
    assert "s3cret" not in str(plan)


def test_a_deep_plan_is_cut_and_says_so() -> None:
    top = node("Append", Plans=[node("Result") for _ in range(99)])
    plan = read_plan(explain(top), {})
    assert (len(plan.lines), plan.left_out) == (60, 40)


@pytest.mark.parametrize("body", [None, [], {}, "x", [1], [{"Plan": 1}], [{}]])
def test_what_is_no_plan_is_refused(body: object) -> None:
    with pytest.raises(ValueError, match="plan"):
        read_plan(body, {})


def test_relations_are_listed_once_with_their_schema() -> None:
    body = explain(node("Append", Plans=[scan(1, ""), scan(1, ""), scan(1, "", "items")]))
    assert list_relations(body) == (("public", "orders"), ("public", "items"))
    assert list_relations("x") == ()
