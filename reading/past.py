"""What the thread already holds: earlier calls, their results, and references to rows of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reading.numbers import parse_number
from reading.schema import Slot
from reading.spec import PastMessage

_ORDINAL_WORDS = "first second third fourth fifth sixth seventh eighth ninth tenth"
_ORDINALS = {word: n for n, word in enumerate(_ORDINAL_WORDS.split(), 1)}
_THING = r"(?:one|query|statement|row|entry|line|result|item|session|sql|table|index)"
_REFERENCE = re.compile(
    rf"(?P<worst>\b(?:the\s+)?(?:slowest|longest|worst|heaviest|biggest|largest|top)(?:\s+(?:single\s+)?{_THING})?(?:\s+(?:of|from|in)\s+(?:them|these|those|the\s+list|all))?\b(?!\s+(?:queries|statements|ones|\d)))"
    rf"|(?P<ordinal>\b(?:the\s+)?(?P<word>{'|'.join(_ORDINALS)}|last|\d+(?:st|nd|rd|th))(?:\s+(?:{_THING}|of\s+(?:them|these|those)))+\b)"
    rf"|(?P<bare>\b(?:the\s+)?(?P<bare_word>{'|'.join(_ORDINALS)}|last|\d+(?:st|nd|rd|th))\s*(?=[?.!,]|$))"
    rf"|(?P<numbered>(?:\b(?:row|number|no\.?|query|line|result|item)\s*#?\s*|#)(?P<n>\d+)\b)"
    rf"|(?P<it>\b(?:it|that|this|that\s+{_THING}|this\s+{_THING}|the\s+(?:above|previous)\s+{_THING}|the\s+{_THING}\s+above)\b)"
    r"|(?P<zh_worst>最(?:慢|久|长|差|大|耗时)的?(?:那|一|这)?(?:一)?(?:条|个|句)?(?:查询|语句|SQL)?(?![\d一二三四五六七八九十]*条))"
    r"|(?P<zh_ordinal>第(?P<zh_n>[\d一二三四五六七八九十]+)(?:条|个|行|句))"
    r"|(?P<zh_last>最后(?:那|一)?一?(?:条|个))"
    r"|(?P<zh_it>(?:这|那|上面(?:那|的)?|上一)(?:一)?(?:条|个|句)(?:查询|语句|SQL)?|它)",
    re.IGNORECASE | re.ASCII,
)
_MARK = "untrusted_data"
_TEXT_MARK, _TEXT_END = f"<{_MARK}>", f"</{_MARK}>"
"""How the engine marks what tools returned (``agent_core.tools.results.mark_untrusted``)."""

_MEASURES = ("duration", "duration_s", "mean_s", "age_s", "wait_s", "max_s", "total_s", "calls", "size_bytes")
_ALIASES: Mapping[str, tuple[str, ...]] = {"sql": ("sql", "query", "statement"), "code": ("code",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCall:
    """A finished tool call of the thread. ``result`` is the parsed JSON, or the text, or None when unknown."""

    name: str
    arguments: Mapping[str, object]
    result: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Words that point at a row: ``row`` is its 1-based number, -1 the last; None is the worst (or the only) one.

    ``vague`` is true for "it" and "that", which may as well mean what the last call was about.
    """

    row: int | None
    vague: bool
    start: int
    end: int


def parse_result(content: str) -> object:
    """Parse a tool result without its mark as data; what is not JSON stays text."""
    if content.startswith(_TEXT_MARK) and content.endswith(_TEXT_END):
        return content[len(_TEXT_MARK) : -len(_TEXT_END)].strip("\n")
    try:
        value = json.loads(content)
    except ValueError:
        return content
    if isinstance(value, dict) and value.pop(_MARK, False) and set(value) == {"result"}:
        return value["result"] if isinstance(value["result"], list) else value
    return value


def read_past(messages: Sequence[PastMessage]) -> list[PastCall]:
    """Return the tool calls of a history with their results, oldest first. Calls with broken arguments are left out."""
    results = {m.tool_call_id: m.content for m in messages if m.role == "tool" and m.tool_call_id}
    calls: list[PastCall] = []
    for position, message in enumerate(messages):
        if not message.tool_calls:
            continue
        after = {m.tool_call_id: m.content for m in messages[position + 1 : position + 1 + len(message.tool_calls)]}
        for call in message.tool_calls:
            arguments = parse_result(call.arguments or "{}")
            if isinstance(arguments, dict):
                content = after.get(call.id, results.get(call.id))
                result = parse_result(content) if content is not None else None
                calls.append(PastCall(name=call.name, arguments=arguments, result=result))
    return calls


def read_reference(text: str) -> Reference | None:
    """Find the words that point at a row of an earlier result; an exact row wins over "it"."""
    found = list(_REFERENCE.finditer(text))
    for m in sorted(found, key=lambda m: bool(m.group("it") or m.group("zh_it"))):
        vague = bool(m.group("it") or m.group("zh_it"))
        return Reference(row=_row_number(m), vague=vague, start=m.start(), end=m.end())
    return None


def _row_number(m: re.Match[str]) -> int | None:
    word = m.group("word") or m.group("bare_word")
    if m.group("zh_last") or (word and word.lower() == "last"):
        return -1
    if word:
        return _ORDINALS.get(word.lower()) or int(re.sub(r"\D", "", word))
    if m.group("n"):
        return int(m.group("n"))
    if m.group("zh_n"):
        try:
            return int(parse_number(m.group("zh_n")))
        except ValueError:
            return None
    return None


def rows_of(result: object) -> list[Mapping[str, object]]:
    """Return the rows of a result: its ``rows``, or its first list of objects."""
    if not isinstance(result, Mapping):
        return [r for r in result if isinstance(r, Mapping)] if isinstance(result, list) else []
    lists = [result.get("rows"), *result.values()]
    for value in lists:
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            return [r for r in value if isinstance(r, Mapping)]
    return []


def look_up(reference: Reference, slot: Slot, past: Sequence[PastCall]) -> tuple[object, PastCall] | None:
    """Return the value for ``slot`` from the row that is meant, and the call it came from.

    The newest result whose rows have a column of the argument's name counts; None when there is none, or no such row.
    """
    columns = _ALIASES.get(slot.kind) or _ALIASES.get(slot.name) or (slot.name,)
    for call in reversed(past):
        rows = rows_of(call.result)
        column = next((c for c in columns if rows and c in rows[0]), None)
        if column is None:
            continue
        row = _pick(reference, rows)
        value = row.get(column) if row else None
        return (value, call) if value is not None else None
    return None


def _pick(reference: Reference, rows: Sequence[Mapping[str, object]]) -> Mapping[str, object] | None:
    if reference.row == -1:
        return rows[-1]
    if reference.row is not None:
        return rows[reference.row - 1] if 0 < reference.row <= len(rows) else None
    measure = next((m for m in _MEASURES if any(isinstance(r.get(m), int | float) for r in rows)), None)
    if measure is None:
        return rows[0]
    return max(rows, key=lambda r: v if isinstance(v := r.get(measure), int | float) else float("-inf"))
