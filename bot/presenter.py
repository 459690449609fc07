"""From the engine's run events to what people see: a status while it works, then the reply, through the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta

import structlog
from pydantic import TypeAdapter
from pydantic_core import to_json

from adapters.chat import ChatAdapter, Delivered, InDoubt, Limits, Rejected, Reply, RetryLater, ThreadRef
from adapters.markdown import fit_markdown
from agent_core.context import Clock
from agent_core.runtime.events import RunEvent, StateChanged, ToolStarted
from agent_core.runtime.state import RunState
from bot.storage.base import Claim, NewOutboxItem, OutboxItem, OutboxState, Store

log = structlog.get_logger("hermod.presenter")

_REPLY = TypeAdapter(Reply)

IN_DOUBT_WAITS_S = (0.5, 2.0, 5.0)
"""How long to wait before each look at the thread for a post whose outcome is unknown."""

UNKNOWN_DELIVERY = "I do not know whether my answer above arrived; it may be missing. Ask again if it is not there."


def build_reply_rows(
    thread: ThreadRef, text: str, *, run_id: str, limits: Limits, now: datetime
) -> tuple[NewOutboxItem, ...]:
    """Fit an answer to the platform and build one outbox row a part, keyed by run and part."""
    parts = fit_markdown(text, limits)
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

    async def _send_one(self, claim: Claim, row: OutboxItem) -> bool:
        """Post one row; false when the rows behind it have to wait."""
        reply = _REPLY.validate_json(row.body)
        adapter = self._adapters[reply.thread.platform]
        if row.state is OutboxState.SENDING:
            return await self._settle(claim, row, reply, adapter)
        await self._store.begin_send(claim, row.id)
        outcome = await adapter.post(reply)
        match outcome:
            case Delivered(remote_id=remote_id):
                await self._finish(claim, row, OutboxState.DELIVERED, remote_id=remote_id)
                return True
            case RetryLater(after_s=after_s, reason=reason):
                await self._finish(claim, row, OutboxState.PENDING, reason=reason, after_s=after_s)
                return False
            case Rejected(reason=reason):
                log.error("reply_rejected", thread=row.thread_key, reason=reason)
                await self._finish(claim, row, OutboxState.FAILED, reason=reason)
                return True
            case InDoubt():
                return await self._settle(claim, row, reply, adapter)

    async def _settle(self, claim: Claim, row: OutboxItem, reply: Reply, adapter: ChatAdapter) -> bool:
        """Find out what became of a post that may have arrived, before anything is sent again."""
        reason = ""
        for wait_s in (0.0, *IN_DOUBT_WAITS_S):
            await self._clock.sleep(wait_s)
            found = await adapter.find_posted(reply.thread, reply.key)
            match found:
                case Delivered(remote_id=remote_id):
                    await self._finish(claim, row, OutboxState.DELIVERED, remote_id=remote_id)
                    return True
                case None:
                    await self._finish(claim, row, OutboxState.PENDING, reason="not posted before", after_s=0.0)
                    return False
                case InDoubt(reason=reason):
                    log.warning("reply_in_doubt", thread=row.thread_key, reason=reason)
        await self._finish(claim, row, OutboxState.FAILED, reason=f"delivery unknown: {reason}")
        if not row.key.startswith("unknown/"):
            now = self._clock.now()
            await self._store.add_outbox(
                build_notice(reply.thread, UNKNOWN_DELIVERY, key=f"unknown/{row.key}", now=now)
            )
        return True

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
        self.delivered += state is OutboxState.DELIVERED
        self.failed += state is OutboxState.FAILED
        next_at = self._clock.now() + timedelta(seconds=after_s)
        await self._store.finish_send(claim, row.id, state, remote_id=remote_id, reason=reason, next_at=next_at)
