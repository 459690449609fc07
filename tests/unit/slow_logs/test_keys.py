"""Two statements with the same cheap key always have the same fingerprint, so a lexer is asked once a kind of text."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.tools.slow_logs.keys import key_mysql, key_postgres
from bot.tools.slow_logs.mysql_text import fingerprint_mysql, redact_mysql
from bot.tools.slow_queries.redact_sql import fingerprint_sql

PIECES = [
    "select ", "a", "b1", " from t ", "where ", " = ", "5", "6", "1.5", "1e-5", ".5", "$1", "$2", "$$x$$", "$a$y$a$",
    "'x'", "'y'", "'it''s'", "'a\\'", "'", '"', '"Col 1"', '"Col 2"', '"c"', "E'a\\'b'", "E'c'", "/* 1 */", "/*", "*/",
    "-- 7\n", "--", "(1, 2)", "(3,4, 5)", "(?)", "?", "(", ")", ",", " ", "\n", "U&'z'", "\\", "`n 1`", "`n 2`", "`",
    "# 8\n", "/*! 9 */", "0x1F", "x1$2", "é1", "set x = 1", ";", "N'q'", "in (1)", "in ( 2 )",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map("".join)


@settings(max_examples=1_500, deadline=None)
@given(st.lists(TEXTS, min_size=2, max_size=30))
@pytest.mark.parametrize("dialect", ["postgres", "mysql"])
def test_equal_keys_mean_equal_fingerprints(dialect: str, texts: list[str]) -> None:
    key, name = (key_postgres, fingerprint_sql) if dialect == "postgres" else (key_mysql, fingerprint_mysql)
    shapes: defaultdict[bytes, set[str]] = defaultdict(set)
    for text in texts:
        shapes[key(text.encode())].add(name(text))
    assert all(len(names) == 1 for names in shapes.values())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("select * from t where id = 1", "select * from t where id = 22"),
        ("select * from t where a = 'x''y'", "select * from t where a = 'z'"),
        ("select * from t where id in (1, 2, 3)", "select * from t where id in (4)"),
        ("select \"a\" from t where b = '--'", "select \"a\" from t where b = '/*'"),
        ("select 1 /* trace 1234 */", "select 1 /* trace 99 */"),
        ("select $$a$$", "select $$b'$$"),
        ("select E'it\\'s' from t", "select E'x' from t"),
    ],
)
def test_statements_that_differ_in_data_share_a_key_of_postgres(one: str, other: str) -> None:
    assert key_postgres(one.encode()) == key_postgres(other.encode())
    assert fingerprint_sql(one) == fingerprint_sql(other)


def test_a_text_with_an_open_quote_is_named_by_a_digest_that_keeps_nothing_of_it() -> None:
    for key in (key_postgres, key_mysql):
        assert b"s3cr3t" not in key(b"select * from t where a = 's3cr3t and more")


@pytest.mark.parametrize(
    ("sql", "redacted"),
    [
        ("SELECT * FROM u WHERE e = \"s3cr3t\" AND n = 'it\\'s s3cr3t'", "SELECT * FROM u WHERE e = ? AND n = ?"),
        ("select x'733363723374', _utf8mb4's3cr3t', 0x1F, 1.5e3", "select ?, ?, ?, ?"),
        ("select 1 # s3cr3t", "select ?"),
        ("select 1 -- s3cr3t", "select ?"),
        ("select /*!50000 's3cr3t' */ 1 /* s3cr3t */", "select ? ?"),
        ("create user bob identified by 's3cr3t'", "create user bob identified by ?"),
        ("set @a = s3cr3t, b = 's3cr3t'", "set @a = <redacted>, b = <redacted>"),
        ('select * from u where e="s3cr3t', "select * from u where e=<redacted>"),
        ("select 1 /* s3cr3t", "select ? <redacted>"),
        ("select `s 1` from `t`", "select `s 1` from `t`"),
        ("# administrator command: Quit;", "administrator command: Quit"),
    ],
)
def test_statements_of_mysql_leave_without_their_data(sql: str, redacted: str) -> None:
    assert redact_mysql(sql) == redacted
    assert redact_mysql(redacted) == redacted


def test_a_digest_text_of_the_server_has_the_fingerprint_of_its_statement() -> None:
    digest = "SELECT `id` , `total` FROM `orders` WHERE `id` IN (...) AND `note` = ?"
    assert fingerprint_mysql(digest) == fingerprint_mysql("select id, total from orders where id in (1,2) and note='x'")
    assert fingerprint_mysql(digest) != fingerprint_mysql("select id, total from orders where id in (1,2) and note<'x'")
