"""What follows a report's headline: its body with files, and the evidence that its thread begins with.

It is written when the report is made, and read when the headline was posted, for only then its thread has an address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pydantic import TypeAdapter
from pydantic_core import to_json

from adapters.chat import Attachment, Limits, ThreadRef
from agent_core.llm.types import ModelMessage
from agent_core.llm.wire import dump_message
from bot.presenter import build_reply_rows
from bot.storage.base import NewMessage, NewOutboxItem
from bot.storage.jobs import Opening


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sequel:
    """``history``: pairs of a message and its tokens."""

    text: str
    files: tuple[Attachment, ...] = ()
    history: tuple[tuple[ModelMessage, int], ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()


_SEQUEL = TypeAdapter(_Sequel)


def dump_sequel(
    text: str,
    *,
    files: Sequence[Attachment] = (),
    history: Sequence[tuple[ModelMessage, int]] = (),
    outputs: Sequence[tuple[str, str]] = (),
) -> str:
    """Write what follows a headline as JSON text (``RunOutcome.sequel``). Nothing in it may hold a secret any more.

    Args:
        text: the body, canonical Markdown of any length; empty: nothing more is posted, unless there are files.
        files: go along with the body's end.
        history: messages that the thread begins with, each with its token count; a sendable history.
        outputs: whole tool results by id, for ``read_output``.
    """
    sequel = _Sequel(text=text, files=tuple(files), history=tuple(history), outputs=tuple(outputs))
    return to_json(sequel).decode()


def has_posts(body: str) -> bool:
    """Tell whether what ``dump_sequel`` wrote posts anything; empty text does not.

    Raises:
        ValueError: it is something else.
    """
    if not body:
        return False
    sequel = _SEQUEL.validate_json(body)
    return bool(sequel.text or sequel.files)


def build_opening(body: str, *, thread: ThreadRef, limits: Limits, run_id: str, now: datetime) -> Opening:
    """Build what begins in the thread of a headline. May take seconds for a very long body: call it in a thread.

    The posts have keys of their own (``RUN/body/1`` ...), so that they are found again one by one; the last one has the
    files, and can be rated.

    Args:
        body: what ``dump_sequel`` wrote.
        thread: the thread below the headline.
        limits: of its platform.
        run_id: the report's run.
        now: aware UTC.

    Raises:
        ValueError: ``body`` is something else.
    """
    sequel = _SEQUEL.validate_json(body)
    rows: tuple[NewOutboxItem, ...] = ()
    if sequel.text or sequel.files:
        rows = build_reply_rows(
            thread,
            sequel.text or ", ".join(f"`{file.name}`" for file in sequel.files),
            run_id=f"{run_id}/body",
            limits=limits,
            now=now,
            feedback=run_id,
            files=sequel.files,
        )
    return Opening(
        thread_key=thread.key,
        messages=tuple(
            NewMessage(role=m.role, body=dump_message(m), tokens=tokens, created_at=now) for m, tokens in sequel.history
        ),
        outbox=tuple(replace(row, run_id=run_id) for row in rows),
        outputs=sequel.outputs,
    )
