"""Plans of both servers as lines and findings; those of MySQL 8 are from its documentation, never run."""

from __future__ import annotations

import json

import pytest

from bot.tools.mysql.plan import read_mysql_plan, redact_tree

# The form of https://dev.mysql.com/doc/refman/8.0/en/explain-output.html and of the optimizer's worklog examples.
MYSQL_8 = {
    "query_block": {
        "select_id": 1,
        "cost_info": {"query_cost": "20530.75"},
        "ordering_operation": {
            "using_filesort": True,
            "grouping_operation": {
                "using_temporary_table": True,
                "using_filesort": False,
                "nested_loop": [
                    {
                        "table": {
                            "table_name": "o",
                            "access_type": "ALL",
                            "possible_keys": None,
                            "rows_examined_per_scan": 99_000,
                            "rows_produced_per_join": 9_900,
                            "filtered": "10.00",
                            "cost_info": {"read_cost": "9000.0", "eval_cost": "990.0", "prefix_cost": "9990.0"},
                            "used_columns": ["id", "c_id", "note"],
                            "attached_condition": "((`shop`.`o`.`note` = 'a secret') and (`o`.`c_id` is not null))",
                        }
                    },
                    {
                        "table": {
                            "table_name": "c",
                            "access_type": "eq_ref",
                            "possible_keys": ["PRIMARY"],
                            "key": "PRIMARY",
                            "used_key_parts": ["id"],
                            "key_length": "4",
                            "ref": ["shop.o.c_id"],
                            "rows_examined_per_scan": 1,
                            "rows_produced_per_join": 9_900,
                            "filtered": "100.00",
                        }
                    },
                ],
            },
        },
        "select_list_subqueries": [
            {
                "dependent": True,
                "cacheable": False,
                "query_block": {
                    "select_id": 2,
                    "table": {
                        "table_name": "l",
                        "access_type": "ALL",
                        "rows_examined_per_scan": 500,
                        "filtered": "10.00",
                        "attached_condition": "(`shop`.`l`.`o_id` = `shop`.`o`.`id`)",
                    },
                },
            }
        ],
    }
}


def test_a_plan_in_the_form_of_mysql_8_becomes_lines_with_its_cost() -> None:
    plan = read_mysql_plan(MYSQL_8)
    assert plan.total_cost == 20530.75
    assert [(line.depth, line.node) for line in plan.lines] == [
        (0, "select"),
        (1, "sort"),
        (2, "temporary table"),
        (3, "full scan"),
        (3, "unique look-up"),
        (1, "select"),
        (2, "full scan"),
    ]
    assert plan.estimated_rows == 9_900
    assert any("o (about 99,000 rows): no index serves the condition on note" in words for words in plan.findings)


def test_no_literal_of_a_condition_is_in_lines_findings_or_tree() -> None:
    plan = read_mysql_plan(MYSQL_8)
    shown = json.dumps([line.text for line in plan.lines]) + " ".join(plan.findings)
    tree = json.dumps(redact_tree(MYSQL_8))
    assert "secret" not in shown + tree
    assert '"key_length": "4"' in tree
    assert '"query_cost": "20530.75"' in tree


@pytest.mark.parametrize(
    ("condition", "columns"),
    [
        ("t.a = 5", "t(a)"),
        ("t.a > 3 and t.b = 'x' and t.c < 9", "t(b, a)"),
        ("t.a in (1,2) and t.b like 'x%'", "t(a, b)"),
        ("t.a like '%x'", ""),
        ("t.a = 1 or t.b = 2", ""),
        ("t.a is not null", ""),
        ("lower(t.a) = 'x'", ""),
        ("t.a = 'b = 3 or c = 4'", "t(a)"),
    ],
)
def test_an_index_is_proposed_only_where_one_could_serve_the_condition(condition: str, columns: str) -> None:
    table = {"table_name": "t", "access_type": "ALL", "rows": 50_000, "filtered": 100, "attached_condition": condition}
    plan = read_mysql_plan({"query_block": {"select_id": 1, "nested_loop": [{"table": table}]}})
    proposed = (
        plan.findings[0].rpartition("one on ")[2].removesuffix(" may help") if "one on" in plan.findings[0] else ""
    )
    assert proposed == columns


def test_an_index_that_was_not_used_is_named_instead_of_a_new_one() -> None:
    table = {
        "table_name": "t",
        "access_type": "ALL",
        "rows": 50_000,
        "possible_keys": ["k"],
        "attached_condition": "t.a=1",
    }
    plan = read_mysql_plan({"query_block": {"nested_loop": [{"table": table}]}})
    assert "although k could serve it" in plan.findings[0]


def test_small_tables_are_no_finding() -> None:
    table = {"table_name": "t", "access_type": "ALL", "rows": 90, "attached_condition": "t.a=1"}
    assert len(read_mysql_plan({"query_block": {"nested_loop": [{"table": table}]}}).findings) == 1


@pytest.mark.parametrize("body", [None, [], {}, {"query_block": 3}, {"query_plan": {}}])
def test_what_is_no_plan_is_an_error(body: object) -> None:
    with pytest.raises(ValueError, match="no plan"):
        read_mysql_plan(body)


def test_a_plan_of_many_tables_is_cut_and_counted() -> None:
    tables = [{"table": {"table_name": f"t{n}", "access_type": "ALL", "rows": 1}} for n in range(80)]
    plan = read_mysql_plan({"query_block": {"nested_loop": tables}})
    assert (len(plan.lines), plan.left_out) == (60, 21)
