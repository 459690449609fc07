"""What was said, out of Discord's content, embeds, stickers, polls and forwarded messages, as a person would read it.

References: docs.discord.com/developers/resources/message (message, embed, snapshot and attachment objects) and
docs.discord.com/developers/reference, "Message Formatting".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Protocol

from adapters.discord.wire import Wire, id_of, part_of, parts_of, text_of
from adapters.markdown.bidi import clean_name

QUOTED_MAX = 8_000
"""Characters of previews, forwarded messages and what is replied to that one message brings along; the rest is cut."""

TITLE_MAX = 100
"""Characters of a thread's name (docs.discord.com/developers/resources/channel, "Start Thread from Message")."""

USER = re.compile(r"<@!?([0-9]+)>")
ROLE = re.compile(r"<@&([0-9]+)>")

_MARK = re.compile(
    r"<(?:@!?(?P<user>[0-9]{1,20})"
    r"|@&(?P<role>[0-9]{1,20})"
    r"|\#(?P<channel>[0-9]{1,20})"
    r"|a?:(?P<emoji>\w{1,32}):[0-9]{1,20}"
    r"|t:(?P<time>-?[0-9]{1,17})(?::[tTdDfFsSR])?"
    r"|/(?P<command>[^:<>]{1,100}):[0-9]{1,20}"
    r"|(?P<url>https?://[^\s<>]+))>"
)

_TEXT_DISPLAY = 10  # components
_DEPTH = 5


class Names(Protocol):
    """Knows what channels and roles are called; empty for one that is not known."""

    def name_channel(self, guild: str, channel: str) -> str:
        """Name a channel or thread of a guild."""
        ...

    def name_role(self, guild: str, role: str) -> str:
        """Name a role of a guild."""
        ...


def read_name(user: Wire, member: Wire) -> str:
    """Return what people see as somebody's name: of the guild, else of the person, else the account."""
    names = (text_of(member, "nick"), text_of(user, "global_name"), text_of(user, "username"))
    return next((clean for name in names if (clean := clean_name(name))), "") or id_of(user, "id")


def read_markup(text: str, said: Wire, names: Names, *, guild: str, own: str, own_role: str) -> str:
    """Turn Discord's markup into what a person reads: names for ids, our own mention removed.

    A channel keeps its id beside its name, ``#ops (12)``, because tools need it.

    Args:
        text: the markup.
        said: the message that it stands in; it brings the people it mentions along.
        names: of channels and roles.
        guild: where it was said, empty in a direct message.
        own: our user id.
        own_role: the role that Discord made for us there, empty when there is none.
    """
    ours = [rf"<@!?{re.escape(own)}>", *([rf"<@&{re.escape(own_role)}>"] if own_role else [])]
    text = re.sub(rf"(?:(?<![ \t])[ \t]+)?(?:{'|'.join(ours)})[:,]?[ \t]*", " ", text)
    people = {id_of(user, "id"): read_name(user, part_of(user, "member")) for user in parts_of(said, "mentions")}

    def readable(found: re.Match[str]) -> str:
        kind, value = found.lastgroup, found[found.lastindex or 0]
        match kind:
            case "user":
                value = f"@{people.get(value) or value}"
            case "role":
                value = f"@{names.name_role(guild, value) or value}"
            case "channel":
                name = names.name_channel(guild, value)
                value = f"#{name} ({value})" if name else f"#{value}"
            case "emoji":
                value = f":{value}:"
            case "time":
                value = _read_time(int(value)) or found[0]
            case "command":
                value = f"/{value}"
        return value

    return _MARK.sub(readable, text).strip()


def markup_of(said: Wire, *, bot: bool) -> str:
    """Return what the author said: the content, stickers, a poll; of a bot its embeds and its text blocks, too."""
    lines = [text_of(said, "content"), *_read_stickers(said), _read_poll(part_of(said, "poll"))]
    if bot:
        lines += [_read_embed(embed) for embed in parts_of(said, "embeds")]
        lines += _read_components(parts_of(said, "components"), 0)
    return "\n".join(line for line in lines if line)


def quoted_of(said: Wire, *, bot: bool, own: str, inside: bool) -> str:
    """Return what came along and was said by others: what is replied to, what is forwarded, previews of links.

    Args:
        said: the message.
        bot: a bot's own embeds are what it says.
        own: our user id.
        inside: it stands in a thread; there our own words are known already.
    """
    quotes = list(_read_snapshots(said))
    earlier = part_of(said, "referenced_message")
    author = part_of(earlier, "author")
    if text_of(earlier, "id") and not (inside and id_of(author, "id") == own):
        text = markup_of(earlier, bot=author.get("bot") is True)
        if text:
            quotes.append(f"In reply to {read_name(author, {})}: {text}")
    if not bot:
        quotes += [_read_embed(embed) for embed in parts_of(said, "embeds")]
    quoted = "\n\n".join(quote for quote in quotes if quote)
    return quoted if len(quoted) <= QUOTED_MAX else quoted[: QUOTED_MAX - 1] + "…"


def snapshots_of(said: Wire) -> tuple[Wire, ...]:
    """Return the messages that were forwarded."""
    return tuple(part_of(snapshot, "message") for snapshot in parts_of(said, "message_snapshots"))


def build_title(text: str, author: str) -> str:
    """Name the thread of a question by its first line: at most ``TITLE_MAX`` characters, without marks and controls.

    Args:
        text: the question, mentions already read.
        author: who asked; for a question without words.
    """
    lines = (_plain(line.strip("#>*_~`|- \t")) for line in text.splitlines())
    title = next((line for line in lines if any(c.isalnum() for c in line)), "") or _plain(f"Question from {author}")
    return title if len(title) <= TITLE_MAX else title[: TITLE_MAX - 1].rstrip() + "…"


def _plain(line: str) -> str:
    """Return one line without controls, doubled blanks, and half surrogate pairs, which are no text."""
    return " ".join(clean_name(line).encode("utf-8", "ignore").decode().split())


def _read_time(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return ""


def _read_stickers(said: Wire) -> Iterator[str]:
    for sticker in parts_of(said, "sticker_items"):
        name = clean_name(text_of(sticker, "name"))
        yield f"[sticker: {name}]" if name else "[sticker]"


def _read_poll(poll: Wire) -> str:
    question = text_of(part_of(poll, "question"), "text")
    answers = [text_of(part_of(answer, "poll_media"), "text") for answer in parts_of(poll, "answers")]
    if not question and not answers:
        return ""
    return "\n".join([f"[poll] {question}", *(f"- {answer}" for answer in answers if answer)])


def _read_snapshots(said: Wire) -> Iterator[str]:
    for message in snapshots_of(said):
        lines = [markup_of(message, bot=True)]
        text = "\n".join(line for line in lines if line)
        if text:
            yield f"Forwarded: {text}"


def _read_embed(embed: Wire) -> str:
    lines = [text_of(part_of(embed, "author"), "name"), text_of(embed, "title"), text_of(embed, "description")]
    for item in parts_of(embed, "fields"):
        pair = (text_of(item, "name"), text_of(item, "value"))
        lines.append(": ".join(part for part in pair if part))
    lines.append(text_of(part_of(embed, "footer"), "text"))
    return "\n".join(line for line in lines if line)


def _read_components(components: tuple[Wire, ...], depth: int) -> list[str]:
    if depth > _DEPTH:
        return []
    lines: list[str] = []
    for component in components:
        if component.get("type") == _TEXT_DISPLAY:
            lines.append(text_of(component, "content"))
        lines += _read_components(parts_of(component, "components"), depth + 1)
    return lines
