"""The contract between Hermod and a chat platform.

An adapter turns wire events into the values below and the values below into wire calls. It knows
neither the engine nor the product. Everything is immutable; a routing address (``ThreadRef``) is made
in one place, the adapter's ``parse.py``, and carried unchanged by everything that follows from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable

COMMAND_THREAD = "command-"
"""Begins the ``thread`` of a slash command that was given in a channel: it belongs to no thread, so the platform's id
of the invocation follows, and what is said to it stands in the channel itself."""


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
class FileRef:
    """A file beside a message. Its name is untrusted; ``address`` is the adapter's own word for fetching it."""

    id: str
    name: str
    size: int = 0
    media_type: str = ""
    address: str = ""


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
        files: what is attached.
        quoted: text that came along and that the author did not write (a link's preview, a forwarded message): data.
    """

    thread: ThreadRef
    id: str
    author: Author
    text: str
    mentioned: bool
    direct: bool = False
    sent_at: datetime
    delivery_id: str = ""
    files: tuple[FileRef, ...] = ()
    quoted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A slash command. ``id`` is the platform's id of the invocation, ``respond_to`` see ``Reply``."""

    thread: ThreadRef
    id: str
    author: Author
    name: str
    text: str
    sent_at: datetime
    respond_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A pressed button. ``value`` is the opaque id that the button carried, ``respond_to`` see ``Reply``."""

    thread: ThreadRef
    id: str
    author: Author
    name: str
    value: str
    sent_at: datetime
    respond_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Somebody pressed the platform's own stop sign: the run of this thread has to end now.

    ``respond_to`` (see ``Reply``): where a word about it is shown to the one who pressed.
    """

    thread: ThreadRef
    id: str
    author: Author
    sent_at: datetime
    respond_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """A message of this thread was deleted: it leaves the history, and is not answered any more."""

    thread: ThreadRef
    id: str
    message_id: str
    author: Author
    sent_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Somebody opened Hermod's own page or messages tab. ``tab`` is ``home`` or ``messages``.

    It has no thread and is no row; the adapter shows what ``adapters.surfaces.Surfaces`` gives it. ``channel`` is the
    person's conversation with Hermod, empty where the platform does not tell.
    """

    workspace: str
    author: Author
    tab: str
    channel: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A workspace removed Hermod or revoked its tokens."""

    platform: str
    workspace: str


Inbound = Message | Command | Action | Stop | Deleted

Accept = Callable[[Inbound], Awaitable[bool]]
"""Takes what came in. Returns when it is stored (or known already): only then the adapter acknowledges
the platform. True when it will be answered, false when it is not for Hermod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that Hermod posts. ``content`` is text or base64 of bytes (``encoding``); the name is ours."""

    name: str
    content: str
    encoding: Literal["text", "base64"] = "text"
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A button under a reply. ``name`` says what it is for, ``value`` is an opaque id (at most 64 characters)."""

    name: str
    label: str
    value: str
    style: Literal["", "primary", "danger"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What Hermod says. ``text`` is canonical Markdown; nobody but ``mentions`` (user ids) is pinged.

    Args:
        key: the idempotency key of this post: the same key never appears twice in the thread.
        mentions: ids of the people whom the post may ping.
        files: posted after the text, in the same thread; ``key`` covers them too.
        buttons: shown under the text where the platform has buttons.
        feedback: an opaque id: offer thumbs up and down, which come back as an ``Action`` named ``feedback``.
        private_to: show it to this user only (``response_url`` or an ephemeral post), where the platform can.
        respond_to: the adapter's own address of what a command, or a word to whoever pressed a button, is answered by
            (Slack's ``response_url``), empty for none.
        priority: 0 answers and approvals, 1 notices, 2 progress; a lower one goes first when calls have to wait.
    """

    thread: ThreadRef
    text: str
    key: str
    mentions: frozenset[str] = frozenset()
    files: tuple[Attachment, ...] = ()
    buttons: tuple[Button, ...] = ()
    feedback: str = ""
    private_to: str = ""
    respond_to: str = ""
    priority: int = 0


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
    """The platform will never take it; ``reason`` says why and what to do, without secrets.

    ``gone``: nothing at all can be posted in this place any more, so nothing else is tried there.
    """

    reason: str
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt:
    """The connection broke after sending; ``find_posted`` has to tell whether it arrived."""

    reason: str


Delivery = Delivered | RetryLater | Rejected | InDoubt


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What fits into one post. ``unit`` is what the platform counts.

    ``tail_in_file``: of an answer that would be a flood of posts the rest goes into a file. ``measure``: how much of
    ``text_max`` a text takes as it is sent, where that is not its length (see ``adapters.markdown.fit_markdown``).
    """

    text_max: int
    unit: Literal["chars", "utf16", "utf8"] = "chars"
    tail_in_file: bool = False
    measure: Callable[[str], int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a platform can do, as data.

    ``status_ttl_s`` is how long a status stays by itself (0: none). ``drafts``: ``open_draft`` gives one. ``history``:
    ``fetch_history`` works. ``private``: ``Reply.private_to`` is honoured.
    """

    threads: bool = True
    status: bool = False
    status_ttl_s: float = 0.0
    edits: bool = False
    buttons: bool = False
    files: bool = False
    drafts: bool = False
    history: bool = False
    private: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """A line of what a run does, for people: a tool call or a stage."""

    id: str
    title: str
    state: Literal["pending", "running", "done", "failed"]
    detail: str = ""


class Draft(Protocol):
    """An answer that people see while it is written. Best effort until ``finish``; nothing here raises.

    One task uses a draft. ``remote_id`` is the platform's id once something is visible, else empty.
    """

    @property
    def remote_id(self) -> str:
        """The platform's id of what is visible."""
        ...

    async def show(self, text: str, plan: Sequence[PlanStep] = ()) -> None:
        """Show the whole text so far; the draft decides how much of it to send, and when."""
        ...

    async def finish(self, reply: Reply) -> Delivery | None:
        """Make the draft the reply: exactly what is missing is delivered, and the post carries ``reply.key``.

        Returns:
            None when nothing was visible yet, or the draft cannot become this reply and is gone: post it instead.
        """
        ...

    async def abandon(self) -> None:
        """Remove what is visible."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message of a thread's past, for context: who said it and when, and what was attached. Untrusted."""

    id: str
    author: Author
    text: str
    sent_at: datetime
    own: bool = False
    files: tuple[FileRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding of an adapter's self-check: what is wrong and how to mend it."""

    what: str
    fix: str
    fatal: bool = True


@runtime_checkable
class CompletesPosts(Protocol):
    """An adapter whose posts take several calls, so that one that was interrupted may be there in part."""

    async def complete_post(self, reply: Reply, remote_id: str) -> None:
        """Do what is missing of a post that ``find_posted`` found (its files). May be repeated; never raises."""
        ...


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
        """Connect, and hand everything that comes in to ``accept`` until ``wind_down`` or ``stop``.

        Raises:
            AdapterNotConfigured: a token is missing or refused.
        """
        ...

    async def wind_down(self) -> None:
        """Leave what comes from now on to the next process; what goes out (posts, drafts) goes on until ``stop``.

        Where the platform delivers again what is not acknowledged, or tells whoever said it that it did not arrive,
        nothing more is taken; what was taken is stored first. Where it does neither, what comes is still stored until
        ``stop``, and the next process answers it. Safe to call twice, before ``start`` and after ``stop``.
        """
        ...

    async def stop(self) -> None:
        """Stop receiving, let what was received be stored, then close every connection. Safe to call twice.

        Drafts that are being written are left as they are: whoever wants to finish them calls ``wind_down`` first.
        """
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

    def open_draft(self, thread: ThreadRef, *, asker: Author | None) -> Draft | None:
        """Begin an answer that people see while it is written, for ``asker``; None where there are no drafts."""
        ...

    async def discard_draft(self, thread: ThreadRef, remote_id: str) -> None:
        """Remove what a process that died left of a draft. Best effort; never raises.

        An empty ``remote_id``: it died before it knew; remove whatever of ours stands unfinished in the thread.
        """
        ...

    async def fetch_history(self, thread: ThreadRef, *, limit: int) -> tuple[Said, ...]:
        """Read what was said in a thread, oldest first, at most the newest ``limit``; empty when it cannot be read."""
        ...

    async def fetch_file(self, file: FileRef, *, max_bytes: int) -> bytes | None:
        """Fetch an attached file, never more than ``max_bytes``; None when it cannot or must not be fetched."""
        ...

    async def react(self, thread: ThreadRef, message_id: str, sign: str) -> None:
        """Put a sign (``queued``, ``seen``, ``stopped``) on a message, or take it off (``-queued``). Best effort."""
        ...

    async def check(self) -> tuple[Problem, ...]:
        """Look at tokens, scopes and reachability, for ``hermod doctor``. Never raises."""
        ...


class PlainPlatform:
    """What an adapter is without drafts, history, files and reactions; adapters override what they can."""

    async def wind_down(self) -> None:
        """Nothing is delivered again: what comes is handed over until ``stop``."""

    def open_draft(self, thread: ThreadRef, *, asker: Author | None) -> Draft | None:
        """There are no drafts."""
        return None

    async def discard_draft(self, thread: ThreadRef, remote_id: str) -> None:
        """There are none."""

    async def fetch_history(self, thread: ThreadRef, *, limit: int) -> tuple[Said, ...]:
        """There is no past."""
        return ()

    async def fetch_file(self, file: FileRef, *, max_bytes: int) -> bytes | None:
        """There are no files."""
        return None

    async def react(self, thread: ThreadRef, message_id: str, sign: str) -> None:
        """There are no signs."""


@dataclass(slots=True)
class ConnectionState:
    """Shared by adapters: whether events can arrive, and since when they do."""

    connected: bool = False
    since: datetime | None = None
    last_event_at: datetime | None = field(default=None)
