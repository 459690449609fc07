"""Reading what stands in a channel or thread: whether a post of ours is there, and what was said before."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from adapters.chat import Author, Delivered, InDoubt, Said
from adapters.discord.body import build_mark, build_nonce, read_mark
from adapters.discord.buttons import has_stop
from adapters.discord.client import PAGE, DiscordClient
from adapters.discord.content import Names, markup_of, read_markup, read_name
from adapters.discord.outcome import UNKNOWN_MESSAGE, Failed
from adapters.discord.parse import parse_files
from adapters.discord.wire import Wire, flag_of, id_of, number_of, parse_time, part_of, parts_of, text_of, time_of

log = structlog.get_logger("hermod.discord")

WINDOW_S = 120.0
"""How long Discord certainly refuses a second message with the same nonce. It documents "the past few minutes"
(docs.discord.com/developers/resources/message#create-message)."""

MOST_BESIDE = 12
"""So many messages of ours may follow a post that belong to it: its files, and what became of them."""

ROOT_S = 72_000.0
"""How old a post in the channel itself may be that is looked for there. Twenty hours: what was posted a day before, by
the same job, is another one."""

LOOK_PAGES = 10
"""So many pages of a channel are looked through for a post."""

HISTORY_PAGES = 20

SAID_TYPES = frozenset({0, 19, 20, 23})
"""Types of messages that somebody wrote: ordinary ones, replies, and answers to commands."""

POSTED_TYPES = frozenset({0, 19})
"""Types of what we post as the bot, which carries a nonce; answers to interactions never do."""

LOADING = 1 << 7
"""The flag of a first answer to a command that has still to come."""


class NoNames:
    """Knows no channels and no roles: they keep their ids."""

    def name_channel(self, guild: str, channel: str) -> str:
        """Return nothing."""
        return ""

    def name_role(self, guild: str, role: str) -> str:
        """Return nothing."""
        return ""


def read_text(said: Wire, *, own: str, guild: str, names: Names | None = None) -> str:
    """Return what a message says, as a person reads it; our own mention is left out."""
    bot = flag_of(part_of(said, "author"), "bot")
    text = read_markup(markup_of(said, bot=bot), said, names or NoNames(), guild=guild, own=own, own_role="")
    files = [f"[attached file: {text_of(f, 'filename') or id_of(f, 'id')}]" for f in parts_of(said, "attachments")]
    return "\n".join(part for part in (text, *files) if part)


class Search:
    """Looks for one post of ours, the newest message first, and weighs what it sees.

    Discord makes no second message with the same nonce for some minutes, but does not tell nonces in a channel's
    history (github.com/Rapptz/discord.py/issues/2451). So a post is recognised by its nonce where that is told, and
    else by the mark that its buttons carry. One without buttons cannot be told from others without; but it can only be

    - our newest message in its thread, drafts aside: what follows in a thread waits until this post is settled;
    - and, when it is younger than ``WINDOW_S``, it does no harm to post it once more: Discord answers with the first.
      (Its age is told by its id; our clock may be wrong by a minute.)

    Args:
        key: of the post.
        own: our user id.
        now: the time, aware.
        since: only what is newer than this id counts.
        reply_to: only replies to this message count, for a channel that holds the answers to many questions.
        alone: what we post there belongs to this thread; false: to others, too. Then replies are none of it, nor is a
            post below which we opened a thread: that is done only once it is known to be there.
    """

    def __init__(
        self, key: str, *, own: str, now: datetime, since: str = "", reply_to: str = "", alone: bool = True
    ) -> None:
        self._nonce = build_nonce(key)
        self._own = own
        self._since = int(since) if since.isdecimal() else 0
        self._sure_from = now - timedelta(seconds=WINDOW_S)
        self._reply_to = reply_to
        self._alone = alone
        self._ours = 0
        self.found: Delivered | None = None
        self.doubtful = False

    def weigh(self, page: tuple[Wire, ...]) -> bool:
        """Look at the next page; true when there is nothing more to look for."""
        for message in page:
            message_id = id_of(message, "id")
            if not message_id or int(message_id) <= self._since:
                return True
            if self._is_candidate(message) and self._is_last(message, message_id):
                return True
        return len(page) < PAGE

    def _is_candidate(self, message: Wire) -> bool:
        """True for what we posted as the bot, and finished."""
        if id_of(part_of(message, "author"), "id") != self._own or number_of(message, "type") not in POSTED_TYPES:
            return False
        if part_of(message, "interaction_metadata") or id_of(message, "webhook_id") or has_stop(message):
            return False
        replied = id_of(part_of(message, "message_reference"), "message_id")
        if not self._alone:
            return not replied
        return not self._reply_to or replied == self._reply_to

    def _is_last(self, message: Wire, message_id: str) -> bool:
        """Weigh one of our messages; true when those before it need no look."""
        nonce, mark = str(message.get("nonce") or ""), read_mark(message)
        if nonce == self._nonce or mark == build_mark(self._nonce):
            self.found = Delivered(remote_id=message_id)
            return True
        self._ours += 1
        if nonce or mark:  # another one
            return self._alone
        if not self._alone and id_of(part_of(message, "thread"), "owner_id") == self._own:
            return False
        if self._ours == 1 or not self._alone:
            self.doubtful |= time_of(message_id) < self._sure_from
        return self._alone and self._ours > MOST_BESIDE


async def find_posted(
    client: DiscordClient, channel_id: str, search: Search, *, repeatable: bool
) -> Delivered | InDoubt | None:
    """Look through the newest messages of a channel.

    Args:
        client: the REST API.
        channel_id: where to look.
        search: what to look for.
        repeatable: the post may be sent again without being there twice, so "not there" is safe whatever stands
            there: this process sent it for the first time within ``WINDOW_S``, or it becomes the announced message of
            a command.
    """
    before = ""
    for _ in range(LOOK_PAGES):
        page = await client.fetch_messages(channel_id, before=before)
        if isinstance(page, Failed):
            return InDoubt(reason=f"the channel could not be read: {page.said}")
        if search.weigh(page):
            break
        before = id_of(page[-1], "id")
    else:
        return None if repeatable else InDoubt(reason="there are too many messages to look through")
    if search.found is None and search.doubtful and not repeatable:
        return InDoubt(reason="there is a message of ours of which Discord does not tell whether it is this one")
    return search.found


async def fetch_history(
    client: DiscordClient,
    *,
    channel_id: str,
    limit: int,
    read: Callable[[Wire], Said | None],
    starter: tuple[str, str] | None = None,
) -> tuple[Said, ...]:
    """Read what was said, oldest first, at most the newest ``limit``.

    Args:
        client: the REST API.
        channel_id: of the thread, or of the direct conversation; empty for a thread that was not opened yet.
        limit: how many.
        read: makes a ``Said`` of a message, None of what nobody said.
        starter: channel and id of the message that the thread was opened on. It stands in the parent, and belongs to
            the thread; a forum has it in the thread itself.
    """
    said: list[Said] = []
    before, complete = "", not channel_id
    for _ in range(HISTORY_PAGES):
        if complete or len(said) >= limit:
            break
        page = await client.fetch_messages(channel_id, limit=min(PAGE, limit), before=before)
        if isinstance(page, Failed):
            log.warning("discord_history_not_read", channel=channel_id, reason=page.said)
            break
        said += [line for message in page if (line := read(message)) is not None]
        complete = len(page) < min(PAGE, limit)
        before = id_of(page[-1], "id") if page else ""
    if complete and starter is not None and len(said) < limit and all(line.id != starter[1] for line in said):
        message = await client.fetch_message(*starter)
        if not isinstance(message, Failed):
            first = read(message)
            said += [first] if first is not None else []
        elif message.code != UNKNOWN_MESSAGE:
            log.warning("discord_history_not_read", channel=starter[0], reason=message.said)
    return tuple(reversed(said[: max(limit, 0)]))


def build_said(message: Wire, *, own: str, guild: str, names: Names | None = None) -> Said | None:
    """Read a message of the past; None for what nobody said, and for an answer that has still to come."""
    message_id, author = id_of(message, "id"), part_of(message, "author")
    if not message_id or number_of(message, "type") not in SAID_TYPES or number_of(message, "flags") & LOADING:
        return None
    text = read_text(message, own=own, guild=guild, names=names)
    if not text.strip() or not id_of(author, "id"):
        return None
    bot = flag_of(author, "bot") or bool(id_of(message, "webhook_id"))
    return Said(
        id=message_id,
        author=Author(id=id_of(author, "id"), name=read_name(author, part_of(message, "member")), bot=bot),
        text=text,
        sent_at=parse_time(text_of(message, "timestamp")) or time_of(message_id),
        own=id_of(author, "id") == own,
        files=tuple(parse_files(message, id_of(message, "channel_id"), message_id)),
    )
