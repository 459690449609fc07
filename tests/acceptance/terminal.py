"""A command on a terminal of its own, in folders of its own, so that everything it leaves behind can be seen."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import sys
import tempfile
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.integration.cli.command import build_environ

# A terminal sends its Ctrl-C to the group of the process whose controlling terminal it is.
_TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Place:
    """Where a command works (``work``) and where it puts what is temporary (``temporary``)."""

    def __init__(self, root: Path) -> None:
        self.work = root / "work"
        self.temporary = root / "tmp"
        self.work.mkdir()
        self.temporary.mkdir()
        for folder in (root, self.temporary):
            folder.chmod(0o1777)  # a server that root starts runs as somebody else

    def list_files(self) -> list[str]:
        """Everything in both folders."""
        return sorted(p.name for folder in (self.work, self.temporary) for p in folder.iterdir())

    def list_processes(self) -> dict[int, str]:
        """Every process that was started in the temporary folder or names it: servers, their guards, initdb."""
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit():
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if str(self.temporary) in f"{command} {os.readlink(entry / 'cwd')}":
                        found[int(entry.name)] = command
        return found

    async def wait_processes_gone(self, timeout_s: float = 60.0) -> None:
        """Wait until nothing of the command runs; others' ends have no event, so it is looked at again and again."""
        async with asyncio.timeout(timeout_s):
            while self.list_processes():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def wait_for(self, pattern: str, timeout_s: float = 60.0) -> Path:
        """Wait until a file that fits ``pattern`` is in the temporary folder."""
        async with asyncio.timeout(timeout_s):
            while not (found := list(self.temporary.glob(pattern))):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return found[0]


class Terminal:
    """A running command and the screen that it writes to; ``screen`` holds everything that it has shown."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self.process = process
        self.screen = ""
        self._seen = 0
        self._master = master
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
            self._ended.set()
        self.screen += data.decode(errors="replace").replace("\r\n", "\n")
        self._changed.set()

    def type(self, text: str) -> None:
        """Press keys; ``\\x03`` is Ctrl-C."""
        os.write(self._master, text.encode())

    async def wait_for(self, text: str, timeout_s: float = 60.0) -> str:
        """Wait until ``text`` is shown, and return what was shown since the last wait."""
        async with asyncio.timeout(timeout_s):
            while (at := self.screen.find(text, self._seen)) < 0:
                self._changed.clear()
                await self._changed.wait()
        before, self._seen = self._seen, at + len(text)
        return self.screen[before : self._seen]

    async def wait(self, timeout_s: float = 60.0) -> int:
        """Wait for the command's end, and for all that it has shown; return its exit code."""
        async with asyncio.timeout(timeout_s):
            code = await self.process.wait()
        with contextlib.suppress(TimeoutError):  # something of it may hold the terminal open
            async with asyncio.timeout(2):
                await self._ended.wait()
        return code


@asynccontextmanager
async def open_place() -> AsyncIterator[Place]:
    """Folders with short names (a socket's path has room for a hundred characters), removed at the end."""
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as root:
        yield Place(Path(root))


@asynccontextmanager
async def open_terminal(place: Place, *words: str, module: str = "bot", **variables: str) -> AsyncIterator[Terminal]:
    """Run ``hermod`` (or another ``module``) with ``words`` in ``place`` on a terminal, and kill it at the end."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _TAKE_TERMINAL, "-m", module, *words),
        cwd=place.work,
        env=build_environ(TMPDIR=str(place.temporary), TERM="dumb", **variables),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(master)
        os.close(master)
        await place.wait_processes_gone()
