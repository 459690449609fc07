"""Each rule of the sandbox stops its attack; with the rule left out the same attack gets through.

An attack prints THROUGH when it got what it wanted. What is outside of the process is in ``test_child_reach``.
"""

from __future__ import annotations

import os
import signal
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.tools.python_sandbox.child.policy import MiB, Policy
from bot.tools.python_sandbox.child.restrict import is_supported
from bot.tools.python_sandbox.child.seccomp import allowed_calls, answered_calls, this_architecture
from bot.tools.python_sandbox.child.syscalls import numbers
from tests.sandbox.child_attacks import LIBC, SECRET, Attack
from tests.sandbox.child_process import NOBODY, python_for, run_child, scratch_folder

pytestmark = pytest.mark.skipif(bool(is_supported()), reason=is_supported() or "supported")

ROOT = os.geteuid() == 0
AS_ROOT = pytest.mark.skipif(not ROOT, reason="needs root: the attack uses a right that only root has")


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


def _limit(name: str) -> str:
    return (
        f"import resource\nsoft, hard = resource.getrlimit(resource.RLIMIT_{name})\n"
        f"resource.setrlimit(resource.RLIMIT_{name}, (hard, hard))\nprint('no' if hard in (0, 1) else 'THROUGH')\n"
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
        name="where-a-link-outside-points-to",
        code="import os\ntry: os.readlink('/proc/self/exe')\nexcept OSError as e: print(e.strerror)\n"
        "else: print('THROUGH')\n",
        without=("seccomp:readlink", "seccomp:readlinkat"),
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


def test_a_path_with_a_link_that_may_not_be_read_is_taken_as_it_is(scratch: Path) -> None:
    (scratch / "real").mkdir()
    (scratch / "link").symlink_to("real")
    (scratch / "real/data.txt").write_text("there")
    code = """
import os, pathlib
here = os.getcwd()
assert os.path.realpath("link/data.txt") == f"{here}/link/data.txt"
assert pathlib.Path("link/../output").resolve() == pathlib.Path(here, "output")
assert os.path.realpath(b"link") == os.fsencode(f"{here}/link")
print(pathlib.Path("link/data.txt").resolve().read_text())
try:
    os.path.realpath("link", strict=True)
except OSError:
    print("strict")
"""
    run = Attack(name="links", code=code, without=()).run(scratch, code, ())
    assert run.out.split() == ["there", "strict"], run


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
        f"args = (ctypes.c_uint64 * 11)(0, 0, 0, 0, 17)\nnumber = {numbers(this_architecture())['clone3']}\n"
        "pid = libc.syscall(ctypes.c_long(number), args, ctypes.c_size_t(88))\n"
        "if pid == 0: os._exit(0)\nprint('THROUGH' if pid > 0 else errno.errorcode[ctypes.get_errno()])\n"
    )
    assert attack.run(scratch, direct, ()).out == "ENOSYS\n"
    assert attack.run(scratch, direct, ("seccomp:clone3",)).out == "THROUGH\n"


def test_no_file_is_left_that_others_can_start_as_the_bot(scratch: Path) -> None:
    code = "import os\nos.umask(0)\nos.close(os.open('output/x', os.O_CREAT | os.O_WRONLY, 0o6755))"
    attack = Attack(name="setuid-file", code=code, without=())
    attack.run(scratch, code, ())
    assert (scratch / "output" / "x").stat().st_mode & 0o077 == 0
    (scratch / "output" / "x").unlink()
    attack.run(scratch, code, ("seccomp:umask",))
    assert (scratch / "output" / "x").stat().st_mode & 0o077 == 0o055


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
