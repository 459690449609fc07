"""Thumbs under an answer: what people thought of it is kept, one opinion a person, the newest counts."""

from __future__ import annotations

from typing import Literal

import structlog

from adapters.chat import Action, ThreadRef
from agent_core.context import Clock
from bot.storage.base import FeedbackRow, Store

log = structlog.get_logger("hermod.feedback")

FEEDBACK = "feedback"
"""Name of the ``Action``; its value is the run's id, a slash, and ``up`` or ``down``."""

THANKS_UP = "Thank you: I noted that this answer helped."
THANKS_DOWN = (
    "Thank you: I noted that this answer did not help. Tell me in the thread what is wrong with it, and I try again."
)
UNKNOWN = "I do not know that answer any more, so I could not note it."


class FeedbackBox:
    """Takes pressed thumbs. Safe to call concurrently.

    Args:
        store: where opinions are kept.
        clock: time.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.counted: dict[Literal["up", "down"], int] = {"up": 0, "down": 0}

    async def take(self, action: Action) -> str:
        """Keep an opinion, and return the words that acknowledge it to the one who pressed.

        A run's id is believed only in the channel of its thread: the value came in with a payload.
        """
        run_id, _, word = action.value.rpartition("/")
        value = _read_value(word)
        found = await self._store.load_run(run_id) if run_id and value else None
        if value is None or found is None or found[0].run_id != run_id or not _same_place(action, found[0].thread_key):
            log.info("feedback_ignored", thread=action.thread.key)
            return UNKNOWN
        author = f"{action.thread.platform}:{action.author.id}"
        await self._store.save_feedback(
            FeedbackRow(run_id=run_id, thread_key=found[0].thread_key, author=author, value=value, at=self._clock.now())
        )
        self.counted[value] += 1
        log.info("feedback_taken", thread=found[0].thread_key, run_id=run_id, value=value)
        return THANKS_UP if value == "up" else THANKS_DOWN


def _read_value(word: str) -> Literal["up", "down"] | None:
    match word:
        case "up":
            return "up"
        case "down":
            return "down"
        case _:
            return None


def _same_place(action: Action, thread_key: str) -> bool:
    at, run = action.thread, ThreadRef.parse_key(thread_key)
    return (at.platform, at.workspace, at.channel) == (run.platform, run.workspace, run.channel)
