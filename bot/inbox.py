"""Everything that comes in becomes a row before the platform hears that it was received."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from adapters.chat import Action, Command, Deleted, Inbound, Message, Stop
from agent_core.context import Clock, Redactor
from agent_core.llm.wire import clean_text
from bot.messages import STEER, dump_inbound, event_key, kind_of
from bot.presenter import build_notice
from bot.storage.base import NewInboxItem, Store

log = structlog.get_logger("hermod.inbox")

QUEUE_FULL = (
    "I have {limit} messages of this thread waiting already, so I did not take this one. "
    "Please send it again when I have answered."
)


STOP_WORDS = frozenset({"stop", "停止", "停"})
"""A message that says nothing else ends what runs in its thread; ``!`` before it is usual."""

MORE_STOPS = 50
"""A full queue of a thread still has room for so many stops: they are what empties it."""


class Inbox:
    """Decides whether something is for Hermod, and stores it once.

    Args:
        store: where the rows go.
        clock: for the time of receipt.
        redactor: removes secrets before the text is stored.
        queue_limit: open messages that one thread may have.
        wake: called after a new row, to start work at once.
        erase_files: called with thread and id of a message that was deleted, to drop what it brought.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        redactor: Redactor,
        queue_limit: int,
        wake: Callable[[], None],
        erase_files: Callable[[str, str], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._redactor = redactor
        self._queue_limit = queue_limit
        self._wake = wake
        self._erase_files = erase_files
        self.accepted: dict[str, int] = {"new": 0, "duplicate": 0, "full": 0, "ignored": 0}

    async def accept(self, inbound: Inbound) -> bool:
        """Store what came in, unless it is not for Hermod.

        A message is for Hermod when it mentions it, is a direct message, or stands in a thread where Hermod takes
        part. Anything else leaves no trace, so that a later delivery of it counts. What a full queue turns away is
        known and told once.

        Returns:
            True when it will be answered (also when it is known already).

        Raises:
            StoreError: it could not be stored; the adapter must not acknowledge it.
        """
        if isinstance(inbound, Deleted):
            return await self._take_back(inbound)
        key = inbound.thread.key
        addressed = not isinstance(inbound, Message | Stop) or (
            isinstance(inbound, Message) and (inbound.mentioned or inbound.direct)
        )
        if not addressed and not await self._store.knows_thread(key):
            self.accepted["ignored"] += 1
            return False
        now = self._clock.now()
        meant, kind = _read_control(inbound)
        item = NewInboxItem(
            event_key=event_key(inbound),
            thread_key=key,
            kind=kind,
            payload=dump_inbound(self._storable(meant)),
            received_at=now,
            said_id=inbound.id if isinstance(inbound, Message) else "",
            inside=isinstance(inbound, Message) and inbound.id != inbound.thread.thread,
        )
        notice = build_notice(
            inbound.thread,
            QUEUE_FULL.format(limit=self._queue_limit),
            key=f"full/{item.event_key}",
            now=now,
            # a pressed button is acknowledged to the one who pressed it, a command where its answer was announced
            private_to=inbound.author.id if isinstance(inbound, Action) else "",
            respond_to=inbound.respond_to if isinstance(inbound, Action | Command) else "",
        )
        limit = self._queue_limit + (MORE_STOPS if isinstance(meant, Stop) else 0)
        accepted = await self._store.accept(item, queue_limit=limit, refusal=notice)
        self.accepted[accepted.outcome] += 1
        if accepted.outcome != "duplicate":
            log.info("message_accepted", thread=key, seq=accepted.seq, outcome=accepted.outcome)
            self._wake()
        return True

    async def _take_back(self, deleted: Deleted) -> bool:
        """Let a message that was deleted on the platform leave its thread; it is not answered any more."""
        key = deleted.thread.key
        if not await self._store.knows_thread(key):
            self.accepted["ignored"] += 1
            return False
        now = self._clock.now()
        item = NewInboxItem(
            event_key=event_key(deleted),
            thread_key=key,
            kind=kind_of(deleted),
            payload=dump_inbound(self._storable(deleted)),
            received_at=now,
            said_id=deleted.message_id,
        )
        became = await self._store.erase_message(item, now=now)
        if self._erase_files is not None:
            await self._erase_files(key, deleted.message_id)
        log.info("message_taken_back", thread=key, became=became)
        self._wake()
        return True

    def _storable(self, inbound: Inbound) -> Inbound:
        """Without secrets, and without characters that no database takes."""
        author = replace(inbound.author, name=clean_text(inbound.author.name))
        if isinstance(inbound, Action | Stop | Deleted):
            return replace(inbound, author=author)
        text = self._redactor.redact(clean_text(inbound.text))
        if isinstance(inbound, Message):
            return replace(inbound, author=author, text=text, quoted=self._redactor.redact(clean_text(inbound.quoted)))
        return replace(inbound, author=author, text=text)


def _read_control(inbound: Inbound) -> tuple[Inbound, str]:
    """Return what a message means, and its kind: a stop, a word for the run under way, or what it says."""
    if not isinstance(inbound, Message):
        return inbound, kind_of(inbound)
    text = inbound.text.strip()
    if text.strip("!.。！").strip().lower() in STOP_WORDS:
        stop = Stop(thread=inbound.thread, id=inbound.id, author=inbound.author, sent_at=inbound.sent_at)
        return stop, kind_of(stop)
    word, _, rest = text.partition(" ")
    if word.lower() == "!steer" and rest.strip():
        return replace(inbound, text=rest.strip(), mentioned=True), STEER
    return inbound, kind_of(inbound)
