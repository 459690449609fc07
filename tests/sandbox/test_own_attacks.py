"""Attacks on this implementation that take more than one program: see ``battery/own.toml`` for the others."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapters.chat import FileRef
from agent_core.context import SystemClock
from bot.tools.python_sandbox.collect import collect_outputs
from bot.tools.python_sandbox.folders import Folders, remove_tree
from bot.tools.python_sandbox.forked_run import ZygoteBroken
from bot.tools.python_sandbox.process import Output
from bot.tools.python_sandbox.types import MiB, RunStatus
from bot.tools.python_sandbox.uploads import Uploads
from bot.tools.python_sandbox.warm import Zygote
from tests.sandbox.sandboxes import NAME_ITSELF, SOON_S, OpenSandbox, Sandbox, find_named, until, watch_loop
from tests.stopwatch import hold_at_best

SECRET = "canary-7b2e"

# -- what a run could leave for the next one -------------------------------------------------------

FINGERPRINT = """
import atexit, builtins, decimal, gc, locale, os, random, resource, signal, sys, threading, warnings
def show():
    print(sorted(os.environ), os.path.basename(os.getcwd()) != "", sorted(sys.modules.keys() - {"json"}))
    print(sys.path, sys.argv, sys.getrecursionlimit(), sys.gettrace(), sys.excepthook is sys.__excepthook__)
    print(sys.getswitchinterval(), len(sys.meta_path), len(sys.path_hooks), gc.isenabled(), gc.get_threshold())
    print([signal.getsignal(n) for n in (1, 2, 10, 12, 14, 15)], signal.getitimer(signal.ITIMER_REAL))
    print(decimal.getcontext(), locale.setlocale(locale.LC_ALL), len(warnings.filters), threading.stack_size())
    print([resource.getrlimit(n) for n in range(1, 16) if n not in (6, 9)], threading.active_count(), dir(builtins))
    print(len(os.listdir("output")), os.get_blocking(1), os.get_inheritable(1), [len(s) for s in (random.__dict__,)])
show()
"""
POISON = """
sys.setrecursionlimit(50000); sys.settrace(lambda *_: None); sys.excepthook = print; sys.setswitchinterval(1)
sys.path.insert(0, os.getcwd()); sys.meta_path.insert(0, object()); sys.path_hooks.clear(); sys.argv = ["x"]
sys.modules["poisoned"] = sys; builtins.poisoned = 1; builtins.len = lambda _: 0; random.random = lambda: 4
os.environ["POISON"] = "1"; os.chdir("output"); os.umask(0); gc.disable(); gc.set_threshold(1)
for n in (1, 2, 10, 12, 14, 15): signal.signal(n, signal.SIG_IGN)
decimal.getcontext().prec = 3; warnings.simplefilter("error"); threading.stack_size(1 << 20)
atexit.register(lambda: open("late", "w").close()); os._exit = lambda _: None; os.fork = lambda: 0
for n in range(1, 16):
    try: resource.setrlimit(n, (0, 0))
    except (ValueError, OSError): pass
open("left", "w").close() if False else None
os.set_blocking(1, False); os.set_inheritable(1, True)
"""


async def test_a_run_that_changes_all_it_can_changes_nothing_for_the_next_one(sandbox: Sandbox) -> None:
    before = await sandbox.run(FINGERPRINT)
    await sandbox.run(FINGERPRINT + POISON)
    after = await sandbox.run(FINGERPRINT)
    assert before.status is after.status is RunStatus.OK, before.stderr
    assert before.stdout.count("\n") == 7
    assert _without_memory(after.stdout) == _without_memory(before.stdout)


def _without_memory(fingerprint: str) -> list[str]:
    return [line for line in fingerprint.splitlines() if not line.startswith("[(")] + [
        line.partition("), ")[2] for line in fingerprint.splitlines() if line.startswith("[(")
    ]


async def test_nothing_random_comes_twice(open_sandbox: OpenSandbox, kind: str) -> None:
    sandbox = await open_sandbox(kind, preload=("random", "uuid", "secrets", "tempfile", "numpy"))
    code = (
        "import os, random, secrets, tempfile, uuid\n"
        "print(random.random(), random.Random().random(), secrets.token_hex(), uuid.uuid4(), os.urandom(8).hex())\n"
        "print(next(tempfile._get_candidate_names()))\n"
        "try:\n    import numpy\n    print(numpy.random.rand(), numpy.random.default_rng().random())\n"
        "except ImportError: pass\n"
    )
    outcomes = await asyncio.gather(*(sandbox.run(code) for _ in range(4)))
    drawn = [word for outcome in outcomes for word in outcome.stdout.split()]
    assert len(drawn) == len(set(drawn)) >= 24


async def test_the_zygote_shares_no_memory_with_runs_that_they_could_write_to(open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox("landlock", preload=("random", "numpy", "sqlite3", "multiprocessing"))
    zygote = int((await sandbox.run("import os; print(os.getppid())")).stdout)
    maps = (await asyncio.to_thread(Path(f"/proc/{zygote}/maps").read_text)).splitlines()
    assert len(maps) > 50
    assert [line for line in maps if line.split()[1].startswith("rw-s") or line.split()[1].endswith("ws")] == []


PLANTED = ("sitecustomize.py", "usercustomize.py", "json.py", "random.py", "numpy.py", "encodings.py", "x.pth", "os.py")


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
async def test_attached_files_that_are_called_like_modules_are_data(
    open_sandbox: OpenSandbox, kind: str, warm: bool
) -> None:
    sandbox = await open_sandbox(kind, warm=warm)
    folder = sandbox.new_folder()
    code = f"print('{SECRET}')\nopen('ran', 'w').close()\n"
    for name in (*PLANTED, "pyvenv.cfg", "matplotlibrc", "__init__.py", "__main__.py"):
        (folder / "input" / name).write_text(code)
        (folder / name).write_text(code)
    outcome = await sandbox.run("import json, random, os, sys\nprint(json.dumps(sorted(sys.path)))", folder=folder)
    assert outcome.status is RunStatus.OK, outcome.stderr
    assert SECRET not in outcome.stdout + outcome.stderr
    assert not (folder / "ran").exists()
    assert str(folder) not in outcome.stdout


async def test_settings_of_matplotlib_reach_no_other_run(sandbox: Sandbox) -> None:
    code = (
        "import os\n"
        "for folder in (os.environ['MPLCONFIGDIR'], os.path.expanduser('~/.config/matplotlib'), os.getcwd()):\n"
        "    os.makedirs(folder, exist_ok=True)\n"
        "    print(sorted(n for n in os.listdir(folder) if 'poison' in n or n == 'matplotlibrc'))\n"
        "    for name in ('matplotlibrc', 'fontlist-v999.json', 'poison.mplstyle'):\n"
        "        open(os.path.join(folder, name), 'w').write('backend: module://evil')\n"
    )
    cache = sandbox.backend.tuning.cache
    first = await sandbox.run(code)
    kept = sorted((str(path), path.stat().st_mtime_ns) for path in cache.rglob("*") if path.is_file())
    second = await sandbox.run(code)
    assert first.stdout == second.stdout == "[]\n" * 3, first.stderr + second.stderr
    assert kept == sorted((str(path), path.stat().st_mtime_ns) for path in cache.rglob("*") if path.is_file())


# -- two at the same time --------------------------------------------------------------------------


async def test_a_run_gets_nothing_of_another_one_whose_place_it_knows(open_sandbox: OpenSandbox, kind: str) -> None:
    sandbox = await open_sandbox(kind, places=4)
    folder = sandbox.new_folder()
    victim = asyncio.create_task(
        sandbox.run(
            f"import os, time\nopen('secret', 'w').write('{SECRET}')\nprint(os.getcwd(), os.getpid(), flush=True)\n"
            "end = time.monotonic() + 30\nwhile not os.path.exists('input/go') and time.monotonic() < end:\n"
            "    time.sleep(0.01)\n    if time.monotonic() > end - 27: break\nprint(sorted(os.listdir('.')))",
            folder=folder,
        )
    )
    # Where it is comes from a run before, in the same place or in one that is made alike.
    known = (await sandbox.run("import os; print(os.getcwd())")).stdout.strip()
    here = str(folder) if kind == "landlock" else os.path.dirname(known)
    attack = (
        "import glob, os\n"
        "def attempt(act):\n    try: print(act())\n    except OSError as error: print(error.errno)\n"
        f"for place in ({here!r}, *glob.glob({here!r} + '/*')):\n"
        "    for name in ('secret', 'output', 'input'):\n"
        "        path = os.path.join(place, name)\n"
        "        attempt(lambda: open(path).read()); attempt(lambda: os.listdir(path))\n"
        "        attempt(lambda: open(path + '/planted', 'w')); attempt(lambda: os.rename(path, path + 'x'))\n"
        "        attempt(lambda: os.link(path, 'mine') or open('mine').read()); attempt(lambda: os.unlink(path))\n"
        "        attempt(lambda: os.chdir(place) or open(name).read())\n"
    )
    outcomes = [await sandbox.run(attack) for _ in range(3)]
    assert all(SECRET not in outcome.stdout + outcome.stderr for outcome in outcomes)
    ended = await victim
    assert ended.status is RunStatus.OK, ended.stderr
    assert ended.stdout.endswith("['input', 'output', 'secret']\n")


def list_states(pid: int) -> list[str]:
    """Return the state of each thread of a process (proc_pid_stat(5))."""
    return [path.read_text().rpartition(") ")[2][:1] for path in Path(f"/proc/{pid}/task").glob("*/stat")]


async def test_threads_that_go_on_after_a_program_of_a_session_cannot_confuse_what_is_handed_back(
    open_sandbox: OpenSandbox, kind: str
) -> None:
    sandbox = await open_sandbox(kind)
    folder, name = sandbox.new_folder(data="given"), f"swap{os.getpid()}"
    code = NAME_ITSELF.format(name=name) + (
        "import os, shutil, threading\n"
        "def swap():\n"
        "    while True:\n"
        "        for act in (lambda: open('output/x', 'w').write('x' * 5000), lambda: os.remove('output/x'),\n"
        "                    lambda: os.mkdir('output/x'), lambda: open('output/x/y', 'w').write('y'),\n"
        "                    lambda: shutil.rmtree('output/x'), lambda: os.mkdir('output/z', 0),\n"
        "                    lambda: os.rename('input', 'was'), lambda: os.rename('was', 'input')):\n"
        "            try: act()\n            except OSError: pass\n"
        "for _ in range(3): threading.Thread(target=swap, daemon=True).start()\n"
    )
    await sandbox.run(code, folder=folder, session="a")
    (pid,) = find_named(name)
    for _ in range(5):
        assert list_states(pid) == ["T"] * 4
        outcome = await sandbox.run("print('still here')", folder=folder, session="a")
        assert (outcome.status, outcome.stdout) == (RunStatus.OK, "still here\n"), outcome.detail + outcome.stderr
        collected = await asyncio.to_thread(collect_outputs, folder, most_files=10, most_bytes=MiB)
        assert {file.name for file in collected.files} <= {"x"}


async def test_a_file_that_became_a_folder_comes_back_and_the_reverse(sandbox: Sandbox) -> None:
    folder = sandbox.new_folder()
    await sandbox.run("import os\nopen('output/x', 'w').write('1')\nos.mkdir('output/d')", folder=folder)
    (folder / "output/d/old").write_text("2")
    outcome = await sandbox.run(
        "import os, shutil\nos.remove('output/x'); os.mkdir('output/x'); open('output/x/y', 'w').write('3')\n"
        "shutil.rmtree('output/d'); open('output/d', 'w').write('4')",
        folder=folder,
    )
    assert (outcome.status, outcome.stderr) == (RunStatus.OK, "")
    assert (folder / "output/x/y").read_text() == "3"
    assert (folder / "output/d").read_text() == "4"


async def test_an_input_folder_that_was_replaced_by_a_file_is_an_ordinary_outcome(sandbox: Sandbox) -> None:
    folder = sandbox.new_folder(data="given")
    code = "import os\nos.rename('input', 'was')\nopen('input', 'w').write('x')\nprint('done')"
    outcome = await sandbox.run(code, folder=folder)
    assert (outcome.status, outcome.stdout) == (RunStatus.OK, "done\n"), outcome.stderr
    remove_tree(folder)


# -- the collector against somebody who is not gone -------------------------------------------------


@contextmanager
def swapping(output: Path, canary: Path) -> Iterator[list[int]]:
    """Let a thread exchange what stands under one name, as fast as it can; yields how often it did."""
    stop, rounds = threading.Event(), [0]

    def swap() -> None:
        kinds = (
            lambda at: at.symlink_to(canary),
            lambda at: at.symlink_to(canary.parent),
            os.mkfifo,
            # No hard link: no program can make one to a file outside, and two names are seen while there are two.
            lambda at: at.mkdir(),
            lambda at: at.write_text("plain"),
            lambda at: at.write_bytes(b"x" * 200_000),
        )
        made = output / ".made"
        while not stop.is_set():
            kinds[rounds[0] % len(kinds)](made)
            at = output / "data.csv"
            if at.is_dir() and not at.is_symlink():
                at.rmdir()
            if made.is_dir() and not made.is_symlink():
                at.unlink(missing_ok=True)
            os.rename(made, at)
            rounds[0] += 1

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield rounds
    finally:
        stop.set()
        thread.join()


def test_a_file_that_is_exchanged_while_it_is_collected_gives_nothing_away(tmp_path: Path) -> None:
    output, canary = tmp_path / "run/output", tmp_path / "bot/config"
    output.mkdir(parents=True)
    canary.parent.mkdir()
    canary.write_text(SECRET)
    taken: set[bytes] = set()
    with swapping(output, canary) as rounds:
        began = time.monotonic()
        while not (rounds[0] >= 500 and {b"plain", b"it is a link"} <= taken) and time.monotonic() - began < SOON_S:
            collected = collect_outputs(tmp_path / "run", most_files=10, most_bytes=100_000)
            taken |= {file.content for file in collected.files if file.name == "data.csv"}
            taken |= {left.reason.encode() for left in collected.left_out}
    assert rounds[0] >= 500
    assert {b"plain", b"it is a link"} <= taken
    assert all(SECRET.encode() not in content for content in taken)


def test_a_file_that_grows_while_it_is_collected_is_bounded(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()
    stop = threading.Event()

    def grow() -> None:
        with (output / "log.txt").open("ab", buffering=0) as file:
            while not stop.is_set():
                file.write(b"x" * 65536)
                if file.tell() > 64 * MiB:
                    file.truncate(0)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        for _ in range(50):
            collected = collect_outputs(tmp_path, most_files=10, most_bytes=MiB)
            assert sum(len(file.content) for file in collected.files) <= MiB
    finally:
        stop.set()
        thread.join()


NAMES = (
    *("../../x", "/etc/passwd", "..", ".", ".ssh", "a/../../b", "x\0y", "\u202egnp.exe", "a\nb", "CON", "-rf", "~x"),
    *("x" * 5000, "\ud800", "C:\\Windows\\x", "input", "\\\\host\\share", "%2e%2e/x", "$(id)", "`id`", ""),
)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_an_attached_file_stays_in_its_folder_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    folders = Folders(tmp_path / "root", clock=SystemClock())
    uploads = Uploads(folders)
    file = FileRef(id="F1", name=name, size=4)
    uploads.note("thread", "M1", 1.0, [file])
    (upload,) = uploads.list("thread")
    uploads.save("thread", upload, b"data")
    run = folders.new_run("thread")
    before = {path for path in tmp_path.rglob("*") if "runs" not in path.parts}
    sizes = uploads.copy("thread", [upload.name], run / "input")
    assert sizes == {upload.name: 4}
    assert [path.name for path in (run / "input").iterdir()] == [upload.name]
    assert {path for path in tmp_path.rglob("*") if "runs" not in path.parts} == before


# -- the bot's own loop ----------------------------------------------------------------------------


async def test_output_byte_by_byte_does_not_hold_up_the_bot(sandbox: Sandbox) -> None:
    code = "import fcntl, os\nfcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT)\nwhile True: os.write(1, b'x')"

    async def check(attempt: int) -> None:
        run = asyncio.create_task(sandbox.run(code, wall_s=2.0))
        try:
            await watch_loop(run)
        finally:
            outcome = await run
        assert outcome.status in {RunStatus.TIMEOUT, RunStatus.OUTPUT_CAP}

    await hold_at_best(check)


FLOOD = """
import json, os, socket, time
def main(arguments):
    control = socket.socket(fileno=int(arguments[0]))
    null = os.open("/dev/null", os.O_RDONLY)
    def say(count, **message):
        socket.send_fds(control, [json.dumps(message).encode()], [null] * count)
    {body}
    time.sleep(60)
"""
HELLO = "say(0, op='hello', id=0, prefix='x', packages='', abi=1); control.recv(9999); "
FLOODS = {
    "with the first word": "say(3, op='hello', id=0, prefix='x', packages='', abi=1)",
    "with a run that is none": HELLO + "say(1, op='started', id=1)",
    "with too many for a run": HELLO + "say(3, op='started', id=1)",
    "with the end of a run": HELLO + "say(2, op='ended', id=1, status=0, cpu_us=0, peak_bytes=0, refused='')",
    "more than fit": HELLO + "say(60, op='started', id=1)",
}


@pytest.mark.parametrize("what", list(FLOODS))
async def test_descriptors_that_a_zygote_was_not_asked_for_are_closed(tmp_path: Path, what: str) -> None:
    (tmp_path / "zygote.py").write_text(FLOOD.format(body=FLOODS[what]))
    (tmp_path / "__init__.py").touch()

    async def start() -> None:
        output = Output(keep_bytes=10)
        try:
            zygote = await Zygote.start(python=sys.executable, child=str(tmp_path), environ={}, reply_timeout_s=SOON_S)
            await zygote.fork(b"{}", (output.write_fd, output.write_fd))
        finally:
            output.close()

    opened = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ZygoteBroken):
        await asyncio.wait_for(start(), SOON_S / 2)
    # One is left to hear what it last said.
    await until(lambda: len(os.listdir("/proc/self/fd")) <= opened + 1, "the descriptors are closed")


async def test_descriptors_beside_a_plain_answer_are_closed_and_the_zygote_may_go_on(tmp_path: Path) -> None:
    (tmp_path / "zygote.py").write_text(FLOOD.format(body=HELLO + "say(2, op='prepared', id=1)"))
    (tmp_path / "__init__.py").touch()
    zygote = await Zygote.start(python=sys.executable, child=str(tmp_path), environ={}, reply_timeout_s=SOON_S)
    opened = len(os.listdir("/proc/self/fd"))
    try:
        assert await zygote.prepare() is None
        assert len(os.listdir("/proc/self/fd")) <= opened
    finally:
        await zygote.aclose()


async def test_a_socket_of_the_bot_that_is_inheritable_is_in_no_run(open_sandbox: OpenSandbox, kind: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.set_inheritable(True)
        sandbox = await open_sandbox(kind)
        code = f"import os\ntry:\n    os.write({theirs.fileno()}, b'hit')\nexcept OSError as error: print(error.errno)"
        assert (await sandbox.run(code)).stdout == "9\n"
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(1)
