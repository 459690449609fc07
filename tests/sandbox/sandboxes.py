"""Real backends for the tests, and what can be seen of their processes from outside."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bot.tools.python_sandbox.child.landlock import why_no_landlock
from bot.tools.python_sandbox.forking import ForkingBackend, Tuning
from bot.tools.python_sandbox.interpreter import find_interpreter
from bot.tools.python_sandbox.landlock_backend import LandlockBackend
from bot.tools.python_sandbox.namespaces_backend import NamespacesBackend, find_bubblewrap
from bot.tools.python_sandbox.types import SandboxLimits, SandboxOutcome, SandboxRun

KINDS = ("landlock", "namespaces")
FEW_PACKAGES = ("random",)
SOON_S = 60.0
"""No wait is longer; on an idle machine none takes a second."""


def why_missing(kind: str) -> str:
    """Return why a backend cannot be tested here; empty if it can."""
    if reason := why_no_landlock():
        return reason
    return "no bubblewrap: apt-get install bubblewrap" if kind == "namespaces" and not find_bubblewrap() else ""


class Sandbox:
    """One backend, and folders for its runs."""

    def __init__(self, backend: ForkingBackend, root: Path) -> None:
        self.backend, self.root = backend, root
        self._count = 0

    def new_folder(self, **inputs: str) -> Path:
        """Make a run's folder with these input files, by name without the dot."""
        self._count += 1
        folder = self.root / f"run-{self._count}"
        for name in ("input", "output"):
            (folder / name).mkdir(parents=True, mode=0o700)
        for name, content in inputs.items():
            (folder / "input" / name).write_text(content)
        return folder

    async def run(self, code: str, *, folder: Path | None = None, session: str = "", **limits: Any) -> SandboxOutcome:
        """Run a program; limits are generous where the test does not say."""
        wanted = SandboxLimits(**{"wall_s": SOON_S, "cpu_s": 20.0, **limits})
        run = SandboxRun(code=code, folder=folder or self.new_folder(), limits=wanted, session=session)
        async with asyncio.timeout(2 * SOON_S):
            return await self.backend.run(run)


class OpenSandbox:
    """Opens backends and remembers them."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="hermod-sandbox-test-"))
        self._opened: list[ForkingBackend] = []

    async def __call__(self, kind: str, **tuning: Any) -> Sandbox:
        """Open a backend; its font list and compiled modules are shared by all of one test."""
        cache = self._root / "cache"
        cache.mkdir(exist_ok=True, mode=0o700)
        wanted = Tuning(**{"cache": cache, "preload": FEW_PACKAGES, **tuning})
        interpreter = await find_interpreter(None)
        backend: ForkingBackend = (
            LandlockBackend(interpreter, wanted)
            if kind == "landlock"
            else NamespacesBackend(interpreter, wanted, find_bubblewrap()[0])
        )
        self._opened.append(backend)
        return Sandbox(backend, self._root / f"{kind}-{len(self._opened)}")

    async def aclose(self) -> None:
        """Close all, and remove what they left."""
        for backend in self._opened:
            await backend.aclose()
        shutil.rmtree(self._root, ignore_errors=True)


# -- looking from outside --------------------------------------------------------------------------

NAME_ITSELF = "import ctypes; ctypes.CDLL(None).prctl(15, {name!r}.encode(), 0, 0, 0)\n"
"""Code that gives its process a name (at most 15 characters) that ``find_named`` finds."""


UNTIL_TOLD = (
    "import signal as _s, time as _t\n_told = []\n_s.signal(_s.SIGWINCH, lambda *_: _told.append(1))\n"
    + NAME_ITSELF
    + "while not _told: _t.sleep(0.01)\n"
)
"""Code that gives its process a name, and goes on when ``tell`` is told that name."""


def tell(name: str) -> None:
    """Let the process with this name go on."""
    (pid,) = find_named(name)
    os.kill(pid, signal.SIGWINCH)


def find_named(name: str) -> list[int]:
    """Return the processes of this machine with a name."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and Path("/proc", entry, "comm").read_text().strip() == name and is_alive(int(entry)):
                found.append(int(entry))
        except OSError:  # it ended meanwhile
            continue
    return found


def find_descendants(pid: int) -> list[int]:
    """Return the children of a process, and theirs."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for path in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            numbers = [int(number) for number in path.read_text().split()]
            found += numbers
            waiting += numbers
    return found


def is_alive(pid: int) -> bool:
    """Tell whether a process is there and is not only waiting to be reaped by whoever took it over."""
    try:
        state = Path(f"/proc/{pid}/status").read_text().partition("\nState:\t")[2][:1]
        return state not in {"Z", "X", ""}
    except OSError:
        return False


async def watch_loop(*tasks: asyncio.Task[Any]) -> None:
    """Wait until all is done, and see that the event loop went on meanwhile.

    Now and then it stands still because the machine does something else; what holds it up does so again and again, or
    for as long as a run takes.

    Raises:
        AssertionError: it was held up.
    """
    pauses = []
    while not all(task.done() for task in tasks):
        began = time.monotonic()
        await asyncio.sleep(0.005)
        pauses.append(time.monotonic() - began - 0.005)
    assert len(pauses) > 20
    assert sorted(pauses)[int(len(pauses) * 0.95)] < 5 * 0.05
    assert max(pauses) < 1.0


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait until something is so.

    Raises:
        AssertionError: it did not become so.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + SOON_S
    while not condition():
        assert loop.time() < end, f"waited in vain until {what}"
        await asyncio.sleep(0.01)
