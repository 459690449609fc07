"""Wait for foreign code no longer than allowed, whether it awaits or blocks; a hanging one harms nobody.

``asyncio.to_thread`` would not do: its pool has few threads (a handful of hung calls blocks every later one,
name look-ups included), and the interpreter waits for them at exit.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Awaitable, Callable

from agent_core.errors import AgentError

logger = logging.getLogger("agent_core.tools")

STOP_GRACE_S = 0.2
"""How long work that was cancelled may clean up before it is abandoned."""

_abandoned: set[asyncio.Task[object]] = set()


class TimedOut(AgentError):
    """The work did not end within its time; it was cancelled."""


class CancelledItself(AgentError):
    """The work ended in a cancellation that nobody asked for."""


async def run_bounded(work: Awaitable[object], *, timeout_s: float, label: str) -> object:
    """Await ``work`` in a task of its own, so that it can be left behind when it will not stop.

    When it is too late, or the caller is cancelled, the work is cancelled and gets ``STOP_GRACE_S`` to clean
    up; if it still goes on, it is abandoned and logged.

    Args:
        work: awaited once.
        timeout_s: seconds from now.
        label: names the work in task lists and logs.

    Raises:
        TimedOut: it did not end in time.
        CancelledItself: it was cancelled from within.
        RuntimeError: it tried to end the process.
        Exception: what the work raised; a group with one error in it is opened.
    """
    task = asyncio.create_task(_contain(work), name=f"tool {label}")
    try:
        done, _ = await asyncio.wait((task,), timeout=timeout_s)
    except asyncio.CancelledError:
        await _stop(task, label)
        raise
    if not done:
        await _stop(task, label)
        raise TimedOut(f"{label} did not end within {timeout_s:.3g} s")
    if task.cancelled():
        raise CancelledItself(f"{label} cancelled its own work")
    return task.result()


async def _contain(work: Awaitable[object]) -> object:
    try:
        return await work
    except SystemExit as error:  # would end the event loop, and with it every other run
        raise RuntimeError("the tool tried to end the program") from error
    except ExceptionGroup as group:  # a task group inside the work wraps also a single ToolFailed
        inner: Exception = group
        while isinstance(inner, ExceptionGroup) and len(inner.exceptions) == 1:
            inner = inner.exceptions[0]
        raise inner from group


async def _stop(task: asyncio.Task[object], label: str) -> None:
    _abandoned.add(task)
    task.add_done_callback(_forget)
    task.cancel()
    await asyncio.wait((task,), timeout=STOP_GRACE_S)
    if not task.done():
        logger.warning("%s did not stop when it was cancelled and may still run; it was abandoned", label)


def _forget(task: asyncio.Task[object]) -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()  # looked at, so that asyncio does not report it as lost


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
