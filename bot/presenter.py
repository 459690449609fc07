"""From the engine's run events to what people see: a status while it works, then the reply, through the outbox."""

from __future__ import annotations

import asyncio
import html
import unicodedata
from collections.abc import Mapping
from datetime import datetime, timedelta

import structlog
from pydantic import TypeAdapter
from pydantic_core import to_json

from adapters.chat import ChatAdapter, Delivered, Delivery, InDoubt, Limits, Rejected, Reply, RetryLater, ThreadRef
from adapters.markdown import fit_markdown
from agent_core.context import Clock
from agent_core.runtime.events import RunEvent, StateChanged, ToolStarted
from agent_core.runtime.state import RunState
from bot.storage.base import Claim, NewOutboxItem, OutboxItem, OutboxState, Store

log = structlog.get_logger("hermod.presenter")

_REPLY = TypeAdapter(Reply)

IN_DOUBT_WAITS_S = (0.5, 2.0, 5.0)
"""How long to wait before each further look at the thread for a post whose outcome is unknown."""

CALL_TIMEOUT_S = 60.0
"""Adapters bound their calls themselves; this is for the one that does not."""

RETRY_FLOOR_S = 0.5
"""The shortest wait before a post is tried again, also where the platform asks for none."""

RETRY_CAP_S = 60.0
"""The longest wait before a post that got lost is sent again; it doubles from try to try."""

NOTICE_PREFIX = "unknown/"
"""How the key of a notice about a reply begins; the reply's key follows."""

NOTHING_VISIBLE = "My answer came out empty. Please ask again, perhaps in other words."
UNDELIVERED = "I had an answer here that I could not deliver; my log has the reason. Please ask again."
STALLED_S = 3.0
"""A process that needed this long to mark a reply as being sent posts it later: its claim may be somebody else's."""

UNKNOWN_DELIVERY = "I do not know whether my answer above arrived; it may be missing. Ask again if it is not there."


def build_reply_rows(
    thread: ThreadRef, text: str, *, run_id: str, limits: Limits, now: datetime
) -> tuple[NewOutboxItem, ...]:
    """Fit an answer to the platform and build one outbox row a part, keyed by run and part; at least one."""
    parts = fit_markdown(text if _shows_something(text) else NOTHING_VISIBLE, limits)
    return tuple(
        _build_row(Reply(thread=thread, text=part, key=f"{run_id}/{n}"), run_id=run_id, now=now)
        for n, part in enumerate(parts, 1)
    )


def build_notice(thread: ThreadRef, text: str, *, key: str, now: datetime) -> NewOutboxItem:
    """Build the outbox row of something that Hermod says beside its answers."""
    return _build_row(Reply(thread=thread, text=text, key=key), run_id=None, now=now)


def _build_row(reply: Reply, *, run_id: str | None, now: datetime) -> NewOutboxItem:
    return NewOutboxItem(
        key=reply.key, thread_key=reply.thread.key, run_id=run_id, body=to_json(reply).decode(), created_at=now
    )


def _shows_something(text: str) -> bool:
    """False where nothing would be seen: blanks, zero-width characters, Markdown without content."""
    return any(c not in "#>`~" and unicodedata.category(c)[0] not in "ZC" for c in html.unescape(text))


class Status:
    """Keeps a platform's "is working" sign alive while a run goes on.

    Used as an async context manager around a run; ``on_event`` may be handed to the engine as its event sink.
    """

    def __init__(self, adapter: ChatAdapter, thread: ThreadRef) -> None:
        self._adapter = adapter
        self._thread = thread
        self._text = "is thinking…"
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Status:
        if self._adapter.capabilities.status:
            self._task = asyncio.create_task(self._keep_alive())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_event(self, event: RunEvent) -> None:
        """Follow the run."""
        match event:
            case ToolStarted(call=call):
                self._show(f"is running {call.name}…")
            case StateChanged(state=RunState.THINKING):
                self._show("is thinking…")
            case _:
                pass

    def _show(self, text: str) -> None:
        if text != self._text:
            self._text = text
            self._changed.set()

    async def _keep_alive(self) -> None:
        ttl_s = self._adapter.capabilities.status_ttl_s
        while True:
            self._changed.clear()
            await self._adapter.set_status(self._thread, self._text)
            try:
                async with asyncio.timeout(ttl_s * 0.75 if ttl_s else None):
                    await self._changed.wait()
            except TimeoutError:
                continue


class Sender:
    """Posts the outbox rows of a claimed thread, in order, each exactly once.

    Args:
        store: where the rows are.
        adapters: by platform name.
        clock: for retry times and waits.
    """

    def __init__(self, *, store: Store, adapters: Mapping[str, ChatAdapter], clock: Clock) -> None:
        self._store = store
        self._adapters = adapters
        self._clock = clock
        self.delivered = 0
        self.failed = 0

    async def send(self, claim: Claim, rows: tuple[OutboxItem, ...]) -> None:
        """Post ``rows`` until one has to wait; what waits is taken up by a later claim.

        Raises:
            Fenced: somebody else works on the thread now.
        """
        for row in rows:
            waits = row.state is OutboxState.PENDING and row.next_at > self._clock.now()
            if waits or not await self._send_one(claim, row):
                return

    async def give_up(self, claim: Claim) -> bool:
        """Give up the post that was under way when its adapter broke, and tell whether there was one.

        Else the same post would break the work of its thread again and again, and nothing behind it would be sent.
        """
        rows = await self._store.load_outbox(claim.thread_key)
        broken = [row for row in rows if row.state is OutboxState.SENDING]
        for row in broken:
            await self._give_up(claim, row, UNKNOWN_DELIVERY, reason="the adapter broke while it posted this")
        return bool(broken)

    async def _send_one(self, claim: Claim, row: OutboxItem) -> bool:
        """Post one row; false when the rows behind it have to wait."""
        try:
            reply = _REPLY.validate_json(row.body)
        except ValueError as e:
            await self._give_up(claim, row, UNDELIVERED, reason=f"it cannot be read: {e}")
            return True
        adapter = self._adapters[reply.thread.platform]
        if row.state is OutboxState.SENDING:
            return await self._settle(claim, row, reply, adapter, sent=row.attempts)
        return await self._send_new(claim, row, reply, adapter)

    async def _send_new(self, claim: Claim, row: OutboxItem, reply: Reply, adapter: ChatAdapter) -> bool:
        """Post a row that was certainly not sent before."""
        begun = self._clock.monotonic()
        await self._store.begin_send(claim, row.id)
        if self._clock.monotonic() - begun > STALLED_S:
            # this process stood still, so another one may have taken over; if so, the next line is fenced
            await self._finish(claim, row, OutboxState.PENDING, reason="the process stood still")
            return False
        match await self._post(adapter, reply):
            case Delivered(remote_id=remote_id):
                await self._finish(claim, row, OutboxState.DELIVERED, remote_id=remote_id)
                return True
            case RetryLater(after_s=after_s, reason=reason):
                log.info("reply_put_off", thread=row.thread_key, after_s=after_s, reason=reason)
                await self._put_back(claim, row, reason=reason, after_s=max(after_s, RETRY_FLOOR_S))
                return False
            case Rejected(reason=reason):
                log.error("reply_rejected", thread=row.thread_key, reason=reason)
                await self._finish(claim, row, OutboxState.FAILED, reason=reason)
                return True
            case InDoubt():
                return await self._settle(claim, row, reply, adapter, sent=row.attempts + 1)

    async def _settle(self, claim: Claim, row: OutboxItem, reply: Reply, adapter: ChatAdapter, *, sent: int) -> bool:
        """Find out what became of a post that may have arrived, before anything is sent again.

        It counts as lost only when two looks in a row do not find it, or the last one: a platform may still be busy
        with it during the first.

        Args:
            claim, row, reply, adapter: the post.
            sent: how often it was sent.
        """
        found: Delivered | InDoubt | None = InDoubt(reason="")
        for wait_s in (0.0, *IN_DOUBT_WAITS_S):
            await self._clock.sleep(wait_s)
            before, found = found, await self._find(adapter, reply)
            match found:
                case Delivered(remote_id=remote_id):
                    await self._finish(claim, row, OutboxState.DELIVERED, remote_id=remote_id)
                    return True
                case None if before is None:
                    break
                case InDoubt(reason=reason):
                    log.warning("reply_in_doubt", thread=row.thread_key, reason=reason)
        if isinstance(found, InDoubt):
            await self._give_up(claim, row, UNKNOWN_DELIVERY, reason=f"delivery unknown: {found.reason}")
            return True
        after_s = 0.0 if sent <= 1 else min(RETRY_CAP_S, 2.0 ** min(sent - 1, 10))
        await self._put_back(claim, row, reason="not posted before", after_s=after_s)
        return False

    # -- the platform, with an end to every wait -----------------------------------------------------

    async def _post(self, adapter: ChatAdapter, reply: Reply) -> Delivery:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S) as timer:
                return await adapter.post(reply)
        except TimeoutError:
            if not timer.expired():
                raise
            return InDoubt(reason=f"the platform took more than {CALL_TIMEOUT_S:g} s")

    async def _find(self, adapter: ChatAdapter, reply: Reply) -> Delivered | InDoubt | None:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S) as timer:
                return await adapter.find_posted(reply.thread, reply.key)
        except TimeoutError:
            if not timer.expired():
                raise
            return InDoubt(reason=f"looking for it took more than {CALL_TIMEOUT_S:g} s")

    # -- the row -------------------------------------------------------------------------------------

    async def _put_back(self, claim: Claim, row: OutboxItem, *, reason: str, after_s: float) -> None:
        await self._finish(claim, row, OutboxState.PENDING, reason=reason, after_s=after_s)

    async def _give_up(self, claim: Claim, row: OutboxItem, notice: str, *, reason: str) -> None:
        """End a row undelivered, and say so in the thread; the notice of a notice would be one too many."""
        log.error("reply_given_up", thread=row.thread_key, key=row.key, reason=reason)
        if not row.key.startswith(NOTICE_PREFIX):
            thread = ThreadRef.parse_key(row.thread_key)
            # first the notice: should the process end in between, the row is settled, and noticed, once more
            await self._store.add_outbox(
                build_notice(thread, notice, key=f"{NOTICE_PREFIX}{row.key}", now=self._clock.now())
            )
        await self._finish(claim, row, OutboxState.FAILED, reason=reason)

    async def _finish(
        self,
        claim: Claim,
        row: OutboxItem,
        state: OutboxState,
        *,
        remote_id: str | None = None,
        reason: str = "",
        after_s: float = 0.0,
    ) -> None:
        next_at = self._clock.now() + timedelta(seconds=after_s)
        await self._store.finish_send(claim, row.id, state, remote_id=remote_id, reason=reason, next_at=next_at)
        self.delivered += state is OutboxState.DELIVERED
        self.failed += state is OutboxState.FAILED
