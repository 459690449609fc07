"""The process that forks one child for each run, with the packages loaded and nothing else to know.

It serves one control socket (``SOCK_SEQPACKET``; the messages are in ``bot.tools.python_sandbox.warm``). It never reads
a request: the forked child does, after the socket is gone from it. Between fork and restriction the child runs only
what is here. The packages are loaded before anything was ever run, so no code of a person has been in this process.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
from typing import Any, NoReturn

if not __package__:  # started as a file, see main.py
    __package__ = "hermod_sandbox_child"
    _package = type(sys)(__package__)
    _package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules[__package__] = _package

from .cold import REFUSED_EXIT, forget_modules, prepare, read_request, reply
from .landlock import landlock_abi
from .policy import default_read_paths
from .refused import NotEnforced
from .restrict import restrict
from .session import serve_session
from .source import open_standard_streams, run_source

_PR_SET_PDEATHSIG = 1
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MNT_DETACH = 2, 4, 8, 2
_PACKET_BYTES, _MAX_FDS, _REPORT_BYTES = 16 * 1024, 8, 16 * 1024
_HIGH_DESCRIPTOR = 64
_FIRST_OF_SESSION = 3


class _Run:
    __slots__ = ("id", "pid", "report")

    def __init__(self, id_: int, pid: int, report: int) -> None:
        self.id, self.pid, self.report = id_, pid, report


class Zygote:
    """Serves the control socket until it is closed.

    Args:
        control: the socket.
        scratch_root: a folder under which file systems for runs are mounted; empty: never.
    """

    def __init__(self, control: socket.socket, scratch_root: str) -> None:
        self._control = control
        self._scratch_root = scratch_root
        self._read: tuple[str, ...] = ()
        self._runs: dict[int, _Run] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)

    def serve(self, preload: list[str], parent: int) -> None:
        """Load the packages, say hello, and answer until the bot's end of the socket is closed.

        Args:
            preload: modules to load; one that is not installed is left out.
            parent: the process that must be alive; 0: not to be known here.
        """
        self._die_with_parent(parent)
        packages = _load(preload)
        self._read = default_read_paths()
        gc.collect()
        gc.freeze()
        self._send({"op": "hello", "id": 0, "prefix": sys.prefix, "packages": packages, "abi": landlock_abi()})
        waiting = select.poll()
        waiting.register(self._control, select.POLLIN)
        while True:
            for descriptor, _ in waiting.poll():
                if descriptor != self._control.fileno():
                    waiting.unregister(descriptor)
                    self._end(descriptor)
                elif (pidfd := self._answer()) < 0:
                    return
                elif pidfd > 0:
                    waiting.register(pidfd, select.POLLIN)

    def _answer(self) -> int:
        """Serve one message. Return the pidfd of a run that it started, 0, or -1 at the end."""
        data, descriptors = _receive(self._control)
        if not data:
            return -1
        message = json.loads(data)
        try:
            match message["op"]:
                case "prepare":
                    self._prepare(message["id"], message["bytes"], message["entries"])
                case "release":
                    self._release(message["scratch"])
                case "run":
                    return self._start(message["id"], message["session"], descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return 0

    # -- scratch file systems ----------------------------------------------------------------------

    def _prepare(self, id_: int, size_bytes: int, entries: int) -> None:
        if not size_bytes:
            self._send({"op": "prepared", "id": id_})
            return
        path = f"{self._scratch_root}/{os.urandom(16).hex()}"
        try:
            os.mkdir(path, 0o700)
            options = f"size={size_bytes},nr_inodes={entries},mode=0700".encode()
            flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
            if self._libc.mount(b"scratch", path.encode(), b"tmpfs", flags, options) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
            root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            self._send({"op": "prepared", "id": id_, "error": str(error)})
            return
        try:
            self._send({"op": "prepared", "id": id_, "scratch": path}, [root])
        finally:
            os.close(root)

    def _release(self, path: str) -> None:
        if os.path.dirname(path) == self._scratch_root and self._libc.umount2(path.encode(), _MNT_DETACH) == 0:
            os.rmdir(path)

    # -- runs --------------------------------------------------------------------------------------

    def _start(self, id_: int, session: bool, descriptors: list[int]) -> int:
        zygote = os.getpid()
        report, report_writer = os.pipe2(os.O_CLOEXEC)
        try:
            pid = os.fork()
        except OSError as error:
            os.close(report)
            os.close(report_writer)
            self._send({"op": "started", "id": id_, "error": f"no process can be made: {error.strerror}"})
            return 0
        if pid == 0:
            self._become_run(zygote, report_writer, session, descriptors)
        os.close(report_writer)
        pidfd = os.pidfd_open(pid)
        self._runs[pidfd] = _Run(id_, pid, report)
        self._send({"op": "started", "id": id_}, [pidfd])
        return pidfd

    def _end(self, pidfd: int) -> None:
        run = self._runs.pop(pidfd)
        _, status, usage = os.wait4(run.pid, 0)
        report = os.read(run.report, _REPORT_BYTES)[4:]  # written before the code began; the code never held it
        os.close(run.report)
        os.close(pidfd)
        state: dict[str, Any] = json.loads(report) if report else {"reason": "it ended before it was restricted"}
        message = {"op": "ended", "id": run.id, "status": status, "cpu_s": usage.ru_utime + usage.ru_stime}
        peak = usage.ru_maxrss * 1024 - state.get("resident_bytes", 0)
        self._send({**message, "peak_bytes": peak, "refused": state.get("reason", "")})

    def _become_run(self, zygote: int, report: int, session: bool, descriptors: list[int]) -> NoReturn:
        try:
            self._die_with_parent(zygote)
            request, *pipes = descriptors
            self._lock_in(request, pipes, report, session)
        except BaseException as error:  # noqa: BLE001 - nothing that goes wrong here may end up in the zygote's loop
            os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace"))
        finally:
            os._exit(REFUSED_EXIT)

    def _lock_in(self, request_descriptor: int, pipes: list[int], report: int, session: bool) -> NoReturn:
        try:
            request = read_request(request_descriptor)
            report = _arrange_descriptors(pipes, report)
            policy = prepare(request, self._read)
            _reseed()
            open_standard_streams()
            state: dict[str, str | int] = {"state": "restricted"}
            state["resident_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            restrict(policy)
        except (NotEnforced, ValueError, OSError) as error:
            reply(report, {"state": "refused", "reason": str(error)[:2000]})
            os._exit(REFUSED_EXIT)
        reply(report, state)
        forget_modules(__name__.rpartition(".")[0] or str(__package__))
        if session:
            serve_session(_FIRST_OF_SESSION, _FIRST_OF_SESSION + 1)
        run_source(request.code)

    # -- the process -------------------------------------------------------------------------------

    def _die_with_parent(self, parent: int) -> None:
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if parent and os.getppid() != parent:
            os._exit(REFUSED_EXIT)

    def _send(self, message: dict[str, object], descriptors: list[int] | None = None) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        self._control.sendmsg([json.dumps(message).encode()], rights)


def _load(modules: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in modules:
        try:
            module = __import__(name)
        except ImportError:
            continue
        found[name.partition(".")[0]] = str(getattr(module, "__version__", ""))
    return found


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    data, ancillary, _, _ = control.recvmsg(_PACKET_BYTES, socket.CMSG_SPACE(_MAX_FDS * 4), socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return data, list(descriptors)


def _arrange_descriptors(wanted: list[int], report: int) -> int:
    """Put stdout and stderr on 1 and 2, a session's two pipes on 3 and 4, close all others; return the report's number.

    They are copied far above first, so that none is overwritten before its turn.
    """
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR) for descriptor in (*wanted, report)]
    for number, descriptor in enumerate(high, start=1):
        os.dup2(descriptor, number, inheritable=False)
    os.closerange(len(high) + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return len(high)


def _reseed() -> None:
    """Seed the generators that were seeded before the fork anew, else every run draws the same numbers."""
    if (random := sys.modules.get("random")) is not None:
        random.seed()
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()


def main(control: int, config: str) -> None:
    """Serve a control socket.

    Args:
        control: its descriptor.
        config: a JSON object with ``preload``, ``parent`` and ``scratch_root``.
    """
    wanted = json.loads(config)
    with socket.socket(fileno=control) as connection:
        connection.set_inheritable(False)
        Zygote(connection, wanted["scratch_root"]).serve(wanted["preload"], wanted["parent"])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
