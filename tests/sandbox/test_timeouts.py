"""Each limit ends a run, says which one it was, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from bot.tools.python_sandbox.process import read_memory
from bot.tools.python_sandbox.types import MiB, RunStatus
from tests.sandbox.sandboxes import NAME_ITSELF, OpenSandbox, Sandbox, find_named, until, watch_loop
from tests.stopwatch import hold_at_best

FOREVER = "import time\nwhile True:\n    time.sleep(0.01)\n"


async def test_a_run_is_killed_at_its_deadline_and_what_it_printed_counts(sandbox: Sandbox) -> None:
    await sandbox.run("pass")

    async def check(attempt: int) -> None:
        outcome = await sandbox.run("print('begun')\n" + FOREVER, wall_s=0.5)
        assert (outcome.status, outcome.stdout, outcome.exit_code) == (RunStatus.TIMEOUT, "begun\n", -9)
        assert 0.5 <= outcome.duration_s < 0.5 + 5 * 0.2
        assert "0.5 s" in outcome.detail

    await hold_at_best(check)


async def test_nothing_of_a_run_is_left_after_its_deadline_and_nothing_is_written_any_more(sandbox: Sandbox) -> None:
    name, folder = f"late{os.getpid()}", sandbox.new_folder()
    code = NAME_ITSELF.format(name=name) + (
        "import threading, time, signal\n"
        "for number in range(1, 65):\n"
        "    try:\n        signal.signal(number, signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\n"
        "def write():\n"
        "    while True:\n        open('output/late', 'a').write('x')\n        time.sleep(0.001)\n"
        "threading.Thread(target=write).start()\n"
    )
    run = asyncio.create_task(sandbox.run(code, folder=folder, wall_s=5.0))
    await until(lambda: find_named(name), "the run is there")
    outcome = await run
    assert outcome.status is RunStatus.TIMEOUT
    assert find_named(name) == []
    size_bytes = (folder / "output/late").stat().st_size
    began = time.monotonic()
    await until(lambda: time.monotonic() - began > 1.0, "a second has gone by")
    assert (folder / "output/late").stat().st_size == size_bytes > 0


async def test_the_processor_limit_is_told_apart_from_the_clock(sandbox: Sandbox) -> None:
    outcome = await sandbox.run("while True: pass", cpu_s=1.0)
    assert outcome.status is RunStatus.CPU
    assert 0.8 < outcome.cpu_s < 3
    ignoring = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    assert (await sandbox.run(ignoring, cpu_s=1.0)).status is RunStatus.CPU


async def test_memory_ends_as_memory_and_its_use_is_told(sandbox: Sandbox) -> None:
    outcome = await sandbox.run("kept = []\nwhile True: kept.append(bytearray(5_000_000))", memory_bytes=100 * MiB)
    assert outcome.status is RunStatus.MEMORY
    assert 50 * MiB < outcome.peak_memory_bytes < 160 * MiB
    small = await sandbox.run("kept = bytearray(40 * 2**20)")
    assert 35 * MiB < small.peak_memory_bytes < 60 * MiB


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_flood_is_cut_and_ended_and_does_not_grow_the_bot(sandbox: Sandbox, stream: str) -> None:
    await sandbox.run("pass")

    async def check(attempt: int) -> None:
        before = read_memory(os.getpid())[0]
        code = f"import sys\nfor _ in range(1024): sys.{stream}.write('x' * 2**20)"
        outcome = await sandbox.run(code, output_bytes=1000)
        grown = read_memory(os.getpid())[0] - before
        assert outcome.status is RunStatus.OUTPUT_CAP
        kept, cut = (outcome.stdout, outcome.stdout_cut) if stream == "stdout" else (outcome.stderr, outcome.stderr_cut)
        assert (kept, cut) == ("x" * 1000, True)
        assert grown < 8 * MiB

    await hold_at_best(check)


async def test_output_over_what_is_kept_but_under_the_cap_is_cut_and_the_run_goes_on(sandbox: Sandbox) -> None:
    outcome = await sandbox.run("print('é' * 5000)\nprint('end', file=__import__('sys').stderr)", output_bytes=1001)
    assert outcome.status is RunStatus.OK
    assert (outcome.stdout, outcome.stdout_cut) == ("é" * 500, True)
    assert (outcome.stderr, outcome.stderr_cut) == ("end\n", False)


async def test_a_folder_that_is_filled_ends_the_run_by_bytes_and_by_number(sandbox: Sandbox) -> None:
    many_bytes = (
        "for n in range(100):\n    open(f'output/{n}', 'wb').write(bytes(2**20))\n    __import__('time').sleep(0.01)"
    )
    outcome = await sandbox.run(many_bytes, scratch_bytes=8 * MiB)
    assert outcome.status is RunStatus.DISK
    many_files = "for n in range(3000):\n    open(f'output/{n}', 'w').close()\n    __import__('time').sleep(0.001)"
    outcome = await sandbox.run(many_files, scratch_files=100)
    assert outcome.status is RunStatus.DISK
    assert "100 files" in outcome.detail


async def test_a_folder_that_is_filled_before_anyone_looks_is_told_too(open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox("landlock")
    outcome = await sandbox.run("open('output/a', 'wb').write(bytes(4 * 2**20))", scratch_bytes=1 * MiB)
    assert outcome.status is RunStatus.DISK


async def test_files_that_were_deleted_but_are_kept_open_count(open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox("landlock")
    code = (
        "import os, time\nkept = []\n"
        "for n in range(8):\n"
        "    file = open(f'output/{n}', 'wb')\n    file.write(bytes(2**20))\n    file.flush()\n"
        "    os.unlink(f'output/{n}')\n    kept.append(file)\n    time.sleep(0.05)\n"
        "time.sleep(30)\n"
    )
    assert (await sandbox.run(code, scratch_bytes=4 * MiB)).status is RunStatus.DISK


async def test_ends_of_the_interpreter_are_told_apart(sandbox: Sandbox) -> None:
    crashed = await sandbox.run("import ctypes; ctypes.string_at(0)")
    assert (crashed.status, crashed.exit_code) == (RunStatus.CRASHED, -11)
    blocked = await sandbox.run("import signal; signal.raise_signal(signal.SIGSYS)")
    assert (blocked.status, blocked.exit_code) == (RunStatus.BLOCKED, -31)
    failed = await sandbox.run("1 / 0")
    assert (failed.status, failed.exit_code) == (RunStatus.ERROR, 1)
    assert "ZeroDivisionError" in failed.stderr
    left = await sandbox.run("raise SystemExit(7)")
    assert (left.status, left.exit_code, left.stderr) == (RunStatus.ERROR, 7, "")


async def test_what_a_program_says_about_its_end_counts_for_nothing(sandbox: Sandbox) -> None:
    code = (
        "print('exit_code=0 status=ok MemoryError')\nimport sys\nprint('status: timeout', file=sys.stderr)\nsys.exit(3)"
    )
    assert (await sandbox.run(code)).status is RunStatus.ERROR
    assert (await sandbox.run("print('MemoryError')")).status is RunStatus.OK


async def test_cancelling_kills_the_run_and_the_next_one_works(sandbox: Sandbox) -> None:
    name = f"gone{os.getpid()}"
    for _ in range(2):
        run = asyncio.create_task(sandbox.run(NAME_ITSELF.format(name=name) + FOREVER))
        await until(lambda: find_named(name), "the run is there")
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert find_named(name) == []
    assert (await sandbox.run("print(1)")).stdout == "1\n"


async def test_sleeping_runs_hold_up_nothing_else(open_sandbox: OpenSandbox, kind: str) -> None:
    sandbox = await open_sandbox(kind, places=5)
    name = f"five{os.getpid()}"

    async def check(attempt: int) -> None:
        code = NAME_ITSELF.format(name=name) + FOREVER
        runs = [asyncio.create_task(sandbox.run(code, wall_s=5.0)) for _ in range(5)]
        await until(lambda: len(find_named(name)) == 5, "all five run")
        try:
            await watch_loop(*runs)
        finally:
            outcomes = await asyncio.gather(*runs)
        assert {outcome.status for outcome in outcomes} == {RunStatus.TIMEOUT}

    await hold_at_best(check)


async def test_no_descriptor_is_left_open_by_runs_of_any_end(sandbox: Sandbox) -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    for code in ("pass", "1 / 0"):
        await sandbox.run(code)
    before = opened()
    await sandbox.run("1 / 0")
    await sandbox.run(FOREVER, wall_s=0.2)
    await sandbox.run("print('x' * 10**7)")
    # what tests before left to the collector of garbage may be closed meanwhile
    await until(lambda: opened() <= before, "every descriptor is closed")
