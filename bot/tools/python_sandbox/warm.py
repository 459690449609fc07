"""The bot's side of a zygote: a process with the packages loaded, which forks once for each run.

What goes over the control socket (``SOCK_SEQPACKET``, one JSON object a packet, file descriptors beside it):

- from the zygote, once: ``hello`` with what is loaded;
- to it: ``prepare`` (is it well? make a scratch file system, if it is to) and back ``prepared`` (with the folder's
  descriptor); ``run`` with the descriptors of the request, of stdout and stderr (and of a session's two pipes) and back
  ``started`` with a pidfd, later ``ended`` with what ``wait4`` told; ``release`` of a scratch file system, by its
  folder's descriptor.

The code that runs never holds the socket, and the zygote never reads the request, which goes from the bot to the forked
child through a descriptor: nothing of one run, not even its folder's name, is in the memory that the next one is forked
from. Whatever is not as it
should be (garbage, silence, an early end) breaks the zygote for good: it is killed with all its runs, and says so.
"""

from __future__ import annotations

import array
import asyncio
import functools
import json
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bot.tools.python_sandbox.forked_run import ForkedRun, ZygoteBroken
from bot.tools.python_sandbox.process import ChildProcess, Exit, Output, spawn
from bot.tools.python_sandbox.types import KiB

# A package of its own, without a place on sys.path: a neighbour is called types.
_START = """
import sys
package = type(sys)("hermod_sandbox_child")
package.__path__ = [sys.argv[1]]
sys.modules[package.__name__] = package
from hermod_sandbox_child.zygote import main
main(sys.argv[2:])
"""
START_TIMEOUT_S = 60.0
"""Until the packages are loaded; the first time, matplotlib lists the fonts."""
REPLY_TIMEOUT_S = 10.0
_PACKET_BYTES, _MAX_FDS = 16 * KiB, 4
_INT_FD_BYTES = 4
_ONE_PROGRAM_FDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What a zygote told about itself.

    Args:
        prefix: its ``sys.prefix``.
        packages: names and versions of what is loaded.
        abi: of Landlock; 0: the kernel has none.
    """

    prefix: str
    packages: Mapping[str, str] = field(default_factory=dict)
    abi: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """A file system of one run, as the zygote mounted it.

    Args:
        path: where the run finds it.
        fd: its root, for the bot; whoever gets it closes it.
    """

    path: str
    fd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    message: Mapping[str, object]
    fds: tuple[int, ...] = ()
    run: ForkedRun | None = None


class Zygote:
    """One zygote. Methods may be called concurrently."""

    def __init__(self, process: ChildProcess, control: socket.socket, errors: Output, reply_timeout_s: float) -> None:
        self._process, self._control, self._errors = process, control, errors
        self._reply_timeout_s = reply_timeout_s
        self._replies: dict[int, asyncio.Future[_Reply]] = {}
        self._runs: dict[int, ForkedRun] = {}
        self._last_id = 0
        self._broken: ZygoteBroken | None = None
        self._hello = Hello(prefix="")
        self.runs_started = 0
        asyncio.get_running_loop().add_reader(control, self._receive)

    @classmethod
    async def start(
        cls,
        *,
        wrapper: Sequence[str] = (),
        python: str,
        child: str,
        preload: Sequence[str] = (),
        spare: bool = False,
        scratch_root: str = "",
        environ: Mapping[str, str],
        reply_timeout_s: float = REPLY_TIMEOUT_S,
    ) -> Zygote:
        """Start one and wait until its packages are loaded.

        Args:
            wrapper: a program and its arguments that start the interpreter inside themselves, such as bubblewrap's.
            python: the interpreter, as the wrapper sees it.
            child: the folder of the child's modules, as the wrapper sees it.
            preload: modules to load, if they are installed.
            spare: let it fork the next run's process ahead.
            scratch_root: where it is to mount the runs' file systems; empty: nowhere.
            environ: all that it gets of an environment.
            reply_timeout_s: how long it may take to answer, and to tell that a run has ended.

        Raises:
            ZygoteBroken: it did not come up; the message has the end of what it wrote on stderr.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        errors = Output(keep_bytes=8 * KiB)
        parent = 0 if wrapper else os.getpid()
        arguments = [child, str(theirs.fileno()), str(parent), scratch_root, "1" if spare else "0", *preload]
        command = [*wrapper, python, "-I", "-B", "-X", "utf8", "-c", _START, *arguments]
        try:
            process = spawn(command, environ=environ, stderr=errors.write_fd, keep_fds=(theirs.fileno(),))
        except OSError as error:
            ours.close()
            errors.close()
            raise ZygoteBroken(f"{command[0]} could not be started: {error.strerror}") from error
        finally:
            theirs.close()
            errors.close_writer()
        zygote = cls(process, ours, errors, reply_timeout_s)
        try:
            hello = (await zygote._await_reply(0, START_TIMEOUT_S)).message
        except (asyncio.CancelledError, ZygoteBroken):
            zygote._break("its start was cancelled")  # unless it broke by itself
            await zygote.aclose()
            raise
        packages, abi = str(hello.get("packages", "")), hello.get("abi")
        zygote._hello = Hello(
            prefix=str(hello.get("prefix")),
            packages={line.partition(" ")[0]: line.partition(" ")[2] for line in packages.splitlines()},
            abi=abi if isinstance(abi, int) else 0,
        )
        return zygote

    @property
    def hello(self) -> Hello:
        """What it told about itself when it came up."""
        return self._hello

    @property
    def usable(self) -> bool:
        """Whether runs can be asked of it."""
        return self._broken is None

    @property
    def running(self) -> int:
        """How many runs have not ended."""
        return len(self._runs)

    @property
    def pid(self) -> int:
        """Return the number of the process that was started: the zygote's own, or its wrapper's."""
        return self._process.pid

    async def prepare(self, *, scratch_bytes: int = 0, scratch_entries: int = 0) -> Scratch | None:
        """Ask whether it is well, and for a scratch file system of that size unless it is 0.

        Raises:
            ZygoteBroken: it is not.
        """
        reply = await self._ask({"op": "prepare", "bytes": scratch_bytes, "entries": scratch_entries}, [])
        if not scratch_bytes:
            _close_all(reply.fds)
            return None
        path = reply.message.get("scratch")
        if len(reply.fds) != 1 or not isinstance(path, str):
            _close_all(reply.fds)
            raise self._break(f"it made no scratch file system: {reply.message.get('error', 'it does not say why')}")
        return Scratch(path=path, fd=reply.fds[0])

    async def fork(self, request: bytes, fds: Sequence[int], *, cold: bool = False) -> ForkedRun:
        """Fork a run. It has begun when this returns; when this is cancelled, it is killed.

        Args:
            request: see ``child/cold.py``; read by the forked child only.
            fds: what becomes its stdout and stderr; with two more, its pipe of requests and its pipe of answers, and it
                serves one program after the other (``child/session.py``).
            cold: let the forked process become a new interpreter.

        Raises:
            ZygoteBroken: it could not; if anything was begun, it is dead.
        """
        self.runs_started += 1
        request_fd = os.memfd_create("request", os.MFD_CLOEXEC)
        try:
            os.write(request_fd, request)
            os.lseek(request_fd, 0, os.SEEK_SET)
            kind = "cold" if cold else "once" if len(fds) == _ONE_PROGRAM_FDS else "session"
            reply = await self._ask({"op": "run", "kind": kind}, [request_fd, *fds])
        finally:
            os.close(request_fd)
        if reply.run is None:
            raise self._break(f"it started no run: {reply.message.get('error', 'it does not say why')}")
        return reply.run

    def release(self, scratch: Scratch) -> None:
        """Unmount a scratch file system; whoever holds its descriptor can still read it."""
        if self.usable:
            self._send({"op": "release"}, [scratch.fd])

    async def aclose(self) -> None:
        """Kill it with all its runs, and wait until they are gone."""
        self._break("it was closed")
        await self._process.wait()
        for run in tuple(self._runs.values()):
            await run.wait()
        self._errors.close()

    # -- the socket --------------------------------------------------------------------------------

    async def _ask(self, message: dict[str, object], fds: Sequence[int]) -> _Reply:
        self._last_id += 1
        return await self._await_reply(self._last_id, self._reply_timeout_s, {**message, "id": self._last_id}, fds)

    async def _await_reply(
        self, id_: int, timeout_s: float, message: Mapping[str, object] | None = None, fds: Sequence[int] = ()
    ) -> _Reply:
        if self._broken is not None:
            raise self._broken
        reply: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
        self._replies[id_] = reply
        try:
            if message is not None:
                self._send(message, fds)
            async with asyncio.timeout(timeout_s):
                return await reply
        except TimeoutError as error:
            raise self._break(f"it did not answer within {timeout_s:g} s") from error
        except asyncio.CancelledError:
            if reply.done() and not reply.cancelled() and reply.exception() is None:
                self._drop(reply.result())  # it came in the same moment
            raise
        finally:
            self._replies.pop(id_, None)

    def _send(self, message: Mapping[str, object], fds: Sequence[int]) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(fds))
        except OSError as error:
            raise self._break(f"nothing can be sent to it: {error.strerror}") from error

    def _receive(self) -> None:
        while self._broken is None:
            try:
                data, fds = _receive_packet(self._control)
            except BlockingIOError:
                return
            except OSError as error:
                self._break(f"nothing can be read from it: {error.strerror}")
                return
            if not data:
                _close_all(fds)
                self._break("it ended")
                return
            try:
                self._take(json.loads(data), fds)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OSError):
                _close_all(fds)
                self._break("it sent what is not in its language")

    def _take(self, message: dict[str, object], fds: tuple[int, ...]) -> None:
        op, id_ = message["op"], message["id"]
        if not isinstance(id_, int):
            raise TypeError("an id is a number")
        if fds and op != "prepared" and (op, len(fds)) != ("started", 1):
            raise ValueError("descriptors that nobody asked for")
        if op == "ended":
            self._runs.pop(id_).settle(_parse_exit(message))
            return
        run: ForkedRun | None = None
        if op == "started" and fds:
            silence = functools.partial(self._break, "it did not say how a run ended")
            run = ForkedRun(fds[0], silence, self._reply_timeout_s)
            self._runs[id_] = run
            fds = ()
        waiting = self._replies.pop(id_, None)
        if waiting is not None:
            waiting.set_result(_Reply(message=message, fds=fds, run=run))
            return
        if id_ > self._last_id:
            raise KeyError("an answer to a question that was not put")
        self._drop(_Reply(message=message, fds=fds, run=run))  # whoever asked was cancelled

    def _drop(self, reply: _Reply) -> None:
        """Undo what nobody waits for any more."""
        if reply.run is not None:
            reply.run.kill()
        try:
            if "scratch" in reply.message and self.usable:
                self._send({"op": "release"}, reply.fds)
        finally:
            _close_all(reply.fds)

    def _break(self, reason: str) -> ZygoteBroken:
        if self._broken is not None:
            return self._broken
        self._errors.drain()
        said, _ = self._errors.take()
        last = said.strip().rsplit("\n", 1)[-1]
        self._broken = ZygoteBroken(f"{reason}; it said: {last}" if last else reason)
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        self._process.kill()
        for run in self._runs.values():
            run.abandon(self._broken)
        for waiting in self._replies.values():
            if not waiting.done():
                waiting.set_exception(self._broken)
        self._replies.clear()
        return self._broken


def _parse_exit(message: Mapping[str, object]) -> Exit:
    status, cpu_us, peak = message["status"], message["cpu_us"], message["peak_bytes"]
    if not (isinstance(status, int) and isinstance(cpu_us, int) and isinstance(peak, int)):
        raise TypeError("a number is missing")
    code = os.waitstatus_to_exitcode(status)
    return Exit(code=code, cpu_s=cpu_us / 1_000_000, peak_memory_bytes=max(peak, 0), refused=str(message["refused"]))


def _receive_packet(control: socket.socket) -> tuple[bytes, tuple[int, ...]]:
    data, ancillary, flags, _ = control.recvmsg(
        _PACKET_BYTES, socket.CMSG_SPACE(_MAX_FDS * _INT_FD_BYTES), socket.MSG_CMSG_CLOEXEC
    )
    found = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(content[: len(content) - len(content) % found.itemsize])
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        _close_all(found)
        return b"too long", ()
    return data, tuple(found)


def _close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)
