"""The JSON object in a model's reply: taken out of prose and code fences, and mended only where nothing is lost.

Lossless are: what stands around the object, comments, a comma before a closing bracket, single-quoted strings, ``\\'``,
raw line breaks in strings, and Python's ``True``, ``False`` and ``None``. Whatever would need a guess is refused: text
that ends early, a missing comma, colon or quote, a name that stands twice, NaN, a second object.
"""

from __future__ import annotations

import json
import re

from agent_core.errors import AgentError

_THINKING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<space>\s++|//[^\n]*+|\#[^\n]*+|/\*.*?\*/)|(?P<mark>[\[\]{},:])|(?P<word>[^\s"'\[\]{},:/#]++)"""
    r"""|(?P<string>"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')""",
    re.DOTALL,
)
_QUOTED = re.compile(r'\\(.)|"', re.DOTALL)
_REQUOTED = {None: '\\"', "'": "'"}
_LITERALS = {"True": "true", "False": "false", "None": "null"}
_ANOTHER = re.compile(r"""\{\s*["']""")


class NotOneObject(AgentError):
    """There is no JSON object in the text, more than one, or one that only a guess would complete."""


class Ambiguous(NotOneObject):
    """The text can be read, and says several things or the wrong kind of thing: no repair helps."""


def parse_object(text: str) -> dict[str, object]:
    """Read the one JSON object in ``text``. Takes time linear in its length.

    Valid JSON is read as it is. The first ``{`` begins the object; nothing inside a broken object is looked at.

    Raises:
        NotOneObject: see there; the message tells the model what to mend.
    """
    text = _THINKING.sub("", text).strip()
    try:
        return _decode(text)
    except NotOneObject:
        start = text.find("{")
        if start < 0:
            raise
    mended, end = _mend(text, start)
    if text[:start].rstrip().endswith("[") or text[end:].lstrip()[:1] in ("]", ",") or _ANOTHER.search(text, end):
        raise Ambiguous("there is more than one JSON object, or it stands in a list; send exactly one")
    return _decode(mended)


def _mend(text: str, start: int) -> tuple[str, int]:
    """Return the object that begins at ``start`` in strict JSON, as far as that is possible, and where it ends."""
    out: list[str] = []
    depth, at = 0, start
    while token := _TOKEN.match(text, at):
        part, at = token[0], token.end()
        match token.lastgroup:
            case "word":
                out.append(_LITERALS.get(part, part))
            case "string":
                out.append('"' + _QUOTED.sub(lambda m: _REQUOTED.get(m[1], m[0]), part[1:-1]) + '"')
            case "mark":
                if part in "]}" and out[-1] == "," and out[-2] not in "[{,":
                    out.pop()
                out.append(part)
                depth += (part in "[{") - (part in "]}")
                if not depth:
                    return " ".join(out), at  # spaces keep two words two words
    broken = (
        f"a quote or comment is not closed at {text[at : at + 20]!r}" if at < len(text) else "a bracket is not closed"
    )
    raise NotOneObject(f"the JSON breaks off: {broken}")


def _decode(text: str) -> dict[str, object]:
    try:
        value = _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise NotOneObject(f"the text is not one JSON object: {error}") from error
    if not isinstance(value, dict):
        raise Ambiguous("the JSON is not an object; it has to begin with { and end with }")
    return value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    read = dict(pairs)
    if len(read) < len(pairs):
        raise Ambiguous("the JSON names a field twice")
    return read


def _refuse(word: str) -> object:
    raise Ambiguous(f"{word} is not JSON; use a finite number or null")


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse, strict=False)
