"""Two statements with the same cheap key always have the same fingerprint, so a lexer is asked once a kind of text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import product

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
    "``", "`a``b`", "`1`", "`9c`", "`é1`", "@@", "_utf8'x'", "x'1'", "b'1'", "''", '""', "@`v 1`", ":=", "/*+ 3 */",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map("".join)


@pytest.mark.parametrize("dialect", ["postgres", "mysql"])
def test_equal_keys_mean_equal_fingerprints_for_every_two_pieces(dialect: str) -> None:
    key, name = (key_postgres, fingerprint_sql) if dialect == "postgres" else (key_mysql, fingerprint_mysql)
    shapes: defaultdict[bytes, dict[str, str]] = defaultdict(dict)
    for text in map("".join, product(PIECES, repeat=2)):
        shapes[key(text.encode())][name(text)] = text
    assert [list(names.values()) for names in shapes.values() if len(names) > 1] == []


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        pytest.param(key_mysql, "`n 1`select ", "`n 2`select ", id="digits in a quoted name"),
        pytest.param(key_mysql, "select `1`", "select `2`", id="a quoted name that is a number"),
        pytest.param(key_mysql, "select 5é1", "select 'x'é1", id="a letter of another alphabet in a number"),
        pytest.param(key_mysql, "*/*//* 1 */", "*/*//*! 9 */", id="the end of no comment"),
        pytest.param(key_postgres, "select @@b'x'", "select @@b?", id="a question mark that is no literal"),
    ],
)
def test_texts_with_other_fingerprints_have_other_keys(key: Callable[[bytes], bytes], one: str, other: str) -> None:
    name = fingerprint_mysql if key is key_mysql else fingerprint_sql
    assert name(one) != name(other)
    assert key(one.encode()) != key(other.encode())


def test_a_set_value_in_brackets_is_hidden_past_its_commas() -> None:
    assert redact_mysql("set @a = f(1, s3cr3t), b = 2") == "set @a = <redacted>, b = <redacted>"
    assert fingerprint_mysql("set x = 1 in (1, 2)") == fingerprint_mysql("set x = 1 in (3)")


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


@pytest.mark.parametrize(
    ("statement", "digest"),
    [
        ("insert into t values (1, 'a'), (2, null)", "INSERT INTO `t` VALUES (?+) , (?+)"),
        ("select * from t where a = -5 and b <> 2", "SELECT * FROM `t` WHERE `a` = ? AND `b` != ?"),
        ("select * from t limit 5, 10", "SELECT * FROM `t` LIMIT ?, ..."),
        ("select null, 'x'", "SELECT ? , ?"),
        ("select cast(a as integer) from t", "SELECT CAST ( `a` AS INT ) FROM `t`"),
    ],
)
def test_a_digest_that_says_less_has_the_fingerprint_of_its_statement(statement: str, digest: str) -> None:
    digest = digest.replace("(?+)", "(...)")
    assert fingerprint_mysql(statement) == fingerprint_mysql(digest)


def test_is_null_is_no_value() -> None:
    assert fingerprint_mysql("select * from t where a is null") != fingerprint_mysql("select * from t where a is 5")
    assert fingerprint_mysql("select * from t where a is null") != fingerprint_mysql(
        "select * from t where a is not null"
    )
