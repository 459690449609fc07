"""What is said becomes rows of the outbox: an answer in parts that fit the platform, and notices."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from pydantic import TypeAdapter
from pydantic_core import to_json

from adapters.chat import Attachment, Limits, Reply, ThreadRef
from adapters.markdown import fit_markdown
from adapters.markdown.fit import TAIL_NAME, fit_answer
from bot.storage.base import NewOutboxItem

_REPLY = TypeAdapter(Reply)

NOTHING_VISIBLE = "My answer came out empty. Please ask again, perhaps in other words."


def load_reply(body: str) -> Reply:
    """Read the reply that an outbox row holds.

    Raises:
        ValueError: it is something else.
    """
    return _REPLY.validate_json(body)


def build_reply_rows(
    thread: ThreadRef,
    text: str,
    *,
    run_id: str,
    limits: Limits,
    now: datetime,
    whole: bool = False,
    private_to: str = "",
    respond_to: str = "",
    feedback: str = "",
    files: Sequence[Attachment] = (),
) -> tuple[NewOutboxItem, ...]:
    """Fit an answer to the platform and build one outbox row a part, keyed by run and part; at least one.

    ``whole`` leaves it in one row, for a draft that becomes the answer however long it is. The last part alone can be
    rated (``feedback``, see ``Reply``), and brings the files.
    """
    reply = Reply(
        thread=thread,
        text=text if _shows_something(text) else NOTHING_VISIBLE,
        key=f"{run_id}/1",
        private_to=private_to,
        respond_to=respond_to,
        feedback=feedback,
        files=tuple(files),
    )
    if whole:
        return (_build_row(replace(reply, text=reply.text.strip()), run_id=run_id, now=now),)
    return split_reply(reply, run_id=run_id, limits=limits, now=now)


def split_reply(reply: Reply, *, run_id: str, limits: Limits, now: datetime) -> tuple[NewOutboxItem, ...]:
    """Build the rows of a whole answer that has to be posted in parts; one where it fits, and never none."""
    files = reply.files
    if limits.tail_in_file:
        fitted = fit_answer(reply.text, limits, measure=limits.measure)
        parts = fitted.parts
        files += (Attachment(name=TAIL_NAME, content=fitted.tail),) if fitted.tail else ()
    else:
        parts = fit_markdown(reply.text, limits, measure=limits.measure)
    parts = parts or (NOTHING_VISIBLE,)  # definitions of links alone make no part
    last = len(parts)
    return tuple(
        _build_row(
            replace(
                reply,
                text=part,
                key=f"{run_id}/{n}",
                files=files if n == last else (),
                buttons=reply.buttons if n == last else (),
                feedback=reply.feedback if n == last else "",
            ),
            run_id=run_id,
            now=now,
        )
        for n, part in enumerate(parts, 1)
    )


def build_notice(
    thread: ThreadRef, text: str, *, key: str, now: datetime, private_to: str = "", respond_to: str = ""
) -> NewOutboxItem:
    """Build the outbox row of something that Hermod says beside its answers."""
    reply = Reply(thread=thread, text=text, key=key, private_to=private_to, respond_to=respond_to)
    return _build_row(reply, run_id=None, now=now)


def _build_row(reply: Reply, *, run_id: str | None, now: datetime) -> NewOutboxItem:
    return NewOutboxItem(
        key=reply.key, thread_key=reply.thread.key, run_id=run_id, body=to_json(reply).decode(), created_at=now
    )


def _shows_something(text: str) -> bool:
    """False where nothing would be seen: blanks, zero-width characters, Markdown without content."""
    return any(c not in "#>`~" and unicodedata.category(c)[0] not in "ZC" for c in html.unescape(text))
