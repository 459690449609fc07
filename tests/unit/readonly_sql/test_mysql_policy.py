"""Which statements of MySQL and MariaDB pass for reading ones; no server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.mysql_functions import WRITERS
from bot.tools.readonly_sql.mysql_lexer import Kind, join_tokens, lex_mysql
from bot.tools.readonly_sql.mysql_scan import Call, find_calls
from bot.tools.readonly_sql.policy_mysql import CheckedMySql, check_mysql
from tests.unit.readonly_sql.mysql_statements import ATTACKS, READS

_REFUSALS = {"not_read_only", "parse_failed", "multiple_statements", "insufficient_privilege"}
# The names that only a server can judge, see mysql_lookups.
_SERVER_JUDGES: tuple[str, ...] = (
    "burn",
    "plain",
    "liar",
    "locker",
    "setter",
    "nested",
    "filer",
    "variable",
    "twice",
    "sleepy",
)
_SERVER_JUDGES += (
    "columns(1)",
    "against(1)",
    "of(1)",
    "any(1)",
    "point()",
    "{db}.replace",
    "no_such",
    "accounts",
    "hider",
    "tricky",
    "is_used_lock",
    "{db}.sleep",
)


def _spell(statement: str) -> str:
    return statement.replace("{db}", "shop").replace("{dir}", "/tmp/x")


@pytest.mark.parametrize("attack", [a for a in ATTACKS if not any(name in a.lower() for name in _SERVER_JUDGES)])
def test_an_attack_is_refused_before_any_connection(attack: str) -> None:
    with pytest.raises(ToolFailed) as refusal:
        check_mysql(_spell(attack), database="shop")
    assert refusal.value.code in _REFUSALS
    assert refusal.value.fix


@pytest.mark.parametrize("read", READS)
def test_an_honest_read_passes(read: str) -> None:
    checked = check_mysql(_spell(read), database="shop")
    assert checked.text
    # What goes out is read the same way once more, and has nothing left to take off.
    assert join_tokens(lex_mysql(checked.text).tokens) == checked.text


def _judge(text: str) -> CheckedMySql | ToolFailed:
    try:
        return check_mysql(text)
    except ToolFailed as failure:
        return failure


def test_what_goes_to_the_server_has_no_comments() -> None:
    text = "select /* a */ 1 -- b\n, 2 # c\n, '/* kept */' /*!50000 , 3 */ ;"
    assert check_mysql(text).text == "select 1 , 2 , '/* kept */' , 3"


def test_two_minus_signs_never_become_a_comment() -> None:
    assert check_mysql("select 5--3, 5-/**/-3").text == "select 5- -3, 5- -3"


def test_d18_a_comment_before_a_select_is_no_reason_to_refuse_it() -> None:
    """https://github.com/bytebase/dbhub/issues/80"""
    for text in ("-- who?\nselect 1", "/* who? */ select 1", "# who?\n select 1", "/* a */ -- b\n (select 1)"):
        assert check_mysql(text).text.endswith(("select 1", "(select 1)"))


@pytest.mark.parametrize(
    "text",
    [
        "/*!50000 DROP TABLE t */",
        "select 1 /*!50000 into outfile '/tmp/a' */",
        "/*M!100000 delete from t */",
        "select 1 /*!99999 , sleep(5) */",
        "select /*! 1; drop table t */",
    ],
)
def test_d19_an_executable_comment_is_judged_as_code(text: str) -> None:
    """https://github.com/bytebase/dbhub/pull/284"""
    with pytest.raises(ToolFailed) as refusal:
        check_mysql(text)
    assert refusal.value.code in ("not_read_only", "multiple_statements")


@pytest.mark.parametrize(
    "call", ["get_lock('a', 0)", "sleep(5)", "benchmark(9, 1)", "load_file('/a')", "Sleep (5)", "`get_lock`('a', 0)"]
)
def test_d21_a_function_that_waits_locks_or_reads_files_is_no_read(call: str) -> None:
    """https://github.com/AgamiAI/agami-core/issues/395"""
    with pytest.raises(ToolFailed) as refusal:
        check_mysql(f"select {call}")
    assert refusal.value.code == "not_read_only"


def test_a_call_is_found_wherever_it_stands() -> None:
    tokens = lex_mysql("with a (x) as (select f(1)) select d.g (2), `h`(3), x from a as b(y) where i(4) in (5)").tokens
    assert find_calls(tokens) == (Call(None, "f"), Call("d", "g"), Call(None, "h"), Call(None, "i"))


def test_parameters_are_counted_outside_of_quotes_only() -> None:
    assert check_mysql("select ?, '?', \"?\", `?` from t where a = ? -- ?").placeholders == 2


def test_a_huge_or_deep_statement_is_refused_and_not_parsed() -> None:
    for text in ("select 1" + " " * 60_000, "select " + "(" * 3_000 + "1" + ")" * 3_000):
        with pytest.raises(ToolFailed) as refusal:
            check_mysql(text)
        assert refusal.value.code == "parse_failed"


@pytest.mark.parametrize(
    "text", ["select " + "-" * 20_000 + "1", "select " + "not " * 10_000 + "1", "select 1" + "+1" * 20_000]
)
def test_a_long_chain_of_operators_ends_in_an_answer(text: str) -> None:
    judged = _judge(text)
    assert isinstance(judged, CheckedMySql) or judged.code == "parse_failed"


def test_secrets_are_found_under_the_default_database_too() -> None:
    for text, database in (("select * from user", "mysql"), ("select info from processlist", "information_schema")):
        with pytest.raises(ToolFailed) as refusal:
            check_mysql(text, database=database)
        assert refusal.value.code == "insufficient_privilege"
        check_mysql(text, database="shop")


def test_nothing_is_logged_of_what_people_ask(caplog: pytest.LogCaptureFixture) -> None:
    for statement in (*ATTACKS, *READS):
        _judge(_spell(statement))
    assert caplog.records == []


def test_no_message_repeats_the_statement() -> None:
    for attack in ATTACKS:
        secret = attack.replace("orders", "xSECRETx")
        judged = _judge(_spell(secret))
        assert isinstance(judged, CheckedMySql) or "xSECRETx" not in f"{judged.message} {judged.fix}", attack


_MARKS = (
    "/*",
    "*/",
    "/*!",
    "/*!50000",
    "/*M!",
    "/*+",
    "--",
    "-- ",
    "#",
    "\n",
    "'",
    '"',
    "`",
    "\\",
    "\\'",
    "''",
    " ",
    ";",
)
_WORDS = (
    "select",
    "1",
    "drop table t",
    "into outfile 'x'",
    "sleep(9)",
    ",",
    "(",
    ")",
    "@a",
    ":=",
    "a",
    "for update",
    "%",
)
_PIECES = st.sampled_from((*_MARKS, *_WORDS))


@given(st.lists(_PIECES, max_size=14).map(lambda pieces: "select 1 " + "".join(pieces)))
def test_whatever_passes_is_one_statement_without_words_that_write(text: str) -> None:
    judged = _judge(text)
    if isinstance(judged, ToolFailed):
        assert judged.code in _REFUSALS
        return
    sent = judged.text
    tokens = lex_mysql(sent).tokens
    assert not any(token.is_symbol(";") for token in tokens)
    assert not any(token.kind is Kind.WORD and token.text.lower() in WRITERS | {"sleep"} for token in tokens)
    outside = "".join(
        token.text if token.kind is not Kind.STRING and token.kind is not Kind.QUOTED else "?" for token in tokens
    )
    assert not any(mark in outside for mark in ("/*", "*/", "#", ":=", "\\"))
    assert join_tokens(tokens) == sent


@given(st.text(max_size=60))
def test_any_text_gets_an_answer_or_a_clear_refusal(text: str) -> None:
    judged = _judge(text)
    assert isinstance(judged, CheckedMySql) or (judged.code in _REFUSALS and judged.fix)
