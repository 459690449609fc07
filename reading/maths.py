"""Calculations in a question: written as an expression, or in words ("12.5% of 80", "2的10次方").

Words are rewritten to symbols; then the longest part that parses as arithmetic is the expression. An expression that
was written as one is handed on as it stands.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from reading.numbers import (
    CHINESE_NUMBER,
    ENGLISH_NUMBER,
    parse_number,
    plain,
)

_NAMES = frozenset(name for name in dir(math) if not name.startswith("_")) | {
    "abs",
    "round",
    "min",
    "max",
    "math",
    "pow",
}
_LONGEST = 2_000
_N = r"(\d+(?:\.\d+)?|\.\d+)"
_TERM = rf"(?:{_N}|\([^()]*\))"

_GUARDED = re.compile(
    r"\b\d{4}-\d\d?-\d\d?(?:[T ][\d:.]+Z?)?|\b\d{1,2}:\d\d(?::\d\d)?|\blast_\w+|\b\d+(?:\.\d+){2,}|#\d+"
    r"|\b[a-z_]\w*-\d+\b|\b\d+-(?=[a-z])|(?<=\d)(?=(?:ms|s|min|m|h|d|w)\b)|\+?\d{3,}-\d{3,}-\d{3,}|\b24/7\b",
    re.IGNORECASE | re.ASCII,
)
_ENGLISH_MATHS = re.compile(
    r"\b(?:plus|minus|times|divided?|multipl\w+|power|root|squared|cubed|percent|sum|product|factorial|modulo|mod|subtract"
    r"|add|half of|third of|difference|average|twice|double)\b",
    re.IGNORECASE,
)
_CHINESE_MATHS = re.compile("[加减乘除]|次方|次幂|平方|立方|根号|阶乘|百分之|等于")

Rewrite = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]


def _joined(operator: str, after: str = "") -> Callable[[re.Match[str]], str]:
    def join(match: re.Match[str]) -> str:
        numbers = re.findall(r"\d+(?:\.\d+)?", match.group(1))
        return f"({operator.join(numbers)})" + (f"/{len(numbers)}" if after else "")

    return join


_LIST = rf"({_N}(?:(?:\s*,\s*and|\s*,|\s+and|\s+to|\s*和|\s*、)\s*{_N})+)"
_PATTERNS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\s*再?(?:[×✕·∙]|乘以|乘上|(?<!阶)乘)\s*", " * "),
    (r"\s*再?(?:÷|除以)\s*", " / "),
    (r"[−–]", "-"),
    (r"\s*再?(?:减去|减掉|减)\s*", " - "),
    (r"\s*再?(?:加上|加|＋)\s*", " + "),
    (r"（", "("),
    (r"）", ")"),
    (r"\^", "**"),
    (rf"{_N}\s*的\s*{_N}\s*次(?:方|幂)", r"\1**\2"),
    (rf"{_N}\s*的\s*平方根", r"sqrt(\1)"),
    (rf"{_N}\s*的\s*立方根", r"cbrt(\1)"),
    (rf"(?:根号|√)\s*{_N}", r"sqrt(\1)"),
    (rf"{_N}\s*的?\s*平方", r"\1**2"),
    (rf"{_N}\s*的?\s*立方", r"\1**3"),
    (rf"{_N}\s*的\s*阶乘", r"factorial(\1)"),
    (rf"{_N}\s*的\s*(?:％之\s*{_N}|{_N}\s*%)", lambda m: f"{m.group(1)}*{m.group(2) or m.group(3)}/100"),
    (rf"％之\s*{_N}", r"(\1/100)"),
    (rf"{_N}\s*(?:等于多少|等于几)\s*(?=[*/+-])", r"\1 "),
    (rf"\bsubtract\s+{_N}\s+from\s+{_N}", r"\2-\1"),
    (rf"\bmultiply\s+{_N}\s+(?:by|and|with)\s+{_N}", r"\1*\2"),
    (rf"\bdivide\s+{_N}\s+by\s+{_N}", r"\1/\2"),
    (rf"\badd\s+(?:up\s+)?{_LIST}", _joined("+")),
    (rf"\b(?:sum|total)\s+of\s+{_LIST}", _joined("+")),
    (rf"\bproduct\s+of\s+{_LIST}", _joined("*")),
    (rf"\bdifference\s+(?:of|between)\s+{_LIST}", _joined("-")),
    (rf"\b(?:average|mean)\s+of\s+{_LIST}", _joined("+", "mean")),
    (rf"{_N}\s*(?:%|percent|per\s+cent)\s*of\s+(?=[\d(.])", r"\1/100*"),
    (rf"{_N}\s*(?:%|percent\b|per\s+cent\b)(?!\s*[\d(.])", r"(\1/100)"),
    (rf"\b(?:the\s+)?cube\s+root\s+of\s+{_TERM}", lambda m: _call("cbrt", m)),
    (rf"\b(?:the\s+)?(?:square\s+root|sqrt|root)\s+of\s+{_TERM}", lambda m: _call("sqrt", m)),
    (rf"\b(?:the\s+)?factorial\s+of\s+{_N}", r"factorial(\1)"),
    (rf"{_N}\s+factorial\b", r"factorial(\1)"),
    (rf"\blog(?:arithm)?\s+base\s+{_N}\s+of\s+{_N}", r"log(\2, \1)"),
    (rf"\b(?:natural\s+log(?:arithm)?|ln)\s*(?:of\s+|\(\s*){_N}\)?", r"log(\1)"),
    (rf"\b(sin|cos|tan|log|log10|log2|exp|sqrt|abs|floor|ceil)\s+(?:of\s+)?(?:{_N}|(pi)\b)", r"\1(\2\3)"),
    (rf"\b(?:a\s+)?half\s+of\s+{_N}", r"\1/2"),
    (rf"\b(?:a|one)\s+third\s+of\s+{_N}", r"\1/3"),
    (rf"\b(?:a|one)\s+quarter\s+of\s+{_N}", r"\1/4"),
    (rf"\b(?:twice|double)\s+{_N}", r"2*\1"),
    (r"\s*\b(?:raised\s+)?to\s+the\s+power\s+(?:of\s+)?", "**"),
    (rf"\s*\b(?:raised\s+)?to\s+the\s+{_N}(?:st|nd|rd|th)?\s+power\b", r"**\1"),
    (r"\s*\bsquared\b", "**2"),
    (r"\s*\bcubed\b", "**3"),
    (r"\s*\bmultiplied\s+by\b\s*|(?<=[\d)])\s*\btimes\b\s*(?=[\d(a-z])", " * "),
    (r"\s*\bdivided\s+by\b\s*", " / "),
    (r"(?<=[\d)])\s*\bplus\b\s*(?=[\d(a-z.-])", " + "),
    (r"(?<=[\d)])\s*\bminus\b\s*(?=[\d(a-z.])", " - "),
    (r"\b(?:mod|modulo|modulus)\b", "%"),
    (r"(?<=[\d)])\s*x\s*(?=[\d(])", " * "),
    (r"^\s*((?:what(?:'s|\s+is)|calculate|compute|calc|计算|算一下)?\s*)(\d+)!\s*[?？]*\s*$", r"\1factorial(\2)"),
)
_REWRITES: tuple[Rewrite, ...] = tuple((re.compile(p, re.IGNORECASE | re.ASCII), into) for p, into in _PATTERNS)
_MAY_REWRITE = re.compile(
    r"[×✕·∙÷−–＋（）^√%!]|[加减乘除]|次方|次幂|平方|立方|根号|阶乘|百分之|等于|(?<=[\d)])\s*x\s*(?=[\d(])",
    re.IGNORECASE,
)
_FUNCTION_WORDS = re.compile(
    r"\b(?:sin|cos|tan|log|logarithm|log10|log2|ln|exp|sqrt|abs|floor|ceil|of|root|factorial)\b", re.IGNORECASE
)
_TOKEN = re.compile(
    r"\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+|(?:math\s*\.\s*)?[A-Za-z_]\w*|\*\*|//|[-+*/%(),]|\s+|.", re.DOTALL
)


def _call(name: str, match: re.Match[str]) -> str:
    inner = match.group(1) or match.group()[match.group().index("(") :].strip("()")
    return f"{name}({inner})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """Arithmetic found in a text, as Python writes it."""

    value: str
    start: int
    end: int


def read_expression(text: str) -> Expression | None:
    """Find the longest piece of arithmetic with at least one operation; None when there is none.

    Dates, clock times, versions and names such as ``pg-14`` are not arithmetic.
    """
    if len(text) > 20 * _LONGEST:
        return None
    original = _GUARDED.sub(lambda m: " " * len(m.group()) if m.group() else "", text)
    rewritten = _rewrite(original)
    best: tuple[int, int] | None = None
    for start, end in _runs(rewritten):
        found = _longest_valid(rewritten, start, end)
        if found and (best is None or found[1] - found[0] > best[1] - best[0]):
            best = found
    if best is None:
        return None
    value = re.sub(r"\s+", " ", rewritten[best[0] : best[1]]).strip()
    start = min(best[0], _common(original, rewritten))
    tail = min(len(rewritten) - best[1], _common(original[::-1], rewritten[::-1]))
    return Expression(value=value, start=start, end=max(len(original) - tail, start))


def _common(a: str, b: str) -> int:
    """Count the characters that two texts begin with in common."""
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def _rewrite(text: str) -> str:
    text = re.sub(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])", lambda m: m.group().replace(",", ""), text)
    if _ENGLISH_MATHS.search(text):
        text = ENGLISH_NUMBER.sub(lambda m: plain(parse_number(m.group())), text)
    elif _CHINESE_MATHS.search(text):
        text = text.replace("百分之", "％之")  # its first character is also a number
        text = CHINESE_NUMBER.sub(lambda m: _chinese_digits(m.group()), text)
    elif not (_MAY_REWRITE.search(text) or _FUNCTION_WORDS.search(text)):
        return text
    for pattern, into in _REWRITES:
        text = pattern.sub(into, text)
    return text


def _chinese_digits(numeral: str) -> str:
    try:
        return plain(parse_number(numeral))
    except (ValueError, KeyError):
        return numeral


def _runs(text: str) -> list[tuple[int, int]]:
    """Return the parts of ``text`` that consist of numbers, operators and known names only."""
    runs: list[tuple[int, int]] = []
    start: int | None = None
    for token in _TOKEN.finditer(text):
        piece = token.group()
        name = piece.replace(" ", "").removeprefix("math.")
        fits = piece[0].isdigit() or piece[0] in ".-+*/%(), \t\n" or name in _NAMES
        if fits and piece != ".":
            start = token.start() if start is None else start
        elif start is not None:
            runs.append((start, token.start()))
            start = None
    if start is not None:
        runs.append((start, len(text)))
    return [(a, b) for a, b in runs if b - a <= _LONGEST and re.search(r"\d|pi|tau", text[a:b])]


def _longest_valid(text: str, start: int, end: int) -> tuple[int, int] | None:
    bounds = [(start + m.start(), start + m.end()) for m in _TOKEN.finditer(text[start:end]) if m.group().strip()]
    attempts = 0
    for length in range(len(bounds), 1, -1):
        for first in range(len(bounds) - length + 1):
            a, b = bounds[first][0], bounds[first + length - 1][1]
            attempts += 1
            if attempts > 300:
                return None
            if _is_arithmetic(text[a:b]):
                return a, b
    return None


def _is_arithmetic(source: str) -> bool:
    try:
        tree = ast.parse(source.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    works = False
    for node in ast.walk(tree.body):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[_, *_], keywords=[]) if name not in (
                "pi",
                "e",
                "tau",
                "inf",
                "nan",
            ):
                works = True
            case ast.Call(func=ast.Attribute(value=ast.Name(id="math")), args=[_, *_], keywords=[]):
                works = True
            case ast.BinOp():
                works = True
            case ast.Constant(value=value) if isinstance(value, int | float):
                pass
            case ast.UnaryOp() | ast.Name() | ast.Attribute() | ast.operator() | ast.unaryop() | ast.expr_context():
                pass
            case _:
                return False
    return works
