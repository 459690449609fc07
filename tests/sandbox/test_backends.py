"""What both backends do for a run: its files, its separation from others, and interpreters that are kept."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bot.tools.python_sandbox.forking import Tuning
from bot.tools.python_sandbox.host_backend import HostBackend
from bot.tools.python_sandbox.interpreter import find_interpreter
from bot.tools.python_sandbox.kept import KeptLimits
from bot.tools.python_sandbox.types import MiB, RunStatus, SandboxLimits, SandboxRun, SandboxUnavailable
from tests.sandbox.sandboxes import NAME_ITSELF, UNTIL_TOLD, OpenSandbox, Sandbox, find_named, tell, until
from tests.stopwatch import hold_at_best

# -- files -----------------------------------------------------------------------------------------


async def test_a_program_reads_its_input_and_its_output_is_on_the_host_afterwards(sandbox: Sandbox) -> None:
    folder = sandbox.new_folder(data="1,2\n3,4\n")
    code = (
        "import csv, os\n"
        "rows = list(csv.reader(open('input/data')))\n"
        "os.mkdir('output/deep')\n"
        "open('output/sum.txt', 'w').write(str(sum(int(cell) for row in rows for cell in row)))\n"
        "open('output/deep/é.bin', 'wb').write(bytes(range(256)))\n"
        "open('notes', 'w').write('kept')\n"
    )
    outcome = await sandbox.run(code, folder=folder)
    assert (outcome.status, outcome.stderr) == (RunStatus.OK, "")
    assert (folder / "output/sum.txt").read_text() == "10"
    assert (folder / "output/deep/é.bin").read_bytes() == bytes(range(256))
    assert (folder / "notes").read_text() == "kept"


async def test_input_cannot_be_changed_by_the_code_but_by_the_bot_afterwards(sandbox: Sandbox) -> None:
    folder = sandbox.new_folder(data="given")
    code = (
        "import os\n"
        "for act in (\n"
        "    lambda: open('input/data', 'w'), lambda: open('input/data', 'a'), lambda: open('input/new', 'w'),\n"
        "    lambda: os.remove('input/data'), lambda: os.rename('input/data', 'output/data'),\n"
        "    lambda: (os.chmod('input', 0o777), open('input/new', 'w')), lambda: os.truncate('input/data', 0),\n"
        "):\n"
        "    try:\n        act(); print('done')\n    except OSError as error:\n        print(type(error).__name__)\n"
    )
    outcome = await sandbox.run(code, folder=folder)
    assert set(outcome.stdout.split()) <= {"PermissionError", "OSError"}
    assert len(outcome.stdout.split()) == 7
    (folder / "input/next").write_text("more")
    assert (folder / "input/data").read_text() == "given"


async def test_files_of_an_earlier_run_are_there_and_removed_ones_are_removed(sandbox: Sandbox) -> None:
    folder = sandbox.new_folder()
    await sandbox.run("open('output/a', 'w').write('1'); open('output/b', 'w').write('2')", folder=folder)
    outcome = await sandbox.run(
        "import os\nprint(open('output/a').read())\nos.remove('output/b')\nopen('output/a', 'a').write('0')",
        folder=folder,
    )
    assert (outcome.stdout, outcome.stderr) == ("1\n", "")
    assert sorted(os.listdir(folder / "output")) == ["a"]
    assert (folder / "output/a").read_text() == "10"


async def test_what_was_made_before_a_run_was_ended_is_handed_back(sandbox: Sandbox) -> None:
    folder = sandbox.new_folder()
    await sandbox.run("open('output/a', 'w').write('1')\nwhile True: pass", folder=folder, wall_s=1.0)
    assert (folder / "output/a").read_text() == "1"


async def test_one_file_has_a_limit_of_its_own(sandbox: Sandbox) -> None:
    code = "open('output/a', 'wb').write(bytes(3 * 2**20))"
    outcome = await sandbox.run(code, file_bytes=1 * MiB)
    assert outcome.status is RunStatus.ERROR
    assert "File too large" in outcome.stderr


async def test_links_devices_and_hard_links_do_not_come_back(sandbox: Sandbox, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("secret")
    folder = sandbox.new_folder(data="given")
    code = (
        "import os\n"
        "for act in (\n"
        f"    lambda: os.symlink({str(canary)!r}, 'output/link'), lambda: os.link({str(canary)!r}, 'output/hard'),\n"
        "    lambda: os.mkfifo('output/fifo'), lambda: os.mknod('output/node'),\n"
        f"    lambda: os.symlink({str(tmp_path)!r}, 'output/folder'),\n"
        "):\n"
        "    try:\n        act()\n    except OSError:\n        pass\n"
    )
    await sandbox.run(code, folder=folder)
    assert [path for path in (folder / "output").iterdir() if path.name != "node"] == []


async def test_a_run_without_a_folder_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="nowhere"):
        await sandbox.run("pass", folder=tmp_path / "nowhere")


async def test_a_program_that_is_too_long_is_not_run(sandbox: Sandbox) -> None:
    folder = sandbox.new_folder()
    outcome = await sandbox.run("open('output/a', 'w')\n" + "#" * 2000, folder=folder, source_bytes=1024)
    assert outcome.status is RunStatus.ERROR
    assert "1 KiB" in outcome.detail
    assert not (folder / "output/a").exists()


@pytest.mark.parametrize(
    "code", ["\0", "print('\ud800')", "(" * 10_000, "x = 1\n" * 5000 + "print(x)", "print(1)\r\n", ""]
)
async def test_odd_source_is_an_ordinary_outcome(sandbox: Sandbox, code: str) -> None:
    outcome = await sandbox.run(code)
    assert outcome.status in {RunStatus.OK, RunStatus.ERROR, RunStatus.CRASHED}
    assert (await sandbox.run("print(1)")).stdout == "1\n"


# -- other runs ------------------------------------------------------------------------------------


async def test_a_run_can_neither_see_nor_signal_nor_reach_another_one(open_sandbox: OpenSandbox, kind: str) -> None:
    sandbox = await open_sandbox(kind, places=4)
    name, token = f"vict{os.getpid()}", os.urandom(8).hex()
    victim_code = (
        f"import os, time, signal\nopen('secret', 'w').write({token!r})\n"
        "open('output/where', 'w').write(os.getcwd() + ' ' + str(os.getpid()))\n"
        "hits = []\n"
        "for n in (1, 2, 10, 12, 15): signal.signal(n, lambda *_: hits.append(n))\n"
        + UNTIL_TOLD.format(name=name)
        + "print(hits, open('secret').read())\n"
    )
    folder = sandbox.new_folder()
    victim = asyncio.create_task(sandbox.run(victim_code, folder=folder))
    await until(lambda: find_named(name), "the other run is there")
    attack = (
        "import os, ctypes, glob\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def attempt(act):\n"
        "    try:\n        print(act())\n    except BaseException as error:\n        print(type(error).__name__)\n"
        "parent = os.path.dirname(os.getcwd())\n"
        "attempt(lambda: os.listdir(parent))\n"
        "attempt(lambda: [open(p).read() for p in glob.glob(parent + '/*/secret')])\n"
        "attempt(lambda: os.listdir('/proc'))\n"
        "for pid in list(range(1, 40)) + [os.getppid()] + list(range(os.getpid() - 50, os.getpid())):\n"
        "    for number in (1, 15, 9):\n"
        "        libc.kill(pid, number); libc.syscall(234, pid, pid, number)\n"
        "    libc.ptrace(16, pid, 0, 0)\n"
        "    attempt(lambda: open(f'/proc/{pid}/cwd/secret').read())\n"
        "    attempt(lambda: open(f'/proc/{pid}/mem', 'rb').read(1))\n"
        "libc.kill(-1, 15); libc.kill(0, 15)\n"
    )
    attacker = await sandbox.run(attack)
    assert token not in attacker.stdout + attacker.stderr
    tell(name)
    outcome = await victim
    assert (outcome.status, outcome.stdout) == (RunStatus.OK, f"[] {token}\n")
    assert (await sandbox.run("print(1)")).stdout == "1\n"


async def test_runs_of_one_folder_wait_for_each_other_and_others_do_not(open_sandbox: OpenSandbox, kind: str) -> None:
    sandbox = await open_sandbox(kind, places=4)
    folder = sandbox.new_folder()
    code = (
        "import os, time\nprint(os.path.exists('output/busy'))\nopen('output/busy', 'w').close()\n"
        "time.sleep(0.2)\nos.remove('output/busy')"
    )
    outcomes = await asyncio.gather(*(sandbox.run(code, folder=folder) for _ in range(3)), sandbox.run("print(1)"))
    assert [outcome.stdout for outcome in outcomes] == ["False\n"] * 3 + ["1\n"]


async def test_many_runs_at_once_each_get_their_own_output(open_sandbox: OpenSandbox, kind: str) -> None:
    sandbox = await open_sandbox(kind, places=4, runs_per_zygote=7)
    outcomes = await asyncio.gather(*(sandbox.run(f"print({n})") for n in range(30)))
    assert [outcome.stdout for outcome in outcomes] == [f"{n}\n" for n in range(30)]


# -- interpreters that are kept --------------------------------------------------------------------


async def test_a_session_keeps_its_variables_and_says_so(sandbox: Sandbox) -> None:
    folder = sandbox.new_folder()
    first = await sandbox.run("x = 1\ndef f(): return x", folder=folder, session="a")
    second = await sandbox.run("print(f())", folder=folder, session="a")
    assert (first.state, second.state, second.stdout) == ("fresh", "continued", "1\n")
    other = await sandbox.run("print(x)", session="b")
    assert (other.state, other.status) == ("fresh", RunStatus.ERROR)


async def test_an_error_does_not_end_a_session_and_shows_its_own_lines(sandbox: Sandbox) -> None:
    folder = sandbox.new_folder()
    await sandbox.run("def f():\n    return 1 / 0", folder=folder, session="a")
    failed = await sandbox.run("x = 5\nf()", folder=folder, session="a")
    assert (failed.status, failed.exit_code) == (RunStatus.ERROR, 1)
    assert "return 1 / 0" in failed.stderr
    assert "child" not in failed.stderr
    left = await sandbox.run("import sys; sys.exit(4)", folder=folder, session="a")
    assert (left.status, left.exit_code, left.state) == (RunStatus.ERROR, 4, "continued")
    assert (await sandbox.run("print(x)", folder=folder, session="a")).stdout == "5\n"


async def test_each_program_of_a_session_has_its_own_output_and_files(sandbox: Sandbox) -> None:
    folder = sandbox.new_folder(data="1")
    first = await sandbox.run("print('one'); open('output/a', 'w').write('a')", folder=folder, session="a")
    assert (folder / "output/a").read_text() == "a"
    (folder / "input/more").write_text("2")
    code = "print(open('input/more').read(), open('output/a').read()); open('output/a', 'w').write('b')"
    second = await sandbox.run(code, folder=folder, session="a")
    assert (first.stdout, second.stdout, second.stderr) == ("one\n", "2 a\n", "")
    assert (folder / "output/a").read_text() == "b"
    denied = await sandbox.run("open('input/more', 'w')", folder=folder, session="a")
    assert "PermissionError" in denied.stderr


@pytest.mark.parametrize("code", ["while True: pass", "import os; os._exit(0)", "import ctypes; ctypes.string_at(0)"])
async def test_a_session_that_ended_is_told_as_lost(sandbox: Sandbox, code: str) -> None:
    folder = sandbox.new_folder()
    await sandbox.run("x = 1", folder=folder, session="a")
    ended = await sandbox.run(code, folder=folder, session="a", wall_s=1.0)
    assert ended.state == "continued"
    after = await sandbox.run("print('x' in globals())", folder=folder, session="a")
    assert (after.state, after.stdout) == ("lost", "False\n")
    assert (await sandbox.run("pass", folder=folder, session="a")).state == "continued"


async def test_a_session_locks_itself_in_while_nobody_touches_its_input(open_sandbox: OpenSandbox, kind: str) -> None:
    sandbox = await open_sandbox(kind, kept=KeptLimits(count=1))
    many = {f"part{number}": "given" for number in range(400)}  # so that handing them over takes longer than a fork
    for session in "abcdef":
        outcome = await sandbox.run(
            "import os; print(os.access('input', os.W_OK), len(os.listdir('input')))",
            folder=sandbox.new_folder(**many),
            session=session,
        )
        assert (outcome.state, outcome.stdout) == ("fresh", "False 400\n")


async def test_each_program_of_a_session_has_the_whole_processor_limit(sandbox: Sandbox) -> None:
    folder = sandbox.new_folder()
    busy = "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass"
    states = [(await sandbox.run(busy, folder=folder, session="a", cpu_s=1.0)) for _ in range(3)]
    assert [outcome.status for outcome in states] == [RunStatus.OK] * 3
    assert all(0.5 < outcome.cpu_s < 1.0 for outcome in states)
    over = await sandbox.run("while True: pass", folder=folder, session="a", cpu_s=1.0)
    assert over.status is RunStatus.CPU


async def test_nothing_goes_on_in_a_session_between_its_programs(sandbox: Sandbox) -> None:
    ticking = (
        "import threading, time\nticks = 0\ndef count():\n    global ticks\n    while True:\n"
        "        ticks += 1; print('tick', flush=True); time.sleep(0.001)\n"
        "threading.Thread(target=count, daemon=True).start()\ntime.sleep(0.1)\n"
    )

    async def check(attempt: int) -> None:
        name, folder, session = f"kept{attempt}-{os.getpid()}", sandbox.new_folder(), f"session {attempt}"
        await sandbox.run(NAME_ITSELF.format(name=name) + ticking, folder=folder, session=session)
        pid = find_named(name)[0]
        await until(lambda: "T (stopped)" in Path(f"/proc/{pid}/status").read_text(), "it is stopped")
        outcome = await sandbox.run("print('next')", folder=folder, session=session)
        assert "next\n" in outcome.stdout
        assert outcome.stdout.count("tick") < 50  # of the second program's own time, which a busy machine makes longer

    await hold_at_best(check)


async def test_a_program_that_forges_its_answer_fools_only_itself(sandbox: Sandbox) -> None:
    folder = sandbox.new_folder()
    for forged in (
        b"nonsense\n",
        b"[" * 900 + b"\n",
        b'{"id": 99, "code": 0}\n',
        b"x" * 5000,
        b'{"id": 1, "code": "0"}\n',
    ):
        code = f"import os, time\nos.write(4, {forged!r})\ntime.sleep(60)"
        outcome = await sandbox.run(code, folder=folder, session="a", wall_s=30.0)
        assert (outcome.status, outcome.exit_code) == (RunStatus.CRASHED, -9)
    assert (await sandbox.run("print(1)", folder=folder, session="a")).state == "lost"


async def test_the_session_that_was_used_longest_ago_makes_room(open_sandbox: OpenSandbox, kind: str) -> None:
    sandbox = await open_sandbox(kind, kept=KeptLimits(count=2))
    folders = {name: sandbox.new_folder() for name in "abc"}
    for name in "abac":
        await sandbox.run("x = 1", folder=folders[name], session=name)
    states = {name: (await sandbox.run("pass", folder=folders[name], session=name)).state for name in "acb"}
    assert states == {"a": "continued", "c": "continued", "b": "lost"}


@pytest.mark.parametrize("limits", [KeptLimits(idle_s=0.3, sweep_s=0.05), KeptLimits(hard_s=0.3, sweep_s=0.05)])
async def test_a_session_that_is_idle_or_old_is_ended(open_sandbox: OpenSandbox, limits: KeptLimits) -> None:
    sandbox = await open_sandbox("landlock", kept=limits)
    name, folder = f"idle{os.getpid()}", sandbox.new_folder()
    await sandbox.run(NAME_ITSELF.format(name=name), folder=folder, session="a")
    await until(lambda: not find_named(name), "it is ended")
    assert (await sandbox.run("pass", folder=folder, session="a")).state == "lost"


async def test_a_session_is_told_as_lost_after_a_restart_of_the_bot(open_sandbox: OpenSandbox, tmp_path: Path) -> None:
    first = await open_sandbox("landlock", marks=tmp_path)
    folder = first.new_folder()
    assert (await first.run("x = 1", folder=folder, session="thread one")).state == "fresh"
    await first.backend.aclose()
    second = await open_sandbox("landlock", marks=tmp_path)
    assert (await second.run("pass", folder=folder, session="thread one")).state == "lost"
    assert (await second.run("pass", folder=folder, session="thread two")).state == "fresh"
    assert not [name for name in os.listdir(tmp_path) if "thread" in name]


async def test_cancelling_a_program_of_a_session_ends_the_session(sandbox: Sandbox) -> None:
    name, folder = f"canc{os.getpid()}", sandbox.new_folder()
    code = NAME_ITSELF.format(name=name) + "import time\ntime.sleep(60)"
    run = asyncio.create_task(sandbox.run(code, folder=folder, session="a"))
    await until(lambda: find_named(name), "it runs")
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert find_named(name) == []
    assert (await sandbox.run("print(1)", folder=folder, session="a")).state == "lost"


# -- closing and refusing --------------------------------------------------------------------------


async def test_closing_ends_every_process_and_later_runs_are_refused(sandbox: Sandbox) -> None:
    name = f"close{os.getpid()}"
    await sandbox.run(NAME_ITSELF.format(name=name), session="a")
    run = asyncio.create_task(sandbox.run(NAME_ITSELF.format(name=name) + "import time\ntime.sleep(60)"))
    await until(lambda: len(find_named(name)) == 2, "both are there")
    await sandbox.backend.aclose()
    assert find_named(name) == []
    assert (await run).status is RunStatus.CRASHED
    with pytest.raises(SandboxUnavailable, match="closed"):
        await sandbox.run("print(1)")


async def test_a_policy_that_cannot_be_enforced_runs_nothing(sandbox: Sandbox) -> None:
    folder = sandbox.new_folder()
    with pytest.raises(SandboxUnavailable, match="refused"):
        await sandbox.run("open('output/a', 'w')", folder=folder, open_files=-1)
    assert os.listdir(folder / "output") == []


# -- no lock at all --------------------------------------------------------------------------------


async def test_the_host_backend_runs_code_and_says_that_nothing_holds_it(tmp_path: Path) -> None:
    backend = HostBackend(await find_interpreter(None), Tuning(cache=tmp_path))
    assert backend.enforcing is False
    verdict = await backend.probe()
    assert not verdict.works
    assert "host" in verdict.reason

    async def run(code: str, **limits: float) -> tuple[RunStatus, str]:
        wanted = SandboxLimits(wall_s=limits.get("wall_s", 60.0))
        outcome = await backend.run(SandboxRun(code=code, folder=tmp_path, limits=wanted))
        return outcome.status, outcome.stdout

    assert await run("print(1)") == (RunStatus.OK, "1\n")
    assert (await run("1 / 0"))[0] is RunStatus.ERROR
    assert (await run("bytearray(2**33)"))[0] is RunStatus.MEMORY
    assert (await run("import os\nos.fork()\nwhile True: pass", wall_s=1.0))[0] is RunStatus.TIMEOUT
    await backend.aclose()
