"""Ways around the quota of a folder, and out of what a program may know of others."""

from __future__ import annotations

import os

import pytest

from bot.tools.python_sandbox.child.landlock import why_no_landlock
from bot.tools.python_sandbox.types import MiB, RunStatus
from tests.needs import need
from tests.sandbox.sandboxes import OpenSandbox, Sandbox

HIDDEN_BY_A_MAPPING = """
import mmap, os, time
kept = []
for number in range(12):
    name = f"output/{number}"
    with open(name, "wb+") as file:
        file.truncate(mmap.PAGESIZE)
        kept.append(ctypes_map(file.fileno()))
        os.pwrite(file.fileno(), bytes(1024 * 1024), 0)
        os.unlink(name)
time.sleep(60)
"""
CTYPES_MAP = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
def ctypes_map(descriptor):
    found = libc.mmap(None, 4096, 1, 1, descriptor, 0)
    assert found != ctypes.c_void_p(-1).value
    return found
"""
HIDDEN_BY_A_THREAD = """
import ctypes, os, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def hide():
    if libc.syscall(436, 1000, 1001, 2) != 0:
        print("refused", ctypes.get_errno(), flush=True)
        os._exit(3)
    kept = []
    for number in range(12):
        name = f"output/{number}"
        kept.append(open(name, "wb", buffering=0))
        os.unlink(name)
        kept[-1].write(bytes(1024 * 1024))
    time.sleep(60)
threading.Thread(target=hide).start()
"""
RESERVE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
with open("output/big", "wb") as file:
    libc.fallocate(file.fileno(), 1, 0, 200 * 1024 * 1024)
    print(os.fstat(file.fileno()).st_blocks * 512, flush=True)
"""
OTHERS_CLOCK = """
import ctypes, time
try:
    print(time.clock_gettime((~{pid} << 3) | 2))
except OSError as error:
    print("refused", error)
"""

OWN_CLOCKS = """
import time
for clock in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME, time.CLOCK_TAI):
    time.clock_gettime(clock), time.clock_getres(clock)
time.process_time(), time.thread_time(), time.perf_counter(), time.sleep(0.001)
"""

ADVISE = """
import mmap
try:
    print(mmap.mmap(-1, 8 * mmap.PAGESIZE).madvise({advice}))
except OSError as error:
    print("refused", error)
"""


@pytest.fixture
async def landlock(open_sandbox: OpenSandbox) -> Sandbox:
    """The backend in which a program works on the machine's own disk."""
    need(why_no_landlock())
    return await open_sandbox("landlock")


async def test_files_that_are_deleted_and_only_mapped_count_against_the_quota(landlock: Sandbox) -> None:
    outcome = await landlock.run(
        CTYPES_MAP + HIDDEN_BY_A_MAPPING, scratch_bytes=4 * MiB, file_bytes=2 * MiB, wall_s=20.0
    )
    assert outcome.status is RunStatus.DISK, outcome


async def test_files_of_a_thread_with_descriptors_of_its_own_count_against_the_quota(landlock: Sandbox) -> None:
    outcome = await landlock.run(HIDDEN_BY_A_THREAD, scratch_bytes=4 * MiB, file_bytes=2 * MiB, wall_s=20.0)
    assert outcome.status is RunStatus.DISK or outcome.stdout.startswith("refused"), outcome


async def test_no_room_is_reserved_beyond_the_largest_file(landlock: Sandbox) -> None:
    outcome = await landlock.run(RESERVE, file_bytes=MiB)
    assert outcome.stdout.strip().isdecimal(), outcome
    assert int(outcome.stdout) <= MiB


async def test_the_processor_time_of_other_processes_is_not_told(landlock: Sandbox) -> None:
    outcome = await landlock.run(OTHERS_CLOCK.format(pid=os.getpid()))
    assert outcome.stdout.startswith("refused"), outcome


async def test_which_processes_there_are_is_not_told_by_their_processors(landlock: Sandbox) -> None:
    code = "import os\nprint(len(os.sched_getaffinity(0)) > 0, flush=True)\nos.sched_getaffinity({pid})"
    outcome = await landlock.run(code.format(pid=os.getpid()))
    assert outcome.stdout == "True\n", outcome
    assert "Function not implemented" in outcome.stderr


async def test_a_program_knows_its_own_clocks(landlock: Sandbox) -> None:
    outcome = await landlock.run(OWN_CLOCKS)
    assert outcome.status is RunStatus.OK, outcome


async def test_what_others_have_read_lately_is_not_told(landlock: Sandbox) -> None:
    code = "import os\nfile = os.open(os.__file__, os.O_RDONLY)\nos.preadv(file, [bytearray(10)], 0)\n"
    outcome = await landlock.run(f"{code}os.preadv(file, [bytearray(10)], 0, os.RWF_NOWAIT)")
    assert "Operation not supported" in outcome.stderr, outcome
    assert "line 4" in outcome.stderr


@pytest.mark.parametrize(
    ("advice", "answer"), [("MADV_DONTNEED", "None"), ("MADV_MERGEABLE", "refused"), ("21", "refused")]
)
async def test_memory_is_neither_shared_with_others_nor_pushed_out(landlock: Sandbox, advice: str, answer: str) -> None:
    outcome = await landlock.run(ADVISE.format(advice=f"mmap.{advice}" if advice.startswith("MADV") else advice))
    assert outcome.stdout.startswith(answer), outcome
