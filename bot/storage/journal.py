"""A run's journal in the store."""

from __future__ import annotations

from agent_core.context import Clock, JournalEntry, StepState
from bot.storage.base import Claim, Store


class StoreJournal:
    """The journal of one run, in the store, fenced by the thread's claim."""

    def __init__(self, store: Store, claim: Claim, run_id: str, clock: Clock) -> None:
        self._store = store
        self._claim = claim
        self._run_id = run_id
        self._clock = clock

    async def begin(self, entry: JournalEntry) -> JournalEntry | None:
        """Record the intent of a step, or return what is known of it."""
        return await self._store.begin_step(self._claim, self._run_id, entry, self._clock.now())

    async def finish(self, key: str, state: StepState, result: str) -> None:
        """Record how a step ended."""
        await self._store.finish_step(self._claim, self._run_id, key, state, result, self._clock.now())
