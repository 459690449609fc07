"""Where a runner keeps the files of its runs: one folder each while it runs, and one for each kept interpreter."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bot.tools.python_sandbox.folders import remove_tree
from bot.tools.python_sandbox.interpreter import check_folder
from bot.tools.python_sandbox.runner_files import uninterrupted
from bot.tools.python_sandbox.types import SandboxUnavailable

SESSION_S = 900.0
"""A session's folder is dropped so long after its last run; its interpreter has been ended by then."""

MOST_SESSIONS = 64


class RunFolders:
    """The folders of one runner, which is alone in its root. ``open`` and ``close`` block: call them in a thread.

    Args:
        root: a private folder; made if it is missing.
        monotonic: the clock, in seconds.
    """

    def __init__(self, root: Path, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self._monotonic = monotonic
        self._lock = -1
        self._used: dict[str, float] = {}
        self._busy: Counter[str] = Counter()

    @property
    def state(self) -> Path:
        """Where the backend keeps what outlives a restart."""
        return self.root / "state"

    def open(self) -> None:
        """Take the root, and drop what an earlier process left in it.

        Raises:
            SandboxUnavailable: another runner has it, or it cannot be used.
        """
        try:
            check_folder(self.root)
            self._lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in ("runs", "sessions"):
                remove_tree(self.root / name)
                (self.root / name).mkdir(mode=0o700)
        except BlockingIOError as error:
            self.close()
            raise SandboxUnavailable(f"another runner uses {self.root}; give each its own sandbox.folder") from error
        except OSError as error:
            self.close()
            raise SandboxUnavailable(f"{self.root} cannot be used: {error.strerror or error}") from error

    def close(self) -> None:
        """Give the root back, empty of runs."""
        if self._lock < 0:
            return
        with contextlib.suppress(OSError):
            for name in ("runs", "sessions"):
                remove_tree(self.root / name)
        os.close(self._lock)
        self._lock = -1

    @asynccontextmanager
    async def new_run(self) -> AsyncIterator[Path]:
        """Make the folder of one run; it is removed in the end.

        Raises:
            OSError: it cannot be made.
        """
        folder = self.root / "runs" / secrets.token_hex(16) / "run"
        try:
            await uninterrupted(folder.mkdir, mode=0o700, parents=True)
            yield folder
        finally:
            await uninterrupted(_drop, folder.parent)

    @asynccontextmanager
    async def hold_session(self, session: str) -> AsyncIterator[Path]:
        """Make or find the folder of a kept interpreter, which stays as it is while that lives.

        Raises:
            OSError: it cannot be made.
        """
        name = hashlib.sha256(session.encode()).hexdigest()
        folder = self.root / "sessions" / name / "run"
        self._busy[name] += 1
        try:
            await uninterrupted(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
            yield folder
        finally:
            self._busy[name] -= 1
            self._used[name] = self._monotonic()

    async def sweep(self) -> None:
        """Drop the folders of sessions that ended, and of the oldest ones beyond ``MOST_SESSIONS``."""
        idle = sorted((used, name) for name, used in self._used.items() if not self._busy[name])
        oldest = self._monotonic() - SESSION_S
        for at, (used, name) in enumerate(idle):
            if used < oldest or len(idle) - at > MOST_SESSIONS:
                del self._used[name], self._busy[name]
                gone = self.root / "runs" / secrets.token_hex(16)
                with contextlib.suppress(OSError):
                    os.rename(self.root / "sessions" / name, gone)  # at once, should it begin anew meanwhile
                await uninterrupted(_drop, gone)


def _drop(folder: Path) -> None:
    with contextlib.suppress(OSError):  # what stays is removed by the next start
        remove_tree(folder)
