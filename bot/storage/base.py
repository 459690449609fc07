"""The Store protocol: every row that Hermod keeps, and the verbs that change rows.

Rules that every implementation follows, and that ``tests/contract/store`` checks:

* Each verb is one transaction: it happens whole or not at all, and it is safe to call concurrently, also
  from several processes on one database.
* The unit of work is the *thread*. Whoever works on a thread holds a ``Claim`` (lease and epoch); each verb
  that takes a claim raises ``Fenced`` and changes nothing once the thread was claimed by somebody else.
* All instants are aware UTC and are passed in, so that tests turn the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal, Protocol

from agent_core.context import JournalEntry, StepState
from bot.storage.installations import InstallationStore
from bot.storage.jobs import JobStore
from bot.storage.snapshots import HistoryStore


class StoreError(Exception):
    """The storage cannot be used; the message says what to do."""


class Fenced(StoreError):
    """The claim is no longer ours: another process works on the thread. Stop without any further effect."""


# -- rows ------------------------------------------------------------------------------------------


class InboxState(StrEnum):
    """``open`` waits, ``taken`` belongs to a run, ``done`` was answered, ``refused`` was turned away."""

    OPEN = "open"
    TAKEN = "taken"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInboxItem:
    """What came in, before it is a row.

    ``event_key`` is the platform's *logical* id (``slack:T1/C1/1700.1/message``): twins and redeliveries
    have the same. ``kind`` is a word of ``bot.messages``; ``payload`` is JSON. ``said_id`` is the platform's id of
    a message, by which it can be taken back. ``inside``: the message stands in a thread that is older than it.
    """

    event_key: str
    thread_key: str
    kind: str
    payload: str
    received_at: datetime
    said_id: str = ""
    inside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxItem:
    """A row of the inbox. ``seq`` grows by one inside a thread, in the order of acceptance.

    ``signed``: its message carries the sign that it waits.
    """

    id: int
    event_key: str
    thread_key: str
    seq: int
    kind: str
    payload: str
    received_at: datetime
    state: InboxState
    run_id: str | None
    said_id: str = ""
    signed: bool = False


class OutboxState(StrEnum):
    """``pending`` was never sent, ``sending`` may have arrived, then ``delivered`` or ``failed``."""

    PENDING = "pending"
    SENDING = "sending"
    DELIVERED = "delivered"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        """True when nothing more is done with the row."""
        return self in (OutboxState.DELIVERED, OutboxState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOutboxItem:
    """A reply to post. ``key`` is its idempotency key; inserting a known key again changes nothing."""

    key: str
    thread_key: str
    run_id: str | None
    body: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxItem:
    """A row of the outbox. ``next_at``: not before this instant; ``attempts``: how often it was sent."""

    id: int
    key: str
    thread_key: str
    run_id: str | None
    body: str
    created_at: datetime
    state: OutboxState
    attempts: int
    next_at: datetime
    remote_id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run. ``state`` is an agent_core RunState word; ``record`` the trace as JSON, empty while it works.

    A thread has at most one run in a state that is not final; the database itself enforces it. ``error`` is the word
    for what ended it early, ``reason`` a line about that, or about what is missing; both are empty when all went well.
    """

    run_id: str
    thread_key: str
    agent: str
    state: str
    started_at: datetime
    attempt: int = 1
    ended_at: datetime | None = None
    error: str = ""
    record: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """One entry of a thread's history: a ``ModelMessage`` as JSON, with its token count.

    ``said_id`` is the platform's id of the message that it came from; empty for what people did not write.
    """

    role: str
    body: str
    tokens: int
    created_at: datetime
    said_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A row of a thread's history; ``seq`` grows by one inside a thread."""

    seq: int
    run_id: str
    role: str
    body: str
    tokens: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """What stands for a thread's messages up to ``through_seq``; an empty ``text`` means that it was forgotten.

    ``author`` is ``model``, or the person who corrected it as ``platform:id``.
    """

    thread_key: str
    text: str
    through_seq: int
    tokens_before: int
    tokens_after: int
    author: str
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What one run used with one model. ``cost_usd`` is None when no price is known.

    Cached and cache-write tokens are parts of the input's: what the provider's own cache served, and took in.
    """

    run_id: str
    thread_key: str
    author: str
    provider: str
    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    at: datetime
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackRow:
    """What a person (``platform:id``) thought of a run's answer."""

    run_id: str
    thread_key: str
    author: str
    value: Literal["up", "down"]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is kept of a thread, in numbers. ``tokens`` are those of ``messages``; ``summary`` is 1 where there is one.

    ``outputs`` are whole tool results, ``steps`` those of ended runs, ``traces`` runs with one, and ``texts`` what was
    said to Hermod and by it and is over.
    """

    messages: int = 0
    tokens: int = 0
    summary: int = 0
    outputs: int = 0
    steps: int = 0
    traces: int = 0
    texts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """Everything that the end of a run changes, in one transaction.

    ``state`` is ``finished`` or ``error``. The run's inbox items become done, and with them the open ones of
    ``answered`` (ids); ``messages`` join the history, those that were erased meanwhile without their text;
    ``outbox`` waits to be posted, ``usage`` is added, ``summary`` replaces the thread's. ``sequel`` is what follows
    the run's first post once it is there, see ``JobStore.open_thread``; empty: nothing. ``error`` and ``reason``: see
    ``RunRow``.
    """

    state: Literal["finished", "error"]
    error: str
    record: str
    ended_at: datetime
    messages: tuple[NewMessage, ...] = ()
    outbox: tuple[NewOutboxItem, ...] = ()
    usage: tuple[UsageRow, ...] = ()
    summary: SummaryRow | None = None
    answered: tuple[int, ...] = ()
    sequel: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to work on a thread until ``lease_until``, and what is to be done there.

    ``items``: open inbox rows plus those of ``run``, in order. ``run``: a run that an earlier owner left
    unfinished, or None. ``outbox``: rows that are pending or sending and due, in order. ``past_left``: how often
    reading what was said before the first accepted message may still be tried.
    """

    thread_key: str
    owner: str
    epoch: int
    lease_until: datetime
    items: tuple[InboxItem, ...]
    run: RunRow | None
    outbox: tuple[OutboxItem, ...]
    past_left: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """``outcome``: ``new`` row, ``duplicate`` of a known one, or ``full`` (stored as refused)."""

    outcome: Literal["new", "duplicate", "full"]
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A thread as ``hermod sessions`` lists it."""

    thread_key: str
    messages: int
    runs: int
    tokens: int
    last_at: datetime
    busy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A journalled step of a run."""

    run_id: str
    n: int
    entry: JournalEntry
    begun_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One line of the audit chain; ``hash`` covers the line and ``prev_hash``."""

    seq: int
    at: datetime
    actor: str
    action: str
    thread_key: str
    run_id: str
    detail: str
    prev_hash: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Gauges for ``/metrics``."""

    inbox_open: int
    runs_active: int
    outbox_pending: int
    threads: int


# -- verbs -----------------------------------------------------------------------------------------


class Store(InstallationStore, HistoryStore, JobStore, Protocol):
    """See the module's rules."""

    async def open(self) -> None:
        """Connect and bring the schema up to date.

        Raises:
            StoreError: not reachable, not writable, or made by a newer Hermod.
        """
        ...

    async def close(self) -> None:
        """Finish what is being written and disconnect. Safe to call twice."""
        ...

    async def ping(self) -> None:
        """Raise ``StoreError`` when the storage does not answer."""
        ...

    # inbox and claims
    async def accept(self, item: NewInboxItem, *, queue_limit: int, refusal: NewOutboxItem | None = None) -> Accepted:
        """Store what came in, once per ``event_key``, and make its thread known.

        When the thread already has ``queue_limit`` open items, the item is stored as refused and
        ``refusal`` (if any) joins the outbox. A message that was erased before is a duplicate. Durable against power
        loss when this returns.
        """
        ...

    async def erase_message(self, item: NewInboxItem, *, now: datetime) -> Literal["dropped", "under way", "erased"]:
        """Take back the message ``item.said_id`` of a known thread, and keep it out when it arrives later.

        An open item is dropped; in the history ``[deleted]`` stands for the text. While a run answers it,
        ``item`` itself joins the inbox, so that whoever works on the run hears of it.
        """
        ...

    async def load_open(self, thread_key: str, *, after_seq: int = 0) -> tuple[InboxItem, ...]:
        """The open items of a thread whose number is greater than ``after_seq``, in order."""
        ...

    async def mark_signed(self, claim: Claim, item_id: int) -> None:
        """Record that an item's message carries the sign that it waits, before it is put there."""
        ...

    async def knows_thread(self, thread_key: str) -> bool:
        """True when something of this thread was ever accepted, or it was opened (``JobStore.open_thread``)."""
        ...

    async def claim_thread(self, owner: str, *, prefixes: Sequence[str], lease_s: float, now: datetime) -> Claim | None:
        """Claim the thread that has waited longest for work, or None when there is none.

        A thread waits for work when it has open items, a run that is not final, or outbox rows that are
        due, and nobody holds an unexpired lease on it. Only threads among ``prefixes``: one that ends with
        ``:`` or ``/`` stands for every key that begins with it (an empty one for all), any other for the thread
        of exactly that key, so that ``.../main`` is not ``.../main2``. Claiming raises the epoch by one and sets
        the run's ``attempt`` one up, if there is one.
        """
        ...

    async def renew_claim(self, claim: Claim, *, lease_s: float, now: datetime) -> None:
        """Extend the lease. Raises ``Fenced`` when it is lost."""
        ...

    async def release_claim(self, claim: Claim) -> None:
        """Give the thread back; quietly does nothing when the claim is already lost."""
        ...

    async def list_owners(self) -> tuple[str, ...]:
        """The owners of all leases, expired or not."""
        ...

    async def free_owner(self, owner: str) -> None:
        """End every lease of an owner that is known to be dead."""
        ...

    async def next_wake(self, *, prefixes: Sequence[str], now: datetime) -> datetime | None:
        """The earliest instant after ``now`` at which a lease ends or an outbox row falls due, or None."""
        ...

    # runs and their journal
    async def begin_run(self, claim: Claim, run: RunRow, item_ids: Sequence[int]) -> None:
        """Create the run and bind the items to it."""
        ...

    async def begin_step(self, claim: Claim, run_id: str, entry: JournalEntry, now: datetime) -> JournalEntry | None:
        """Record a step's intent, or return what is known of it (``agent_core.context.Journal.begin``).

        The run's state follows, for people who look: ``thinking`` while a model is asked, ``acting`` while tools run.
        """
        ...

    async def finish_step(
        self, claim: Claim, run_id: str, key: str, state: StepState, result: str, now: datetime
    ) -> None:
        """Record how a step ended."""
        ...

    async def finish_run(self, claim: Claim, run_id: str, outcome: RunOutcome) -> None:
        """End the run; see ``RunOutcome``."""
        ...

    async def load_run(self, run_id: str) -> tuple[RunRow, tuple[StepRow, ...]] | None:
        """A run with its steps in order of their beginning. A unique prefix of the id is enough."""
        ...

    async def list_runs(self, *, thread_key: str | None = None, limit: int = 20) -> tuple[RunRow, ...]:
        """The newest runs first."""
        ...

    # what people see of a run while it works
    async def save_draft(self, claim: Claim, run_id: str, remote_id: str, now: datetime) -> None:
        """Record what became visible of a run's answer; an empty id before anything does, for it may any moment.

        The first part of the answer that is settled ends it.
        """
        ...

    async def load_draft(self, run_id: str) -> str | None:
        """The platform's id of what is visible of a run's answer; empty when it is not known; None: nothing is."""
        ...

    async def drop_draft(self, claim: Claim, run_id: str) -> None:
        """Record that nothing of it is visible any more."""
        ...

    # history
    async def save_past(self, claim: Claim, run_id: str, message: NewMessage | None) -> None:
        """Put what was said before Hermod came into the history, once; None: it could not be read this time.

        Quietly does nothing when the thread was opened meanwhile (``JobStore.open_thread``): its past is settled then.
        """
        ...

    async def load_messages(
        self, thread_key: str, *, limit: int | None = None, after_seq: int = 0
    ) -> tuple[StoredMessage, ...]:
        """The thread's history after ``after_seq``, in order; with ``limit`` only its newest rows."""
        ...

    async def load_summary(self, thread_key: str) -> SummaryRow | None:
        """The thread's summary, or None."""
        ...

    async def save_summary(self, summary: SummaryRow) -> None:
        """Replace a thread's summary: corrected by a person, or forgotten (an empty text)."""
        ...

    async def save_output(self, thread_key: str, output_id: str, text: str, now: datetime) -> None:
        """Keep a whole tool output; the same id again replaces it."""
        ...

    async def load_output(self, thread_key: str, output_id: str) -> str | None:
        """A kept output of this thread, or None."""
        ...

    async def count_kept(self, thread_key: str) -> Kept:
        """Count what ``forget_thread`` would drop."""
        ...

    async def forget_thread(self, thread_key: str) -> Kept:
        """Drop what was said and found in a thread: history, summary, outputs, steps, traces, and texts in and out.

        Also proposals that nobody confirmed, the sequel of a run whose posts are settled, and all of that of the
        thread that this one was opened from. What is open or under way stays until it is answered. The rows that make
        a redelivery known, numbers (usage, feedback), and the audit chain stay, without content.

        Returns:
            What was dropped.
        """
        ...

    async def list_sessions(self, *, limit: int = 50, author: str = "") -> tuple[SessionRow, ...]:
        """Threads, the most recently active first; with ``author`` (``platform:id``) only where they used a model.

        Whoever used one in a thread did so in those that were opened from it, too. A thread that another one was
        opened from, and that has no history of its own, is not listed: its runs count for the other one.
        """
        ...

    # outbox
    async def add_outbox(self, item: NewOutboxItem) -> None:
        """Queue a post that belongs to no run (a notice)."""
        ...

    async def begin_send(self, claim: Claim, outbox_id: int, *, now: datetime) -> float:
        """Mark a row as sending and count the attempt, before the platform is called.

        Returns:
            For how many seconds from ``now`` the lease still lasts; negative when it is over.
        """
        ...

    async def finish_send(
        self, claim: Claim, outbox_id: int, state: OutboxState, *, remote_id: str | None, reason: str, next_at: datetime
    ) -> None:
        """Record what became of it; ``pending`` means: again, not before ``next_at``."""
        ...

    async def split_outbox(self, claim: Claim, outbox_id: int, parts: Sequence[NewOutboxItem]) -> None:
        """Put the first of ``parts`` in the place of a post that was certainly not made, and queue the others."""
        ...

    async def load_due(self, thread_key: str, *, now: datetime) -> tuple[OutboxItem, ...]:
        """The posts of a thread that are pending or sending, in order, up to the first that is not due."""
        ...

    async def load_outbox(self, thread_key: str) -> tuple[OutboxItem, ...]:
        """All posts of a thread, in order."""
        ...

    # usage, audit, gauges
    async def load_usage(self, *, since: datetime, author: str = "") -> tuple[UsageRow, ...]:
        """Usage rows since an instant, oldest first; with ``author`` (``platform:id``) only theirs."""
        ...

    async def save_feedback(self, row: FeedbackRow) -> None:
        """Record what somebody thought of a run's answer, in place of what they thought before.

        Raises:
            StoreError: there is no such run.
        """
        ...

    async def load_feedback(self, *, since: datetime, limit: int = 1000) -> tuple[FeedbackRow, ...]:
        """What people thought since an instant, newest first."""
        ...

    async def add_audit(
        self, *, at: datetime, actor: str, action: str, thread_key: str, run_id: str, detail: str
    ) -> AuditRow:
        """Append to the audit chain."""
        ...

    async def verify_audit(self) -> tuple[int, int | None]:
        """Return the number of lines, and the ``seq`` of the first one that does not fit the chain."""
        ...

    async def count_rows(self) -> Counts:
        """Gauges."""
        ...
