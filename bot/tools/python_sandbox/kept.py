"""Interpreters that are kept between runs, and the truth about the ones that are not there any more."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGSTOP

from bot.tools.python_sandbox.forked_run import ForkedRun
from bot.tools.python_sandbox.place import Place
from bot.tools.python_sandbox.process import Output, read_memory
from bot.tools.python_sandbox.types import KiB, SandboxUnavailable, SessionState

_ANSWER_BYTES = 1 * KiB
_STOP_TIMEOUT_S, _STOP_PAUSE_S = 5.0, 0.001
_MARK_S = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLimits:
    """How many interpreters are kept, and for how long.

    Args:
        count: beyond it the one that was used longest ago is ended.
        idle_s: since its last run.
        hard_s: since its first run.
        sweep_s: how often the two are looked at.
    """

    count: int = 4
    idle_s: float = 600.0
    hard_s: float = 1800.0
    sweep_s: float = 15.0


class Pipes:
    """The four pipes of a kept interpreter."""

    def __init__(self, keep_bytes: int) -> None:
        self.stdout, self.stderr = Output(keep_bytes=keep_bytes), Output(keep_bytes=keep_bytes)
        self._requests_reader, self._requests = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._requests, False)
        self._answers = Output(keep_bytes=_ANSWER_BYTES)

    @property
    def child_ends(self) -> tuple[int, int, int, int]:
        """Return what the interpreter gets: stdout, stderr, requests, answers."""
        return self.stdout.write_fd, self.stderr.write_fd, self._requests_reader, self._answers.write_fd

    def close_child_ends(self) -> None:
        """Close them here, once the interpreter has them."""
        for output in (self.stdout, self.stderr, self._answers):
            output.close_writer()
        if self._requests_reader >= 0:
            os.close(self._requests_reader)
            self._requests_reader = -1

    async def ask(self, request: bytes, number: int) -> int | None:
        """Send a request and wait for the exit code that answers it; None when the answer is none."""
        self._answers.take()
        arrived = asyncio.Event()
        self._answers.on_read = lambda _: arrived.set()
        await _write_all(self._requests, request)
        text = ""
        while "\n" not in text and len(text) < _ANSWER_BYTES:
            await arrived.wait()
            arrived.clear()
            text += self._answers.take()[0]
        return _parse_answer(text, number)

    def close(self) -> None:
        """Close every end."""
        self.close_child_ends()
        for output in (self.stdout, self.stderr, self._answers):
            output.close()
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1


class Kept:
    """One interpreter that is kept. It is stopped (SIGSTOP) between runs, so nothing goes on in it meanwhile."""

    def __init__(self, process: ForkedRun, place: Place, pipes: Pipes, resources: AsyncExitStack) -> None:
        self.process, self.place, self.pipes = process, place, pipes
        self.busy = False
        self.started = self.used = 0.0
        self.base_bytes = read_memory(process.pid)[0]
        self._resources = resources
        self._programs = 0

    @property
    def alive(self) -> bool:
        """Whether it can run another program."""
        return not self.process.ended

    @property
    def ran(self) -> bool:
        """Whether it was given a program, and is therefore locked in and, between two, stopped."""
        return self._programs > 0

    async def execute(self, code: str) -> int | None:
        """Let it run one program, and stop it afterwards.

        Returns:
            The exit code that the program would have had, which is the interpreter's own word; None when it ended
            instead, answered nonsense, or could not be stopped.
        """
        self._programs += 1
        body = json.dumps({"id": self._programs, "code": code}).encode()
        self.process.signal(SIGCONT)
        answer = asyncio.create_task(self.pipes.ask(len(body).to_bytes(4, "big") + body, self._programs))
        ended = asyncio.create_task(self.process.wait())
        try:
            await asyncio.wait({answer, ended}, return_when=asyncio.FIRST_COMPLETED)
            self.process.signal(SIGSTOP)
            stopped = await self._wait_until_stopped()
            return answer.result() if answer.done() and stopped else None
        finally:
            for task in (answer, ended):
                task.cancel()
            await asyncio.wait({answer, ended})

    async def _wait_until_stopped(self) -> bool:
        """Wait until no thread of it runs any more: what it left is looked at next, and must not change meanwhile."""
        end = time.monotonic() + _STOP_TIMEOUT_S
        while not self.process.ended and _find_running(self.process.pid):
            if time.monotonic() > end:
                return False
            await asyncio.sleep(_STOP_PAUSE_S)
        return True

    async def aclose(self) -> None:
        """Kill it, wait until it is gone, and give everything back that it held."""
        self.process.kill()
        try:
            await self.process.wait()
        finally:
            await self._resources.aclose()


def _find_running(pid: int) -> bool:
    """Tell whether a thread of a process is neither stopped nor gone (proc_pid_stat(5), the third field)."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        for task in os.listdir(tasks):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if (tasks / task / "stat").read_bytes().rpartition(b") ")[2][:1] not in b"TtZXx":
                    return True
    except (FileNotFoundError, ProcessLookupError):
        return False
    return False


class KeptInterpreters:
    """The interpreters of sessions, by name.

    Args:
        limits: see ``KeptLimits``.
        marks: a private folder where it is written down which sessions there were, so that a loss is told after a
            restart too; None: only in memory.
        now: the clock for ages, in seconds.
    """

    def __init__(self, limits: KeptLimits, marks: Path | None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._marks, self._now = limits, marks, now
        self._kept: dict[str, Kept] = {}
        self._known: set[str] = set()
        self._lock = asyncio.Lock()
        self._sweeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Count those that are kept now."""
        return len(self._kept)

    @asynccontextmanager
    async def borrow(self, name: str, start: Callable[[], Awaitable[Kept]]) -> AsyncIterator[tuple[Kept, SessionState]]:
        """Give the session's interpreter for one run, started if there is none; a dead one is dropped afterwards.

        Args:
            name: of the session; two runs of one session never overlap.
            start: starts one.

        Raises:
            SandboxUnavailable: every interpreter that could make room is busy, or as ``start`` raises it.
        """
        async with self._lock:
            await self._sweep()
            kept, state = self._kept.get(name), "continued"
            if kept is not None and kept.busy:
                raise SandboxUnavailable("this session is still running a program; nothing was run, try again")
            if kept is None:
                await self._make_room()
                state = "lost" if self._was_there(name) else "fresh"
                kept = self._kept[name] = await start()
                kept.started = self._now()
                self._mark(name)
            kept.busy = True
        try:
            yield kept, state  # type: ignore[misc]  # a str of SessionState
        finally:
            kept.busy, kept.used = False, self._now()
            if not kept.alive:
                await self._end(name)

    async def aclose(self) -> None:
        """End all."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait({self._sweeper})
        for name in tuple(self._kept):
            await self._end(name)

    # -- age ---------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        now = self._now()
        for name, kept in tuple(self._kept.items()):
            too_old = now - kept.started > self._limits.hard_s or now - kept.used > self._limits.idle_s
            if not kept.busy and (too_old or not kept.alive):
                await self._end(name)

    async def _keep_sweeping(self) -> None:
        while self._kept:
            await asyncio.sleep(self._limits.sweep_s)
            async with self._lock:
                await self._sweep()

    async def _make_room(self) -> None:
        while len(self._kept) >= self._limits.count:
            idle = [(kept.used, name) for name, kept in self._kept.items() if not kept.busy]
            if not idle:
                raise SandboxUnavailable("every kept interpreter is busy; nothing was run, try again in a minute")
            await self._end(min(idle)[1])

    async def _end(self, name: str) -> None:
        if (kept := self._kept.pop(name, None)) is not None:
            await kept.aclose()

    # -- what there was ----------------------------------------------------------------------------

    def _was_there(self, name: str) -> bool:
        return name in self._known or (self._marks is not None and (self._marks / _digest(name)).exists())

    def _mark(self, name: str) -> None:
        self._known.add(name)
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.create_task(self._keep_sweeping())
        if self._marks is None:
            return
        (self._marks / _digest(name)).touch(mode=0o600)
        oldest = time.time() - _MARK_S
        for mark in self._marks.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if mark.stat().st_mtime < oldest:
                    mark.unlink()


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _parse_answer(text: str, number: int) -> int | None:
    try:
        found = json.loads(text)
        code = found["code"]
        return code & 0xFF if found["id"] == number and isinstance(code, int) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


async def _write_all(fd: int, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            writable = asyncio.Event()
            loop.add_writer(fd, writable.set)
            try:
                await writable.wait()
            finally:
                loop.remove_writer(fd)
        except BrokenPipeError:
            return  # it has ended, which the caller sees
