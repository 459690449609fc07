"""The text of a tool result, and its form in the journal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from datetime import datetime

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from agent_core.tools.base import ToolResult

_HEAD_SHARE = 2 / 3  # the start of an output says more than its end


def render_value(value: object) -> str:
    """Render what a tool returned: text as it is, everything else as JSON (NaN and infinities as strings).

    Raises:
        ValueError: it cannot be written as JSON; the message names the type.
    """
    if isinstance(value, str):
        return value
    return to_json(value, inf_nan_mode="strings").decode()


def render_failure(code: str, message: str, *, fix: str = "", retryable: bool = False) -> str:
    """Render a failure in the one form that every tool and the executor use."""
    error = {"code": code, "message": message, "fix": fix, "retryable": retryable}
    return json.dumps({"ok": False, "error": error}, ensure_ascii=False)


def find_failure(value: object) -> str | None:
    """Return the error code of a value by which a tool says ``ok`` false, else None.

    It looks at mappings, pydantic models and dataclasses; a failure without a code is ``failed``.
    """
    if _member(value, "ok") is not False:
        return None
    for holder in (_member(value, "error"), value):
        code = _member(holder, "code")
        if isinstance(code, str) and code:
            return code
    return "failed"


def _member(value: object, name: str) -> object:
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, BaseModel) or is_dataclass(value):
        return getattr(value, name, None)
    return None


UNTRUSTED_KEY = "untrusted_data"


def mark_untrusted(content: str) -> str:
    """Mark a tool's result as data for the model, in a way that nothing inside the result can end.

    A JSON object gets the key ``untrusted_data`` first, a list stays inside such an object; all else, JSON that was cut
    as well, stands between two tags, and what looks like them in it loses its bracket. The mark stays in the history.
    """
    try:  # what only begins like JSON could end the object that it would stand in
        value = from_json(content) if content.lstrip()[:1] in ("{", "[") else None
    except ValueError:
        value = None
    if isinstance(value, dict):
        return f'{{"{UNTRUSTED_KEY}":true{"," if value else ""}{content.lstrip()[1:]}'
    if isinstance(value, list):
        return f'{{"{UNTRUSTED_KEY}":true,"result":{content}}}'
    text = content.replace(f"<{UNTRUSTED_KEY}", f"({UNTRUSTED_KEY}").replace(f"</{UNTRUSTED_KEY}", f"(/{UNTRUSTED_KEY}")
    return f"<{UNTRUSTED_KEY}>\n{text}\n</{UNTRUSTED_KEY}>"


_MARKS = re.compile(rf'</?{UNTRUSTED_KEY}>\n?|"{UNTRUSTED_KEY}": ?true(?:, ?)?')


def unmark(text: str) -> str:
    """Return what a model wrote without the marks that it repeated from results."""
    return _MARKS.sub("", text) if UNTRUSTED_KEY in text else text


_OPENERS = re.compile('[<"]')
_LONGEST = tuple(
    f"{mark}{end}"
    for mark, end in (
        (f"<{UNTRUSTED_KEY}>", "\n"),
        (f"</{UNTRUSTED_KEY}>", "\n"),
        (f'"{UNTRUSTED_KEY}":true', ", "),
        (f'"{UNTRUSTED_KEY}": true', ", "),
    )
)


class Unmarking:
    """``unmark`` for a text that comes in pieces: what may become a mark is held back until that is known."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what can be shown now, perhaps nothing."""
        text = self._held + piece
        begun = (m.start() for m in _OPENERS.finditer(text, max(0, len(text) - max(map(len, _LONGEST)))))
        cut = next((i for i in begun if any(mark.startswith(text[i:]) for mark in _LONGEST)), len(text))
        self._held = text[cut:]
        return unmark(text[:cut])

    def end(self) -> str:
        """Return what was held back, as no more comes."""
        held, self._held = self._held, ""
        return unmark(held)


def cap_text(text: str, limit: int, *, where: str = "") -> tuple[str, bool]:
    """Keep head and tail of ``text``, with a note between them of how many characters were left out.

    Args:
        text: the whole output.
        limit: characters, the note included (a limit smaller than the note leaves only the note).
        where: how to get at what is left out; part of the note.

    Returns:
        The text and whether something was left out.
    """
    if len(text) <= limit:
        return text, False
    note = _note(len(text), where)  # its longest form, so that the real one fits
    room = max(0, limit - len(note))
    head = round(room * _HEAD_SHARE)
    tail = room - head
    return text[:head] + _note(len(text) - room, where) + text[len(text) - tail :], True


def _note(count: int, where: str) -> str:
    return f"\n[... {count} characters left out{where} ...]\n"


def dump_result(result: ToolResult) -> str:
    """Write a result as JSON for the journal; ``load_result`` reads it back."""
    return json.dumps(
        {
            "call_id": result.call_id,
            "name": result.name,
            "ok": result.ok,
            "content": result.content,
            "error_code": result.error_code,
            "started_at": result.started_at.isoformat(),
            "duration_s": result.duration_s,
            "attempts": result.attempts,
            "truncated": result.truncated,
            "trusted": result.trusted,
        },
        ensure_ascii=False,
    )


def load_result(text: str) -> ToolResult:
    """Read what ``dump_result`` wrote; the result is marked as replayed.

    Raises:
        ValueError: it is something else.
    """
    match json.loads(text):
        case {
            "call_id": str(call_id),
            "name": str(name),
            "ok": bool(ok),
            "content": str(content),
            "error_code": str() | None as error_code,
            "started_at": str(started_at),
            "duration_s": float() | int() as duration_s,
            "attempts": int(attempts),
            "truncated": bool(truncated),
            **rest,
        }:
            return ToolResult(
                call_id=call_id,
                name=name,
                ok=ok,
                content=content,
                error_code=error_code,
                started_at=datetime.fromisoformat(started_at),
                duration_s=duration_s,
                attempts=attempts,
                truncated=truncated,
                trusted=rest.get("trusted") is True,
                replayed=True,
            )
        case _:
            raise ValueError("the journal holds something that is not a tool result")
