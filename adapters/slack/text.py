"""What was said, out of Slack's text, blocks and attachments, as a person would read it.

Slack says the same thing in several places: people's messages carry it in ``text`` and again in ``blocks``; alert
bots often leave ``text`` empty and put everything into ``attachments`` (docs.slack.dev/reference/block-kit/blocks,
docs.slack.dev/legacy/legacy-messaging/legacy-secondary-message-attachments). Until ``read_markup`` everything here is
Slack's markup: ``&``, ``<`` and ``>`` of the words themselves are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from adapters.slack.wire import Wire, part_of, parts_of, text_of

QUOTED_MAX = 8_000
"""Characters of previews and forwarded messages that one message brings along; the rest is cut, visibly."""

USER = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
"""A mention in Slack's markup."""

_ANGLE = re.compile(r"<([^<>]+)>")
_DEPTH = 6  # rich text nests lists in quotes in sections; nobody nests deeper


class Named(Protocol):
    """Somebody with a name."""

    @property
    def name(self) -> str:
        """The name to show."""
        ...


def markup_of(message: Wire, *, bot: bool) -> str:
    """Return what the author said: ``text``, else the blocks; of a bot its attachments too."""
    text = text_of(message, "text")
    if not text.strip():
        text = read_blocks(parts_of(message, "blocks"))
    if not bot:
        return text
    said = [read_attachment(a) for a in parts_of(message, "attachments") if not _is_share(a)]
    return "\n".join(part for part in (text, *said) if part and (part is text or part not in text))


def quoted_of(message: Wire, *, bot: bool) -> str:
    """Return what came along and was said by others: forwarded messages, previews of links. Bounded."""
    quotes = []
    for attachment in parts_of(message, "attachments"):
        if bot and not _is_share(attachment):
            continue  # a bot's own attachments are what it says
        text = read_attachment(attachment)
        author = text_of(attachment, "author_name") or text_of(attachment, "service_name")
        if text:
            quotes.append(f"{author}: {text}" if author else text)
    quoted = "\n\n".join(quotes)
    return quoted if len(quoted) <= QUOTED_MAX else quoted[: QUOTED_MAX - 1] + "…"


def read_attachment(attachment: Wire) -> str:
    """Return the words of one attachment: pretext, title, text and fields, else its blocks, else its fallback."""
    lines = [text_of(attachment, key) for key in ("pretext", "title", "text")]
    for item in parts_of(attachment, "fields"):
        pair = (text_of(item, "title"), text_of(item, "value"))
        lines.append(": ".join(part for part in pair if part))
    if not any(lines):
        shared = [part_of(block, "message") for block in parts_of(attachment, "message_blocks")]
        blocks = [*parts_of(attachment, "blocks"), *(b for message in shared for b in parts_of(message, "blocks"))]
        lines = [read_blocks(blocks) or text_of(attachment, "fallback")]
    return "\n".join(line for line in lines if line)


def read_blocks(blocks: list[Wire] | tuple[Wire, ...]) -> str:
    """Return the words of blocks as Slack's markup, one line each; what has no words is left out."""
    return "\n".join(line for block in blocks if (line := _read_block(block)))


def read_markup(text: str, people: Mapping[str, Named], bot_user: str) -> str:
    """Turn Slack's markup into what a person reads: names for ids, our own mention removed, ``&`` restored.

    A channel keeps its id beside its name, ``#ops (C1)``, because tools need it.
    """
    own = re.compile(rf"(?:(?<![ \t])[ \t]+)?<@{re.escape(bot_user)}(?:\|[^<>]*)?>[:,]?[ \t]*")
    text = own.sub(" ", text)
    text = _ANGLE.sub(lambda found: _readable(found[1], people), text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()


def escape(text: str) -> str:
    """Write plain words as Slack's markup (docs.slack.dev/messaging/formatting-message-text, "Escaping text")."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _is_share(attachment: Wire) -> bool:
    return attachment.get("is_msg_unfurl") is True or attachment.get("is_share") is True


def _readable(inner: str, people: Mapping[str, Named]) -> str:
    target, _, label = inner.partition("|")
    match target[:1]:
        case "@":
            person = people.get(target[1:])
            return f"@{person.name if person else label or target[1:]}"
        case "#":
            return f"#{label} ({target[1:]})" if label else f"#{target[1:]}"
        case "!":
            name = target[1:].partition("^")[0]
            return label if label and name not in ("here", "channel", "everyone") else f"@{name}"
    shown = target.removeprefix("mailto:")
    if not label or label in (target, shown) or f"//{label}" in target:
        return shown
    return f"{label} ({shown})"


def _read_block(block: Wire) -> str:  # noqa: PLR0911 - one line for each kind of block
    match text_of(block, "type"):
        case "rich_text":
            return _read_rich(block, 0)
        case "section":
            texts = [part_of(block, "text"), *parts_of(block, "fields")]
            return "\n".join(line for part in texts if (line := _read_text_object(part)))
        case "context":
            return " ".join(line for part in parts_of(block, "elements") if (line := _read_text_object(part)))
        case "header" | "alert":
            return _read_text_object(part_of(block, "text"))
        case "markdown":
            return escape(text_of(block, "text"))
        case "image" | "video":
            return _read_text_object(part_of(block, "title")) or escape(text_of(block, "alt_text"))
        case "table":
            return "\n".join(" | ".join(row) for row in _read_rows(block.get("rows")))
    return ""


def _read_text_object(part: Wire) -> str:
    text = text_of(part, "text")
    return text if text_of(part, "type") == "mrkdwn" else escape(text)


def _read_rows(rows: object) -> list[list[str]]:
    lists = [row for row in rows if isinstance(row, list)] if isinstance(rows, list) else []
    return [[_read_cell(cell) for cell in row if isinstance(cell, Mapping)] for row in lists]


def _read_cell(cell: Wire) -> str:
    return _read_rich(cell, 0) if text_of(cell, "type") == "rich_text" else escape(text_of(cell, "text"))


def _read_rich(block: Wire, depth: int) -> str:
    """Read a container of rich text: a section joins its elements, everything else has a line for each."""
    if depth > _DEPTH:
        return ""
    kind = text_of(block, "type")
    inline = kind in ("rich_text_section", "rich_text_preformatted", "rich_text_quote")
    lead = "- " if kind == "rich_text_list" else ""
    read = [_read_element(element, depth) for element in parts_of(block, "elements")]
    return "".join(read) if inline else "\n".join(lead + line for line in read if line)


def _read_element(element: Wire, depth: int) -> str:  # noqa: PLR0911 - one line for each kind of element
    text = escape(text_of(element, "text"))
    match text_of(element, "type"):
        case "text":
            return text
        case "link":
            url = escape(text_of(element, "url"))
            return f"<{url}|{text}>" if text else f"<{url}>"
        case "user":
            return f"<@{text_of(element, 'user_id')}>"
        case "channel":
            return f"<#{text_of(element, 'channel_id')}>"
        case "usergroup":
            return f"<!subteam^{text_of(element, 'usergroup_id')}>"
        case "broadcast":
            return f"<!{text_of(element, 'range')}>"
        case "emoji":
            return f":{text_of(element, 'name')}:"
        case "date":
            return escape(text_of(element, "fallback"))
    return _read_rich(element, depth + 1)
