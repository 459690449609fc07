"""What is outside of the sandbox stays as it is and is not reached: the bot's files, processes and sockets.

Each attack is tried with all rules and with its own left out; then it gets through. The harm is looked for outside.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bot.tools.python_sandbox.child.landlock import landlock_abi
from bot.tools.python_sandbox.child.restrict import is_supported
from tests.sandbox.child_attacks import LIBC, SECRET, Attack
from tests.sandbox.child_process import scratch_folder

pytestmark = pytest.mark.skipif(bool(is_supported()), reason=is_supported() or "supported")


@pytest.fixture
def scratch() -> Iterator[Path]:
    with scratch_folder() as folder:
        yield folder


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder of the bot, with a secret and a database."""
    with scratch_folder() as folder:
        (folder / "secret").write_text(SECRET)
        (folder / "database").write_text("rows " * 100)
        (folder / "empty").mkdir()
        yield folder


@pytest.fixture
def decoy() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for the bot; it has written a line, so it is running."""
    script = "import sys; print('up', flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-I", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"up\n"
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


# -- files of the bot ----------------------------------------------------------------------------


def _changed(outside: Path) -> Callable[[], bool]:
    def state() -> list[tuple[str, int, str]]:
        return [(str(path), path.stat().st_mode, path.read_text() if path.is_file() else "") for path in _all(outside)]

    before = state()
    return lambda: state() != before


def _all(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


OUTSIDE = [
    ("read", "print(open('@/secret').read())", ("landlock:read_file",)),
    ("read-by-way-of-scratch", "import os\nprint(open(os.path.relpath('@/secret')).read())", ("landlock:read_file",)),
    ("list", "import os\nprint('canary-5d1f0c' if 'secret' in os.listdir('@') else '')", ("landlock:read_dir",)),
    ("append", "open('@/database', 'a').write('planted')", ("landlock:write_file",)),
    ("truncate", "import os\nos.truncate('@/database', 0)", ("landlock:truncate",)),
    ("create", "open('@/new', 'x').close()", ("landlock:make_reg", "landlock:write_file")),
    ("make-folder", "import os\nos.mkdir('@/new')", ("landlock:make_dir",)),
    ("unlink", "import os\nos.unlink('@/database')", ("landlock:remove_file",)),
    ("remove-folder", "import os\nos.rmdir('@/empty')", ("landlock:remove_dir",)),
    ("rename", "import os\nos.rename('@/database', '@/other')", ("landlock:remove_file", "landlock:make_reg")),
    ("move-here", "import os\nos.rename('@/database', 'mine')", ("landlock",)),
    ("hard-link", "import os\nos.link('@/secret', 'mine'); print(open('mine').read())", ("landlock",)),
    ("mode", "import os\nos.chmod('@/secret', 0o777)", ("seccomp:chmod", "seccomp:fchmodat")),
]


@pytest.mark.parametrize(("name", "code", "without"), OUTSIDE, ids=[row[0] for row in OUTSIDE])
def test_the_bots_files_stay_as_they_are_unless_the_rule_is_left_out(
    name: str, code: str, without: tuple[str, ...], scratch: Path, outside: Path
) -> None:
    changed = _changed(outside)
    attack = Attack(name=name, code=code.replace("@", str(outside)), without=without)
    stopped = attack.run(scratch, attack.code, ())
    assert SECRET not in stopped.out
    assert not changed()
    got_through = attack.run(scratch, attack.code, without)
    assert changed() or SECRET in got_through.out, got_through


@pytest.mark.parametrize("abi", range(1, 8))
def test_every_version_of_landlock_keeps_the_bots_files(abi: int, scratch: Path, outside: Path) -> None:
    if abi > landlock_abi():
        pytest.skip(f"this kernel has Landlock {landlock_abi()}")
    changed = _changed(outside)
    tries = "\n".join(f"attempt({code.replace('@', str(outside))!r})" for _, code, _ in OUTSIDE)
    code = (
        "def attempt(code):\n    try: exec(code, {})\n    except OSError: pass\n"
        + tries
        + "\nopen('output/x', 'w').close()"
    )
    run = Attack(name="all", code=code, without=(), landlock_abi=abi).run(scratch, code, ())
    assert (run.code, run.err) == (0, "")
    assert SECRET not in run.out
    assert not changed()


def test_a_path_cannot_be_truncated_where_landlock_does_not_know_the_right(scratch: Path, outside: Path) -> None:
    changed = _changed(outside)
    code = f"import os\nos.truncate('{outside}/database', 0)"
    attack = Attack(name="truncate", code=code, without=(), landlock_abi=2)
    assert "PermissionError" in attack.run(scratch, code, ()).err
    assert not changed()
    attack.run(scratch, code, ("seccomp:truncate",))
    assert changed()


def test_times_and_modes_of_the_bots_files_stay_though_the_calls_seem_to_work(scratch: Path, outside: Path) -> None:
    secret = outside / "secret"
    code = f"import os\nos.utime('{secret}', (1, 1)); os.chmod('{secret}', 0o777); print('seemed to work')"
    attack = Attack(name="utime", code=code, without=())
    before = secret.stat()
    assert attack.run(scratch, code, ()).out == "seemed to work\n"
    assert (secret.stat().st_mtime_ns, secret.stat().st_mode) == (before.st_mtime_ns, before.st_mode)
    attack.run(scratch, code, ("seccomp:utimensat",))
    assert secret.stat().st_mtime == 1


def test_nothing_of_the_machines_configuration_can_be_opened(scratch: Path) -> None:
    paths = [
        "/",
        "/etc/passwd",
        "/etc/hostname",
        "/proc/self/environ",
        "/proc/self/maps",
        "/proc/1/environ",
        "/sys",
        "/tmp",
    ]
    paths += ["/home", "/root", "/run", "/var", "/dev/shm", "/dev/mem", "/dev/tty", "/dev/urandom", str(Path(__file__))]
    code = (
        f"import os\nfor path in {paths!r}:\n    try: os.open(path, os.O_RDONLY); print('THROUGH', path)\n"
        "    except OSError as e: print(e.errno)\n"
    )
    attack = Attack(name="open", code=code, without=())
    assert "THROUGH" not in attack.run(scratch, code, ()).out
    assert "THROUGH" in attack.run(scratch, code, ("landlock",)).out


# -- other processes and sockets -----------------------------------------------------------------

TO_KILL = [
    ("kill", "import os\nos.kill(@, 9)", ("seccomp:kill",)),
    ("tgkill", LIBC + "libc.tgkill(@, @, 9)", ("seccomp:tgkill",)),
    (
        "owner-by-fcntl",
        "import fcntl, os, socket\na, b = socket.socketpair()\nfcntl.fcntl(a, 8, @); fcntl.fcntl(a, 10, 9)\n"
        "fcntl.fcntl(a, 4, os.O_ASYNC | os.O_NONBLOCK); b.send(b'x')",
        ("seccomp:fcntl",),
    ),
    (
        "owner-by-ioctl",
        "import fcntl, socket, struct\na, b = socket.socketpair()\nfcntl.ioctl(a, 0x8901, struct.pack('i', @))\n"
        "fcntl.ioctl(a, 0x5452, struct.pack('i', 1)); b.send(b'x')",
        ("seccomp:ioctl",),
    ),
]


@pytest.mark.parametrize(("name", "code", "without"), TO_KILL, ids=[row[0] for row in TO_KILL])
def test_no_other_process_can_be_signalled(
    name: str, code: str, without: tuple[str, ...], scratch: Path, decoy: subprocess.Popen[bytes]
) -> None:
    attack = Attack(name=name, code=code.replace("@", str(decoy.pid)), without=without)
    for left_out in ((), without, ("landlock:scope_signal",)):
        attack.run(scratch, attack.code, left_out)
        assert decoy.poll() is None, left_out
    attack.run(scratch, attack.code, (*without, "landlock:scope_signal"))
    assert decoy.wait(timeout=30) in {-signal.SIGKILL, -signal.SIGIO}


def test_limits_of_another_process_cannot_be_set(scratch: Path, decoy: subprocess.Popen[bytes]) -> None:
    before = resource.prlimit(decoy.pid, resource.RLIMIT_NOFILE)
    code = f"import resource\nresource.prlimit({decoy.pid}, resource.RLIMIT_NOFILE, (9, {before[1]}))"
    attack = Attack(name="prlimit", code=code, without=())
    assert "PermissionError" in attack.run(scratch, code, ()).err
    assert resource.prlimit(decoy.pid, resource.RLIMIT_NOFILE) == before
    attack.run(scratch, code, ("seccomp:prlimit64",))
    assert resource.prlimit(decoy.pid, resource.RLIMIT_NOFILE) == (9, before[1])


class Listener:
    """A socket that counts what reaches it: connections, or datagrams."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self.hits = threading.Event()
        if listening.type == socket.SOCK_STREAM:
            listening.listen()
        listening.settimeout(60)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            if self._socket.type == socket.SOCK_STREAM:
                connection = self._socket.accept()[0]
                self.hits.set()
                with connection:
                    connection.recv(1)
            elif self._socket.recv(100):
                self.hits.set()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._socket.family == socket.AF_INET and self._socket.type == socket.SOCK_DGRAM:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
                waker.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()


def _connect(family: str, kind: str, address: str) -> str:
    return f"import socket\ns = socket.socket(socket.{family}, socket.{kind}); s.connect({address}); s.send(b'x')"


SOCKETS = [
    ("tcp", socket.AF_INET, socket.SOCK_STREAM, "connect", ("landlock:connect_tcp",)),
    ("udp", socket.AF_INET, socket.SOCK_DGRAM, "connect", ()),
    ("unix", socket.AF_UNIX, socket.SOCK_STREAM, "connect", ()),
    ("unix-datagram", socket.AF_UNIX, socket.SOCK_DGRAM, "pair", ()),
    ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, "connect", ("landlock:scope_abstract",)),
]


@pytest.mark.parametrize(("name", "family", "kind", "way", "landlock"), SOCKETS, ids=[row[0] for row in SOCKETS])
def test_no_socket_of_the_machine_is_reached(
    name: str, family: int, kind: int, way: str, landlock: tuple[str, ...], scratch: Path, outside: Path
) -> None:
    listening = socket.socket(family, kind)
    if family == socket.AF_INET:
        listening.bind(("127.0.0.1", 0))
        address: object = listening.getsockname()
    else:
        address = f"\0hermod-{os.getpid()}" if name == "abstract" else str(outside / "socket")
        listening.bind(address)
    if way == "connect":
        code = _connect(socket.AddressFamily(family).name, socket.SocketKind(kind).name, repr(address))
        seccomp: tuple[str, ...] = ("seccomp:socket", "seccomp:connect", "seccomp:sendto")
    else:
        code = (
            f"import socket\na, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b'x', {address!r})"
        )
        seccomp = ("seccomp:socketpair", "seccomp:sendto")
    listener = Listener(listening)
    attack = Attack(name=name, code=code, without=())
    try:
        # Each of the layers alone, and each of the calls alone, keeps the listener unreached.
        for left_out in {(), landlock, seccomp[:1], seccomp if landlock else ()}:
            assert attack.run(scratch, code, left_out).code == 1
            assert not listener.hits.is_set(), left_out
        assert attack.run(scratch, code, (*seccomp, *landlock)).code == 0
        assert listener.hits.wait(30)
    finally:
        listener.close()
