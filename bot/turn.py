"""A turn: what one run answers. It is taken from the open items of a thread, or read again when a run is resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from adapters.chat import Message, Stop, ThreadRef
from bot.access import Caller, Rights
from bot.jobs.job import REPORT_THREAD, SETTINGS_OWNER, Firing
from bot.messages import Heard, load_inbound
from bot.storage.base import InboxItem

log = structlog.get_logger("hermod.turn")

MAX_TURN_CHARS = 32_000
"""Messages that wait together are taken into one turn up to this; the others are the next turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What is answered together. The tools of a run find it in ``ctx.deps``.

    Args:
        thread: where it was said, and where the answer goes.
        callers: everybody who asked.
        inbound: what they said, in the order in which they said it; empty when it cannot be read.
        item_ids: its rows in the inbox.
        stopped: somebody who may do so ended all of it before it was begun.
        signed: ids of its messages that carry the sign that they wait.
    """

    thread: ThreadRef
    callers: tuple[Caller, ...]
    inbound: tuple[Heard, ...] = ()
    item_ids: tuple[int, ...] = ()
    stopped: bool = False
    signed: tuple[str, ...] = ()

    @property
    def addressed(self) -> bool:
        """True when Hermod was spoken to, not only overheard."""
        return any(not isinstance(i, Message) or i.mentioned or i.direct for i in self.inbound)

    @property
    def waiting(self) -> int:
        """How many questions and commands it has, what only controls Hermod left out."""
        return sum(not isinstance(i, Stop) for i in self.inbound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """An item with what it holds; None where that cannot be read."""

    item: InboxItem
    inbound: Heard | None

    @property
    def order(self) -> tuple[datetime, int]:
        """When it was said: two sockets may deliver it the other way round."""
        at = self.item.received_at if self.inbound is None else self.inbound.sent_at
        return at, self.item.seq


def take_turn(
    thread: ThreadRef,
    items: Sequence[InboxItem],
    rights_of: Callable[[Caller], Rights],
    *,
    alone: Callable[[Message], bool] = lambda message: False,
) -> Turn:
    """Take the first open items that belong together: messages of people with equal rights, or one of anything else.

    Where somebody who may speak has said stop, all that was said before it is taken at once, to be ended.

    Args:
        thread: of the items.
        items: open items, at least one.
        rights_of: what a person may do; compared with ``==``.
        alone: tells a message that shares a turn with no other one.
    """
    reads = read_items(items)
    stops = [
        n
        for n, read in enumerate(reads)
        if isinstance(read.inbound, Stop) and rights_of(find_caller(thread, read.inbound)).speak
    ]
    if stops:
        return _build_turn(thread, reads[: stops[-1] + 1], stopped=True)
    taken: list[Read] = []
    rights: object = None
    chars = 0
    for read in reads:
        if not isinstance(read.inbound, Message) or alone(read.inbound):
            taken = taken or [read]
            break
        theirs = rights_of(Caller.of(thread, read.inbound.author))
        chars += len(read.inbound.text) + len(read.inbound.quoted)
        if taken and (theirs != rights or chars > MAX_TURN_CHARS):
            break
        rights = theirs
        taken.append(read)
    return _build_turn(thread, taken)


def read_turn(thread: ThreadRef, items: Sequence[InboxItem]) -> Turn:
    """Read the turn of a run that was begun before, from the items that are bound to it."""
    reads = read_items(items)
    stopped = len(reads) > 1 and any(isinstance(read.inbound, Stop) for read in reads)
    return _build_turn(thread, reads, stopped=stopped)


def read_items(items: Sequence[InboxItem]) -> list[Read]:
    """Read items, in the order in which they were said."""
    return sorted((Read(item=item, inbound=_read(item)) for item in items), key=lambda read: read.order)


def _build_turn(thread: ThreadRef, reads: Sequence[Read], *, stopped: bool = False) -> Turn:
    inbound = tuple(read.inbound for read in reads if read.inbound is not None)
    return Turn(
        thread=thread,
        callers=tuple(dict.fromkeys(find_caller(thread, i) for i in inbound)),
        inbound=inbound,
        item_ids=tuple(read.item.id for read in reads),
        stopped=stopped,
        signed=tuple(r.inbound.id for r in reads if r.item.signed and isinstance(r.inbound, Message)),
    )


def find_caller(thread: ThreadRef, heard: Heard) -> Caller:
    """Return who said something in a thread; the operator is nobody of the platform, and only jobs speak for them."""
    own = isinstance(heard, Firing) or (isinstance(heard, Stop) and thread.thread.startswith(REPORT_THREAD))
    return replace(Caller.of(thread, heard.author), operator=own and heard.author == SETTINGS_OWNER)


def _read(item: InboxItem) -> Heard | None:
    try:
        return load_inbound(item.kind, item.payload)
    except (KeyError, ValueError) as e:
        log.error("item_unreadable", thread=item.thread_key, seq=item.seq, kind=item.kind, error=str(e))
        return None
