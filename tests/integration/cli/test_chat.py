"""The console: it streams, remembers, stops a run on Ctrl-C and ends on quit."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from tests.integration.cli.command import Done, build_environ, hermod
from tests.servers.openai import Failure, OpenAIServer, Request, text_of


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


async def test_what_a_thread_remembers_is_shown_corrected_and_forgotten(tmp_path: Path) -> None:
    (tmp_path / "hermod.toml").write_text("[limits]\nmemory_tokens = 1000\n")
    async with OpenAIServer(models=()) as server:
        server.on(user="words, or 200 characters").text("People spoke of disks.")
        server.on(where=lambda r: any("spoke of tapes" in text_of(m) for m in r.messages)).text("I know of tapes.")
        server.on().text("noted")

        async def run(*words: str, stdin: str = "") -> Done:
            model = partial(hermod, OPENAI_API_KEY="sk-local-key", OPENAI_BASE_URL=server.base_url)
            return await asyncio.to_thread(model, tmp_path, *words, stdin=stdin)

        async def chat(*lines: str) -> str:
            done = await run("chat", stdin="\n".join(lines))
            assert (done.code, done.err) == (0, "")
            return done.out

        shown = await chat(*["disk " * 200] * 6, "/summary", "/summary They spoke of tapes.", "/summary", "/providers")
        assert "  … the oldest messages are now a summary, which /summary corrects: People spoke of disks." in shown
        assert "\nPeople spoke of disks. (written by: model)\ncorrected\nThey spoke of tapes.\n" in shown
        assert re.search(r"openai \(gpt-4o-mini\): breaker closed; [78] requests, 0 errors", shown)

        show = ("sessions", "show", "terminal:local/chat/main")
        summary = (await run(*show, "--json")).data["summary"]
        assert isinstance(summary, dict)
        assert summary["text"] == "They spoke of tapes."
        assert summary["author"] == "terminal:local"
        assert summary["tokens_after"] < summary["tokens_before"]
        assert "summary up to " in (await run(*show)).out

        shown = await chat("and now?", "/usage", "/forget", "/summary", "/trace", "and now?", "/usage")
        before, receipt, after = shown.partition("Usage numbers, feedback and the audit log stay; they hold no text.\n")
        assert "I know of tapes." in before
        assert "I have forgotten this thread:\n- 14 messages of its history" in before
        assert receipt
        assert after.startswith("there is no summary")
        assert "no run yet" in after
        assert "noted" in after
        assert [m["role"] for m in server.requests[-1].messages] == ["system", "user"]
        tokens = [int(number) for number in re.findall(r"runs in this thread, (\d+) tokens, \$", shown)]
        assert 0 < tokens[0] < tokens[1]
        assert server.violations == []


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

    async def wait_for(self, text: str, timeout_s: float = 60.0) -> None:
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
        async with asyncio.timeout(60):
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
