"""Each rule of the sandbox stops its attack; with the rule left out the same attack gets through.

An attack prints THROUGH when it got what it wanted. Where the harm is outside of the process, the test looks there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.tools.python_sandbox.child.landlock import landlock_abi
from bot.tools.python_sandbox.child.policy import MiB, Policy
from bot.tools.python_sandbox.child.restrict import is_supported
from bot.tools.python_sandbox.child.seccomp import allowed_calls, answered_calls, this_architecture
from bot.tools.python_sandbox.child.syscalls import X86_64, numbers
from tests.sandbox.child_process import NOBODY, ChildRun, python_for, run_child, scratch_folder

pytestmark = pytest.mark.skipif(bool(is_supported()), reason=is_supported() or "supported")

ROOT = os.geteuid() == 0
AS_ROOT = pytest.mark.skipif(not ROOT, reason="needs root: the attack uses a right that only root has")
SECRET = "canary-5d1f0c"
LIBC = "import ctypes, errno, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What is tried, and the rules that have to be left out for it to get through. ``limits``: of the policy."""

    name: str
    code: str
    without: tuple[str, ...]
    memory_bytes: int = 512 * MiB
    cpu_s: int = 20
    file_bytes: int = 16 * MiB
    open_files: int = 64
    landlock_abi: int = 0
    native_libraries: bool = True

    def run(self, scratch: Path, code: str, without: tuple[str, ...]) -> ChildRun:
        policy = Policy(
            scratch=str(scratch),
            input=str(scratch / "input"),
            memory_bytes=self.memory_bytes,
            cpu_s=self.cpu_s,
            file_bytes=self.file_bytes,
            open_files=self.open_files,
            landlock_abi=self.landlock_abi,
            native_libraries=self.native_libraries,
            without=without,
        )
        # As it was when the files came; the run before has made them read-only.
        (scratch / "input").chmod(0o755)
        for path in (scratch / "input").iterdir():
            path.chmod(0o644)
        return run_child(code, policy)


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


def _limit(name: str) -> str:
    return (
        f"import resource\nsoft, hard = resource.getrlimit(resource.RLIMIT_{name})\n"
        f"resource.setrlimit(resource.RLIMIT_{name}, (hard, hard))\nprint('THROUGH' if hard else 'no')\n"
    )


INSIDE = [
    Attack(
        name="address-space",
        code="x = bytearray(300 << 20)\nprint('THROUGH')\n",
        memory_bytes=64 * MiB,
        without=("rlimit:as",),
    ),
    Attack(
        name="processor-time",
        code="import time\nwhile time.process_time() < 1.9: pass\nprint('THROUGH')\n",
        cpu_s=1,
        without=("rlimit:cpu",),
    ),
    Attack(
        name="file-size",
        code="f = open('big', 'wb'); f.seek(50 << 30); f.write(b'1'); f.close(); print('THROUGH')\n",
        file_bytes=MiB,
        without=("rlimit:fsize",),
    ),
    Attack(
        name="descriptors",
        code="f = [open('/dev/null') for _ in range(200)]\nprint('THROUGH')\n",
        open_files=32,
        without=("rlimit:nofile",),
    ),
    Attack(name="core-size", code=_limit("CORE"), without=("rlimit:core",)),
    Attack(name="locked-memory", code=_limit("MEMLOCK"), without=("rlimit:memlock",)),
    Attack(name="message-queues", code=_limit("MSGQUEUE"), without=("rlimit:msgqueue",)),
    Attack(
        name="inspection",
        code=LIBC + "print('THROUGH' if libc.prctl(3, 0, 0, 0, 0) == 1 else 'no')\n",
        without=("dumpable",),
    ),
    Attack(
        name="make-dumpable-again",
        code=LIBC + "print('THROUGH' if libc.prctl(4, 1, 0, 0, 0) == 0 else 'no')\n",
        without=("seccomp:prctl",),
    ),
    Attack(
        name="device-control",
        code=LIBC + "f = os.open('/dev/null', os.O_RDWR); libc.ioctl(f, 0x5401, bytes(64))\n"
        "print('THROUGH' if ctypes.get_errno() == errno.ENOTTY else 'no')\n",
        without=("landlock:ioctl_dev",),
    ),
    Attack(
        name="symbolic-link",
        code="import os\nos.symlink('/etc/passwd', 'output/x')\nprint('THROUGH')\n",
        without=("landlock:make_sym", "seccomp:symlink", "seccomp:symlinkat"),
    ),
    Attack(
        name="named-pipe",
        code="import os\nos.mkfifo('output/x')\nprint('THROUGH')\n",
        without=("landlock:make_fifo", "seccomp:mknod", "seccomp:mknodat"),
    ),
    Attack(
        name="socket-file",
        code="import socket\nsocket.socket(socket.AF_UNIX).bind('output/x')\nprint('THROUGH')\n",
        without=("landlock:make_sock", "seccomp:socket", "seccomp:bind"),
    ),
    Attack(
        name="device-file",
        code="import os, stat\nos.mknod('output/x', stat.S_IFCHR | 0o600, 0)\nprint('THROUGH')\n",
        without=("landlock:make_char", "seccomp:mknod", "seccomp:mknodat"),
    ),
    Attack(
        name="listening-port",
        code="import socket\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); print('THROUGH')\n",
        without=("landlock:bind_tcp", "seccomp:socket", "seccomp:bind", "seccomp:listen"),
    ),
    Attack(
        name="fork",
        code="import os\npid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0); print('THROUGH')\n",
        without=("seccomp:clone",),
    ),
    Attack(
        name="user-namespace",
        code=LIBC + "print('THROUGH' if libc.unshare(0x10000000) == 0 else os.strerror(ctypes.get_errno()))\n",
        without=("seccomp:unshare",),
    ),
    Attack(
        name="writable-code",
        code="import mmap\nmmap.mmap(-1, 4096, prot=7)\nprint('THROUGH')\n",
        without=("seccomp:mmap",),
    ),
    Attack(
        name="memory-made-executable",
        code=LIBC + "import mmap\nm = mmap.mmap(-1, 4096); a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n"
        "print('THROUGH' if libc.mprotect(ctypes.c_void_p(a), ctypes.c_size_t(4096), 5) == 0 else 'no')\n",
        without=("seccomp:mprotect",),
    ),
    Attack(
        name="memory-file",
        code="import os\nos.memfd_create('x')\nprint('THROUGH')\n",
        without=("seccomp:memfd_create",),
    ),
    Attack(
        name="write-input",
        code="open('input/data.csv', 'a').write('planted')\nprint('THROUGH')\n",
        without=("input",),
    ),
    Attack(
        name="delete-input",
        code="import os\nos.unlink('input/data.csv')\nprint('THROUGH')\n",
        without=("input",),
    ),
    Attack(
        name="make-input-writable",
        code="import os\nos.chmod('input/data.csv', 0o600)\nopen('input/data.csv', 'a').write('x')\nprint('THROUGH')\n",
        without=("seccomp:chmod", "seccomp:fchmodat"),
    ),
]


@pytest.mark.parametrize("attack", INSIDE, ids=lambda attack: attack.name)
def test_an_attack_from_inside_needs_its_rule_to_be_left_out(attack: Attack, scratch: Path) -> None:
    stopped = attack.run(scratch, attack.code, ())
    assert "THROUGH" not in stopped.out
    assert stopped.reply["state"] == "restricted"
    got_through = attack.run(scratch, attack.code, attack.without)
    assert "THROUGH" in got_through.out, got_through


@pytest.mark.parametrize("attack", [item for item in INSIDE if len(item.without) > 1], ids=lambda attack: attack.name)
def test_where_two_layers_stop_an_attack_each_does_alone(attack: Attack, scratch: Path) -> None:
    layers = {rule.partition(":")[0] for rule in attack.without}
    for layer in layers if len(layers) > 1 else ():
        left_out = tuple(rule for rule in attack.without if rule.startswith(layer))
        assert "THROUGH" not in attack.run(scratch, attack.code, left_out).out, layer


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
    import resource

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


# -- programs, privileges, gates -----------------------------------------------------------------


def test_no_other_program_is_started(scratch: Path) -> None:
    code = "import os\nos.execv('/bin/echo', ['echo', 'THROUGH'])"
    attack = Attack(name="exec", code=code, without=())
    landlock = ("landlock:execute", "landlock:read_file")
    seccomp = ("seccomp:execve", "seccomp:arch_prctl")  # the second is what a new program calls first
    for left_out in ((), landlock, seccomp):
        assert "THROUGH" not in attack.run(scratch, code, left_out).out
    assert "THROUGH" in attack.run(scratch, code, (*landlock, *seccomp)).out


def test_a_dropped_library_is_not_loaded_where_native_libraries_are_off(scratch: Path) -> None:
    comes_with_python = Path(sysconfig.get_config_var("DESTSHARED")).glob("_*.so")
    smallest = min(comes_with_python, key=lambda path: path.stat().st_size)
    (scratch / "dropped.so").write_bytes(smallest.read_bytes())
    code = "import ctypes\nctypes.CDLL('./dropped.so')\nprint('THROUGH')"
    closed = Attack(name="dlopen", code=code, without=(), native_libraries=False)
    assert "failed to map segment" in closed.run(scratch, code, ()).err
    assert "THROUGH" in closed.run(scratch, code, ("seccomp:mmap",)).out
    # What an import of numpy needs is the same call; so it is open unless everything was loaded before.
    assert "THROUGH" in Attack(name="dlopen", code=code, without=()).run(scratch, code, ()).out


@AS_ROOT
def test_root_keeps_no_right_of_root(scratch: Path) -> None:
    code = "import os\nos.setuid(1234)\nprint('THROUGH')"
    attack = Attack(name="setuid", code=code, without=())
    assert "THROUGH" not in attack.run(scratch, code, ("seccomp:setuid",)).out
    assert "THROUGH" in attack.run(scratch, code, ("seccomp:setuid", "capabilities")).out


@AS_ROOT
def test_a_block_device_cannot_be_made(scratch: Path) -> None:
    code = "import os, stat\nos.mknod('x', stat.S_IFBLK | 0o600, os.makedev(7, 250))\nprint('THROUGH')"
    attack = Attack(name="mknod", code=code, without=())
    rules = {"landlock:make_block", "seccomp:mknod", "seccomp:mknodat", "capabilities"}
    for one in (("landlock:make_block",), ("capabilities",), ("seccomp:mknod", "seccomp:mknodat")):
        assert "THROUGH" not in attack.run(scratch, code, tuple(rules - set(one))).out
    assert "THROUGH" in attack.run(scratch, code, tuple(rules)).out


@AS_ROOT
def test_no_new_privileges_is_set(scratch: Path) -> None:
    code = LIBC + "print('THROUGH' if libc.prctl(39, 0, 0, 0, 0) == 0 else 'no')\n"
    attack = Attack(name="nnp", code=code, without=())
    assert attack.run(scratch, code, ("capabilities",)).out == "no\n"
    assert attack.run(scratch, code, ("no_new_privs", "capabilities")).out == "THROUGH\n"


@AS_ROOT
def test_the_run_can_have_a_user_of_its_own() -> None:
    python = python_for(NOBODY)
    if not python:
        pytest.skip("no interpreter that another user can start")
    code = "import os\nprint(os.getresuid(), os.getresgid(), os.getgroups()); open('output/x', 'w').write('1')"
    with scratch_folder(owner=NOBODY) as folder:
        policy = Policy(scratch=str(folder), input=str(folder / "input"), uid=NOBODY, gid=NOBODY)
        run = run_child(code, policy, python=python)
        assert run.out == f"{(NOBODY,) * 3} {(NOBODY,) * 3} []\n", run
        assert (folder / "output" / "x").stat().st_uid == NOBODY
        root_only = Path(folder, "output")
        os.chown(folder, 0, 0)
        folder.chmod(0o700)
        refused = run_child(code, policy, python=python)
    assert refused.reply["state"] == "refused", root_only
    assert str(folder) in str(refused.reply["reason"])


@AS_ROOT
def test_an_unprivileged_bot_has_the_same_lock(outside: Path) -> None:
    python = python_for(NOBODY)
    if not python:
        pytest.skip("no interpreter that another user can start")
    outside.chmod(0o755)
    (outside / "secret").chmod(0o644)
    code = f"print(open('{outside}/secret').read())"
    with scratch_folder(owner=NOBODY) as folder:
        policy = Policy(scratch=str(folder), input=str(folder / "input"))
        assert run_child("import os; print(os.getuid())", policy, python=python, user=NOBODY).out == f"{NOBODY}\n"
        assert SECRET not in run_child(code, policy, python=python, user=NOBODY).out
        open_policy = Policy(scratch=str(folder), without=("landlock:read_file",))
        assert SECRET in run_child(code, open_policy, python=python, user=NOBODY).out
        stopped = run_child("open('input/data.csv', 'a').write('x')", policy, python=python, user=NOBODY)
        assert "PermissionError" in stopped.err


def _machine_code(hexadecimal: str) -> str:
    """Code that maps instructions from a file, which is the way that is open, and calls them."""
    return (
        f"import ctypes, os\nopen('code', 'wb').write(bytes.fromhex('{hexadecimal}').ljust(4096, b'\\0'))\n"
        "libc = ctypes.CDLL(None, use_errno=True); libc.mmap.restype = ctypes.c_void_p\n"
        "libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]\n"
        "at = libc.mmap(None, 4096, 5, 2, os.open('code', os.O_RDONLY), 0)\n"
        "ctypes.CFUNCTYPE(ctypes.c_int)(at)()\nprint('THROUGH')\n"
    )


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other gates into the kernel exist on x86-64 only")
@pytest.mark.parametrize(
    ("rule", "hexadecimal"),
    [
        ("seccomp:arch", "b814000000 cd80 c3"),  # mov eax, 20 (getpid); int 0x80; ret
        ("seccomp:x32", "b827000040 0f05 c3"),  # mov eax, 0x40000027; syscall; ret
    ],
)
def test_another_gate_into_the_kernel_ends_the_process(rule: str, hexadecimal: str, scratch: Path) -> None:
    code = _machine_code(hexadecimal)
    attack = Attack(name=rule, code=code, without=())
    assert attack.run(scratch, code, ()).code == -signal.SIGSYS
    assert attack.run(scratch, code, (rule,)).out == "THROUGH\n"


REFUSED_FOR_REAL = """
    io_uring_setup keyctl userfaultfd ptrace process_vm_readv pidfd_open name_to_handle_at unshare shmget msgget semget
    sched_setaffinity sched_setscheduler setpriority personality kill tkill rt_sigqueueinfo rt_tgsigqueueinfo execveat
    seccomp landlock_create_ruleset landlock_restrict_self memfd_create inotify_init1 fanotify_mark timer_create
    eventfd2 signalfd4 io_setup vmsplice splice tee capget setsid setpgid setsockopt accept4 sendmsg recvmsg mlock
    mincore get_robust_list process_madvise pidfd_send_signal openat2 kcmp statmount listmount
"""


def test_calls_that_no_program_needs_are_refused_by_the_filter_itself(scratch: Path) -> None:
    table = numbers(this_architecture())
    calls = {name: table[name] for name in REFUSED_FOR_REAL.split() if name in table}
    assert not calls.keys() & (allowed_calls() | answered_calls())
    code = LIBC + (
        f"for name, number in {calls!r}.items():\n"
        "    ctypes.set_errno(0)\n"
        "    libc.syscall(*[ctypes.c_long(item) for item in (number, -1, -1, -1, -1, -1, -1)])\n"
        "    if ctypes.get_errno() != errno.EPERM: print(name)\n"
    )
    attack = Attack(name="calls", code=code, without=())
    assert attack.run(scratch, code, ()).out == ""
    opened = attack.run(scratch, code, tuple(f"seccomp:{name}" for name in calls)).out.split()
    # A few answer EPERM themselves, by a setting of the machine.
    assert len(opened) >= 0.85 * len(calls), calls.keys() - set(opened)


def test_a_call_without_a_rule_is_refused_only_by_the_default(scratch: Path) -> None:
    code = LIBC + "print('THROUGH' if libc.inotify_init1(0) > 0 else 'no')\n"
    attack = Attack(name="default", code=code, without=())
    assert attack.run(scratch, code, ()).out == "no\n"
    assert attack.run(scratch, code, ("seccomp:default",)).out == "THROUGH\n"
    assert attack.run(scratch, code, ("seccomp",)).out == "THROUGH\n"


def test_a_call_newer_than_the_table_seems_not_to_exist(scratch: Path) -> None:
    code = LIBC + "libc.syscall(ctypes.c_long(480)); print(errno.errorcode[ctypes.get_errno()])\n"
    attack = Attack(name="newest", code=code, without=())
    assert attack.run(scratch, code, ()).out == "ENOSYS\n"
    assert attack.run(scratch, code, ("seccomp:newest",)).out == "EPERM\n"


def test_the_library_falls_back_when_clone3_seems_not_to_exist(scratch: Path) -> None:
    code = "import threading\nt = threading.Thread(target=print, args=('ran',)); t.start(); t.join()"
    attack = Attack(name="thread", code=code, without=())
    assert attack.run(scratch, code, ()).out == "ran\n"
    direct = LIBC + (
        f"args = (ctypes.c_uint64 * 11)(0, 0, 0, 0, 17)\nnumber = {numbers(X86_64)['clone3']}\n"
        "pid = libc.syscall(ctypes.c_long(number), args, ctypes.c_size_t(88))\n"
        "if pid == 0: os._exit(0)\nprint('THROUGH' if pid > 0 else errno.errorcode[ctypes.get_errno()])\n"
    )
    assert attack.run(scratch, direct, ()).out == "ENOSYS\n"
    assert attack.run(scratch, direct, ("seccomp:clone3",)).out == "THROUGH\n"


MANY_THREADS = """
import ctypes, os
libc = ctypes.CDLL(None)
attributes = ctypes.create_string_buffer(128)
libc.pthread_attr_init(attributes)
libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(16384))
thread, pause, n = ctypes.c_ulong(), ctypes.cast(libc.pause, ctypes.c_void_p), 0
while n < 2500 and libc.pthread_create(ctypes.byref(thread), attributes, pause, None) == 0: n += 1
print(n, flush=True)
os._exit(0)
"""


@AS_ROOT
@pytest.mark.parametrize("becomes", [True, False], ids=["root-that-becomes-another", "unprivileged"])
def test_threads_are_bounded_for_every_user_but_root(becomes: bool) -> None:
    python = python_for(NOBODY)
    if not python:
        pytest.skip("no interpreter that another user can start")
    with scratch_folder(owner=NOBODY) as folder:
        identity = {"uid": NOBODY, "gid": NOBODY} if becomes else {}
        user = None if becomes else NOBODY
        fields = {"scratch": str(folder), "threads": 100, **identity}
        bounded = run_child(MANY_THREADS, Policy.from_fields({**fields}), python=python, user=user)
        assert 100 <= int(bounded.out) < 2000, bounded
        unbounded = Policy.from_fields({**fields, "without": ["rlimit:nproc"]})
        assert run_child(MANY_THREADS, unbounded, python=python, user=user).out == "2500\n"
        denied = run_child(MANY_THREADS, Policy.from_fields({**fields, "threads": 1}), python=python, user=user)
        assert int(denied.out) < int(bounded.out)
