"""The process that forks one child for each run, with the packages loaded and nothing else to know.

It serves one control socket (``SOCK_SEQPACKET``; the messages are in ``bot.tools.python_sandbox.warm``). It never reads
a request: the forked child does, after the socket is gone from it. Between fork and restriction the child runs only
what is here. The packages are loaded before anything was ever run, so no code of a person has been in this process.

It imports little of the standard library, because each cold run waits for that.
"""

from __future__ import annotations

import _socket
import fcntl
import gc
import os
import resource
import select
import sys

from .cold import REFUSED_EXIT, prepare, read_request, reply
from .fonts import add_fallbacks
from .kernel import prctl
from .landlock import landlock_abi
from .mounts import NewScratch, unmount_scratch
from .policy import default_read_paths
from .refused import NotEnforced
from .restrict import restrict
from .session import serve_session
from .source import open_standard_streams, run_source
from .wire import parse_json, render_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_PACKET_BYTES, _MAX_FDS, _REPORT_BYTES, _FD_BYTES = 16 * 1024, 8, 16 * 1024, 4
START_ANEW = """
import site, sys
folder, request, report, sys.prefix, *sys.path = sys.argv[1:]
sys.exec_prefix = sys.prefix
site.setquit()
site.setcopyright()
site.sethelper()
package = type(sys)("hermod_sandbox_child")
package.__path__ = [folder]
sys.modules[package.__name__] = package
from hermod_sandbox_child.cold import serve
serve(int(request), int(report))
"""
_HIGH_DESCRIPTOR, _PAUSE_MS = 64, 200
_FIRST_OF_SESSION = 3


class _Forked:
    """A process that was forked: the spare one, or a run."""

    __slots__ = ("channel", "id", "pid", "pidfd", "report")

    def __init__(self, pid: int, report: int, channel: _socket.socket) -> None:
        self.id = 0
        self.pid, self.report, self.channel = pid, report, channel
        self.pidfd = os.pidfd_open(pid)

    def close(self) -> None:
        self.channel.close()
        os.close(self.report)
        os.close(self.pidfd)


class Zygote:
    """Serves the control socket until it is closed.

    Args:
        control: the socket.
        scratch_root: a folder under which file systems for runs are mounted; empty: never.
    """

    def __init__(self, control: _socket.socket, scratch_root: str) -> None:
        self._control = control
        self._scratch_root = scratch_root
        self._read: tuple[str, ...] = ()
        self._forked: dict[int, _Forked] = {}
        self._spare: _Forked | None = None
        self._waiting = select.poll()

    def serve(self, preload: Iterable[str], parent: int, *, spare: bool) -> None:
        """Load the packages, say hello, and answer until the bot's end of the socket is closed.

        With a spare, one process is always forked ahead and waits for its run: with pandas in memory a fork and what
        must be done after it take half as long as an interpreter's start. It is forked from the same untouched state,
        and serves one run like any other.

        Args:
            preload: modules to load; one that is not installed is left out.
            parent: the process that must be alive; 0: not to be known here.
            spare: whether to fork ahead.
        """
        _die_with_parent(parent)
        packages = _load(preload)
        add_fallbacks()
        _exercise()
        sys.stdout.flush()  # what a package says while it is loaded would end up in the first run's output
        sys.stderr.flush()
        self._read = default_read_paths()
        if spare:  # not worth it for one run
            gc.collect()
            gc.freeze()
        self._send({"op": "hello", "id": 0, "prefix": sys.prefix, "packages": packages, "abi": landlock_abi()})
        self._waiting.register(self._control.fileno(), select.POLLIN)
        while True:
            events = self._waiting.poll(0 if spare and self._spare is None else None)
            if not events:
                self._fork_spare()
            for descriptor, _ in events:
                if descriptor != self._control.fileno():
                    self._end(descriptor)
                elif not self._answer():
                    return

    def _answer(self) -> bool:
        """Serve one message; tell whether there was one."""
        data, descriptors = _receive(self._control)
        if not data:
            return False
        message = parse_json(data.decode())
        id_ = int(str(message.get("id", 0)))
        try:
            match message["op"]:
                case "prepare":
                    self._prepare(id_, int(str(message["bytes"])), int(str(message["entries"])))
                case "release":
                    unmount_scratch(descriptors[0])
                case "run":
                    self._start(id_, str(message["kind"]), descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    # -- scratch file systems ----------------------------------------------------------------------

    def _prepare(self, id_: int, size_bytes: int, entries: int) -> None:
        if not size_bytes:
            self._send({"op": "prepared", "id": id_})
            return
        head = f'{{"op": "prepared", "id": {id_}, "scratch": "'.encode()
        try:
            with NewScratch(self._scratch_root, f"size={size_bytes},nr_inodes={entries},mode=0700") as (path, root):
                self._control.sendmsg([head, path, b'"}'], [_rights(root)])
        except OSError as error:
            self._send({"op": "prepared", "id": id_, "error": str(error)})

    # -- runs --------------------------------------------------------------------------------------

    def _start(self, id_: int, kind: str, descriptors: list[int]) -> None:
        try:
            run = self._spare or self._fork()
            self._spare = None
            run.id = id_
            run.channel.sendmsg([kind.encode()], [_rights(*descriptors)])
        except OSError as error:
            self._send({"op": "started", "id": id_, "error": f"no process can be made: {error.strerror}"})
            return
        self._send({"op": "started", "id": id_}, run.pidfd)

    def _fork_spare(self) -> None:
        try:
            self._spare = self._fork()
        except OSError:  # no process can be made now; the next run says so if that lasts
            self._waiting.poll(_PAUSE_MS)

    def _fork(self) -> _Forked:
        zygote = os.getpid()
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        report, report_writer = os.pipe2(os.O_CLOEXEC)
        try:
            pid = os.fork()
            if pid == 0:
                _become_run(zygote, theirs, self._read, report_writer)
            forked = _Forked(pid, report, ours)
        except OSError:
            ours.close()
            os.close(report)
            raise
        finally:
            theirs.close()
            os.close(report_writer)
        self._forked[forked.pidfd] = forked
        self._waiting.register(forked.pidfd, select.POLLIN)
        return forked

    def _end(self, pidfd: int) -> None:
        run = self._forked.pop(pidfd)
        self._waiting.unregister(pidfd)
        _, status, usage = os.wait4(run.pid, 0)
        # Written before the code began; the code never held it.
        report = b"" if run is self._spare else os.read(run.report, _REPORT_BYTES)[4:]
        run.close()
        if run is self._spare:
            self._spare = None
            return
        state = parse_json(report.decode()) if report else {"reason": "it ended before it was restricted"}
        peak_bytes = usage.ru_maxrss * 1024 - int(str(state.get("resident_bytes", 0)))
        cpu_us = round((usage.ru_utime + usage.ru_stime) * 1_000_000)
        ended: dict[str, str | int] = {"op": "ended", "id": run.id, "status": status, "cpu_us": cpu_us}
        self._send({**ended, "peak_bytes": peak_bytes, "refused": str(state.get("reason", ""))})

    def _send(self, message: dict[str, str | int], descriptor: int | None = None) -> None:
        rights = [] if descriptor is None else [_rights(descriptor)]
        self._control.sendmsg([render_json(message).encode()], rights)


# -- what becomes of a forked process --------------------------------------------------------------


def _become_run(zygote: int, channel: _socket.socket, read: tuple[str, ...], report: int) -> NoReturn:
    try:
        _die_with_parent(zygote)
        _close_all_but(channel.fileno(), report)
        _reseed()
        for name in _OWN_MODULES:
            del sys.modules[name]
        kind, descriptors = _receive(channel)
        if kind == b"cold":
            _start_anew(descriptors, report)
        elif kind:
            _lock_in(read, descriptors, report, session=kind == b"session")
    except BaseException as error:  # noqa: BLE001 - nothing that goes wrong here may end up in the zygote's loop
        os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(REFUSED_EXIT)


def _lock_in(read: tuple[str, ...], descriptors: list[int], report: int, *, session: bool) -> NoReturn:
    try:
        wanted = read_request(descriptors[0])
        report = _arrange_descriptors(descriptors[1:], report)
        policy = prepare(wanted, read)
        open_standard_streams()
        state: dict[str, str | int] = {"state": "restricted"}
        state["resident_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        restrict(policy)
    except (NotEnforced, ValueError, OSError) as error:
        reply(report, {"state": "refused", "reason": str(error)[:2000]})
        os._exit(REFUSED_EXIT)
    reply(report, state)
    if session:
        serve_session(_FIRST_OF_SESSION, _FIRST_OF_SESSION + 1)
    run_source(wanted.code)


def _start_anew(descriptors: list[int], report: int) -> NoReturn:
    """Become a new interpreter, which shares neither addresses nor hash seed with this one.

    Where packages are found it is told: finding out takes a tenth of a start.
    """
    request, stdout, stderr = descriptors
    count = _arrange_descriptors([stdout, stderr, request], report)
    for descriptor in range(1, count + 1):
        os.set_inheritable(descriptor, True)
    here = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", START_ANEW, here]
    command += [str(count - 1), str(count), sys.prefix, *sys.path]
    os.execve(sys.executable, command, os.environ)  # noqa: S606 - our own interpreter


def _close_all_but(*kept: int) -> None:
    """Close the control socket and all that belongs to other runs, before anything is waited for."""
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


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
    """Seed numpy's generator anew, else every run draws the same numbers; ``random`` does it itself after a fork."""
    module = sys.modules.get("numpy.random")
    if module is not None:
        module.seed(int.from_bytes(os.urandom(4), sys.byteorder))


# -- the process -----------------------------------------------------------------------------------


def _die_with_parent(parent: int) -> None:
    prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if parent and os.getppid() != parent:
        os._exit(REFUSED_EXIT)


def _load(modules: Iterable[str]) -> str:
    """Load modules; return the names and versions of those that there are, one a line."""
    found: dict[str, str] = {}
    for name in modules:
        try:
            module = __import__(name)
        except ImportError:
            continue
        found[name.partition(".")[0]] = str(getattr(module, "__version__", ""))
    return "\n".join(f"{name} {version}" for name, version in found.items())


def _exercise() -> None:
    """Use what was loaded once, so that what packages do at their first use is done before the first run is forked.

    Else every run does it again, in memory of its own: a first DataFrame, a first plot.
    """
    pandas, pyplot = sys.modules.get("pandas"), sys.modules.get("matplotlib.pyplot")
    if pandas is not None:
        str(pandas.DataFrame({"a": range(10), "b": [str(n) for n in range(10)]}).describe(include="all"))
    if pyplot is not None:
        import io

        pyplot.plot([1, 2], label="a")
        pyplot.legend()
        pyplot.savefig(io.BytesIO())
        pyplot.close("all")


def _receive(control: _socket.socket) -> tuple[bytes, list[int]]:
    space = _socket.CMSG_SPACE(_MAX_FDS * _FD_BYTES)
    data, ancillary, _, _ = control.recvmsg(_PACKET_BYTES, space, _socket.MSG_CMSG_CLOEXEC)
    descriptors: list[int] = []
    for level, kind, content in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            whole = len(content) - len(content) % _FD_BYTES
            parts = (content[at : at + _FD_BYTES] for at in range(0, whole, _FD_BYTES))
            descriptors += [int.from_bytes(part, sys.byteorder) for part in parts]
    return data, descriptors


def _rights(*descriptors: int) -> tuple[int, int, bytes]:
    content = b"".join(descriptor.to_bytes(_FD_BYTES, sys.byteorder) for descriptor in descriptors)
    return _socket.SOL_SOCKET, _socket.SCM_RIGHTS, content


# What an import of the code is not to find; looked up here once, because a look at every module after the fork would
# copy the memory of each.
_PACKAGE = __name__.rpartition(".")[0]
_OWN_MODULES = tuple(name for name in sys.modules if name == _PACKAGE or name.startswith(_PACKAGE + "."))


def main(arguments: list[str]) -> None:
    """Serve a control socket.

    Args:
        arguments: the socket's descriptor, the parent's process or 0, the folder for scratch file systems or nothing,
            whether to fork ahead (1 or 0), then the modules to load.
    """
    control, parent, scratch_root, spare, *preload = arguments
    os.set_inheritable(int(control), False)
    Zygote(_socket.socket(fileno=int(control)), scratch_root).serve(preload, int(parent), spare=spare == "1")
