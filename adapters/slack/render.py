"""From canonical Markdown to what Slack is sent: a whole message, the parts of an answer, a draft.

Escaping is the default: whatever comes from a model or a tool is text. What a message shows is rich text
(``adapters.slack.blocks``), its ``text`` is the same as mrkdwn (``adapters.slack.mrkdwn``) for notifications, screen
readers and for the case that Slack refuses the blocks. Nothing here makes images or asks for previews, so no text can
make Slack fetch an address.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from adapters.chat import Attachment
from adapters.markdown import (
    Break,
    Document,
    Fitted,
    Paragraph,
    Text,
    fit_answer_costs,
    isolate_document,
    parse_markdown,
)
from adapters.markdown.fit import CHARS_MAX, PARTS_MAX, TAIL_NAME
from adapters.markdown.grapheme import cut_before
from adapters.markdown.pieces import normalise
from adapters.markdown.room import Costs, Size
from adapters.slack.blocks import ELEMENTS_MAX, Style, build_blocks, load_of
from adapters.slack.links import looks_linked
from adapters.slack.mrkdwn import TEXT_CUT, cut_escaped, escape, render_document, render_mrkdwn
from adapters.slack.tables import TableLimits, Wire, shelve_tables

__all__ = [
    "SLACK",
    "TEXT_CUT",
    "MessageLimits",
    "Rendered",
    "TableLimits",
    "escape",
    "fit_message",
    "render_edit",
    "render_message",
    "render_mrkdwn",
]

_PLAIN_MAX = 3_000
_MARKS = re.compile(r"[*_~`]|:[\w+-]+:|^\s*(?:>|&gt;|[-•◦▪]|\d+[.)])", re.M)
_GRAIN = 200  # a cut inside a paragraph is searched to so many characters


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLimits:
    """What Slack takes. Block reference and method pages; ``chars`` measured: 13,200 pass, 12,000 are documented.

    Args:
        blocks: blocks of a message.
        chars: characters of all its blocks.
        tables: see ``TableLimits``.
        parts: messages of one answer.
        total_chars: characters of Markdown of one answer; the rest goes into a file.
    """

    blocks: int = 50
    chars: int = 12_000
    tables: TableLimits = TableLimits()
    parts: int = PARTS_MAX
    total_chars: int = CHARS_MAX


SLACK = MessageLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A message for Slack.

    Args:
        text: mrkdwn of all that is said, for notifications, screen readers and as a fallback; empty for blank input.
        blocks: what is shown; empty where ``text`` alone shows it.
        files: tables that are too large, and the end of a text that is too long for one message.
    """

    text: str
    blocks: tuple[Wire, ...] = ()
    files: tuple[Attachment, ...] = ()


def render_message(
    markdown: str,
    mentions: Collection[str] = (),
    *,
    reserve_blocks: int = 0,
    native_tables: bool = True,
    trusted: Collection[str] | None = None,
    limits: MessageLimits = SLACK,
) -> Rendered:
    """Render canonical Markdown to one message that Slack takes, whatever the text.

    Args:
        markdown: of any length; what one message does not hold goes into the file ``answer.md``, and it says so.
        mentions: ids of the users whose ``<@ID>`` in running text may ping them. No other mention survives.
        reserve_blocks: how many blocks (buttons) the caller adds; more than 0 makes ``blocks`` non-empty.
        native_tables: use Slack's table blocks; false for another try after Slack refused them.
        trusted: hosts that may be linked to (with all below them), other addresses are shown as text; None for any.
        limits: what Slack takes.

    Returns:
        The message; all of it empty when there is nothing to see.
    """
    style = Style(
        mentions=frozenset(mentions),
        trusted=None if trusted is None else frozenset(trusted),
        tables=limits.tables,
        native_tables=native_tables,
    )
    room = replace(limits, blocks=max(4, limits.blocks - reserve_blocks))
    whole = _message(markdown, style, room, with_blocks=reserve_blocks > 0)
    if whole is not None:
        return whole
    fitted = fit_answer_costs(markdown, _size(room), _costs(style), grain=_GRAIN, parts_max=1, chars_max=2 * room.chars)
    tail = Attachment(name=TAIL_NAME, content=fitted.tail, title=TAIL_NAME)
    first = _message(fitted.parts[0], style, room, with_blocks=True) if fitted.parts else None
    if first is not None:
        return replace(first, files=(*first.files, *([tail] if fitted.tail else ())))
    return _literal(markdown, style, room)


def fit_message(
    markdown: str,
    limits: MessageLimits = SLACK,
    *,
    reserve_blocks: int = 0,
    trusted: Collection[str] | None = None,
) -> Fitted:
    """Cut an answer into parts that ``render_message`` renders to one message each, without losing anything.

    Args:
        markdown: canonical Markdown of any length.
        limits: what Slack takes.
        reserve_blocks: how many blocks the caller adds to each message.
        trusted: see ``render_message``.

    Returns:
        The parts as canonical Markdown, and what is beyond the ceilings; the last part names the file ``answer.md``.
    """
    style = Style(trusted=None if trusted is None else frozenset(trusted), tables=limits.tables)
    room = replace(limits, blocks=max(4, limits.blocks - reserve_blocks))
    return fit_answer_costs(
        markdown, _size(room), _costs(style), grain=_GRAIN, parts_max=limits.parts, chars_max=limits.total_chars
    )


def render_edit(markdown: str, mentions: Collection[str] = (), *, limit_bytes: int = 3800) -> str:
    """Render a draft for ``chat.update``, cut at the end with ``…`` where it does not fit; fences are balanced.

    Args:
        markdown: the text so far, of any length.
        mentions: see ``render_message``.
        limit_bytes: the most bytes in UTF-8; Slack refuses edits over 4,000 (``msg_too_long``).
    """
    shown = markdown[:limit_bytes]
    rendered = _draft(shown, mentions)
    while True:
        size = len(rendered.encode()) + (3 if len(shown) < len(markdown) else 0)
        if size <= limit_bytes:
            return rendered + "…" if len(shown) < len(markdown) else rendered
        keep = max(1, min(len(shown) - 1, len(shown) * limit_bytes // size))
        if keep < 2:
            return "…"
        shown = shown[: _cut_point(shown, keep)]
        rendered = _draft(shown, mentions)


# -- one message -----------------------------------------------------------------------------------


def _message(markdown: str, style: Style, limits: MessageLimits, *, with_blocks: bool) -> Rendered | None:
    """Render the text; None when it does not fit one message."""
    shelved = shelve_tables(parse_markdown(markdown), limits.tables)
    document = isolate_document(shelved.document)
    text = render_document(document, style.mentions, style.trusted)
    if not text.strip():
        return Rendered(text="")
    if len(text) >= TEXT_CUT:
        text = cut_escaped(normalise(markdown), TEXT_CUT - 1)
    if not with_blocks and not shelved.files and _is_plain(document, text):
        return Rendered(text=text)
    blocks = build_blocks(document, style)
    if len(blocks) > limits.blocks:  # headers and rules as text are blocks no more
        blocks = build_blocks(document, replace(style, headers=False))
    if len(blocks) > limits.blocks or load_of(blocks).chars > limits.chars:
        return None
    return Rendered(text=text, blocks=blocks, files=shelved.files)


def _literal(markdown: str, style: Style, limits: MessageLimits) -> Rendered:
    """The beginning of the source itself, and all of it as a file: for texts that fit in no other way."""
    source = normalise(markdown)
    begin = source[: cut_before(source, min(len(source), limits.chars - 200))].strip()
    shown = f"{begin}…\n\n(all of it is in {TAIL_NAME})"
    document = Document((Paragraph((Text(shown),)),))
    blocks = build_blocks(document, replace(style, mentions=frozenset()))
    file = Attachment(name=TAIL_NAME, content=source, title=TAIL_NAME)
    return Rendered(text=cut_escaped(shown, TEXT_CUT - 1), blocks=blocks, files=(file,))


def _is_plain(document: Document, text: str) -> bool:
    """True when mrkdwn shows the document exactly: nothing in it could be taken for a mark, a link or an emoji."""
    if len(text) > _PLAIN_MAX:
        return False
    words = []
    for block in document.blocks:
        if not isinstance(block, Paragraph):
            return False
        for node in block.children:
            match node:
                case Text(said):
                    words.append(said)
                case Break():
                    words.append("\n")
                case _:
                    return False
        words.append("\n")
    said = "".join(words)
    return not _MARKS.search(said) and not looks_linked(re.sub(r"<@[UW][A-Z0-9]+>", "", said))


def _size(limits: MessageLimits) -> Size:
    return (limits.chars, (limits.blocks - 1) * ELEMENTS_MAX, limits.tables.chars)


def _costs(style: Style) -> Costs:
    """What a text takes: characters, hundredths of blocks, characters in tables.

    Between two tables there is rich text, which makes a block of each ``ELEMENTS_MAX`` elements. Headers do not count:
    they become bold text where blocks are scarce.
    """
    plain = replace(style, headers=False)

    def costs(text: str) -> Size:
        document = shelve_tables(parse_markdown(text), style.tables).document
        load = load_of(blocks := build_blocks(isolate_document(document), plain))
        tables = sum(block["type"] == "table" for block in blocks)
        return (load.chars, 2 * ELEMENTS_MAX * tables + load.elements, load.table_chars)

    return costs


# -- drafts ----------------------------------------------------------------------------------------


def _draft(markdown: str, mentions: Collection[str]) -> str:
    return render_document(isolate_document(parse_markdown(markdown)), mentions)


def _cut_point(text: str, most: int) -> int:
    """A line end or a blank near ``most``, else a grapheme's end."""
    for mark in ("\n", " "):
        at = text.rfind(mark, most * 3 // 4, most)
        if at > 0:
            return at
    return cut_before(text, most)
