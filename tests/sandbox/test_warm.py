"""The zygote: what runs get from it, what they cannot get, and what becomes of it when anything is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bot.tools.python_sandbox.forked_run import ZygoteBroken
from bot.tools.python_sandbox.process import Output
from bot.tools.python_sandbox.types import RunStatus, SandboxUnavailable
from bot.tools.python_sandbox.warm import Zygote
from tests.sandbox.sandboxes import (
    NAME_ITSELF,
    SOON_S,
    UNTIL_TOLD,
    OpenSandbox,
    Sandbox,
    find_descendants,
    find_named,
    is_alive,
    tell,
    until,
)

FOREVER = "import time\nwhile True:\n    time.sleep(0.01)\n"
PARENT = "import os; print(os.getppid())"


async def find_zygote(sandbox: Sandbox) -> int:
    """Return the zygote's process, as this machine numbers it, among the descendants of this one."""
    inner = int((await sandbox.run(PARENT)).stdout)
    for pid in find_descendants(os.getpid()):
        try:
            command = read(f"/proc/{pid}/cmdline")
            numbers = read(f"/proc/{pid}/status").decode().partition("NSpid:")[2].split("\n")[0].split()
        except OSError:
            continue
        if command.split(b"\0")[1:2] == [b"-I"] and inner == int(numbers[-1]):
            return pid
    raise AssertionError(f"no zygote has the number {inner}")


def read(path: str) -> bytes:
    """Read a file."""
    with open(path, "rb") as file:
        return file.read()


def read_memory_of(pid: int) -> bytes:
    """Read all that a process could have written to."""
    content = b""
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for line in read(f"/proc/{pid}/maps").decode().splitlines():
            span, modes, *rest = line.split()
            if modes.startswith("rw") and not rest[-1].startswith("[v"):
                low, high = (int(part, 16) for part in span.split("-"))
                memory.seek(low)
                content += memory.read(high - low)
    return content


# -- what runs get ---------------------------------------------------------------------------------


async def test_no_run_sees_what_an_earlier_one_did_to_the_interpreter(sandbox: Sandbox) -> None:
    await sandbox.run(
        "import builtins, sys, json\nbuiltins.len = lambda _: 42\njson.dumps = None\nsys.modules['x'] = sys"
    )
    outcome = await sandbox.run("import json, sys\nprint(len('abc'), json.dumps(1), 'x' in sys.modules)")
    assert outcome.stdout == "3 1 False\n"


async def test_every_run_draws_its_own_random_numbers(open_sandbox: OpenSandbox, kind: str) -> None:
    sandbox = await open_sandbox(kind, preload=("random", "numpy.random"))
    code = (
        "import random\nprint(random.random())\n"
        "try:\n    import numpy\n    print(numpy.random.random())\nexcept ImportError: pass\n"
    )
    drawn = [line for _ in range(3) for line in (await sandbox.run(code)).stdout.split()]
    assert len(set(drawn)) == len(drawn) >= 3


async def test_the_packages_are_there_before_the_run(open_sandbox: OpenSandbox, kind: str) -> None:
    sandbox = await open_sandbox(kind, preload=("decimal", "not_installed_anywhere", "csv"))
    outcome = await sandbox.run("import sys; print('decimal' in sys.modules, 'csv' in sys.modules)")
    assert outcome.stdout == "True True\n"


async def test_a_cold_backend_starts_an_interpreter_for_each_run(open_sandbox: OpenSandbox, kind: str) -> None:
    sandbox = await open_sandbox(kind, warm=False)
    code = "import sys, os; print('random' in sys.modules, hash('seed'), id(object()))"
    first, second = [(await sandbox.run(code)).stdout.split() for _ in range(2)]
    assert first[0] == second[0] == "False"
    assert first[1] != second[1]


async def test_a_new_interpreter_and_a_forked_one_are_the_same_to_a_program(
    open_sandbox: OpenSandbox, kind: str
) -> None:
    code = (
        "import sys, sysconfig\nprint(sys.prefix, sys.exec_prefix, sys.base_prefix, sys.path, sys.argv, __name__)\n"
        "print(sysconfig.get_paths()['purelib'], sys.flags.isolated, sys.flags.utf8_mode, quit, help)\nexit(3)"
    )
    warm, cold = [await (await open_sandbox(kind, warm=how)).run(code) for how in (True, False)]
    assert warm.stdout == cold.stdout
    assert (warm.exit_code, cold.exit_code, cold.stderr) == (3, 3, "")


async def test_a_run_has_three_descriptors_and_no_way_to_the_control_socket(sandbox: Sandbox) -> None:
    code = (
        "import os\nopened = []\nfor n in range(1024):\n"
        "    try:\n        os.fstat(n); opened.append(n)\n    except OSError: pass\nprint(opened)"
    )
    assert (await sandbox.run(code)).stdout == "[0, 1, 2]\n"


async def test_a_run_cannot_import_the_modules_of_the_sandbox(sandbox: Sandbox) -> None:
    code = "import sys; print([name for name in sys.modules if 'hermod' in name])\nimport hermod_sandbox_child"
    outcome = await sandbox.run(code)
    assert outcome.stdout == "[]\n"
    assert "ModuleNotFoundError" in outcome.stderr


async def test_what_ran_before_is_nowhere_in_the_memory_that_runs_are_forked_from(open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox("landlock")
    zygote = await find_zygote(sandbox)
    secret = os.urandom(12).hex()
    folder = sandbox.new_folder(data=f"input {secret}")
    await sandbox.run(f"print('{secret}', open('input/data').read())", folder=folder)
    await sandbox.run(f"raise ValueError('{secret}')", session=secret)
    memory = read_memory_of(zygote)
    assert b"hermod_sandbox_child" in memory
    assert secret.encode() not in memory


async def test_the_zygote_has_nothing_of_the_environment(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMOD_SECRET", "canary-in-the-environment")
    sandbox = await open_sandbox("landlock")
    zygote = await find_zygote(sandbox)
    environ = read(f"/proc/{zygote}/environ")
    assert b"PATH=" in environ
    assert b"canary" not in environ
    assert "canary" not in (await sandbox.run("import os; print(dict(os.environ))")).stdout


# -- what becomes of it ----------------------------------------------------------------------------


async def test_a_zygote_is_replaced_after_a_number_of_runs(open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox("landlock", runs_per_zygote=3)
    parents = [(await sandbox.run(PARENT)).stdout for _ in range(7)]
    assert [parents.index(parent) for parent in parents] == [0, 0, 0, 3, 3, 3, 6]


async def test_a_replaced_zygote_lives_until_its_last_run_has_ended(open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox("landlock", runs_per_zygote=1_000, places=4)
    zygote = await find_zygote(sandbox)
    name = f"last{os.getpid()}"
    long = asyncio.create_task(sandbox.run(UNTIL_TOLD.format(name=name) + "print('end')"))
    await until(lambda: find_named(name), "the long run is there")
    # However many runs there are in between, the long one is not disturbed.
    short = await open_sandbox("landlock", runs_per_zygote=2)
    assert [(await short.run("print(1)")).status for _ in range(5)] == [RunStatus.OK] * 5
    tell(name)
    assert (await long).stdout == "end\n"
    assert is_alive(zygote)


async def test_a_killed_zygote_is_told_in_the_run_that_was_under_way_and_the_next_one_works(sandbox: Sandbox) -> None:
    zygote = await find_zygote(sandbox)
    name = f"orph{os.getpid()}"
    run = asyncio.create_task(sandbox.run(NAME_ITSELF.format(name=name) + FOREVER))
    await until(lambda: find_named(name), "the run is there")
    os.kill(zygote, signal.SIGKILL)
    outcome = await run
    assert outcome.status is RunStatus.CRASHED
    assert "broke" in outcome.detail
    assert find_named(name) == []
    assert (await sandbox.run("print(1)")).stdout == "1\n"


async def test_a_zygote_that_died_between_runs_is_replaced_unnoticed(sandbox: Sandbox) -> None:
    zygote = await find_zygote(sandbox)
    os.kill(zygote, signal.SIGKILL)
    assert (await sandbox.run("print(1)")).stdout == "1\n"
    assert not is_alive(zygote)


async def test_a_zygote_that_hangs_is_replaced(open_sandbox: OpenSandbox, kind: str) -> None:
    sandbox = await open_sandbox(kind, reply_timeout_s=3.0)
    zygote = await find_zygote(sandbox)
    os.kill(zygote, signal.SIGSTOP)
    assert (await sandbox.run("print(1)")).stdout == "1\n"
    await until(lambda: not is_alive(zygote), "it is gone")


async def test_a_zygote_that_hangs_during_a_run_is_told(open_sandbox: OpenSandbox, kind: str) -> None:
    sandbox = await open_sandbox(kind, reply_timeout_s=3.0)
    zygote = await find_zygote(sandbox)
    name = f"hang{os.getpid()}"
    run = asyncio.create_task(sandbox.run(NAME_ITSELF.format(name=name) + FOREVER, wall_s=5.0))
    await until(lambda: find_named(name), "the run is there")
    os.kill(zygote, signal.SIGSTOP)
    assert (await run).status in {RunStatus.TIMEOUT, RunStatus.CRASHED}
    assert find_named(name) == []
    assert (await sandbox.run("print(1)")).stdout == "1\n"


# -- a zygote that is none -------------------------------------------------------------------------

FAKE = """
import json, os, socket, sys, time
def main(arguments):
    control = socket.socket(fileno=int(arguments[0]))
    def say(**message):
        control.send(json.dumps(message).encode())
    hello = dict(op="hello", id=0, prefix=sys.prefix, packages="", abi=1)
{body}
"""
FAKES = {
    "silent from the start": "    sys.exit('no packages here')",
    "not JSON": "    control.send(b'\\xff{{{')",
    "not an object": "    control.send(b'[1, 2]')",
    "no id": '    control.send(b\'{"op": "hello"}\')',
    "deep nesting": "    control.send(b'[' * 9000)",
    "too long": "    control.send(b'{' + b' ' * 100_000 + b'}')",
    "an answer to no question": "    say(**hello); say(op='prepared', id=99); time.sleep(60)",
    "an end of no run": (
        "    say(**hello); say(op='ended', id=5, status=0, cpu_us=0, peak_bytes=0, refused=''); time.sleep(60)"
    ),
    "a run without a process": "    say(**hello); control.recv(9999); say(op='started', id=1); time.sleep(60)",
    "a process that is none": (
        "    say(**hello); control.recv(9999)\n"
        "    socket.send_fds(control, [json.dumps(dict(op='started', id=1)).encode()], [1, 1]); time.sleep(60)"
    ),
}


@pytest.mark.parametrize("what", list(FAKES))
async def test_a_zygote_that_talks_nonsense_is_ended_and_says_so(tmp_path: Path, what: str) -> None:
    (tmp_path / "zygote.py").write_text(FAKE.format(body=FAKES[what]))
    (tmp_path / "__init__.py").touch()
    with pytest.raises(ZygoteBroken) as caught:
        await asyncio.wait_for(start_and_fork(tmp_path), SOON_S)
    if what == "silent from the start":
        assert "no packages here" in str(caught.value)


async def start_and_fork(child: Path) -> None:
    """Start a zygote of that folder, and ask it for a run."""
    output = Output(keep_bytes=10)
    try:
        zygote = await Zygote.start(python=sys.executable, child=str(child), environ={}, reply_timeout_s=2 * SOON_S)
        await zygote.fork(b"{}", (output.write_fd, output.write_fd))
    finally:
        output.close()


async def test_what_a_package_says_when_it_is_loaded_is_in_no_run(open_sandbox: OpenSandbox, kind: str) -> None:
    sandbox = await open_sandbox(kind, preload=("this",))
    assert (await sandbox.run("print(1)  # in the process that has this loaded")).stdout == "1\n"


async def test_a_zygote_that_never_comes_up_is_a_clear_refusal(open_sandbox: OpenSandbox) -> None:
    broken = await open_sandbox("landlock")
    broken.backend.interpreter = type(broken.backend.interpreter)(
        executable="/nowhere/python", prefix="/nowhere", base_prefix="/nowhere", version="3.11.0"
    )
    with pytest.raises(SandboxUnavailable, match="/nowhere/python"):
        await broken.run("print(1)")


# -- the bot's own end -----------------------------------------------------------------------------

BOT = """
import asyncio, sys
from tests.sandbox.sandboxes import OpenSandbox
async def main():
    sandbox = await OpenSandbox()(sys.argv[1])
    cold = await OpenSandbox()(sys.argv[1], warm=False)
    code = sys.argv[2] + "import time\\nwhile True: time.sleep(0.01)"
    run = asyncio.create_task(sandbox.run(code))
    kept = asyncio.create_task(sandbox.run(code, session="s"))
    await asyncio.gather(run, kept, cold.run(code))
asyncio.run(main())
"""


def start_bot(kind: str, code: str) -> subprocess.Popen[bytes]:
    """Start a process with one backend, a run and a session."""
    return subprocess.Popen([sys.executable, "-c", BOT, kind, code])


async def test_a_bot_that_is_killed_takes_every_process_of_the_sandbox_along(kind: str) -> None:
    name = f"bot{os.getpid()}"
    bot = start_bot(kind, NAME_ITSELF.format(name=name))
    try:
        await until(lambda: len(find_named(name)) == 3, "all three runs are there")
        zygotes = [pid for pid in find_descendants(bot.pid) if pid not in find_named(name)]
        assert zygotes
    finally:
        bot.kill()
        bot.wait()
    await until(lambda: not find_named(name), "the runs are gone")
    await until(lambda: not any(is_alive(pid) for pid in zygotes), "the zygote and its wrapper are gone")


def test_the_messages_are_small_enough_for_one_packet() -> None:
    longest = {"op": "run", "id": 2**63, "session": True, "scratch": "/runs/" + "f" * 32}
    assert len(json.dumps(longest)) < 1024


async def test_a_zygote_that_hangs_when_it_is_asked_for_a_run_is_told_and_the_next_one_works(
    open_sandbox: OpenSandbox, kind: str
) -> None:
    sandbox = await open_sandbox(kind, reply_timeout_s=3.0, places=2)
    zygote = await find_zygote(sandbox)
    # It answers that it is well, and is stopped before or after it has forked: whichever, nothing is left of the run.
    runs = [asyncio.create_task(sandbox.run(f"print({n})")) for n in range(20)]
    await until(lambda: any(run.done() for run in runs), "the first runs have ended")
    os.kill(zygote, signal.SIGSTOP)
    outcomes = [await run for run in runs]
    assert {outcome.status for outcome in outcomes} <= {RunStatus.OK, RunStatus.CRASHED}
    assert all(outcome.stdout == f"{n}\n" for n, outcome in enumerate(outcomes) if outcome.status is RunStatus.OK)
    await until(lambda: not is_alive(zygote), "it is gone")
