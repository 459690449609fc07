"""Run a blocking function beside the event loop, in a way that a hanging one harms nobody.

``asyncio.to_thread`` would not do: its pool has few threads (a handful of hung calls blocks every later one,
name look-ups included), and the interpreter waits for them at exit.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger("agent_core.tools")


class _Outcome:
    """What the thread ends with; an exception is carried as a value (a future refuses StopIteration)."""

    __slots__ = ("error", "value")

    def __init__(self) -> None:
        self.value: object = None
        self.error: BaseException | None = None


async def run_in_thread(function: Callable[[], object], *, label: str) -> object:
    """Call ``function`` in a daemon thread of its own and wait for what it returns or raises.

    Context variables are copied into the thread. When the wait is cancelled the thread cannot be stopped: it
    is abandoned and logged, and logged once more if it ends after all; its result is dropped.

    Args:
        function: called without arguments.
        label: names the work in thread lists and logs.

    Raises:
        RuntimeError: the function tried to end the process, or raised StopIteration.
    """
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[_Outcome] = loop.create_future()
    surroundings = contextvars.copy_context()
    abandoned = threading.Event()
    started = time.monotonic()

    def report(outcome: _Outcome) -> None:
        if not finished.done():
            finished.set_result(outcome)

    def work() -> None:
        outcome = _Outcome()
        try:
            outcome.value = surroundings.run(function)
        except BaseException as error:  # noqa: BLE001  # part of the tool executor's place: the waiter raises it
            outcome.error = error
        if abandoned.is_set():
            logger.warning("abandoned thread of %s ended after %.1f s", label, time.monotonic() - started)
            return
        try:
            loop.call_soon_threadsafe(report, outcome)
        except RuntimeError:  # the loop was closed meanwhile; nobody waits any more
            logger.warning("thread of %s outlived its event loop", label)

    threading.Thread(target=work, name=f"tool {label}", daemon=True).start()
    try:
        outcome = await finished
    except asyncio.CancelledError:
        abandoned.set()
        logger.warning("thread of %s was abandoned: it did not end in time and may still run", label)
        raise
    match outcome.error:
        case None:
            return outcome.value
        case StopIteration() | SystemExit() | KeyboardInterrupt() | GeneratorExit() as error:
            raise RuntimeError(f"the tool raised {type(error).__name__}") from error
        case error:
            raise error
