"""Locks code in with Landlock, seccomp and limits alone: no extra program, no privilege, also inside a container.

A run works in its own folder on the host, whose growth is bounded by looking at it ten times a second. What other runs
have is out of its reach by the same rules: files, processes, sockets and signals. What is left to see is whether a file
exists, and how large it is (stat(2) is not Landlock's to decide).
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bot.tools.python_sandbox.forking import ForkingBackend, Tuning
from bot.tools.python_sandbox.interpreter import Interpreter, build_environ
from bot.tools.python_sandbox.limiter import is_over
from bot.tools.python_sandbox.place import Place
from bot.tools.python_sandbox.pool import ZygotePool
from bot.tools.python_sandbox.process import EMPTY, measure_folder
from bot.tools.python_sandbox.types import SandboxLimits, SandboxRun, SandboxUnavailable
from bot.tools.python_sandbox.warm import Zygote

_MOST_BEFORE = 20_000


class LandlockBackend(ForkingBackend):
    """The child's own restrictions, without namespaces around them."""

    name = "landlock"
    # The bot looks at what a run has deleted but keeps open, which takes room on the disk: without privileges it can
    # only look into processes that are dumpable. Nobody else gains by it: runs have no /proc, no ptrace and no core.
    rules_left_out = ("dumpable",)

    def __init__(self, interpreter: Interpreter, tuning: Tuning) -> None:
        super().__init__(interpreter, tuning)
        self.fonts = str(tuning.cache)

    async def start_zygote(self, preload: tuple[str, ...]) -> Zygote:
        """Start a zygote on the host, with a clean environment."""
        environ = build_environ(str(self.tuning.cache))
        child = str(await self.find_child())
        return await Zygote.start(
            python=self.interpreter.executable,
            child=child,
            preload=preload,
            spare=True,
            environ=environ,
            reply_timeout_s=self.tuning.reply_timeout_s,
        )

    @asynccontextmanager
    async def open_place(self, pool: ZygotePool, run: SandboxRun) -> AsyncIterator[tuple[Zygote, Place]]:
        """Hold a zygote; the place is the run's own folder."""
        async with pool.hold() as (zygote, _):
            yield zygote, HostFolder(run.folder)


class HostFolder:
    """A run's folder on the host, given to the code as it is."""

    def __init__(self, folder: Path) -> None:
        self.path = self.watched = os.path.realpath(folder)
        found = os.path.join(self.path, "input")
        self.input = found if os.path.isdir(found) else ""
        self.before = EMPTY

    async def bring_in(self, run: SandboxRun) -> None:
        """Make ``input/`` read-only and remember what the folder holds."""
        await asyncio.to_thread(self._bring_in, run.folder)

    async def hand_back(self, run: SandboxRun, *, failed: bool) -> bool:
        """Let the bot write to ``input/`` again, and tell whether the run left too much."""
        return await asyncio.to_thread(self._hand_back, run.limits)

    def _bring_in(self, folder: Path) -> None:
        if os.path.realpath(folder) != self.path:
            raise SandboxUnavailable("a kept interpreter cannot change its folder; nothing was run")
        if not os.path.isdir(self.path):
            raise SandboxUnavailable(f"{folder} is not there; nothing was run")
        _set_modes(self.input, 0o555, 0o444)
        self.before = measure_folder(self.path, max_entries=_MOST_BEFORE)

    def _hand_back(self, limits: SandboxLimits) -> bool:
        _set_modes(self.input, 0o700, 0o600)
        now = measure_folder(self.path, max_entries=self.before.entries + limits.scratch_files)
        return is_over(limits, self.before, now)


def _set_modes(folder: str, folder_mode: int, file_mode: int) -> None:
    """Set the modes of a folder and of what is directly in it; links are left alone."""
    if not folder:
        return
    try:
        with os.scandir(folder) as listing:
            for entry in listing:
                kind = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISREG(kind):
                    os.chmod(entry.path, file_mode)
        os.chmod(folder, folder_mode)
    except (FileNotFoundError, NotADirectoryError):
        return  # the code may rename and replace it, which takes nothing from anyone but itself
