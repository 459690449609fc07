"""Any log_line_prefix is compiled to a reader; a common one is found without being told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import ToolFailed
from bot.tools.slow_logs.prefix import COMMON, compile_prefix
from tests.unit.slow_logs.logs import only, read

VALUES = {
    "a": "my app", "u": "app_user", "d": "shop", "r": "10.0.0.1(4711)", "h": "10.0.0.1", "L": "::1",
    "b": "client backend", "p": "4711", "P": "", "t": "2026-05-01 10:00:00 CEST", "m": "2026-05-01 10:00:00.250 CEST",
    "n": "1777622400.250", "i": "SELECT", "e": "00000", "c": "6615a8b2.1267", "l": "12",
    "s": "2026-05-01 09:00:00 CEST", "v": "3/42", "x": "0", "Q": "-123456789", "%": "%", "q": "",
}  # fmt: skip
# None but the blank is a part of a value, as between fields of a prefix that a person can read.
SIGNS = st.sampled_from([" ", ": ", " | ", ",", ";", "=<", "> "])


def render(prefix: str) -> str:
    for escape, value in VALUES.items():
        if escape != "%":
            prefix = prefix.replace(f"%{escape}", value)
    return prefix.replace("%%", "%")


@given(
    st.lists(
        st.tuples(st.sampled_from([f"%{e}" for e in VALUES if e != "q"]), SIGNS), max_size=8, unique_by=lambda p: p[0]
    )
)
def test_an_entry_is_read_with_whatever_prefix_the_server_has(parts: list[tuple[str, str]]) -> None:
    prefix = "".join(field + sign for field, sign in parts)
    log = render(prefix) + "LOG:  duration: 12.500 ms  statement: select 1\n"
    row = only(read(log, format="stderr", prefix=prefix))
    assert (row.calls, row.max_s) == (1, 0.0125)
    if "%m" in prefix and "%t" not in prefix and "%n" not in prefix:
        assert row.first_seen == "2026-05-01T08:00:00.250Z"
    # Of two texts with blanks in them, the first with a blank behind it, nobody can tell where one ends and the other
    # begins: of "%a %d %b " and "my app shop client backend " the database may be app, shop or client.
    texts = [sign for field, sign in parts if field in ("%a", "%b", "%i")]
    if " " not in texts[:-1]:
        assert row.db == ("shop" if "%d" in prefix else None)
        assert row.user == ("app_user" if "%u" in prefix else None)


@pytest.mark.parametrize(
    ("prefix", "head"),
    [
        ("%a %d ", "my app shop "),
        ("%m %a %u@%d ", "2026-05-01 10:00:00.250 CEST DBeaver 23.1 - Main app_user@shop "),
        ("%-20a %-10u %d: ", "my app               app_user   shop: "),
        ("%b %u %h %d ", "client backend app_user 10.0.0.1 shop "),
        ("%d %h %u ", "shop [local] app_user "),
    ],
)
def test_the_blanks_in_the_name_of_an_application_go_to_no_other_name(prefix: str, head: str) -> None:
    row = only(read(head + "LOG:  duration: 1.000 ms  statement: select 1\n", format="stderr", prefix=prefix))
    assert (row.db, row.user) == ("shop", "app_user" if "app_user" in head else None)


def test_a_name_with_a_blank_is_read_where_no_name_of_one_word_fits() -> None:
    row = only(
        read(
            "web app_user@my shop LOG:  duration: 1.000 ms  statement: select 1\n", format="stderr", prefix="%a %u@%d "
        )
    )
    assert (row.db, row.user) == ("my shop", "app_user")


@pytest.mark.parametrize("prefix", ["%m [%p] %q%u@%q%d ", "%m [%p] %q%u@%d %", "%m [%p] %q%u@%d %-5"])
def test_what_postgres_passes_over_in_a_prefix_is_passed_over(prefix: str) -> None:
    log = "2026-05-01 10:00:00.100 UTC [9] app@shop LOG:  duration: 1.000 ms  statement: select 1\n"
    assert only(read(log, prefix=prefix)).db == "shop"


@pytest.mark.parametrize("prefix", [text for text in COMMON if "%m" in text or "%t" in text])
def test_a_common_prefix_is_found_by_looking(prefix: str) -> None:
    log = (render(prefix) + "LOG:  duration: 12.500 ms  statement: select 1\n") * 3
    row = only(answer := read(log))
    assert (row.calls, row.max_s) == (3, 0.0125)
    assert row.first_seen is not None
    assert row.first_seen.startswith("2026-05-01T08:00:00")
    if "%u" in prefix and "%d" in prefix:
        assert (row.user, row.db) == ("app_user", "shop")
    assert any("guessed" in warning for warning in answer.warnings)


def test_processes_without_a_session_stop_at_the_q() -> None:
    log = (
        "2026-05-01 10:00:00.000 UTC [1] LOG:  checkpoint starting: time\n"
        "2026-05-01 10:00:00.100 UTC [9] app@shop/web LOG:  duration: 1.000 ms  statement: select 1\n"
    )
    answer = read(log, prefix="%m [%p] %q%u@%d/%a ")
    assert (answer.entries, answer.damaged.lines, only(answer).db) == (2, 0, "shop")


def test_padded_fields_are_read() -> None:
    log = "2026-05-01 10:00:00.000 UTC [   42] app        LOG:  duration: 1.000 ms  statement: select 1\n"
    assert only(read(log, prefix="%m [%5p] %-10u ")).user == "app"


def test_an_escape_that_postgres_does_not_have_is_refused() -> None:
    with pytest.raises(ToolFailed, match="%z") as caught:
        compile_prefix("%m %z ")
    assert caught.value.code == "bad_prefix"
