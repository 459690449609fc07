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
# Text that cannot be a part of the value before it, as between fields of a prefix that a person can read.
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
    if prefix.count("%d") == 1 and "%d" in [field for field, _ in parts]:
        assert row.db == "shop"


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
