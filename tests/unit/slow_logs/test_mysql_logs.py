"""The slow logs of MySQL and MariaDB in the forms of their versions."""

from __future__ import annotations

import pytest

from tests.unit.slow_logs.logs import calls_of, my, only, read

BANNER = (
    "/usr/sbin/mysqld, Version: 8.0.36 (MySQL Community Server - GPL). started with:\n"
    "Tcp port: 3306  Unix socket: /run/my.sock\nTime                 Id Command    Argument\n"
)
MARIADB = """\
# Time: 260501  8:00:05
# User@Host: app[app] @ web1 [10.0.0.1]
# Thread_id: 12  Schema: shop  QC_hit: No
# Query_time: 2.000000  Lock_time: 0.000100  Rows_sent: 4  Rows_examined: 10
# Rows_affected: 0  Bytes_sent: 100
# Full_scan: Yes  Full_join: No  Tmp_table: No  Tmp_table_on_disk: No
# explain: id\tselect_type\ttable
# explain: 1\tSIMPLE\torders
#
SET timestamp=1777622405;
select * from orders where id = 5;
"""
PERCONA = """\
# Time: 2026-05-01T08:00:00.123456Z
# User@Host: app[app] @ web1 [10.0.0.1]  Id:    12
# Schema: shop  Last_errno: 0  Killed: 0
# Query_time: 1.250000  Lock_time: 0.000100  Rows_sent: 4  Rows_examined: 10  Rows_affected: 0
# Bytes_sent: 100  Tmp_tables: 0
# InnoDB_trx_id: 0
#   InnoDB_IO_r_ops: 0  InnoDB_IO_r_bytes: 0  InnoDB_IO_r_wait: 0.000000
SET timestamp=1777622400;
select * from orders where id = 7;
"""
EXTRA = (
    "  Thread_id: 8 Errno: 0 Killed: 0 Bytes_received: 9 Bytes_sent: 8 Read_first: 1 Start: 2026-05-01T10:00:00Z "
    "End: 2026-05-01T10:00:02Z"
)


def test_an_entry_of_mysql_8_is_read_whole() -> None:
    row = only(answer := read(BANNER + my("select * from orders where id = 5", use="shop")))
    assert (row.sql, row.calls, row.max_s, row.rows) == ("select * from orders where id = ?", 1, 1.5, 3)
    assert (row.db, row.user, row.first_seen) == ("shop", "app", "2026-05-01T10:00:00.000Z")
    assert (answer.engine, answer.engine_version, answer.damaged.lines) == ("mysql", "8.0.36", 0)


@pytest.mark.parametrize("log", [MARIADB, PERCONA])
def test_further_lines_of_a_header_are_understood(log: str) -> None:
    row = only(answer := read(log))
    assert (row.sql, row.db, row.rows, answer.damaged.lines) == ("select * from orders where id = ?", "shop", 4, 0)
    assert row.first_seen is not None
    assert row.first_seen.startswith("2026-05-01T08:00:0")


def test_the_extra_fields_of_8_0_14_do_not_disturb() -> None:
    assert only(read(my("select 1", extra=EXTRA))).max_s == 1.5


def test_a_database_stays_until_the_next_use() -> None:
    answer = read(my("select 1", use="shop") + my("select 1") + my("select 1 from t", use="`crm`"))
    assert {row.sql: row.db for row in answer.rows} == {"select ?": "shop", "select ? from t": "crm"}


def test_administrator_commands_are_shapes() -> None:
    log = my("# administrator command: Quit") * 2 + my("# administrator command: Ping")
    assert calls_of(read(log)) == {"administrator command: Quit": 2, "administrator command: Ping": 1}


def test_words_of_a_header_inside_a_literal_do_not_end_a_statement() -> None:
    sql = "insert into t values ('a\n# Time: 2026-01-01T00:00:00Z\n# User@Host: x[x] @ y []\nb')"
    for trap in (sql, sql.replace("\n# Time", ";\n# Time"), f"insert into t values ('a;\n{my('s3cr3t')}')"):
        row = only(answer := read(my(trap) + my(trap)))
        assert (row.calls, row.sql, answer.damaged.lines) == (2, "insert into t values (?)", 0)


def test_a_statement_that_was_cut_inside_a_literal_does_not_take_the_next_entries_along() -> None:
    answer = read(my("select 'x") + my("select 1 from t") * 3)
    assert calls_of(answer) == {"select <redacted>": 1, "select ? from t": 3}


def test_a_restart_in_the_middle_is_no_damage() -> None:
    answer = read(my("select 1") + BANNER + my("select 2"))
    assert (only(answer).calls, answer.damaged.lines) == (2, 0)


def test_statements_over_several_lines_with_comments_are_one() -> None:
    assert calls_of(read(my("select 1\n# a note\n\n  from t -- more\n where a = 'x;'"))) == {
        "select ? from t where a = ?": 1
    }


def test_the_head_of_a_mariadb_log_is_no_damage() -> None:
    head = (
        "/usr/sbin/mariadbd, Version: 10.11.19-MariaDB-log (Debian 12). started with:\n"
        "Tcp port: 3306  Unix socket: /run/mysqld/mysqld.sock\nTime\t\t    Id Command\tArgument\n"
    )
    assert read(head + MARIADB).damaged.lines == 0
    assert read(head + MARIADB + head + MARIADB).damaged.lines == 0  # of a server that was started again
