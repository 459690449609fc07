"""Numbers as people write them: digits, English words, Chinese numerals."""

from __future__ import annotations

import re

_ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_VALUES = {word: n for n, word in enumerate(_ONES.split())}
_VALUES |= {word: 10 * n for n, word in enumerate(_TENS.split(), 2)}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
_WORD = "(?:" + "|".join(sorted((*_VALUES, *_SCALES), key=len, reverse=True)) + ")"

DIGITS = r"(?:\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,9})?|\d{1,15}(?:\.\d{1,9})?|\.\d{1,9})"
ENGLISH = rf"(?:\b(?:a\s+)?{_WORD}(?:(?:[\s-]|\sand\s){_WORD}){{0,8}}\b)"
CHINESE = "[零〇一二两三四五六七八九十百千万]{1,12}"
ANY = rf"(?:{DIGITS}|{ENGLISH}|{CHINESE})"
"""A pattern (case has to be ignored) for one number in any of the three ways of writing."""

ENGLISH_NUMBER = re.compile(ENGLISH, re.IGNORECASE)
CHINESE_NUMBER = re.compile(CHINESE)
_CHINESE_DIGITS = {c: n for n, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_CHINESE_SCALES = {"十": 10, "百": 100, "千": 1000}


def parse_number(text: str) -> float:
    """Read one number that matches ``ANY``.

    Raises:
        ValueError: it is not one.
    """
    text = text.strip().lower()
    if re.fullmatch(DIGITS, text):
        return float(text.replace(",", ""))
    if re.fullmatch(CHINESE, text):
        return float(_parse_chinese(text))
    return float(_parse_english(text))


def plain(number: float) -> str:
    """Write a number without a needless fraction: ``2``, ``1.5``."""
    return str(int(number)) if number == int(number) else repr(number)


def _parse_english(text: str) -> int:
    total = current = 0
    words = [w for w in re.split(r"[\s-]+", text) if w not in ("and", "a", "")]
    if not words:
        raise ValueError(f"not a number: {text!r}")
    for word in words:
        if word in _VALUES:
            current += _VALUES[word]
        elif word == "hundred":
            current = (current or 1) * 100
        elif word in _SCALES:
            total += (current or 1) * _SCALES[word]
            current = 0
        else:
            raise ValueError(f"not a number: {text!r}")
    return total + current


def _parse_chinese(text: str) -> int:
    if all(c in _CHINESE_DIGITS for c in text):
        return int("".join(str(_CHINESE_DIGITS[c]) for c in text))
    total = section = digit = 0
    for c in text:
        if c in _CHINESE_DIGITS:
            digit = _CHINESE_DIGITS[c]
        elif c == "万":
            total += (section + digit or 1) * 10_000
            section = digit = 0
        else:
            section += (digit or 1) * _CHINESE_SCALES[c]
            digit = 0
    return total + section + digit
