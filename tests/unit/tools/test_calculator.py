from __future__ import annotations

import ast
import contextlib
import inspect
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_core.tools.builtin import calculator, register_builtin
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from reading.arithmetic import CONSTANTS, FUNCTIONS, MAX_BITS, MAX_CHARS, NoResult, Unreadable, calculate
from tests.stopwatch import least_cpu_s
from tests.unit.tools.setting import Run, call, failure


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2**10 + math.sqrt(144)", 1036.0),
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("7 / 2", 3.5),
        ("7 // 2", 3),
        ("-7 % 3", 2),
        ("2 ** -1", 0.5),
        ("2 ** 3 ** 2", 512),
        ("-2 ** 2", -4),
        ("+-+3", -3),
        ("17/100 * 2340", 397.8),
        ("1_000 * 0x10", 16_000),
        ("1e3", 1000.0),
        ("abs(-3)", 3),
        ("round(2.675, 2)", 2.67),
        ("round(1234, ndigits=-2)", 1200),
        ("min(3, 1, 2) + max([4, 5])", 6),
        ("sum([1, 2, 3]) + sum(4, 5)", 15),
        ("math.pi + pi - 2 * tau / 2", 0.0),
        ("factorial(20)", 2432902008176640000),
        ("comb(52, 5)", 2598960),
        ("perm(20000, 2)", 399980000),
        ("gcd(12, 18, 27)", 3),
        ("log(100, 10)", 2.0),
        ("fsum([0.1, 0.2, 0.3])", 0.6),
        ("math.dist([0, 0], (3, 4))", 5.0),
        ("isclose(1, 1.0000001, rel_tol=1e-6)", True),
        ("modf(3.5)", [0.5, 3.0]),
        ("frexp(8)", [0.5, 4]),
        ("3 × 4 ÷ 2 − 1", 5.0),
        ("２＋３＊（４）", 14),
        (" + ".join(["1"] * 200), 200),
    ],
)
def test_it_computes(expression: str, result: object) -> None:
    found = calculate(expression)
    assert found == result
    assert type(found) is type(result)


ARGUMENTS: dict[str, str] = {
    "atan2": "1, 2", "copysign": "1, -2", "fmod": "7, 3", "ldexp": "1.5, 3", "pow": "2, 3", "remainder": "7, 3",
    "nextafter": "1, 2", "comb": "5, 2", "dist": "[1, 2], [3, 4]", "isclose": "1, 1", "fsum": "[1, 2]",
    "prod": "[1, 2]", "sumprod": "[1, 2], [3, 4]", "acosh": "1.5", "factorial": "5", "perm": "5, 2", "isqrt": "10",
    "gcd": "4, 6", "lcm": "4, 6", "fma": "1, 2, 3",
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in vars(math) if not name.startswith("_")])
def test_everything_in_math_is_known_bare_and_with_its_module(name: str) -> None:
    known = getattr(math, name)
    if callable(known):
        arguments = ARGUMENTS.get(name, "0.5")
        if name in ("isqrt",):
            arguments = "10"
        wanted = known(*ast.literal_eval(f"[{arguments}]"))
        wanted = list(wanted) if isinstance(wanted, tuple) else wanted
        written = f"{name}({arguments})"
    else:
        wanted, written = known, name
    for expression in (written, f"math.{written}"):
        found = calculate(expression)
        assert found == wanted or (isinstance(wanted, float) and math.isnan(wanted))


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "empty"),
        ("2^10", "for a power write **"),
        ("3²", "write ** 2"),
        ("√9", "sqrt"),
        ("5!", "factorial"),
        ("17% of 2340", "% is modulo"),
        ("2pi", "not 2pi"),
        ("1,234 * 2", "thousands separators"),
        ("2(3)", "to multiply write *"),
        ("pi(2)", "constant"),
        ("sqrt", "call it"),
        ("sqr(4)", "did you mean sqrt"),
        ("ln(4)", "did you mean log"),
        ("math.abs(4)", "write abs alone"),
        ("sqrt()", "does not fit"),
        ("sqrt('4')", "not text"),
        ("fsum([1, [2]])", "does not fit"),
        ("modf(2.5) + 1", "pair"),
        ("[1, 2]", "not arithmetic"),
        ("True + 1", "not a real number"),
        ("2j", "not a real number"),
        ("1 < 2", "does not compare"),
        ("1 == 2", "not arithmetic"),
        ("not 1", "not arithmetic"),
        ("1 if 1 else 2", "not arithmetic"),
        ("1 and 2", "not arithmetic"),
        ("x", "unknown"),
        ("(x := 3)", "':'"),
        ("lambda: 1", "':'"),
        ("[x for x in range(9)]", "not arithmetic"),
        ("__import__('os')", "not text"),
        ("__import__(1)", "unknown"),
        ("().__class__", "only math"),
        ("math.sqrt.__call__(4)", "only math"),
        ("math.__doc__", "unknown"),
        ("(1).real", "only math"),
        ("sqrt(*[4])", "one by one"),
        ("sqrt(**x)", "one by one"),
        ("f[0]", "not arithmetic"),
        ("1 @ 2", "'@'"),
        ("1; 2", "';'"),
        ("1\n+ 2", "'\\n'"),
        ("round(5, -1000000000)", "4000 digits"),
        ("1" * (MAX_CHARS + 1), "characters"),
        ("-" * 900 + "1", "too many parts"),
        ("(" * 400 + "1" + ")" * 400, "not an arithmetic"),
        ("not " * 200 + "1", "not arithmetic"),
        ("+".join("1" * 400), "too many parts"),
    ],
)
def test_what_is_no_expression_is_sent_back_with_a_hint(expression: str, said: str) -> None:
    with pytest.raises(Unreadable) as sent_back:
        calculate(expression)
    assert said in str(sent_back.value)
    assert len(str(sent_back.value)) < 500


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("1 / 0", "division_by_zero"),
        ("1 // 0.0", "division_by_zero"),
        ("5 % 0", "division_by_zero"),
        ("0 ** -1", "division_by_zero"),
        ("sqrt(-1)", "domain_error"),
        ("log(0)", "domain_error"),
        ("(-8) ** (1/3)", "domain_error"),
        ("min()", "domain_error"),
        ("factorial(-1)", "domain_error"),
        ("9 ** 9 ** 9", "too_large"),
        ("2 ** -10 ** 400", "too_large"),
        ("10.0 ** 400", "too_large"),
        ("(10 ** 400) / 3", "too_large"),
        ("10 ** 3999 * 10 ** 3999", "too_large"),
        ("factorial(10 ** 9)", "too_large"),
        ("factorial(factorial(1000))", "too_large"),
        ("perm(10 ** 9, 10 ** 8)", "too_large"),
        ("comb(10 ** 9, 5 * 10 ** 8)", "too_large"),
        ("comb(factorial(1000), 10 ** 6)", "too_large"),
        ("lcm(" + ", ".join(["9 ** 999"] * 80) + ")", "too_large"),
        ("prod([" + ", ".join(["9 ** 999"] * 80) + "])", "too_large"),
        ("exp(1000)", "too_large"),
        ("floor(inf)", "too_large"),
    ],
)
def test_what_has_no_result_says_why(expression: str, code: str) -> None:
    with pytest.raises(NoResult) as failed:
        calculate(expression)
    assert failed.value.code == code


def test_results_at_the_bound_are_given() -> None:
    assert calculate("10 ** 3999") == 10**3999
    assert calculate("factorial(1400)") == math.factorial(1400)
    assert calculate("comb(10000, 5000)") == math.comb(10000, 5000)
    assert calculate("perm(10 ** 3000, 1)") == 10**3000


_hostile = st.recursive(
    st.one_of(
        st.integers(-(10**30), 10**30).map(str),
        st.floats().map(str),
        st.sampled_from([*CONSTANTS, *FUNCTIONS, "True", "1j", "()", "[]", "9**9", "x", "math"]),
    ),
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["+", "-", "*", "/", "//", "%", "**", "^", ",", "==", "@", "."]), part).map(
            " ".join
        ),
        part.map(lambda text: f"({text})"),
        part.map(lambda text: f"-{text}"),
        st.tuples(st.sampled_from([*FUNCTIONS, "eval", "math.sin", "math.os"]), st.lists(part, max_size=3)).map(
            lambda pair: f"{pair[0]}({', '.join(pair[1])})"
        ),
        st.lists(part, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
    ),
    max_leaves=12,
)


def assert_numbers(value: object) -> None:
    if isinstance(value, list):
        for part in value:
            assert_numbers(part)
        return
    assert type(value) in (int, float, bool)
    if isinstance(value, int):
        assert value.bit_length() <= MAX_BITS


@settings(max_examples=400, deadline=None)
@given(expression=st.one_of(_hostile, st.text(max_size=60), st.text("0123456789+-*/%().,[]eE_ mathsqrpi", max_size=60)))
@example("9**9**9**9")
@example("**".join(["9"] * 300))
@example("factorial(" * 60 + "9" + ")" * 60)
@example("comb(10**3999, 10**3999 // 2)")
@example("pow(9, 9**999)")
@example("ldexp(1, 9**999)")
@example("isqrt(10**3999) ** 2 % 7")
@example("gcd(" + ",".join(["7**999"] * 120) + ")")
@example("nextafter(0, 1, steps=10**18)")
@example("round(10**3999, -3999)")
def test_whatever_it_is_given_it_gives_a_number_or_a_typed_failure_soon(expression: str) -> None:
    def ask() -> None:
        with contextlib.suppress(Unreadable, NoResult):
            assert_numbers(calculate(expression))

    assert least_cpu_s(ask, enough_s=0.5) <= 0.5


_arithmetic = st.recursive(
    st.integers(0, 999).map(str) | st.floats(0, 999, allow_nan=False).map(repr),
    lambda part: st.tuples(part, st.sampled_from(["+", "-", "*", "/", "//", "%"]), part).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(expression=_arithmetic)
def test_plain_arithmetic_is_pythons(expression: str) -> None:
    try:
        wanted = eval(expression, {"__builtins__": {}})
    except ZeroDivisionError:
        with pytest.raises(NoResult, match="division by zero"):
            calculate(expression)
        return
    found = calculate(expression)
    assert type(found) is type(wanted)
    assert repr(found) == repr(wanted)


@pytest.fixture
def executor() -> ToolExecutor:
    registry = ToolRegistry()
    register_builtin(registry)
    return ToolExecutor(registry)


@pytest.mark.parametrize(
    ("expression", "content"),
    [
        ("2**10 + math.sqrt(144)", '{"ok":true,"expression":"2**10 + math.sqrt(144)","result":1036.0}'),
        ("inf", '{"ok":true,"expression":"inf","result":"inf"}'),
        ("-1e308 * 10", '{"ok":true,"expression":"-1e308 * 10","result":"-inf"}'),
        ("inf - inf", '{"ok":true,"expression":"inf - inf","result":"nan"}'),
        ("modf(inf)", '{"ok":true,"expression":"modf(inf)","result":[0.0,"inf"]}'),
        ("2 ** 70", '{"ok":true,"expression":"2 ** 70","result":1180591620717411303424}'),
    ],
)
async def test_the_tool_answers_in_json_and_names_what_is_no_number(
    executor: ToolExecutor, expression: str, content: str
) -> None:
    result = await executor.run_one(Run().ctx, call("calculator", expression=expression))
    assert result.content == content


async def test_the_tool_passes_failures_to_the_model(executor: ToolExecutor) -> None:
    ctx = Run().ctx
    assert failure(await executor.run_one(ctx, call("calculator", "1", expression="1/0"))).code == "division_by_zero"
    told = failure(await executor.run_one(ctx, call("calculator", "2", expression="2^3")))
    assert (told.code, "write **" in told.message) == ("invalid_arguments", True)


def test_the_schema_tells_readers_that_it_is_arithmetic(executor: ToolExecutor) -> None:
    spec = executor.specs(Run().ctx, ["calculator"])[0]
    properties = spec.parameters["properties"]
    assert isinstance(properties, dict)
    assert properties["expression"]["format"] == "math-expression"
    assert properties["expression"]["maxLength"] == MAX_CHARS
    for written in properties["expression"]["examples"]:
        calculate(written)
    for shown in spec.examples:
        calculate(str(shown.arguments["expression"]))


def test_the_example_in_the_docstring_is_true() -> None:
    text = inspect.getdoc(calculator)
    assert text is not None
    assert 'calculator(expression="2**10 + math.sqrt(144)") gives 1036.0' in text
    assert calculate("2**10 + math.sqrt(144)") == 1036.0
