"""``hermod chat``: the interactive console."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from adapters.chat import ThreadRef
from agent_core.observe import trace_as_text
from agent_core.runtime.events import RunEvent, TextDelta, ToolFinished, ToolStarted
from bot.cli.local import LocalThread, open_thread
from bot.cli.setup import print_error, print_text, set_up
from bot.commands import summarise
from bot.settings import Settings

HELP = """Commands: /tools  /trace  /usage  /help  /quit
Ctrl-C stops a run; on an empty line, Ctrl-D ends the console."""
QUIT = {"/quit", "/exit", "/q", "quit", "exit", "q"}


class StreamPrinter:
    """Shows a run in the terminal while it works: tool calls as they run, text as it comes."""

    def __init__(self) -> None:
        self.streamed = ""

    def __call__(self, thread_key: str, event: RunEvent) -> None:
        """Print one event."""
        match event:
            case TextDelta(text=text):
                self.streamed += text
                sys.stdout.write(text)
                sys.stdout.flush()
            case ToolStarted(call=call):
                self._line(f"  … {call.name} {call.arguments}")
            case ToolFinished(result=result):
                mark = "done" if result.ok else f"failed: {result.error_code}"
                self._line(f"  … {result.name} {mark} in {result.duration_s:.2f} s")
            case _:
                pass

    def _line(self, text: str) -> None:
        if self.streamed and not self.streamed.endswith("\n"):
            sys.stdout.write("\n")
        self.streamed = ""
        print_text(text)

    def finish(self, answer: str) -> None:
        """End the answer; print it whole unless it was streamed already."""
        if self.streamed.strip() == answer.strip() and answer:
            sys.stdout.write("\n")
        else:
            print_text(f"\n{answer}" if self.streamed else answer)
        self.streamed = ""


async def run_chat(thread: str, *, config: Path | None, verbose: bool) -> int:
    """Talk in a thread that outlives the console."""
    settings = set_up(config, verbose=verbose)
    try:
        ThreadRef(platform="terminal", workspace="local", channel="chat", thread=thread)
    except ValueError:
        print_error(f"hermod: {thread!r} cannot be the name of a thread; use letters, digits, - and _")
        return 2
    return await converse(settings, channel="chat", thread=thread, greeting=HELP)


async def converse(settings: Settings, *, channel: str, thread: str, greeting: str) -> int:
    """Read lines and answer them until the person leaves. Ctrl-C stops a run; between runs it ends the console."""
    printer = StreamPrinter()
    async with open_thread(settings, channel=channel, thread=thread, tap=printer) as local:
        print_text(greeting)
        lines = LineReader()
        while True:
            reading = asyncio.create_task(lines.read())
            with _interrupts(reading.cancel):
                await asyncio.wait({reading})
            line = "" if reading.cancelled() else (reading.result() or "")
            if reading.cancelled() or not line or line.strip().lower() in QUIT:
                break
            if line.startswith("/"):
                await _run_command(line.strip(), local)
            elif line.strip():
                await _answer(line.strip(), local, printer)
        await _print_usage(local)
    return 0


class LineReader:
    """Reads lines of standard input in a thread that never keeps the process alive."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str] = asyncio.Queue(maxsize=1)
        self._wanted = threading.Semaphore(0)
        threading.Thread(target=self._read_all, daemon=True, name="stdin").start()

    async def read(self) -> str:
        """Return the next line with its end, or an empty text at the end of the input."""
        self._wanted.release()
        return await self._lines.get()

    def _read_all(self) -> None:
        while True:
            self._wanted.acquire()
            try:
                line = input("\nyou> " if sys.stdin.isatty() else "") + "\n"
            except EOFError:
                line = ""
            try:
                asyncio.run_coroutine_threadsafe(self._lines.put(line), self._loop)
            except RuntimeError:  # the loop has ended; so does the process
                return


async def _answer(line: str, local: LocalThread, printer: StreamPrinter) -> None:
    task = asyncio.create_task(local.ask(line))
    with _interrupts(task.cancel):
        await asyncio.wait({task})
    if not task.cancelled():
        printer.finish(task.result().text)
        return
    await local.stop()
    printer.finish("Stopped.")


@contextmanager
def _interrupts(cancel: Callable[[], object]) -> Iterator[None]:
    """Let Ctrl-C call ``cancel`` instead of ending the process; what it did before is put back at the end."""
    before = signal.getsignal(signal.SIGINT)
    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGINT, lambda number, frame: loop.call_soon_threadsafe(cancel))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def _run_command(line: str, local: LocalThread) -> None:
    match line.split():
        case ["/tools"]:
            for tool in local.app.tools.registry.tools():
                print_text(f"  {tool.name}: {summarise(tool.spec)}")
        case ["/trace"]:
            runs = await local.app.store.list_runs(thread_key=local.thread.key, limit=1)
            print_text(trace_as_text(json.loads(runs[0].record)) if runs and runs[0].record else "no run yet")
        case ["/usage"]:
            await _print_usage(local)
        case ["/help"]:
            print_text(HELP)
        case _:
            print_text(f"there is no command {line.split(maxsplit=1)[0]}\n{HELP}")


async def _print_usage(local: LocalThread) -> None:
    runs = await local.app.store.list_runs(thread_key=local.thread.key, limit=1000)
    usages = [json.loads(run.record)["usage"] for run in runs if run.record]
    costs = [usage["cost_usd"] for usage in usages]
    price = "cost unknown" if None in costs else f"${sum(costs):.4f}"
    tokens = sum(usage["total_tokens"] for usage in usages)
    print_text(f"{len(runs)} runs in this thread, {tokens} tokens, {price}")
