"""A console on a terminal or a pipe: ``python -m agent_core``, ``hermod chat`` and ``hermod demo`` share it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

from agent_core.errors import AgentError
from agent_core.runtime import events

QUIT = frozenset(("/quit", "/exit", "/q", "quit", "exit", "q"))
ARGUMENTS_CHARS = 300
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

Command = Callable[[str], Awaitable[str]]
"""Takes what was typed after a command's name and returns what to show; the docstring is its help, on one line."""


class StreamPrinter:
    """Shows a run while it works: tool calls as they run, text as it comes. An ``EventSink``."""

    def __init__(self) -> None:
        self._streamed = ""

    def __call__(self, event: events.RunEvent) -> None:
        """Show one event."""
        match event:
            case events.TextDelta(text=text):
                self._streamed += clean(text)
                sys.stdout.write(clean(text))
                sys.stdout.flush()
            case events.ToolStarted(call=call):
                more = "…" if len(call.arguments) > ARGUMENTS_CHARS else ""
                self._note(f"{call.name} {call.arguments[:ARGUMENTS_CHARS]}{more}")
            case events.ToolFinished(result=result):
                mark = "done" if result.ok else f"failed: {result.error_code}"
                self._note(f"{result.name} {mark} in {result.duration_s:.2f} s")
            case events.AnswerRestarted(reason=reason):
                self._note(f"the answer starts again: {reason}")
            case events.Summarized(summary=summary):
                self._note(f"the oldest messages are now a summary, which /summary corrects: {summary.text}")
            case events.MessageInjected(message=message):
                self._note(f"taken into the run: {message.content}")

    def _note(self, text: str) -> None:
        show(("\n" if self._streamed and not self._streamed.endswith("\n") else "") + f"  … {text}")
        self._streamed = ""

    def finish(self, answer: str) -> None:
        """End the answer; it is shown whole unless it was streamed."""
        if self._streamed and self._streamed.strip() == clean(answer).strip():
            answer = "" if self._streamed.endswith("\n") else "\n"
        elif self._streamed:
            answer = f"\n{answer}"
        self._streamed = ""
        show(answer)


def clean(text: str) -> str:
    """Return text without what could drive a terminal: control characters and overrides of direction."""
    return _CONTROL.sub("", text)


def show(text: str) -> None:
    """Write text, cleaned, and end its line."""
    sys.stdout.write(text and clean(text).rstrip("\n") + "\n")
    sys.stdout.flush()


class LineReader:
    """Reads lines of standard input in a thread that never keeps the process alive; it reads only when asked."""

    def __init__(self) -> None:
        self._loop, self._wanted = asyncio.get_running_loop(), threading.Semaphore(0)
        self._lines: asyncio.Queue[str] = asyncio.Queue(maxsize=1)
        threading.Thread(target=self._read_all, daemon=True, name="stdin").start()

    async def read(self) -> str:
        """Return the next line with its end, or an empty text at the end of the input."""
        if sys.stdin is not None and sys.stdin.isatty():
            sys.stdout.write("\nyou> ")
            sys.stdout.flush()
        self._wanted.release()
        return await self._lines.get()

    def _read_all(self) -> None:
        # not input(): while it waits, its locks are in the way of the process's end, and some bytes are errors to it
        held = b""
        while True:
            self._wanted.acquire()
            while b"\n" not in held and (data := _read_some()):
                held += data
            line, end, held = held.partition(b"\n")
            try:
                asyncio.run_coroutine_threadsafe(self._lines.put((line + end).decode(errors="replace")), self._loop)
            except RuntimeError:  # the loop has ended; so does the process
                return


def _read_some() -> bytes:
    try:
        return os.read(0, 65536)
    except OSError:  # it is closed, or the terminal is gone
        return b""


async def converse(
    ask: Callable[[str], Awaitable[str]],
    commands: Mapping[str, Command],
    printer: StreamPrinter,
    *,
    stop: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Read lines and answer them until the person leaves.

    Args:
        ask: answers a line. Ctrl-C cancels it, and ends the console between two runs.
        commands: by name, such as ``/usage``; what that says is shown at the end.
        printer: shows the runs, and the text that ``ask`` returned.
        stop: ends what a cancelled ``ask`` left open.
    """
    lines = LineReader()
    while line := await _wait(lines.read()):
        name, _, rest = line.strip().partition(" ")
        if line.strip().lower() in QUIT:
            break
        if name in commands:
            show(await commands[name](rest.strip()))
        elif name.startswith("/"):
            show(("" if name == "/help" else f"there is no command {name}\n") + describe(commands))
        elif name:
            answer = await _wait(ask(line.strip()))
            if answer is None and stop is not None:
                await stop()
            printer.finish("Stopped." if answer is None else answer)
    show(await commands["/usage"](""))


def describe(commands: Mapping[str, Command]) -> str:
    """Return the help: a line for each command."""
    lines = [f"  {name:<11} {command.__doc__}" for name, command in commands.items()]
    return "\n".join(
        [*lines, "  /quit       end the console, as Ctrl-D and Ctrl-C do on an empty line; Ctrl-C stops a run"]
    )


async def _wait(work: Awaitable[str]) -> str | None:
    """Return what comes of ``work``, why it failed, or None when Ctrl-C ended it."""
    task = asyncio.ensure_future(work)
    with interrupts(task.cancel):
        try:
            await asyncio.wait({task})
        finally:
            if task.cancel():
                await asyncio.wait({task})
    try:
        return None if task.cancelled() else task.result()
    except AgentError as e:  # a vendor's library that is not installed, say
        return f"failed: {e}"


@contextmanager
def interrupts(cancel: Callable[[], object]) -> Iterator[None]:
    """Let Ctrl-C call ``cancel`` instead of ending the process; what it did before is put back at the end."""
    before, loop = signal.getsignal(signal.SIGINT), asyncio.get_running_loop()
    signal.signal(signal.SIGINT, lambda number, frame: loop.call_soon_threadsafe(cancel))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
