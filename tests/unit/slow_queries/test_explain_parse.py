"""The parser of Postgres works in C, in this process: no text may end it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bot.tools.slow_queries.explain_parse import ParseError, parse_tree, write_sql

ABUSES = {
    "additions": "'select ' + '+'.join(['1'] * 24_990)",
    "signs": "'select ' + '- ' * 9_000 + '1'",
    "negations": "'select ' + 'not ' * 9_000 + 'true'",
    "brackets": "'select ' + '(' * 4_900 + '1' + ')' * 4_900",
    "subqueries": "'select * from ' + '(select * from ' * 2_000 + 't' + ') a' * 2_000",
    "unions": "'select 1' + ' union select 1' * 3_000",
    "arrays": "'select ' + 'array[' * 4_000 + '1' + ']' * 4_000",
    "names": "'select ' + 'a.' * 4_900 + 'b'",
}
PROGRAM = """
import threading
from bot.tools.slow_queries.explain_parse import ParseError, parse_tree
def read():
    try:
        parse_tree({text})
    except ParseError:
        pass
    print("alive")
threading.Thread(target=read).start()
"""


@pytest.mark.parametrize("text", ABUSES.values(), ids=ABUSES)
def test_a_long_or_deep_statement_does_not_end_the_process(text: str) -> None:
    program = [sys.executable, "-c", PROGRAM.format(text=text)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-500:]


def test_a_statement_comes_back_as_it_was() -> None:
    (tree,) = parse_tree("select a, count(*) from t where b = 1 group by a")
    assert write_sql(tree) == "SELECT a, count(*) FROM t WHERE b = 1 GROUP BY a"


def test_what_is_no_statement_is_refused_without_repeating_it() -> None:
    with pytest.raises(ParseError) as refused:
        parse_tree("select 's3cr3t' from from")
    assert "s3cr3t" not in str(refused.value)
