"""Repairs of normalised texts, without a database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.tools.slow_queries.explain_parse import parse_tree
from bot.tools.slow_queries.explain_repair import add_types, repair_parameters, suggest_types


@pytest.mark.parametrize(
    ("sql", "repaired"),
    [
        ("select interval $1", "select $1::interval"),
        ("select INTERVAL  $1 day", "select $1::INTERVAL day"),
        ("select date $1 - interval $2", "select $1::date - $2::interval"),
        ("select timestamp without time zone $1", "select $1::timestamp without time zone"),
        ("select double precision $1, jsonb $2", "select $1::double precision, $2::jsonb"),
        ("select extract($1 from a.b)", "select pg_catalog.date_part($1::text , a.b)"),
        ("select extract(epoch from interval $1)", "select extract(epoch from $1::interval)"),
    ],
)
def test_a_type_in_front_of_a_parameter_goes_behind_it(sql: str, repaired: str) -> None:
    result = repair_parameters(sql)
    assert result.sql == repaired
    assert result.notes
    parse_tree(result.sql)


@pytest.mark.parametrize(
    "sql",
    [
        "select $1::interval, cast($2 as date), x.date, date = $3 from t",
        "select a from t where a like $1 and b between $2 and $3 limit $4 offset $5",
        "select 'interval $1', \"date\", /* date $1 */ extract(epoch from a) from t where a = $1",
        "select date_part($1, a), case when a then $2 else $3 end from t",
        "select numeric(10, 2) '1.5'",
    ],
)
def test_everything_else_stays_as_it_is(sql: str) -> None:
    assert repair_parameters(sql).sql == sql
    assert not repair_parameters(sql).notes


WORDS = ("select", "interval", "date", "timestamp", "with", "time", "zone", "extract", "from", "case", "when", "then")
PIECES = st.sampled_from((*WORDS, "end", "day", "$1", "$2", "::", "'x'", *"(),0+a:"))


@given(st.lists(PIECES, max_size=30))
def test_a_repair_repeated_changes_nothing_more_and_loses_no_parameter(pieces: list[str]) -> None:
    sql = " ".join(pieces)
    once = repair_parameters(sql).sql
    assert repair_parameters(once).sql == once
    assert once.count("$1") == sql.count("$1")
    for types in suggest_types(once, at=len(once) // 2, message=""):
        assert set(types) <= {1, 2}
        typed = add_types(once, types)
        assert not set(types) & {n for more in suggest_types(typed, at=None, message="") for n in more}


def test_types_are_tried_for_the_parameters_of_the_call_that_the_server_complains_about() -> None:
    sql = "select f($1), sum(case when a then $2 else $3 end) from t where b = $4"
    assert next(suggest_types(sql, at=sql.index("sum"), message="")) == {2: "integer", 3: "integer"}
    assert next(suggest_types(sql, at=None, message="could not determine data type of parameter $4")) == {4: "integer"}
    sql = "select extract(epoch from $1), $2 || b"
    assert next(suggest_types(sql, at=sql.index("extract"), message="")) == {1: "timestamptz"}
    assert next(suggest_types(sql, at=sql.index("||"), message="")) == {2: "integer"}
    assert list(suggest_types("select a::int from t", at=8, message="")) == []
