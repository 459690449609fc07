"""The contract between Hermod and a chat platform.

An adapter turns wire events into the values below and the values below into wire calls. It knows
neither the engine nor the product. Everything is immutable; a routing address (``ThreadRef``) is made
in one place, the adapter's ``parse.py``, and carried unchanged by everything that follows from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol


class AdapterError(Exception):
    """Base of what an adapter may raise; the message says what to do and holds no secret."""


class AdapterNotConfigured(AdapterError):
    """A token is missing or refused, or an extra is not installed; the operator has to act."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ThreadRef:
    """A place on a platform where a conversation lives.

    Args:
        platform: ``slack``, ``discord``, ``terminal``.
        workspace: Slack team, Discord guild, or a word of the terminal's.
        channel: the channel that holds the thread.
        thread: Slack's root ``ts``, Discord's thread id; never empty.
    """

    platform: str
    workspace: str
    channel: str
    thread: str

    def __post_init__(self) -> None:
        for part in (self.platform, self.workspace, self.channel, self.thread):
            if not part or any(c in part for c in ":/ \n"):
                raise ValueError(f"not a part of a thread address: {part!r}")

    @property
    def key(self) -> str:
        """The address as one string, ``slack:T1/C1/1700000000.000100``; ``parse_key`` reads it back."""
        return f"{self.platform}:{self.workspace}/{self.channel}/{self.thread}"

    @classmethod
    def parse_key(cls, key: str) -> ThreadRef:
        """Read what ``key`` wrote.

        Raises:
            ValueError: it is not such a string.
        """
        platform, colon, rest = key.partition(":")
        parts = rest.split("/")
        if not colon or len(parts) != 3:
            raise ValueError(f"not a thread address: {key!r} (expected platform:workspace/channel/thread)")
        return cls(platform=platform, workspace=parts[0], channel=parts[1], thread=parts[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who wrote. ``external`` is a person of another organisation, ``guest`` a restricted account.

    ``unknown``: the platform did not tell which of these the person is; access fails closed on it.
    """

    id: str
    name: str
    bot: bool = False
    external: bool = False
    guest: bool = False
    unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message that a person wrote, as it enters Hermod.

    Args:
        thread: where the answer goes.
        id: the platform's id of the message; unique inside the channel.
        author: who wrote it.
        text: what was said, mentions of the bot removed, other mentions as readable names.
        mentioned: the bot was addressed.
        direct: a direct message to the bot.
        sent_at: aware UTC.
        delivery_id: the platform's id of this delivery (a redelivery may have another one).
    """

    thread: ThreadRef
    id: str
    author: Author
    text: str
    mentioned: bool
    direct: bool = False
    sent_at: datetime
    delivery_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A slash command. ``id`` is the platform's id of the invocation."""

    thread: ThreadRef
    id: str
    author: Author
    name: str
    text: str
    sent_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A pressed button. ``value`` is the opaque id that the button carried."""

    thread: ThreadRef
    id: str
    author: Author
    name: str
    value: str
    sent_at: datetime


Inbound = Message | Command | Action

Accept = Callable[[Inbound], Awaitable[bool]]
"""Takes what came in. Returns when it is stored (or known already): only then the adapter acknowledges
the platform. True when it will be answered, false when it is not for Hermod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What Hermod says. ``text`` is canonical Markdown; nobody but ``mentions`` (user ids) is pinged.

    ``key`` is the idempotency key of this post: the same key never appears twice in the thread.
    """

    thread: ThreadRef
    text: str
    key: str
    mentions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The platform has it; ``remote_id`` is its id there."""

    remote_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLater:
    """The platform did not take it now and certainly did not post it; try again after ``after_s``."""

    after_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The platform will never take it; ``reason`` says why and what to do, without secrets."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt:
    """The connection broke after sending; ``find_posted`` has to tell whether it arrived."""

    reason: str


Delivery = Delivered | RetryLater | Rejected | InDoubt


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What fits into one post. ``unit`` is what the platform counts."""

    text_max: int
    unit: Literal["chars", "utf16", "utf8"] = "chars"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a platform can do, as data. ``status_ttl_s`` is how long a status stays by itself (0: none)."""

    threads: bool = True
    status: bool = False
    status_ttl_s: float = 0.0
    edits: bool = False
    buttons: bool = False
    files: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding of an adapter's self-check: what is wrong and how to mend it."""

    what: str
    fix: str
    fatal: bool = True


class ChatAdapter(Protocol):
    """A connection to one chat platform. All methods may be called concurrently."""

    platform: str
    capabilities: Capabilities
    limits: Limits

    @property
    def connected(self) -> bool:
        """True while events can arrive."""
        ...

    async def start(self, accept: Accept) -> None:
        """Connect, and hand everything that comes in to ``accept`` until ``stop``.

        Raises:
            AdapterNotConfigured: a token is missing or refused.
        """
        ...

    async def stop(self) -> None:
        """Stop receiving first, then close every connection. Safe to call twice."""
        ...

    async def post(self, reply: Reply) -> Delivery:
        """Post one reply that fits ``limits``. Failures are values; only cancellation is raised."""
        ...

    async def find_posted(self, thread: ThreadRef, key: str) -> Delivered | InDoubt | None:
        """Look for an earlier post with this key: found, certainly absent (None), or not readable."""
        ...

    async def set_status(self, thread: ThreadRef, text: str) -> None:
        """Show that work goes on (empty text: stop showing). Best effort; never raises."""
        ...

    async def check(self) -> tuple[Problem, ...]:
        """Look at tokens, scopes and reachability, for ``hermod doctor``. Never raises."""
        ...


@dataclass(slots=True)
class ConnectionState:
    """Shared by adapters: whether events can arrive, and since when they do."""

    connected: bool = False
    since: datetime | None = None
    last_event_at: datetime | None = field(default=None)
