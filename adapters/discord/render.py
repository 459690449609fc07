"""From a reply to what Discord is sent. The only place of what goes out that renders.

Escaping is the default (``adapters.discord.text``), and what is measured is what is sent: first escaped, then counted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from adapters.chat import Attachment, Limits, Reply
from adapters.discord.buttons import build_buttons
from adapters.discord.escape import escape, escape_lines
from adapters.discord.payload import Payload
from adapters.discord.tables import shelve_tables
from adapters.discord.text import write_document
from adapters.markdown import fit_answer, isolate_document, parse_markdown, unit_size
from adapters.markdown.fit import TAIL_NAME
from adapters.markdown.grapheme import cut_before
from adapters.markdown.pieces import normalise

__all__ = ["CONTENT_MAX", "LIMITS", "Rendered", "content_size", "fits", "measure", "render_markdown", "render_reply"]

CONTENT_MAX = 2_000
"""Characters of a message (discord.com/developers/docs/resources/message, create message).

They are counted as UTF-16 units here: whether Discord counts those or code points, it is never more.
"""

FILES_MAX = 10
"""Files of one message (same page)."""

NOTHING = "*(nothing to show)*"
"""Discord refuses a message with nothing in it (50006)."""

content_size = unit_size("utf16")

_GAP = 2  # between two blocks
_ROOM_FOR_FILES = FILES_MAX - 2  # beside the end of the answer and a file that it brings


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A text for Discord.

    Args:
        content: Discord's Markdown; empty where there is nothing to see.
        mentions: ids of the users whom ``content`` mentions.
        files: tables that are too large for a message.
    """

    content: str
    mentions: frozenset[str] = frozenset()
    files: tuple[Attachment, ...] = ()


def render_markdown(markdown: str, mentions: Collection[str] = ()) -> Rendered:
    """Render canonical Markdown, of any length.

    Args:
        markdown: the text.
        mentions: ids of the users whose ``<@ID>`` in running text may ping them. No other mention survives.
    """
    shelved = shelve_tables(parse_markdown(normalise(markdown)))
    written = write_document(isolate_document(shelved.document), mentions)
    return Rendered(content=written.text, mentions=written.mentions, files=shelved.files)


def measure(markdown: str) -> int:
    """Return how much of a message canonical Markdown takes, as it is sent. What is between blocks is counted too."""
    rendered = render_markdown(markdown)
    return max(content_size(rendered.content) + _GAP, len(rendered.files) * CONTENT_MAX // _ROOM_FOR_FILES)


LIMITS = Limits(text_max=CONTENT_MAX, unit="utf16", tail_in_file=True, measure=measure)
"""What fits into one message of an answer; see ``bot.presenter``."""


def fits(markdown: str) -> bool:
    """True when the text fits one message. Rendering takes time, so what is far too long is not rendered."""
    return len(markdown) <= 4 * CONTENT_MAX and measure(markdown) <= CONTENT_MAX


def render_reply(reply: Reply) -> Payload:
    """Render a reply to one message that Discord takes, whatever its text.

    What one message does not hold goes into the file ``answer.md``, and the text says so. There may be more files than
    one message takes: what is behind the tenth has to follow.

    Raises:
        ValueError: a button's name or value is too long.
    """
    rendered = _render_whole(reply.text, reply.mentions)
    files = (*rendered.files, *reply.files)
    content = rendered.content if _is_visible(rendered.content) else ("" if files else NOTHING)
    return Payload(
        content=content,
        mentions=rendered.mentions,
        components=build_buttons(reply),
        files=files,
        private=bool(reply.private_to),
    )


def _render_whole(markdown: str, mentions: Collection[str]) -> Rendered:
    if len(markdown) <= 4 * CONTENT_MAX:
        whole = render_markdown(markdown, mentions)
        if content_size(whole.content) <= CONTENT_MAX:
            return whole
    fitted = fit_answer(markdown, LIMITS, measure=measure, parts_max=1)
    first = render_markdown(fitted.parts[0], mentions) if fitted.parts else Rendered(content="")
    if content_size(first.content) <= CONTENT_MAX:
        tail = (Attachment(name=TAIL_NAME, content=fitted.tail, title=TAIL_NAME),) if fitted.tail else ()
        return Rendered(content=first.content, mentions=first.mentions, files=(*first.files, *tail))
    return _literal(markdown)


def _literal(markdown: str) -> Rendered:
    """The beginning of the source itself, and all of it as a file: for texts that fit in no other way."""
    source = normalise(markdown)
    note = f"…\n\n(all of it is in {TAIL_NAME})"
    most = CONTENT_MAX - len(note)
    while True:
        begin = source[: cut_before(source, min(len(source), most))].strip()
        content = escape_lines(escape(begin)) + note
        if content_size(content) <= CONTENT_MAX:
            return Rendered(content=content, files=(Attachment(name=TAIL_NAME, content=source, title=TAIL_NAME),))
        most = most * 3 // 4


def _is_visible(content: str) -> bool:
    """False for characters that nobody sees, of which Discord says that the message is empty."""
    return any(not char.isspace() and char not in "\u200b\u200c\u200d\u2060\ufeff\u2068\u2069" for char in content)
