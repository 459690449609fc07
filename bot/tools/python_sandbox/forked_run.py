"""One run that a zygote forked, as the bot holds it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from bot.tools.python_sandbox.process import Exit


class ZygoteBroken(Exception):
    """The zygote does not do what it should. It has been killed; a new one may be started."""


class ForkedRun:
    """One run that a zygote forked, held by a pidfd.

    Args:
        pidfd: of its process; closed here.
        on_silence: called when it is dead and the zygote does not say so.
        patience_s: how long that is waited for.
    """

    def __init__(self, pidfd: int, on_silence: Callable[[], object], patience_s: float) -> None:
        self._patience_s = patience_s
        self.pid = _find_pid(pidfd)
        """In the bot's own process namespace; 0 when it had ended before it could be looked up."""
        self._pidfd = pidfd
        self._on_silence = on_silence
        self._dead = False
        self._broken: ZygoteBroken | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(pidfd, self._died)

    def kill(self) -> None:
        """Send SIGKILL; nothing happens when it has ended."""
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when it has ended."""
        if not self._exit.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    @property
    def ended(self) -> bool:
        """Whether it is gone."""
        return self._exit.done()

    async def wait(self) -> Exit:
        """Wait until it is gone. May be called by several tasks; cancelling one leaves the run alone."""
        return await asyncio.shield(self._exit)

    def settle(self, result: Exit) -> None:
        """Take from the zygote how it ended."""
        if not self._exit.done():
            self._close()
            self._exit.set_result(result)

    def abandon(self, reason: ZygoteBroken) -> None:
        """Kill it; once it is dead its waiters are told that nobody knows how it ended."""
        self.kill()
        self._broken = reason
        if self._dead:
            self._fail(reason)

    def _died(self) -> None:
        self._dead = True
        asyncio.get_running_loop().remove_reader(self._pidfd)
        if self._broken is not None:
            self._fail(self._broken)
        else:
            self._silence = asyncio.get_running_loop().call_later(self._patience_s, self._on_silence)

    def _fail(self, reason: ZygoteBroken) -> None:
        self.settle(Exit(code=-signal.SIGKILL, broken=str(reason)))

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        if self._silence is not None:
            self._silence.cancel()


def _find_pid(pidfd: int) -> int:
    """Return what process a pidfd stands for, as seen from here (pidfd_open(2), ``/proc/PID/fdinfo``)."""
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
        if line.startswith("Pid:"):
            return max(int(line.split()[1]), 0)
    return 0
