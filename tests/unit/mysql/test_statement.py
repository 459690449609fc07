"""What of a statement is planned."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import ToolFailed
from bot.tools.mysql.statement import bind, take_plannable


@pytest.mark.parametrize(
    ("sql", "planned"),
    [
        ("select 1;", "select 1"),
        ("EXPLAIN FORMAT=JSON SELECT 1", "SELECT 1"),
        ("select /*!50000 a */ from t -- b", "select a from t"),
        ("select a from t where a = 1 for update", "select a from t where a = 1"),
        ("select a from t lock in share mode", "select a from t"),
        (
            "update t set a=(select 1 from x where y=2), b='where' where c=3 limit 5",
            "SELECT * FROM t where c=3 limit 5",
        ),
        (
            "update low_priority a join b on a.i=b.i set a.x=1 where b.y=2",
            "SELECT * FROM a join b on a.i=b.i where b.y=2",
        ),
        ("update `order` set `set`=1 where `where`=2", "SELECT * FROM `order` where `where`=2"),
        ("update t set a=1", "SELECT * FROM t"),
        ("delete from t where a=1 returning id", "SELECT * FROM t where a=1"),
        ("delete a from a join b using (id) where b.x=1", "SELECT * FROM a join b using (id) where b.x=1"),
        ("delete from a using a join b on a.i=b.i where b.x=1", "SELECT * FROM a join b on a.i=b.i where b.x=1"),
        ("insert into t(a,b) select a,b from u on duplicate key update a=2", "select a,b from u"),
        ("replace into t (select * from u)", "(select * from u)"),
        ("insert into t with c as (select 1) select * from c", "with c as (select 1) select * from c"),
        (
            "with c as (select id from u) update t join c using(id) set t.a=1 where t.b=2",
            "with c as (select id from u) SELECT * FROM t join c using(id) where t.b=2",
        ),
    ],
)
def test_a_read_is_planned_as_it_is_and_a_write_by_what_it_reads(sql: str, planned: str) -> None:
    assert take_plannable(sql).sql == planned


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("", "parse_failed"),
        (";", "parse_failed"),
        ("explain", "parse_failed"),
        ("insert into t values (1, (select 2))", "parse_failed"),
        ("insert into t set a = 1", "parse_failed"),
        ("select 'a", "parse_failed"),
        ("select 1; drop table t", "multiple_statements"),
        ("explain analyze select 1", "not_read_only"),
        ("analyze format=json select 1", "not_read_only"),
        ("explain format=tree analyze select 1", "not_read_only"),
        ("/*! analyze */ delete from t", "not_read_only"),
        ("explain t", "not_read_only"),
        ("explain for connection 7", "not_read_only"),
        ("select a into @b from t", "not_read_only"),
        ("select a from t into outfile '/tmp/x'", "not_read_only"),
        ("call p()", "not_read_only"),
    ],
)
def test_what_is_not_planned_is_refused_by_name(sql: str, code: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        take_plannable(sql)
    assert caught.value.code == code


def test_placeholders_are_counted_and_bound_beside_percent_signs() -> None:
    plannable = take_plannable("select a % 2 from t where b = ? and c like '%?%' and d = ?")
    assert plannable.placeholders == 2
    assert bind(plannable) == "select a %% 2 from t where b = %s and c like '%%?%%' and d = %s"
    assert bind(plannable) % (1, 2) == "select a % 2 from t where b = 1 and c like '%?%' and d = 2"


@given(st.text(max_size=60))
def test_any_text_is_planned_or_refused_and_never_grows_a_second_statement(text: str) -> None:
    for sql in (text, "select " + text, "update t set a = 1 where " + text, "delete from t where b = " + text):
        with contextlib.suppress(ToolFailed):
            _check_stable(sql)


def _check_stable(sql: str) -> None:
    plannable = take_plannable(sql)
    again = take_plannable(plannable.sql)
    assert (again.sql, again.write) == (plannable.sql, "")
