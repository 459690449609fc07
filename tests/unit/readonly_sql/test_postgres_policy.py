"""What a text is, before any server sees it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.policy_postgres import (
    Statement,
    has_foreign_words,
    inspect_expression,
    inspect_statement,
    inspect_view,
)
from bot.tools.readonly_sql.policy_postgres_names import READING_NODES, SAFE_VOLATILE, WORDS_OF_NODES
from bot.tools.readonly_sql.policy_postgres_uses import ANY_SETTING
from bot.tools.slow_queries.explain_parse import MOST_TOKENS
from bot.tools.slow_queries.lexer import TokenKind, tokenize

WRITES = (
    "insert into t values (1)",
    "with x as (delete from t returning *) select * from x",
    "select * into t2 from t",
    "select * from t for update",
    "create table t (a int)",
    "copy t to program 'id'",
    "do $$ begin end $$",
    "explain analyze select 1",
    "set transaction read write",
)
READS = (
    "select a, b from t where a = 1 and b like 'x%'",
    "with x as (select 1 as a) select sum(a) over () from x",
    "table t",
    "values (1), (2)",
    "show work_mem",
)
GAPS = st.lists(
    st.sampled_from([" ", "\n", "\t", "/* x */", "/* ; drop table t */", "-- y\n", "/* a /* b */ c */", "\r\n"]),
    min_size=1,
    max_size=3,
).map("".join)


def judge(sql: str) -> Statement | ToolFailed:
    try:
        return inspect_statement(sql)
    except ToolFailed as error:
        return error


def refuse(sql: str) -> ToolFailed:
    judged = judge(sql)
    assert isinstance(judged, ToolFailed), f"{sql!r} was taken"
    return judged


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_statement_or_a_clear_refusal(text: str) -> None:
    judged = judge(text)
    if isinstance(judged, ToolFailed):
        assert judged.code in {"parse_failed", "multiple_statements", "not_read_only", "not_allowed"}
        assert judged.message
    else:
        assert judged.sql
        assert text[judged.start :].startswith(judged.sql)


@st.composite
def spread(draw: st.DrawFn, statements: tuple[str, ...]) -> str:
    """A statement with comments and blanks between its words."""
    parts = [
        t.text if t.kind is not TokenKind.SPACE else draw(GAPS) for t in tokenize(draw(st.sampled_from(statements)))
    ]
    return draw(GAPS) + "".join(parts) + draw(GAPS) + draw(st.sampled_from(["", ";", " ; -- end", "\n;\n"]))


@given(spread(WRITES))
@settings(max_examples=200, deadline=None)
def test_comments_and_blanks_hide_no_write(sql: str) -> None:
    assert refuse(sql).code == "not_read_only"


@given(spread(READS))
@settings(max_examples=200, deadline=None)
def test_comments_and_blanks_spoil_no_read(sql: str) -> None:
    assert inspect_statement(sql).sql


@given(st.sampled_from(READS), st.sampled_from(WRITES), st.sampled_from([";", ";;", " ; /* x */ ;", ";\n--\n"]))
@settings(max_examples=60, deadline=None)
def test_a_second_statement_is_always_seen(read: str, write: str, between: str) -> None:
    assert refuse(f"{read}{between}{write}").code == "multiple_statements"
    assert refuse(f"{write}{between}{read}").code == "multiple_statements"


@pytest.mark.parametrize("filler", ["1+", "not ", "(", "- ", "'a'||", "f(", "case when true then ", "array["])
def test_no_depth_of_nesting_ends_the_process(filler: str) -> None:
    for count in (50, 500, 4_000, 24_000):
        judged = judge("select " + filler * count + "1")
        assert not isinstance(judged, ToolFailed) or judged.code == "parse_failed"


def test_a_statement_with_many_values_is_taken_up_to_the_bound() -> None:
    fitting = (MOST_TOKENS - 20) // 2
    inspect_statement(f"select 1 where 1 in ({','.join(['1'] * fitting)})")
    assert "words, values and signs" in refuse(f"select 1 where 1 in ({','.join(['1'] * fitting * 2)})").message


def test_names_are_taken_as_the_server_folds_them() -> None:
    uses = inspect_statement(
        'select LOWER(a), "Weird".F(b), c.d, (e).f, x OPERATOR(s.+) y, z::S.T '
        'from A.B, "C", U&"\\0064" order by 1 using <'
    ).uses
    assert uses.functions == {("", "lower"), ("Weird", "f")}
    assert uses.fields == {"d"}
    assert uses.members == {"f"}
    assert ("s", "+") in uses.operators
    assert ("", "<") in uses.operators
    assert uses.types == uses.casts == {("s", "t")}
    assert uses.relations == {("a", "b"), ("", "C"), ("", "d")}


@pytest.mark.parametrize(
    "sql",
    [
        "select * from f() as x (a t)",
        "select * from json_table('[]'::jsonb, '$[*]' columns (a t path '$'))",
        "select json_value('1', '$' returning t)",
        "select * from xmltable('/a' passing '<a/>' columns a t)",
        "select null::t[]",
        "select cast(1 as t)",
        "select t '1'",
    ],
)
def test_types_are_found_wherever_they_may_stand(sql: str) -> None:
    assert ("", "t") in inspect_statement(sql).uses.types


def test_tables_of_a_with_are_known_as_such() -> None:
    uses = inspect_statement("with a as (select 1), b as (select * from a) select * from b, c").uses
    assert uses.tables == {"a", "b"}
    assert ("", "c") in uses.relations


@pytest.mark.parametrize(
    ("sql", "settings_used"),
    [
        ("show Work_Mem", {"work_mem"}),
        ("select current_setting('Work_Mem')", {"work_mem"}),
        ("select * from pg_settings", {ANY_SETTING}),
        ("select * from pg_catalog.pg_settings s", {ANY_SETTING}),
        ("select pg_show_all_settings()", {ANY_SETTING}),
        ("select 1", set()),
    ],
)
def test_settings_are_found(sql: str, settings_used: set[str]) -> None:
    assert inspect_statement(sql).uses.settings == settings_used


@pytest.mark.parametrize(("sql", "count"), [("select 1", 0), ("select $1::int", 1), ("select $2::int, $1::text", 2)])
def test_parameters_are_counted(sql: str, count: int) -> None:
    assert inspect_statement(sql).parameters == count


def test_a_text_that_was_refused_is_not_repeated_with_its_values() -> None:
    failure = refuse("selekt 'g3heim', g3heim2 from")
    assert "g3heim'" not in failure.message
    assert refuse("select 'g3heim").message.count("g3heim") == 0


def test_explain_points_to_the_tool_for_plans() -> None:
    assert "explain_query" in refuse("explain select 1").fix


def test_a_name_that_the_server_would_cut_is_refused() -> None:
    inspect_statement(f"select * from {'x' * 63}")
    assert "longer than 63" in refuse(f"select * from {'x' * 64}").message
    assert "longer than 63" in refuse(f'select * from "{"ä" * 32}"').message
    inspect_statement(f"select '{'x' * 1000}', $a${'y' * 100}$a$")


def test_names_beyond_ascii_are_noticed_only_where_they_are_not_quoted() -> None:
    assert has_foreign_words("select Größe from t")
    assert not has_foreign_words("select \"Größe\", 'ä' /* ü */ from t -- ö")


def test_views_and_checks_are_read_like_statements() -> None:
    assert inspect_view(" SELECT pg_sleep(1) AS a\n   FROM t;", "v").functions == {("", "pg_sleep")}
    assert inspect_expression("(VALUE > 0) AND f(VALUE)", "d").functions == {("", "f")}
    with pytest.raises(ToolFailed, match="view v: FOR UPDATE"):
        inspect_view("select 1 from t for update", "v")


def node_names() -> Iterator[str]:
    tree = importlib.import_module("postgast.pg_query_pb2").DESCRIPTOR
    yield from tree.message_types_by_name


def test_what_may_stand_in_a_tree_is_a_list_of_nodes_that_exist() -> None:
    existing = set(node_names())
    assert existing >= READING_NODES
    assert existing >= set(WORDS_OF_NODES)
    # No statement but SELECT is among them, whatever a later parser adds.
    assert {name for name in READING_NODES if name.endswith("Stmt")} == {"RawStmt", "SelectStmt"}


def test_no_function_that_is_known_to_act_is_on_the_list_of_safe_ones() -> None:
    acting = re.compile(
        "sleep|lock$|advisory|terminate|cancel|reset|reload|rotate|switch|notify|lo_|read_|write|import|export|create"
        "|drop|promote|emit|set_config|nextval|setval|xml|replay_pause$|replay_resume"
    )
    assert [name for name in sorted(SAFE_VOLATILE) if acting.search(name)] == []
