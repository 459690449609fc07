"""A tool's arguments as a person writes them: ``last_2h 0.5 target=shop``, ``"select 1"``, ``limit=5``.

Words with a name (``key=value``) come first or last; what stands between goes to the first argument that takes it,
so that neither order nor names have to be known. Nothing is guessed: what fits nowhere is told, with how to write it.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from agent_core.errors import ToolFailed
from agent_core.llm.types import ToolSpec
from bot.tools.slow_queries.time_range import parse_time_range
from reading.arithmetic import NoResult, Unreadable, calculate
from reading.sqltext import looks_like_sql, read_sql, tidy_sql

_QUOTES = {"```": "```", "`": "`", '"': '"', "'": "'", "“": '”"“', "„": '“”"', "«": "»", "‘": "’'", "‚": "‘’'"}
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)=")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s?(ms|s|sec|min|m|h)", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_ANALYZED = re.compile(r"\s*explain\b[^;]{0,80}?\banaly[sz]e\b", re.IGNORECASE)
"""This would run the statement: the tool is to see it, and to say so."""

_LOOKS_OTHERWISE = re.compile(r"null|none|true|false|[+-]?[0-9.]+(?:e[+-]?[0-9]+)?", re.IGNORECASE)
"""A text that is read as something else where its argument allows that, unless it stands in quotes."""

_OPEN_ENDED = re.compile(r"(?:\b(?:where|and|or|on|set|having|not|by|between|like|in)|[,(=<>+*/|-])$", re.IGNORECASE)
_YES, _NO = ("yes", "true", "on", "1"), ("no", "false", "off", "0")
_ANY_TIME = datetime(9000, 1, 1, tzinfo=UTC)
"""Only the form of a time range is looked at here, so every one may lie in the past."""


class BadArguments(ValueError):
    """The words behind a command cannot be read; the message says how they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A word of a command: ``text`` without quotes, ``key`` where it is ``key=value``, and its place in the whole."""

    text: str
    start: int
    end: int
    key: str = ""
    quoted: bool = False


def split_words(text: str) -> tuple[Word, ...]:
    """Split what a person wrote into words. Quotes of any kind, also code marks, hold a text with blanks together.

    Raises:
        BadArguments: a quote is not closed.
    """
    words: list[Word] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        named = _KEY.match(text, at)
        value_at = named.end() if named else at
        value, end, quoted = _read_value_at(text, value_at)
        words.append(Word(text=value, start=at, end=end, key=named[1] if named else "", quoted=quoted))
        at = end
    return tuple(words)


def join_words(words: Sequence[str]) -> tuple[str, tuple[Word, ...]]:
    """Take words that a shell has split already; return them as one text and its words."""
    text, made = "", []
    for word in words:
        start = len(text)
        text += f"{word} "
        named = _KEY.match(word)
        value = word[named.end() :] if named else word
        made.append(Word(text=value, start=start, end=len(text) - 1, key=named[1] if named else ""))
    return text.rstrip(), tuple(made)


def _read_value_at(text: str, at: int) -> tuple[str, int, bool]:
    """Return the value that begins here, where it ends, and whether it stood in quotes."""
    opening = next((quote for quote in _QUOTES if text.startswith(quote, at)), "")
    if not opening:
        end = at
        while end < len(text) and not text[end].isspace():
            end += 1
        return text[at:end], end, False
    closings = ("```",) if opening == "```" else tuple(_QUOTES[opening])
    end = at + len(opening)
    while end < len(text):
        if text[end] == "\\" and opening in "\"'" and text[end + 1 : end + 2] in (opening, "\\"):
            end += 2
            continue
        closing = next((c for c in closings if text.startswith(c, end)), "")
        after = end + len(closing)
        if closing and (after >= len(text) or text[after].isspace()):
            return _unquote(text[at + len(opening) : end], opening), after, True
        end += 1
    raise BadArguments(f"the quote before {text[at : at + 20]!r} is not closed")


def _unquote(inner: str, opening: str) -> str:
    if opening == "```":
        return re.sub(r"\A[\w+-]*\n", "", inner).strip()
    return re.sub(r"\\([\\" + opening + "])", r"\1", inner) if opening in "\"'" else inner


def read_arguments(spec: ToolSpec, text: str, words: Sequence[Word], *, strict: bool = False) -> dict[str, object]:
    """Read words as the arguments of a tool.

    Args:
        spec: the tool.
        text: what the words are of; a text that needs no quotes is taken from it as it stands.
        words: see ``split_words``.
        strict: take a text without quotes or a name only where its form can be checked (SQL, a time range, a formula).

    Raises:
        BadArguments: something fits nowhere, comes twice, is of the wrong kind, or is missing.
    """
    fields = fields_of(spec)
    first, last = 0, len(words)
    while first < last and words[first].key:
        first += 1
    while last > first and words[last - 1].key in fields:
        last -= 1
    while first < last < len(words) and _OPEN_ENDED.search(words[last - 1].text):
        last += 1  # "... where target=3" is a part of the statement
    arguments: dict[str, object] = {}
    for word in (*words[:first], *words[last:]):
        if word.key not in fields:
            raise BadArguments(f"{spec.name} has no argument {word.key!r}{_near(word.key, fields)}")
        if word.key in arguments:
            raise BadArguments(f"{word.key} is given twice")
        arguments[word.key] = read_value(word.key, fields[word.key], word.text, quoted=word.quoted)
    left = list(words[first:last])
    while left:
        if left[0].key:
            raise BadArguments(f"{spec.name} has no argument {left[0].key!r}{_near(left[0].key, fields)}")
        used = _place(fields, arguments, text, left, strict=True)
        if not used and not strict:
            used = _place(fields, arguments, text, left, strict=False)
        if not used:
            shown = text[left[0].start : left[0].end]
            raise BadArguments(f"{shown!r} fits no argument of {spec.name}{_near(shown, fields)}")
        del left[:used]
    missing = [name for name in required_of(spec) if name not in arguments]
    missing += [
        f"{name} or {other}"
        for name, schema in fields.items()
        if (other := schema.get("x-needed-unless")) is not None and name not in arguments and other not in arguments
    ]
    if missing:
        raise BadArguments(f"{spec.name} needs {' and '.join(missing)}")
    return arguments


def _place(
    fields: Mapping[str, Mapping[str, object]],
    arguments: dict[str, object],
    text: str,
    left: list[Word],
    *,
    strict: bool,
) -> int:
    """Give the first words to the first argument that takes them; return how many it took."""
    open_fields = {name: schema for name, schema in fields.items() if name not in arguments}
    if "boolean" in types_of(open_fields.get(left[0].text, {})):
        arguments[left[0].text] = True
        return 1
    for name, schema in open_fields.items():
        if "boolean" in types_of(schema):
            continue
        for count in range(len(left), 0, -1):
            value = left[0].text if count == 1 else text[left[0].start : left[count - 1].end]
            if _takes(schema, value, quoted=count == 1 and left[0].quoted, rest=count == len(left), strict=strict):
                arguments[name] = read_value(name, schema, value)
                return count
    return 0


def _takes(schema: Mapping[str, object], value: str, *, quoted: bool, rest: bool, strict: bool) -> bool:
    """Tell whether an argument without a name may have this value."""
    form = str(schema.get("format", ""))
    check = _CHECKS.get(form)
    if form in _BY_NAME_ONLY:
        return False
    if "string" not in types_of(schema) or choices_of(schema):
        return _is_readable(schema, value)
    if form == "time-range":
        return _is_time_range(value)
    if form == "fingerprint":
        return _is_fingerprint(value)
    return rest and (quoted or not strict or (check is not None and check(value)))


# -- one value -------------------------------------------------------------------------------------


def read_value(name: str, schema: Mapping[str, object], value: str, *, quoted: bool = False) -> object:
    """Read a value as its schema wants it: numbers, durations (``500ms``), yes and no, choices, JSON, text.

    ``quoted``: it stood in quotes, so it is a text wherever a text is allowed: ``"5"`` and ``"none"`` are words.

    Raises:
        BadArguments: it is of another kind.
    """
    types = types_of(schema)
    if choices := choices_of(schema):
        return _read_choice(name, choices, value)
    if quoted and "string" in types:
        return _read_text(schema, value)
    if "null" in types and value.casefold() in ("null", "none"):
        return None
    for kind in ("boolean", "integer", "number", "array", "object"):
        if kind in types and (read := _READERS[kind](schema, value)) is not None:
            return read
    if "string" in types or not types:
        return _read_text(schema, value)
    raise BadArguments(
        f"{name}={value}: it has to be {' or '.join(_WORDS.get(t, t) for t in sorted(types - {'null'}))}"
    )


def _read_text(schema: Mapping[str, object], value: str) -> str:
    return tidy_sql(value) if schema.get("format") == "sql" and not _ANALYZED.match(value) else value


def _read_choice(name: str, choices: Sequence[object], value: str) -> object:
    found = next((c for c in choices if str(c).casefold() == value.casefold()), None)
    if found is None:
        near = difflib.get_close_matches(value, [str(c) for c in choices], n=1)
        wish = f"; did you mean {near[0]}?" if near else ""
        raise BadArguments(f"{name}={value}: it is one of {', '.join(map(str, choices))}{wish}")
    return found


def _is_readable(schema: Mapping[str, object], value: str) -> bool:
    try:
        read_value("", schema, value)
    except BadArguments:
        return False
    return True


def _read_boolean(schema: Mapping[str, object], value: str) -> bool | None:
    word = value.casefold()
    return word in _YES if word in (*_YES, *_NO) else None


def _read_integer(schema: Mapping[str, object], value: str) -> int | None:
    return int(value) if re.fullmatch(r"[+-]?[0-9]{1,18}", value) else None


def _read_number(schema: Mapping[str, object], value: str) -> float | None:
    if re.fullmatch(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{1,24})?|\.[0-9]{1,24})(?:e[+-]?[0-9]{1,3})?", value, re.IGNORECASE):
        number = float(value)
        return number if math.isfinite(number) else None
    match = _DURATION.fullmatch(value) if schema.get("format") == "duration-s" else None
    return None if match is None else float(match[1]) * _SECONDS[match[2].lower()]


def _read_json(schema: Mapping[str, object], value: str) -> object:
    try:
        data = json.loads(value)
    except (ValueError, RecursionError):
        return None
    kind = list if "array" in types_of(schema) else dict
    return data if isinstance(data, kind | dict) else None


_READERS: Mapping[str, Callable[[Mapping[str, object], str], object]] = {
    "boolean": _read_boolean,
    "integer": _read_integer,
    "number": _read_number,
    "array": _read_json,
    "object": _read_json,
}

_WORDS = {
    "boolean": "yes or no",
    "integer": "a whole number",
    "number": "a number",
    "array": "a JSON list",
    "object": "a JSON object",
}


def _is_sql(text: str) -> bool:
    """True for a statement and nothing else: words behind it would be taken for a part of it."""
    found = read_sql(text) if looks_like_sql(text) else None
    return found is not None and found.value == tidy_sql(text)


def _is_expression(text: str) -> bool:
    try:
        calculate(text)
    except NoResult:
        return True
    except Unreadable:
        return False
    return True


def _is_time_range(text: str) -> bool:
    try:
        parse_time_range(text, now=_ANY_TIME)
    except ToolFailed:
        return False
    return True


def _is_zone(text: str) -> bool:
    return text in zoneinfo.available_timezones()


def _is_fingerprint(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{16}", text) is not None


_BY_NAME_ONLY = ("name",)
"""Formats whose values could be any word: they are taken as ``key=value`` only."""

_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "sql": _is_sql,
    "math-expression": _is_expression,
    "timezone": _is_zone,
}
"""Formats of a tool's schema whose values can be told apart from a sentence."""


# -- schemas ---------------------------------------------------------------------------------------


def fields_of(spec: ToolSpec) -> Mapping[str, Mapping[str, object]]:
    """Return the arguments of a tool with their schemas, in order."""
    properties = spec.parameters.get("properties")
    found = properties if isinstance(properties, Mapping) else {}
    return {name: schema if isinstance(schema, Mapping) else {} for name, schema in found.items()}


def required_of(spec: ToolSpec) -> tuple[str, ...]:
    """Return the names of the arguments that a tool cannot do without."""
    required = spec.parameters.get("required")
    return tuple(required) if isinstance(required, list | tuple) else ()


def types_of(schema: Mapping[str, object]) -> frozenset[str]:
    """Return the JSON types that a schema allows; empty: any."""
    parts = schema.get("anyOf")
    if isinstance(parts, list | tuple):
        return frozenset().union(*(types_of(part) for part in parts if isinstance(part, Mapping)))
    kind = schema.get("type")
    return frozenset(kind if isinstance(kind, list | tuple) else [kind] if isinstance(kind, str) else [])


def choices_of(schema: Mapping[str, object]) -> Sequence[object]:
    """Return the only values that a schema allows; empty: any."""
    choices = schema.get("enum")
    return choices if isinstance(choices, list | tuple) else ()


def _near(word: str, fields: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(word, list(fields), n=1)
    return f"; did you mean {near[0]}?" if near else ""


# -- writing ---------------------------------------------------------------------------------------


def write_arguments(arguments: Mapping[str, object]) -> str:
    """Write arguments so that they are read back as they are."""
    return " ".join(f"{name}={_write_value(value)}" for name, value in arguments.items())


def _write_value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    bare = not isinstance(value, str) or not _LOOKS_OTHERWISE.fullmatch(value)
    if bare and re.fullmatch(r"[^\s\"'`“”„«»‘’‚\\]+", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def describe_usage(spec: ToolSpec, name: str = "") -> str:
    """Write how a tool is called, on one line; ``name`` stands for the tool's own."""
    needed = required_of(spec)
    words = [f"{field}=..." if field in needed else f"[{field}=...]" for field in fields_of(spec)]
    return f"write: {' '.join([name or spec.name, *words])}"


def describe_arguments(spec: ToolSpec) -> list[str]:
    """Write one line of Markdown for each argument: its kind, its default, what it means."""
    lines = []
    for name, schema in fields_of(spec).items():
        kind = ", ".join(map(str, choices_of(schema))) or " or ".join(
            _WORDS.get(t, "a text" if t == "string" else t) for t in sorted(types_of(schema) - {"null"})
        )
        default = schema.get("default")
        usual = "needed" if name in required_of(spec) else "" if default is None else f"usually {_write_value(default)}"
        facts = "; ".join(part for part in (kind, usual) if part)
        meaning = " ".join(str(schema.get("description", "")).split())
        lines.append(f"- `{name}` ({facts}): {meaning}".rstrip(": "))
    return lines
