"""Reading a Slack thread: whether a post of ours is in it, and what was said in it before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime

import structlog

from adapters.chat import Delivered, InDoubt, Said, ThreadRef
from adapters.slack.client import SlackClient
from adapters.slack.outcome import Failed
from adapters.slack.parse import (
    COMMAND_THREAD,
    Identity,
    Person,
    build_author,
    parse_file,
    read_text,
)
from adapters.slack.text import markup_of, quoted_of
from adapters.slack.wire import Wire, parse_time, part_of, parts_of, text_of

log = structlog.get_logger("hermod.slack")

EVENT_TYPE = "hermod_reply"
"""The type of the metadata that marks a finished reply; its payload holds the reply's key."""

PART_TYPE = "hermod_part"
"""The type of the metadata of what belongs to a reply without completing it."""

PAGE = 200
MAX_PAGES = 50
CHANNEL_PAGES = 5
ROOT_S = 72_000.0
"""How much older than a channel's newest message a post in the channel itself may be that is looked for there: twenty
hours. Slack tells the newest first, so what is older need not be read."""

HISTORY_PAGE = 999
HISTORY_PAGES = 5
PATIENCE_S = 3.0

FindPeople = Callable[[Iterable[str]], Awaitable[Mapping[str, Person]]]
"""Returns whom it knows; the others keep their id as name."""


def thread_ts_of(thread: ThreadRef) -> str | None:
    """Return the ``thread_ts`` for a call; None for a command's thread, which is the channel itself."""
    return None if thread.thread.startswith(COMMAND_THREAD) else thread.thread


def build_metadata(key: str, kind: str = EVENT_TYPE) -> dict[str, object]:
    """Build the metadata that ``find_posted`` looks for (docs.slack.dev/messaging/message-metadata)."""
    return {"event_type": kind, "event_payload": {"key": key}}


def metadata_key(message: Wire, identity: Identity, kind: str = EVENT_TYPE) -> str:
    """Return the key that our own message carries, else empty; another app's metadata never counts."""
    metadata = part_of(message, "metadata")
    if not is_own(message, identity) or text_of(metadata, "event_type") != kind:
        return ""
    return text_of(part_of(metadata, "event_payload"), "key")


def is_own(message: Wire, identity: Identity) -> bool:
    """True for what our own bot wrote."""
    return text_of(message, "bot_id") == identity.bot or text_of(message, "user") == identity.bot_user


async def find_posted(
    client: SlackClient, *, channel: str, thread_ts: str | None, key: str, identity: Identity
) -> Delivered | InDoubt | None:
    """Look through the thread (without ``thread_ts``: the newest of the channel) for our post with ``key``.

    The message that begins the thread comes with every page; it stands in the channel, also where it is ours.
    """
    cursor: str | None = None
    newest: datetime | None = None
    for _ in range(MAX_PAGES if thread_ts else CHANNEL_PAGES):
        page = await fetch_page(client, channel, thread_ts, cursor=cursor)
        if isinstance(page, Failed):
            if page.code == "thread_not_found":
                return None
            return InDoubt(reason=f"the thread could not be read: {page.said}")
        for message in parts_of(page, "messages"):
            if metadata_key(message, identity) == key and text_of(message, "ts") != thread_ts:
                return Delivered(remote_id=text_of(message, "ts"))
            at = parse_time(text_of(message, "ts"))
            newest = newest or at
            if thread_ts is None and at and newest and (newest - at).total_seconds() > ROOT_S:
                return None
        cursor = text_of(part_of(page, "response_metadata"), "next_cursor")
        if not cursor:
            return None
    return InDoubt(reason="there are too many messages to look through")


async def fetch_files_behind(
    client: SlackClient, *, channel: str, thread_ts: str | None, ts: str, identity: Identity
) -> frozenset[str] | Failed:
    """Read the names of the files of ours that stand behind a message of ours and, in a thread, before our next reply.

    A file carries no metadata, so nothing else tells whose it is.
    """
    own: dict[str, Wire] = {}
    cursor: str | None = None
    for _ in range(MAX_PAGES if thread_ts else CHANNEL_PAGES):
        page = await fetch_page(client, channel, thread_ts, cursor=cursor, since=ts)
        if isinstance(page, Failed):
            return page
        messages = {text_of(m, "ts"): m for m in parts_of(page, "messages")}
        own |= {at: m for at, m in messages.items() if at > ts and is_own(m, identity)}
        cursor = text_of(part_of(page, "response_metadata"), "next_cursor")
        if not cursor or (thread_ts is None and min(messages, default="") <= ts):
            break
    end = min((at for at, m in own.items() if thread_ts and metadata_key(m, identity)), default=None)
    return frozenset(
        text_of(file, "name") for at, m in own.items() if end is None or at < end for file in parts_of(m, "files")
    )


async def find_unfinished(
    client: SlackClient, *, channel: str, thread_ts: str, known: Sequence[str], identity: Identity
) -> tuple[Wire, ...] | Failed:
    """Find what stands in a thread of an answer of ours that was never finished.

    A process that dies may not have recorded its newest message yet, so the ``known`` ids are not all: what we wrote
    behind our last finished reply and marked as no reply belongs to it too. Empty where a known message is one by now,
    or one follows: replies of a thread come in order, so it is the end of the same answer.
    """
    messages: dict[str, Wire] = {}
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await fetch_page(client, channel, thread_ts, cursor=cursor, since=min(known, default=None))
        if isinstance(page, Failed):
            return () if page.code == "thread_not_found" else page
        messages |= {text_of(m, "ts"): m for m in parts_of(page, "messages") if is_own(m, identity)}
        cursor = text_of(part_of(page, "response_metadata"), "next_cursor")
        if not cursor:
            break
    messages.pop(thread_ts, None)  # the root comes with every page
    last = max((ts for ts, message in messages.items() if metadata_key(message, identity)), default="")
    if known and last >= min(known):
        return ()
    return tuple(
        message
        for ts, message in messages.items()
        if ts in known or (ts > last and not parts_of(message, "files") and _is_unmarked(message, identity))
    )


def _is_unmarked(message: Wire, identity: Identity) -> bool:
    """True for a stream that was not finished (it carries no metadata until then), and for a part."""
    return not part_of(message, "metadata") or bool(metadata_key(message, identity, PART_TYPE))


async def fetch_page(
    client: SlackClient,
    channel: str,
    thread_ts: str | None,
    *,
    cursor: str | None = None,
    since: str | None = None,
    limit: int = PAGE,
) -> Wire | Failed:
    """Fetch a page of a thread or, without ``thread_ts``, of the channel; ``since``: a thread from this message on."""
    if thread_ts is None:
        return await client.call(
            "conversations.history",
            lambda web: web.conversations_history(
                channel=channel, cursor=cursor, limit=limit, include_all_metadata=True
            ),
            patience_s=PATIENCE_S,
        )
    return await client.call(
        "conversations.replies",
        lambda web: web.conversations_replies(
            channel=channel,
            ts=thread_ts,
            cursor=cursor,
            limit=limit,
            include_all_metadata=True,
            oldest=since,
            inclusive=True if since else None,
        ),
        patience_s=PATIENCE_S,
    )


async def fetch_history(
    client: SlackClient, *, channel: str, thread_ts: str, limit: int, identity: Identity, people: FindPeople
) -> tuple[Said, ...]:
    """Read what was said in a thread, oldest first, at most the newest ``limit``.

    Slack gives the oldest first, so a thread longer than a page takes some more calls; what could be read before
    Slack refused is returned. Nothing readable: empty, and one line in the log.
    """
    messages: list[Wire] = []
    cursor: str | None = None
    for _ in range(HISTORY_PAGES):
        page = await fetch_page(client, channel, thread_ts, cursor=cursor, limit=HISTORY_PAGE)
        if isinstance(page, Failed):
            log.warning("slack_history_not_read", channel=channel, reason=page.said)
            break
        messages += parts_of(page, "messages")
        cursor = text_of(part_of(page, "response_metadata"), "next_cursor")
        if not cursor:
            break
    unique = {text_of(message, "ts"): message for message in messages}  # the root comes with every page
    newest = [message for message in unique.values() if _was_said(message)][-limit:] if limit > 0 else []
    known = await people(dict.fromkeys(text_of(m, "user") for m in newest if text_of(m, "user")))
    return tuple(said for message in newest if (said := _build_said(message, identity, known)) is not None)


def _was_said(message: Wire) -> bool:
    hidden = message.get("hidden") is True or text_of(message, "subtype") == "tombstone"
    return not hidden and bool(said_text(message).strip())


def _build_said(message: Wire, identity: Identity, people: Mapping[str, Person]) -> Said | None:
    ts, user, bot = text_of(message, "ts"), text_of(message, "user"), text_of(message, "bot_id")
    sent_at = parse_time(ts)
    if sent_at is None or not (user or bot):
        return None
    person = people.get(user)
    shown = text_of(part_of(message, "bot_profile"), "name") or text_of(message, "username")
    if person is None and bot and shown:
        person = Person(name=shown, bot=True)
    team = text_of(message, "user_team")
    external = team not in ("", identity.team, identity.enterprise)
    return Said(
        id=ts,
        author=build_author(user or bot, person, external=external, bot=bool(bot)),
        text=read_text(said_text(message), people, identity),
        sent_at=sent_at,
        own=is_own(message, identity),
        files=tuple(parse_file(file) for file in parts_of(message, "files")),
    )


def said_text(message: Wire) -> str:
    """Return what a message says in Slack's markup: the author's words, else what came along, and its files' names."""
    bot = bool(text_of(message, "bot_id"))
    words = markup_of(message, bot=bot)
    if not words.strip():
        words = quoted_of(message, bot=False)
    files = [f"[attached file: {text_of(f, 'name') or text_of(f, 'id')}]" for f in parts_of(message, "files")]
    return "\n".join(part for part in (words, *files) if part)
