"""Plans as lines and findings, from recorded shapes of EXPLAIN's JSON."""

from __future__ import annotations

import pytest

from bot.tools.slow_queries.explain_findings import TableFacts
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
        explain(scan(10, "((orders.customer_id = 42) AND (orders.note ~~* '%s3cret%'::text))")),
        {"orders": TableFacts(rows=5e5)},
    )
    assert "s3cret" not in str(plan)
    assert "42" not in str(plan.lines)
    assert plan.findings[0] == (
        "a sequential scan reads all of orders (about 500,000 rows) and keeps about 10, filtering on "
        "customer_id, note: an index on orders(customer_id, note) may help"
    )


def test_a_called_function_counts_as_what_is_filtered_on() -> None:
    plan = read_plan(explain(scan(10, "(lower(o.email) = 's3cret'::text)")), {"orders": TableFacts(rows=5e5)})
    assert plan.findings[0].endswith("filtering on lower(email): an index on orders(lower(email)) may help")


def test_a_scan_of_a_small_table_or_one_that_keeps_most_rows_gets_no_advice() -> None:
    assert len(read_plan(explain(scan(10, "(a = 1)")), {"orders": TableFacts(rows=500.0)}).findings) == 1
    whole = read_plan(explain(scan(4e5, "(a <> 1)")), {"orders": TableFacts(rows=5e5)})
    assert "may help" not in whole.findings[0]


def test_a_scan_on_the_inner_side_of_a_loop_counts_for_each_outer_row() -> None:
    outer = {
        **node("Index Scan", 2000, 10.0, Relation_Name="customers", Index_Name="pk"),
        "Parent Relationship": "Outer",
    }
    inner = {**scan(3, "(customer_id = c.id)"), "Parent Relationship": "Inner"}
    plan = read_plan(explain(node("Nested Loop", 6000, 9e9, Plans=[outer, inner])), {"orders": TableFacts(rows=500.0)})
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


# -- plans of statements that were run ---------------------------------------------------------------


def ran(
    body: dict[str, object], rows: float, *, loops: float = 1, ms: float = 1.0, **more: object
) -> dict[str, object]:
    spaced = {key.replace("_", " "): value for key, value in more.items()}
    return {**body, "Actual Rows": rows, "Actual Loops": loops, "Actual Total Time": ms, **spaced}


def test_a_plan_that_was_run_tells_what_came_and_how_long_it_took() -> None:
    top = ran(scan(12, "(note = 's3cret'::text)"), 9, ms=80.5, Rows_Removed_by_Filter=499_991)
    plan = read_plan({"Query Text": "select 's3cret'", "Plan": top}, {})  # as auto_explain logs it
    assert (plan.lines[0].actual_rows, plan.lines[0].actual_s) == (9, 0.0805)
    assert "(came 9 in 0.0805 s)" in plan.lines[0].text
    assert plan.findings[0].startswith("a sequential scan reads all of orders (500,000 rows) and keeps 9")
    assert "9 rows came in 0.0805 s" in plan.findings[-1]
    assert "s3cret" not in str(plan)


def test_a_wrong_estimate_is_told_once_where_it_arises() -> None:
    low = ran(scan(10, "((a = 1) AND (b = 2))"), 5000)
    join = ran(
        node("Hash Join", 10, Plans=[low, ran(node("Hash", 100, Plans=[ran(scan(100, "", "b"), 100)]), 100)]), 5000
    )
    findings = read_plan(explain(join), {}).findings
    wrong = [finding for finding in findings if "the planner expected" in finding]
    assert wrong == [
        "the planner expected 10 rows of orders and 5,000 came, 500 times more: ANALYZE orders, and if that does not "
        "help CREATE STATISTICS on a, b of it"
    ]


def test_no_estimate_is_called_wrong_where_a_limit_stopped_the_node_or_few_rows_are_in_play() -> None:
    stopped = ran(scan(50_000, "(a = 1)"), 10)
    assert not any(
        "expected" in f for f in read_plan(explain(ran(node("Limit", 10, Plans=[stopped]), 10)), {}).findings
    )
    assert any("expected" in f for f in read_plan(explain(stopped), {}).findings)
    assert not any("expected" in f for f in read_plan(explain(ran(scan(1, "(a = 1)"), 50)), {}).findings)
    never = {**scan(50_000, "(a = 1)"), "Actual Rows": 0, "Actual Loops": 0, "Actual Total Time": 0.0}
    plan = read_plan(explain(never), {})
    assert not any("expected" in f for f in plan.findings)
    assert "(never run)" in plan.lines[0].text
    assert plan.lines[0].actual_rows is None


def test_sorts_and_hashes_that_went_to_disk_are_told_with_what_they_wrote() -> None:
    spilled = ran(node("Sort", 1e6), 1e6, Sort_Method="external merge", Sort_Space_Used=20_480, Sort_Space_Type="Disk")
    hashed = ran(node("Hash", 1e6), 1e6, Hash_Batches=8)
    grouped = ran(node("Aggregate", 1e6), 1e6, Disk_Usage=2048)
    assert "a sort did not fit work_mem and wrote 20.0 MiB to disk" in read_plan(explain(spilled), {}).findings
    assert "a hash table did not fit work_mem and went to disk in 8 parts" in read_plan(explain(hashed), {}).findings
    assert "a grouping did not fit work_mem and wrote 2.0 MiB to disk" in read_plan(explain(grouped), {}).findings
    memory = ran(node("Sort", 1e6), 1e6, Sort_Method="quicksort", Sort_Space_Used=20_480, Sort_Space_Type="Memory")
    assert len(read_plan(explain(memory), {}).findings) == 1


def test_loops_that_ran_are_counted_and_not_estimated() -> None:
    outer = ran({**scan(1, "", "customers"), "Parent Relationship": "Outer"}, 20_000)
    inner = ran(
        {**node("Index Scan", 1, Relation_Name="orders", Index_Name="pk"), "Parent Relationship": "Inner"}, 1, loops=2e4
    )
    findings = read_plan(explain(ran(node("Nested Loop", 1, Plans=[outer, inner]), 20_000)), {}).findings
    assert "a nested loop ran its inner side 20,000 times" in findings


def test_missing_and_old_statistics_are_told_once_a_table() -> None:
    facts = {"orders": TableFacts(rows=5e5, analyzed=False), "b": TableFacts(rows=100.0, analyzed=True)}
    both = node("Append", 10, Plans=[scan(1, "(a = 1)"), scan(1, "(a = 2)"), scan(1, "", "b")])
    findings = read_plan(explain(both), facts).findings
    assert [f for f in findings if "ANALYZE" in f] == [
        "there are no statistics on orders, so its rows are guessed: ANALYZE orders"
    ]
    old = {"orders": TableFacts(rows=20_000, analyzed=True, changed_rows=15_000)}
    assert any("15,000 rows of orders changed" in f for f in read_plan(explain(scan(1, "(a = 1)")), old).findings)
    fresh = {"orders": TableFacts(rows=20_000, analyzed=True, changed_rows=900)}
    assert not any("changed" in f for f in read_plan(explain(scan(1, "(a = 1)")), fresh).findings)
