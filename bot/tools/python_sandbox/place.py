"""Where one run keeps its files while it runs."""

from __future__ import annotations

from typing import Protocol

from bot.tools.python_sandbox.process import FolderUse
from bot.tools.python_sandbox.types import SandboxRun


class Place(Protocol):
    """The folder of a run, in the form that a backend gives it."""

    path: str
    """As the code sees it."""
    input: str
    """Of ``input/``, as the code sees it; empty: there is none."""
    watched: str
    """On the host, where its growth has to be bounded by the parent; empty: the kernel bounds it."""
    before: FolderUse
    """What it held before the run."""

    async def bring_in(self, run: SandboxRun) -> None:
        """Show the code what is in the run's folder; no program is running.

        Raises:
            SandboxUnavailable: it does not fit, or cannot be read; nothing was run.
        """
        ...

    async def hand_back(self, run: SandboxRun, *, failed: bool) -> bool:
        """Put what the run left into its folder, and tell whether it was too much; no program is running.

        Args:
            run: the one that ended.
            failed: it ended with an error; a file system that is full may be why.
        """
        ...
