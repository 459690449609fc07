"""Arithmetic in sentences."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reading.arithmetic import calculate
from reading.maths import read_expression


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("what is 17 * 23 + 4?", 395),
        ("2**10 + math.sqrt(144)", 1036.0),
        ("compute (3+4)/2", 3.5),
        ("12.5% of 80", 10),
        ("square root of 144", 12),
        ("cube root of 27", 3),
        ("2 to the power of 10", 1024),
        ("2 to the 10th power", 1024),
        ("17 times 23", 391),
        ("twenty five percent of 360", 90),
        ("three hundred divided by twelve", 25),
        ("the sum of 12, 15 and 18", 45),
        ("average of 3, 4 and 5", 4),
        ("subtract 15 from 100", 85),
        ("half of 90", 45),
        ("100 mod 7", 2),
        ("5 squared plus 2 cubed", 33),
        ("5!", 120),
        ("log base 2 of 8", 3),
        ("1,000,000 / 8", 125_000),
        ("计算 3*7", 21),
        ("144的平方根", 12),
        ("2的10次方", 1024),
        ("三百六十除以十二等于多少", 30),
        ("百分之二十乘以500", 100),
        ("80的12.5%", 10),
        ("9的阶乘", 362_880),
        ("（3＋4）×2", 14),
    ],
)
def test_calculations_in_words_have_the_right_value(text: str, value: float) -> None:
    found = read_expression(text)
    assert found is not None
    result = calculate(found.value)
    assert isinstance(result, int | float)
    assert math.isclose(result, value)


def test_an_expression_that_was_written_as_one_is_handed_on_as_it_stands() -> None:
    found = read_expression("please tell me: 2**10 + math.sqrt(144) ok?")
    assert found is not None
    assert found.value == "2**10 + math.sqrt(144)"


@pytest.mark.parametrize(
    "text",
    [
        "slow queries since 2026-03-01",
        "between 10:00 and 11:00",
        "slow queries in the last_30min",
        "pg-14 is down",
        "version 18.1.2",
        "call 555-123-4567",
        "we are here 24/7",
        "top 5",
        "row #3 - please",
        "what is love",
        "20-sided die",
        "on-call - who is it?",
        "",
    ],
)
def test_dates_versions_and_names_are_no_arithmetic(text: str) -> None:
    assert read_expression(text) is None


EXPRESSIONS = st.recursive(
    st.integers(0, 999).map(str) | st.floats(0, 99, allow_nan=False).map(lambda x: f"{x:.2f}"),
    lambda inner: st.tuples(inner, st.sampled_from([" + ", " - ", "*", " * "]), inner).map(lambda t: f"({''.join(t)})"),
    max_leaves=6,
)


@given(
    EXPRESSIONS, st.sampled_from(["{}", "what is {}?", "计算 {} 等于多少", "hey, could you compute {} for me please"])
)
def test_any_expression_is_found_in_a_sentence_with_its_value(expression: str, sentence: str) -> None:
    found = read_expression(sentence.format(f"{expression} + 1"))
    assert found is not None
    assert calculate(found.value) == calculate(f"{expression} + 1")


@given(st.text(alphabet="0123456789+-*/%().,^!=x×÷ 加减乘除的方平根一二三百分之abceinopqrst", max_size=60))
def test_what_is_found_always_parses(text: str) -> None:
    found = read_expression(text)
    if found is not None:
        compile(found.value, "expression", "eval")
        assert 0 <= found.start <= found.end <= len(text)
