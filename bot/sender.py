"""The outbox is emptied: each reply is posted exactly once, or said to be missing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TypeVar

import structlog

from adapters.chat import (
    ChatAdapter,
    CompletesPosts,
    Delivered,
    Delivery,
    Draft,
    InDoubt,
    Limits,
    Rejected,
    Reply,
    RetryLater,
    ThreadRef,
)
from adapters.places import HasPlaces
from agent_core.context import Clock
from bot.jobs.job import REPORT_THREAD
from bot.jobs.sequel import build_opening
from bot.presenter import build_notice, load_reply, split_reply
from bot.storage.base import Claim, OutboxItem, OutboxState, Store

log = structlog.get_logger("hermod.sender")

T = TypeVar("T")

IN_DOUBT_WAITS_S = (0.5, 2.0, 5.0)
"""How long to wait before each further look at the thread for a post whose outcome is unknown."""

CALL_TIMEOUT_S = 60.0
"""Adapters bound their calls themselves; this is for the one that does not."""

CLEAR_TIMEOUT_S = 3.0
"""Bound of removing what is visible of an answer that will not be finished there."""

RETRY_FLOOR_S = 0.5
"""The shortest wait before a post is tried again, also where the platform asks for none."""

RETRY_CAP_S = 60.0
"""The longest wait before a post that got lost is sent again; it doubles from try to try."""

LEASE_LEFT_S = 2.0
"""With less of its lease left a process begins no post: it may stand still, and somebody else takes over."""

STALLED_S = 3.0
"""A process that needed this long to mark a reply as being sent posts it later: its claim may be somebody else's."""

MOST_PUT_OFF = 200
"""Drafts that wait to be finished later."""

NOTICE_PREFIX = "unknown/"
"""How the key of a notice about a reply begins; the reply's key follows."""

UNDELIVERED = "I had an answer here that I could not deliver; my log has the reason. Please ask again."
UNKNOWN_DELIVERY = "I do not know whether my answer above arrived; it may be missing. Ask again if it is not there."


class Sender:
    """Posts the outbox rows of a claimed thread, in order, each exactly once.

    The first part of an answer whose run has an open draft becomes of that draft. What a dead process left of a draft
    is removed before its answer is posted anew.

    Args:
        store: where the rows are.
        adapters: by platform name.
        clock: for retry times and waits.
    """

    def __init__(self, *, store: Store, adapters: Mapping[str, ChatAdapter], clock: Clock) -> None:
        self._store = store
        self._adapters = adapters
        self._clock = clock
        self._drafts: dict[str, Draft] = {}
        self._put_off: dict[str, None] = {}  # runs whose draft is to be finished by a later claim of this process
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
        rows = await self._store.load_due(claim.thread_key, now=self._clock.now())
        broken = [row for row in rows if row.state is OutboxState.SENDING]
        for row in broken:
            await self._give_up(claim, row, UNKNOWN_DELIVERY, reason="the adapter broke while it posted this")
        return bool(broken)

    # -- drafts --------------------------------------------------------------------------------------

    def attach(self, run_id: str, draft: Draft) -> None:
        """Let the answer of a run become of ``draft``, which nobody else uses from now on; ``detach`` has to follow."""
        self._drafts[run_id] = draft

    def holds(self, run_id: str) -> bool:
        """Tell whether something is visible that a run's answer may become of."""
        draft = self._drafts.get(run_id)
        return draft is not None and bool(draft.remote_id)

    async def detach(self, run_id: str) -> None:
        """Remove a run's draft that did not become its answer; does nothing where it did, will, or is none.

        Its row stays: whether the platform removed it is not known, so whoever posts the answer removes it once more.
        """
        if run_id in self._put_off:
            return
        draft = self._drafts.pop(run_id, None)
        if draft is not None:
            await _within(CLEAR_TIMEOUT_S, draft.abandon())

    async def discard(self, claim: Claim, run_id: str, *, unless: str | None = None) -> None:
        """Remove what an earlier process left visible of a run's answer, unless it is the post ``unless``.

        Where the process died before it knew the platform's id, the platform is asked to look for it.
        """
        remote_id = await self._store.load_draft(run_id)
        if remote_id is None:
            return
        thread = ThreadRef.parse_key(claim.thread_key)
        if remote_id != unless:
            log.info("draft_discarded", thread=claim.thread_key, run_id=run_id)
            await _within(CALL_TIMEOUT_S, self._adapters[thread.platform].discard_draft(thread, remote_id))
        await self._store.drop_draft(claim, run_id)

    # -- one row -------------------------------------------------------------------------------------

    async def _send_one(self, claim: Claim, row: OutboxItem) -> bool:
        """Post one row; false when the rows behind it have to wait."""
        try:
            reply = load_reply(row.body)
        except ValueError as e:
            await self._give_up(claim, row, UNDELIVERED, reason=f"it cannot be read: {e}")
            return True
        adapter = self._adapters[reply.thread.platform]
        if row.state is OutboxState.SENDING:
            return await self._settle(claim, row, reply, adapter, sent=row.attempts)
        return await self._send_new(claim, row, reply, adapter)

    async def _send_new(self, claim: Claim, row: OutboxItem, reply: Reply, adapter: ChatAdapter) -> bool:
        """Post a row that was certainly not sent before."""
        if row.run_id is not None and row.run_id not in self._drafts:
            await self.discard(claim, row.run_id)
            reply = await self._fit(claim, row, reply, adapter)
        begun = self._clock.monotonic()
        left_s = await self._store.begin_send(claim, row.id, now=self._clock.now())
        if left_s < LEASE_LEFT_S or self._clock.monotonic() - begun > STALLED_S:
            # this process stood still, so another one may have taken over; if so, the next line is fenced
            await self._finish(claim, row, OutboxState.PENDING, reason="the process stood still")
            return False
        match await self._hand_over(claim, row, reply, adapter):
            case Delivered(remote_id=remote_id):
                await self._deliver(claim, row, remote_id)
                return True
            case RetryLater(after_s=after_s, reason=reason):
                log.info("reply_put_off", thread=row.thread_key, after_s=after_s, reason=reason)
                self._keep(row.run_id or "")
                await self._put_back(claim, row, reason=reason, after_s=max(after_s, RETRY_FLOOR_S))
                return False
            case Rejected(reason=reason, gone=gone):
                log.error("reply_rejected", thread=row.thread_key, reason=reason)
                await self._finish(claim, row, OutboxState.FAILED, reason=reason)
                if gone:
                    await self._fail_rest(claim, reason)
                return not gone
            case InDoubt():
                return await self._settle(claim, row, reply, adapter, sent=row.attempts + 1)

    async def _fail_rest(self, claim: Claim, reason: str) -> None:
        """End what else waits for a place in which nothing can be posted any more."""
        for row in await self._store.load_due(claim.thread_key, now=self._clock.now()):
            await self._finish(claim, row, OutboxState.FAILED, reason=reason)

    async def _hand_over(self, claim: Claim, row: OutboxItem, reply: Reply, adapter: ChatAdapter) -> Delivery:
        """Make an open draft the reply; where there is none, or it cannot become this reply, post it."""
        run_id = row.run_id or ""
        draft = self._drafts.get(run_id)
        if draft is None:
            return await self._post(adapter.post(reply))
        self._put_off.pop(run_id, None)
        outcome = await self._post(draft.finish(reply))
        if isinstance(outcome, Rejected):
            await self.detach(run_id)  # it is not the reply: nothing half may stand beside it
        elif not isinstance(outcome, RetryLater | InDoubt):
            self._drafts.pop(run_id, None)
        if outcome is not None:
            return outcome
        return await self._post(adapter.post(await self._fit(claim, row, reply, adapter)))

    async def _fit(self, claim: Claim, row: OutboxItem, reply: Reply, adapter: ChatAdapter) -> Reply:
        """Return what of a whole answer fits into the first post; the other parts are queued behind it."""
        if row.run_id is None or reply.key != f"{row.run_id}/1" or _is_short(reply.text, adapter.limits):
            return reply
        # some texts take seconds to be cut, and nothing else must wait for that
        parts = await asyncio.to_thread(
            split_reply, reply, run_id=row.run_id, limits=adapter.limits, now=self._clock.now()
        )
        if len(parts) == 1:
            return reply
        await self._store.split_outbox(claim, row.id, parts)
        return load_reply(parts[0].body)

    def _keep(self, run_id: str) -> None:
        """Let a draft wait for the next try to finish it; the oldest of too many are left to ``discard``."""
        if run_id in self._drafts:
            self._put_off[run_id] = None
        while len(self._put_off) > MOST_PUT_OFF:
            oldest = next(iter(self._put_off))
            del self._put_off[oldest], self._drafts[oldest]

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
                    if isinstance(adapter, CompletesPosts):
                        await _within(CALL_TIMEOUT_S, adapter.complete_post(reply, remote_id))
                    await self._found(claim, row, remote_id)
                    return True
                case None if before is None:
                    break
                case InDoubt(reason=reason):
                    log.warning("reply_in_doubt", thread=row.thread_key, reason=reason)
        if isinstance(found, InDoubt):
            self._drafts.pop(row.run_id or "", None)  # it may be the answer, so it stays
            await self._give_up(claim, row, UNKNOWN_DELIVERY, reason=f"delivery unknown: {found.reason}")
            return True
        if row.run_id is not None:
            await self.detach(row.run_id)
            await self.discard(claim, row.run_id)
        after_s = 0.0 if sent <= 1 else min(RETRY_CAP_S, 2.0 ** min(sent - 1, 10))
        await self._put_back(claim, row, reason="not posted before", after_s=after_s)
        return False

    async def _found(self, claim: Claim, row: OutboxItem, remote_id: str) -> None:
        """Record that a post is there; a draft that it did not become of goes."""
        if row.run_id is not None:
            self._drafts.pop(row.run_id, None)
            self._put_off.pop(row.run_id, None)
            await self.discard(claim, row.run_id, unless=remote_id)
        await self._deliver(claim, row, remote_id)

    # -- the platform, with an end to every wait -----------------------------------------------------

    async def _post(self, call: Awaitable[T]) -> T | InDoubt:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S) as timer:
                return await call
        except TimeoutError:
            if not timer.expired():
                raise
            return InDoubt(reason=f"the platform took more than {CALL_TIMEOUT_S:g} s")

    async def _find(self, adapter: ChatAdapter, reply: Reply) -> Delivered | InDoubt | None:
        return await self._post(adapter.find_posted(reply.thread, reply.key))

    # -- the row -------------------------------------------------------------------------------------

    async def _deliver(self, claim: Claim, row: OutboxItem, remote_id: str) -> None:
        """Record that a post is there; the thread below a report's headline begins with the same transaction."""
        thread = ThreadRef.parse_key(row.thread_key)
        sequel = None
        if row.run_id is not None and thread.thread.startswith(REPORT_THREAD):
            sequel = await self._store.load_sequel(row.run_id)
        if row.run_id is None or sequel is None:
            await self._finish(claim, row, OutboxState.DELIVERED, remote_id=remote_id)
            return
        adapter = self._adapters[thread.platform]
        below = replace(thread, thread=remote_id)
        if isinstance(adapter, HasPlaces):
            below = adapter.thread_below(thread, remote_id)
        now = self._clock.now()
        build = partial(build_opening, sequel, thread=below, limits=adapter.limits, run_id=row.run_id, now=now)
        opening = await asyncio.to_thread(build)  # a long text takes its time to be cut
        await self._store.open_thread(claim, row.id, row.run_id, opening, remote_id=remote_id, now=now)
        self.delivered += 1

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


def _is_short(text: str, limits: Limits) -> bool:
    """True for a text that certainly fits into one post, as quickly as that can be told."""
    if len(text) > limits.text_max // 4:
        return False
    return limits.measure is None or limits.measure(text) <= limits.text_max


async def _within(seconds: float, call: Awaitable[None]) -> None:
    """Wait for something that may as well be left undone."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await call
