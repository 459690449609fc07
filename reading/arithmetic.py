"""Arithmetic for models: a small, bounded language, evaluated without ``eval``.

Names and functions come from tables. Every step is bounded *before* it is computed where its cost could
grow (powers, factorials, products), so the most hostile expression costs milliseconds.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType


class Unreadable(Exception):
    """It is no expression of this language; the message says what to write instead."""


class NoResult(Exception):
    """It has no such result; ``code`` is a stable word for why."""

    def __init__(self, message: str, *, code: str, fix: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.fix = fix


Number = int | float
Value = Number | list["Value"]

MAX_CHARS = 1_000
MAX_NODES = 600
MAX_DEPTH = 210
MAX_DIGITS = 4_000
"""Of a whole number; Python itself refuses to print more than 4,300."""

MAX_BITS = int(MAX_DIGITS * math.log2(10))

CONSTANTS: Mapping[str, float] = MappingProxyType(
    {name: value for name, value in vars(math).items() if isinstance(value, float) and not name.startswith("_")}
)
"""All constants of ``math``."""

_MATH_FUNCTIONS: Mapping[str, Callable[..., object]] = MappingProxyType(
    {name: value for name, value in vars(math).items() if callable(value) and not name.startswith("_")}
)


def _flat(values: tuple[Value, ...]) -> list[Value]:
    return values[0] if len(values) == 1 and isinstance(values[0], list) else list(values)


FUNCTIONS: Mapping[str, Callable[..., object]] = MappingProxyType(
    {
        **_MATH_FUNCTIONS,
        "abs": abs,
        "round": round,
        "min": lambda *values: min(_flat(values)),
        "max": lambda *values: max(_flat(values)),
        "sum": lambda *values: sum(_flat(values)),
    }
)
"""All functions of ``math``, with ``abs``, ``round``, ``min``, ``max`` and ``sum``."""

_SIGNS = str.maketrans({"×": "*", "∗": "*", "·": "*", "⋅": "*", "÷": "/", "∕": "/", "−": "-", "–": "-"})
_FULL_WIDTH = str.maketrans({chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | {"\u3000": " "})
_FOREIGN = re.compile(r"[^\w.+\-*/%(),\[\]= \t]|[^\W0-9A-Za-z_]")
_HINTS: Mapping[str, str] = MappingProxyType(
    {
        "^": "for a power write **",
        "√": "write sqrt(x)",
        "π": "write pi",
        "²": "write ** 2",
        "³": "write ** 3",
        "!": "write factorial(n)",
        "'": "it computes numbers, not text",
        '"': "it computes numbers, not text",
        "<": "it does not compare",
        ">": "it does not compare",
    }
)
_OTHER_NAMES: Mapping[str, str] = MappingProxyType({"ln": "log", "power": "pow", "mod": "fmod", "arctan": "atan"})


def calculate(expression: str) -> Number | list[Value]:
    """Compute an arithmetic expression.

    Numbers, ``+ - * / // % **``, parentheses, and the names of ``FUNCTIONS`` and ``CONSTANTS``, bare or as
    ``math.x``; lists only as arguments of functions that take them. ``× ÷ −`` and full-width forms are read
    as their ASCII signs. Not cancellable, but bounded to milliseconds; safe to call concurrently.

    Returns:
        The number (perhaps ``inf`` or ``nan``); a list of numbers from ``modf`` and ``frexp``.

    Raises:
        Unreadable: it is not such an expression; the message says what to write instead.
        NoResult: it has no such result; ``code`` is ``division_by_zero``, ``domain_error`` or ``too_large``.
    """
    text, tree = _parse(expression)
    try:
        return _checked(_Evaluation(text).value(tree))
    except ZeroDivisionError as error:
        raise NoResult(f"division by zero in {_shorten(text)}", code="division_by_zero") from error
    except OverflowError as error:
        raise NoResult(f"a number in {_shorten(text)} is too large ({error})", code="too_large") from error
    except ValueError as error:
        raise NoResult(f"{_shorten(text)} is not defined ({error})", code="domain_error") from error
    except TypeError as error:
        raise Unreadable(f"{_shorten(text)} does not fit together: {error}") from error


def _parse(expression: str) -> tuple[str, ast.expr]:
    if len(expression) > MAX_CHARS:
        raise Unreadable(f"the expression has {len(expression)} characters; at most {MAX_CHARS} are computed")
    text = expression.translate(_FULL_WIDTH).translate(_SIGNS).strip()
    if not text:
        raise Unreadable("the expression is empty; write something like 2 * (3 + 4)")
    foreign = _FOREIGN.search(text)
    if foreign is not None:
        hint = _HINTS.get(foreign[0], "only numbers, + - * / // % **, parentheses and functions of math are computed")
        raise Unreadable(f"{foreign[0]!r} is not understood in {_shorten(text)}; {hint}")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply or has too long a number"
        raise Unreadable(
            f"{_shorten(text)} is not an arithmetic expression ({said}); write every operator (2*pi, not 2pi), "
            "and a percentage as a fraction (17/100 * 2340, because % is modulo)"
        ) from error
    _check_size(tree)
    return text, tree


def _check_size(tree: ast.expr) -> None:
    """Refuse what is too large or too deep to walk, without recursion."""
    level: list[ast.AST] = [tree]
    depth = count = 0
    while level:
        depth += 1
        count += len(level)
        if count > MAX_NODES or depth > MAX_DEPTH:
            raise Unreadable("the expression has too many parts; split it and compute the parts one by one")
        level = [child for node in level for child in ast.iter_child_nodes(node)]


def _shorten(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."


class _Evaluation:
    """Walks one expression; ``text`` is its source, for messages."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=bool() | complex() | None):
                raise Unreadable(f"{self._show(node)} is not a real number")
            case ast.Constant(value=int() | float() as number):
                return _checked(number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._number(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._number(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _checked(_OPERATORS[type(op)](self._number(left), self._number(right)))
            case ast.Name() | ast.Attribute():
                return self._constant(node)
            case ast.Call():
                return self._call(node)
            case ast.Tuple():
                raise Unreadable("a comma separates arguments only; write numbers without thousands separators")
            case _:
                raise Unreadable(
                    f"{self._show(node)} is not arithmetic; only numbers, operators and math functions are"
                )

    def _number(self, node: ast.expr) -> Number:
        value = self.value(node)
        if isinstance(value, list):
            raise Unreadable(f"{self._show(node)} is a pair of numbers; an operator takes one number")
        return value

    def _argument(self, node: ast.expr) -> Value:
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._argument(item) for item in items]
            case ast.Starred():
                raise Unreadable("* before an argument is not understood; write the numbers one by one")
            case _:
                return self.value(node)

    def _constant(self, node: ast.Name | ast.Attribute) -> float:
        name = self._name(node)
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name in FUNCTIONS:
            raise Unreadable(f"{name} is a function; call it, as in {name}(x)")
        raise _unknown(name)

    def _call(self, node: ast.Call) -> Value:
        if not isinstance(node.func, ast.Name | ast.Attribute):
            raise Unreadable(f"{self._show(node.func)} is not a function; to multiply write *")
        name = self._name(node.func)
        function = FUNCTIONS.get(name)
        if function is None:
            if name in CONSTANTS:
                raise Unreadable(f"{name} is a constant, not a function; to multiply write *")
            raise _unknown(name)
        values = [self._argument(item) for item in node.args]
        named: dict[str, Value] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise Unreadable("** before an argument is not understood; write the arguments one by one")
            named[keyword.arg] = self._argument(keyword.value)
        guard = _GUARDS.get(name)
        if guard is not None:
            guard([*values, *named.values()])
        return _checked(function(*values, **named))

    def _name(self, node: ast.Name | ast.Attribute) -> str:
        """Read ``x`` or ``math.x``; nothing else has a dot here."""
        match node:
            case ast.Name(id=name):
                return name
            case ast.Attribute(value=ast.Name(id="math"), attr=name):
                if name in FUNCTIONS and name not in _MATH_FUNCTIONS:
                    raise Unreadable(f"math has no {name}; write {name} alone")
                return name
            case _:
                raise Unreadable(f"{self._show(node)} is not allowed; only math has names behind a dot")

    def _show(self, node: ast.expr) -> str:
        return _shorten(self._text[node.col_offset : node.end_col_offset])  # one ASCII line: bytes are characters


def _unknown(name: str) -> Unreadable:
    known = [*FUNCTIONS, *CONSTANTS]
    near = [_OTHER_NAMES[name]] if name in _OTHER_NAMES else difflib.get_close_matches(name[:40], known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "the functions and constants of math are known"
    return Unreadable(f"{name[:40]} is unknown; {hint}")


def _checked(value: object) -> Value:
    """Let numbers of bounded size pass, and lists of them."""
    match value:
        case int():
            if value.bit_length() > MAX_BITS:
                raise _too_large()
            return value
        case float():
            return value
        case tuple() | list():
            return [_checked(item) for item in value]
        case complex():
            raise NoResult("the result is a complex number; only real ones are computed", code="domain_error")
        case _:
            raise Unreadable(f"the result is not a number but a {type(value).__name__}")


def _too_large() -> NoResult:
    return NoResult(
        f"a number in it has more than {MAX_DIGITS} digits",
        code="too_large",
        fix="compute with floating point, or with logarithms",
    )


# -- bounds ----------------------------------------------------------------------------------------


def _power(base: Number, exponent: Number) -> object:
    """Raise ``base``, but look first how long a whole result would be."""
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and exponent > 0:
        _bound_bits((base.bit_length() - 1) * exponent)
    return base**exponent


def _bound_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise _too_large()


def _bound_permutations(values: Sequence[Value]) -> None:
    """Bound ``factorial(n)`` and ``perm(n, k)`` by n to the power of k, and by n!."""
    match values:
        case [int() as n]:
            k = n
        case [int() as n, int() as k]:
            pass
        case _:
            return  # math itself says what is wrong with it
    if 1 < k <= n:
        bits = k * math.log2(n)
        _bound_bits(int(bits if n > MAX_BITS else min(bits, math.lgamma(n + 1) / math.log(2))))


def _bound_combinations(values: Sequence[Value]) -> None:
    """Bound ``comb(n, k)`` by n * e / k to the power of k."""
    match values:
        case [int() as n, int() as k] if 0 < k < n:
            k = min(k, n - k)
            _bound_bits(int(k * (math.log2(n) - math.log2(k) + math.log2(math.e))))
        case _:
            return


def _bound_product(values: Sequence[Value]) -> None:
    """Bound ``prod`` and ``lcm``: a product is at most as long as its factors together."""
    factors = [part for value in values for part in (value if isinstance(value, list) else [value])]
    _bound_bits(sum(factor.bit_length() for factor in factors if isinstance(factor, int)))


def _bound_digits(values: Sequence[Value]) -> None:
    """Bound the digits that ``round`` keeps; rounding to 10**9 digits before the point takes minutes."""
    match values:
        case [_, int() as digits] if abs(digits) > MAX_DIGITS:
            raise Unreadable(f"round takes at most {MAX_DIGITS} digits")
        case _:
            return


_OPERATORS: Mapping[type[ast.operator], Callable[[Number, Number], object]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
        ast.Pow: _power,
    }
)

_GUARDS: Mapping[str, Callable[[Sequence[Value]], None]] = MappingProxyType(
    {
        "factorial": _bound_permutations,
        "perm": _bound_permutations,
        "comb": _bound_combinations,
        "prod": _bound_product,
        "lcm": _bound_product,
        "round": _bound_digits,
    }
)
