"""A mention that is nothing but code."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.fenced import find_code, read_code
from tests.unit.bot.recording import message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```py\nprint(1)\n```", "print(1)"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("```Python3\nprint(1)\n```", "print(1)"),
        ("  \n```py\nif 1:\n    print(2)\n\n```  \n", "if 1:\n    print(2)"),
        ("```py\n    indented = 1\n```", "    indented = 1"),
        ("py ```print(1)```", "print(1)"),
        ("py: ```\nprint(1)\n```", "print(1)"),
        ("python\n```\nprint(1)\n```", "print(1)"),
        ("run ```py\nprint(1)\n```", "print(1)"),
        ("py ```py\nprint(1)```", "print(1)"),
        ("```py print(1)```", "print(1)"),
        ("py ```py = 3```", "py = 3"),
        ("py ```df.head()\n```", "df.head()"),
        ("````py\ns = '`'\n````", "s = '`'"),
    ],
)
def test_a_fence_with_python_is_code(text: str, code: str) -> None:
    assert find_code(message(text)) == code


@pytest.mark.parametrize(
    "text",
    [
        "why does this fail?\n```py\nprint(1)\n```",
        "```py\nprint(1)\n``` what does it print?",
        "```py\n1\n```\n```py\n2\n```",
        "```\nprint(1)\n```",
        "```print(1)```",
        "```sql\nselect 1\n```",
        "py ```sql\nselect 1\n```",
        "explain ```py\nprint(1)\n```",
        "```py\n\n```",
        "```py```",
        "py",
        "py print(1)",
        "```py\nnever closed",
        "",
    ],
)
def test_anything_around_the_fence_or_another_language_is_a_question(text: str) -> None:
    assert find_code(message(text)) is None


def test_code_that_was_not_addressed_to_hermod_is_left_alone() -> None:
    overheard = replace(message("```py\nprint(1)\n```"), mentioned=False)
    assert find_code(overheard) is None
    assert find_code(replace(overheard, direct=True)) == "print(1)"


@given(st.text(alphabet="abc =()\n\t'\"漢{}\\", min_size=1, max_size=80))
def test_the_code_comes_out_as_it_was_written(code: str) -> None:
    found = find_code(message(f"```python\n{code}\n```"))
    if code.strip():
        assert found == code.strip("\r\n").rstrip()
    else:
        assert found is None


@given(st.text(alphabet="`py\n ~:sql1", max_size=60))
def test_whatever_is_written_is_read_without_a_fence_in_it(text: str) -> None:
    found = find_code(message(text))
    assert found is None or (found.strip() and "```" not in found)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("print('a b' * 3)", "print('a b' * 3)"),
        (" x = 'it''s'; print(x) ", "x = 'it''s'; print(x)"),
        ("for i in range(3):\n    print(i)\n", "for i in range(3):\n    print(i)"),
        ("```py\nif 1:\n    print(2)\n```", "if 1:\n    print(2)"),
        ("```print(1)```", "print(1)"),
        ("```\n  x\n```", "  x"),
        ("`1 + 1`", "1 + 1"),
        ("`a` and `b`", "`a` and `b`"),
        ("count = 3", "count = 3"),
    ],
)
def test_all_that_stands_behind_the_command_is_code(text: str, code: str) -> None:
    assert read_code(text) == code


@pytest.mark.parametrize(
    "text", ["", " \n", "code='print(1)' timeout_s=5", "timeout_s=5 code=1", "```print(1)``` timeout_s=5", "```\n```"]
)
def test_arguments_by_name_are_left_to_whoever_reads_arguments(text: str) -> None:
    assert read_code(text) is None
