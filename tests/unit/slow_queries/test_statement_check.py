"""One statement, of a kind that has a plan: taken; anything else: refused with the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import ToolFailed
from bot.tools.slow_queries.statement_check import LONGEST_SQL, take_statement


@pytest.mark.parametrize(
    ("text", "statement", "parameters"),
    [
        ("select 1", "select 1", False),
        (" \n-- why\n select $1 ;; -- end", "select $1", True),
        ("select '$1'", "select '$1'", False),
        ("EXPLAIN (costs off, FORMAT json) SELECT 1;", "SELECT 1", False),
        ("explain verbose (select 1)", "(select 1)", False),
        ("explain ((select 1) union (select 2))", "((select 1) union (select 2))", False),
        ("/* a; b */ with x as (select 1) table_of_x /* ; */", None, False),
        ("select 'a;b', \"c;d\", $$e;f$$, E'\\';'", None, False),
    ],
)
def test_a_statement_is_taken_without_what_is_around_it(text: str, statement: str | None, parameters: bool) -> None:
    taken = take_statement(text)
    assert taken[1] is parameters
    if statement is not None:
        assert taken[0] == statement


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "parse_failed"),
        (" ;; ", "parse_failed"),
        ("-- only a comment", "parse_failed"),
        ("select $$ cut", "parse_failed"),
        ("select '" + "x" * LONGEST_SQL + "'", "parse_failed"),
        ("select 1; select 2", "multiple_statements"),
        ("select '\\'; select 2 --'", "multiple_statements"),
        ("explain analyze select 1", "not_read_only"),
        ("explain (buffers, analyze) select 1", "not_read_only"),
        ("EXPLAIN/**/ANALYZE select 1", "not_read_only"),
        ("explain", "parse_failed"),
        ("vacuum full", "not_read_only"),
        ("explain create table x as select 1", "not_read_only"),
        ("explain execute something", "not_read_only"),
        ("table x", "not_read_only"),
        ("42", "not_read_only"),
    ],
)
def test_everything_else_has_its_code(text: str, code: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        take_statement(text)
    assert caught.value.code == code


@given(st.text(alphabet="select 1;'\"$-/*\\analyzexpE()\n", max_size=60))
def test_what_is_taken_is_a_part_of_the_text_and_has_no_semicolon_outside_quotes(text: str) -> None:
    try:
        statement, _ = take_statement(text)
    except ToolFailed:
        return
    assert statement in text
    assert take_statement(statement)[0] == statement
