"""The console: it streams, remembers, stops a run on Ctrl-C and ends on quit."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.integration.cli.command import build_environ, hermod
from tests.servers.openai import Failure, OpenAIServer, Request


def test_a_conversation_is_remembered_across_consoles(tmp_path: Path) -> None:
    (tmp_path / "hermod.toml").write_text("")
    first = hermod(tmp_path, "chat", stdin="what is 17 * 23?\n/trace\n/tools\n/nonsense\n/quit\n")
    assert first.code == 0
    assert "391" in first.out
    assert "calculator" in first.out
    assert "there is no command /nonsense" in first.out
    second = hermod(tmp_path, "chat", stdin="and 18 * 23?\n")
    assert "414" in second.out
    assert "2 runs in this thread" in second.out
    elsewhere = hermod(tmp_path, "chat", "--thread", "other", stdin="quit\n")
    assert "0 runs in this thread" in elsewhere.out
    assert hermod(tmp_path, "chat", "--thread", "a b", stdin="").code == 2


class Terminal:
    """A console on a pseudo terminal."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self._process = process
        self._master = master
        self.shown = ""

    async def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    async def wait_for(self, text: str, timeout_s: float = 30.0) -> None:
        """Read until ``text`` was shown since the last time."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            while text not in self.shown:
                self.shown += (await loop.run_in_executor(None, os.read, self._master, 4096)).decode(errors="replace")
        self.shown = self.shown.partition(text)[2]


@asynccontextmanager
async def open_terminal(folder: Path, **variables: str) -> AsyncIterator[Terminal]:
    master, slave = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bot", "chat", cwd=folder, env=build_environ(**variables), stdin=slave, stdout=slave,
        stderr=slave,
    )  # fmt: skip
    os.close(slave)
    try:
        yield Terminal(process, master)
        async with asyncio.timeout(20):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(master)


async def test_ctrl_c_stops_the_run_and_not_the_console(tmp_path: Path) -> None:
    (tmp_path / "hermod.toml").write_text("")
    async with OpenAIServer(models=()) as server:
        asked = asyncio.Event()

        def hang(request: Request) -> Failure:
            asked.set()
            return Failure(500, "", "", hang=True)

        server.on(user="forever").dynamic(hang)
        server.on(user="now").text("here I am")
        variables = {"OPENAI_API_KEY": "sk-local-key", "OPENAI_BASE_URL": server.base_url}
        async with open_terminal(tmp_path, **variables) as terminal:
            await terminal.wait_for("you>")
            await terminal.type("think forever\n")
            await terminal.wait_for("think forever")
            await asyncio.wait_for(asked.wait(), 30)
            await terminal.interrupt()
            await terminal.wait_for("Stopped.")
            await terminal.wait_for("you>")
            await terminal.type("are you there now\n")
            await terminal.wait_for("here I am")
            await terminal.wait_for("you>")
            await terminal.interrupt()  # between runs it ends the console
            await terminal.wait_for("2 runs in this thread")
        assert server.violations == []
