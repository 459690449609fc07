"""What people said, as a model is told: who it was, and what of it is data that nobody said to Hermod."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence

from adapters.chat import Author, FileRef, Message, Said
from agent_core.llm.types import ModelMessage
from agent_core.tools.results import cap_text, mark_untrusted
from bot.tools.python_sandbox.files import clean_file_name, format_size

QUOTED_CHARS = 8_000
"""Of what came along with one message."""

PAST_CHARS = 12_000
"""Of what was said in a thread before Hermod came."""

SAID_CHARS = 2_000
"""Of one message of it."""

_LABEL = re.compile(r"\[(?=[^\[\]\n]{0,120}\]\s*\([^()\n]{0,20}\d{4}-\d\d-\d\d \d\d:\d\d [A-Z]{3,4}\))")
"""How a model is told who wrote a message, and when; in a message's own text it would be somebody else's word."""


def speaker_of(author: Author) -> str:
    """Name an author for a model; the platform's id where there is no name."""
    return author.name.strip() or author.id


def build_question(messages: Sequence[Message]) -> list[ModelMessage]:
    """Build a turn's user messages, in their order; two people of one name are told apart by their ids."""
    people = {(m.author.id, speaker_of(m.author)) for m in messages}
    shared = {name for name, count in Counter(name for _, name in people).items() if count > 1}
    return [
        ModelMessage(role="user", content=_build_content(m), speaker=_name(m.author, shared), at=m.sent_at)
        for m in messages
    ]


def _name(author: Author, shared: Collection[str]) -> str:
    name = speaker_of(author)
    return f"{name} ({author.id})" if name in shared else name


def _build_content(message: Message) -> str:
    files = "\n".join(f"[attached file: {_describe_file(f)}]" for f in message.files)
    text = "\n".join(part for part in (_LABEL.sub("(", message.text), files) if part)
    if not message.quoted.strip():
        return text
    quoted, _ = cap_text(message.quoted, QUOTED_CHARS)
    return f"{text}\n\n{_mark({'quoted': quoted})}"


def _describe_file(file: FileRef) -> str:
    """Name a file as tools know it, with its size where the platform told it."""
    name = clean_file_name(file.name)
    return f"{name}, {format_size(file.size)}" if file.size else name


def build_past(said: Sequence[Said], *, left_out: Collection[str], root: str) -> ModelMessage | None:
    """Build the one message that tells what was said in a thread before, as data.

    Each entry is a member of a JSON text, so nothing that somebody wrote can pass for another one's word, for a tool
    call, or for the end of it. The newest are kept, and the first message of the thread always.

    Args:
        said: oldest first.
        left_out: ids of messages that are told otherwise: the turn's own.
        root: id of the thread's first message.

    Returns:
        None when nothing was said before.
    """
    told = [s for s in said if s.id not in left_out and s.text.strip()]
    first = [s for s in told if s.id == root]
    entries = [(s, _entry(s)) for s in told if s.id != root]
    room = PAST_CHARS - sum(len(_dump(_entry(s))) for s in first)
    kept: list[dict[str, object]] = []
    for _, entry in reversed(entries):
        room -= len(_dump(entry)) + 2
        if room < 0:
            break
        kept.insert(0, entry)
    lines: dict[str, object] = {"said_in_this_thread_before": [_entry(s) for s in first] + kept}
    if missing := len(entries) - len(kept):
        lines["left_out_after_the_first"] = missing
    return ModelMessage(role="user", content=_mark(lines)) if first or kept else None


def _entry(said: Said) -> dict[str, object]:
    text, _ = cap_text(said.text, SAID_CHARS)
    entry: dict[str, object] = {
        "by": "you" if said.own else speaker_of(said.author),
        "at": f"{said.sent_at:%Y-%m-%d %H:%M} UTC",
        "text": text,
    }
    if said.author.bot and not said.own:
        entry["bot"] = True
    if said.author.external or said.author.guest:
        entry["of_another_organisation"] = True
    return entry


def _mark(data: dict[str, object]) -> str:
    return mark_untrusted(_dump(data))


def _dump(data: object) -> str:
    return json.dumps(data, ensure_ascii=False)
