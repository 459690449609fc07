"""The reading part of a statement."""

from __future__ import annotations

import pytest

from bot.tools.index_advice.statements import write_select


@pytest.mark.parametrize(
    ("sql", "select"),
    [
        ("select a from t where b = $1", "select a from t where b = $1"),
        ("values (1)", "values (1)"),
        ("with x as (select 1) select * from x", "with x as (select 1) select * from x"),
        ("update t set a = $1 where b = $2", "SELECT * FROM t WHERE b = $1"),
        (
            "update t x set a = $1 from u where u.id = x.u and x.b = $3",
            "SELECT * FROM t x, u WHERE u.id = x.u AND x.b = $1",
        ),
        ("delete from t where b = $1 and c = $1", "SELECT * FROM t WHERE b = $1 AND c = $1"),
        ("delete from t using u where u.id = t.u", "SELECT * FROM t, u WHERE u.id = t.u"),
        ("delete from s.t", "SELECT * FROM s.t"),
        ("insert into t select * from u where a = $2", "SELECT * FROM u WHERE a = $1"),
        ("insert into t values ($1)", None),
        ("with x as (select 1) update t set a = 1", None),
        ("merge into t using u on t.id = u.id when matched then delete", None),
        ("select from where", "select from where"),
    ],
)
def test_of_a_write_the_rows_that_it_looks_for_are_planned(sql: str, select: str | None) -> None:
    assert write_select(sql) == select
