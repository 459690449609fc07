"""Processes, their output and their folders, as the bot holds them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.tools.python_sandbox.process import (
    ChildProcess,
    Output,
    measure_deleted,
    measure_folder,
    read_memory,
    spawn,
)
from bot.tools.python_sandbox.scratch import Room, TooMuch, copy_files, list_files, remove_files
from bot.tools.python_sandbox.types import MiB

NOBODY = 65534


def start(code: str, *arguments: str, keep_fds: Sequence[int] = (), stdout: int = subprocess.DEVNULL) -> ChildProcess:
    """Start a small Python program."""
    command = [sys.executable, "-I", "-S", "-c", code, *arguments]
    return spawn(command, environ={}, stdout=stdout, keep_fds=keep_fds)


# -- processes -------------------------------------------------------------------------------------


async def test_the_kernel_tells_how_a_process_ended_and_what_it_used() -> None:
    assert (await start("raise SystemExit(7)").wait()).code == 7
    assert (await start("import os; os.kill(os.getpid(), 11)").wait()).code == -11
    used = await start("x = bytearray(80 * 2**20)\nimport time\nwhile time.process_time() < 0.2: pass").wait()
    assert used.cpu_s >= 0.2
    assert used.peak_memory_bytes > 80 * MiB


async def test_a_process_is_killed_and_may_be_waited_for_by_several() -> None:
    process = start("import time; time.sleep(60)")
    waiting = [asyncio.create_task(process.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    process.kill()
    assert [(await task).code for task in waiting[1:]] == [-9, -9]
    process.kill()
    assert process.ended


async def test_a_process_gets_no_descriptor_that_is_not_named() -> None:
    output = Output(keep_bytes=1000)
    secret, given_ = os.open("/dev/null", os.O_RDONLY), os.open("/dev/zero", os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        code = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd')), os.getsid(0) == os.getpid())"
        process = start(code, keep_fds=(given_,), stdout=output.write_fd)
        output.close_writer()
        await process.wait()
        output.drain()
    finally:
        os.close(secret)
        os.close(given_)
    listed, leads = output.take()[0].strip().rsplit(" ", 1)
    output.close()
    assert str(given_) in listed
    assert f" {secret}," not in listed
    assert leads == "True"


async def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        spawn(["/nowhere/at/all"], environ={})


HARDENED = """
import os, sys, ctypes
from bot.tools.python_sandbox.process import harden_process
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
before = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
if sys.argv[1] == "hardened":
    harden_process()
print(before, ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True)
pid = os.getpid()
# A child of the same user stands for any other process of that user.
if os.fork() == 0:
    try:
        open(f"/proc/{pid}/environ", "rb").read()
        print("readable", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(("how", "said"), [("plain", "1 1\nreadable\n"), ("hardened", "1 0\nPermissionError\n")])
def test_a_hardened_process_cannot_be_read_by_others_of_its_user(how: str, said: str) -> None:
    environ = {**os.environ, "HERMOD_X": "secret"}
    command = [sys.executable, "-c", HARDENED, how]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == said


# -- output ----------------------------------------------------------------------------------------


async def test_output_is_kept_up_to_its_bound_and_counted_beyond() -> None:
    output = Output(keep_bytes=5)
    counted: list[int] = []
    output.on_read = counted.append
    os.write(output.write_fd, b"abc")
    os.write(output.write_fd, b"defgh" * 1000)
    output.drain()
    assert output.take() == ("abcde"[:5], True)
    assert sum(counted) == 5003
    os.write(output.write_fd, b"xy")
    output.close_writer()
    output.drain()
    assert output.take() == ("xy", False)
    output.close()
    output.close()


async def test_half_a_character_at_the_cut_is_left_out_and_bad_bytes_are_shown() -> None:
    output = Output(keep_bytes=6)
    os.write(output.write_fd, b"\xffab" + "é€".encode())
    output.drain()
    assert output.take() == ("\ufffdabé", True)
    output.close()


@given(chunks=st.lists(st.binary(max_size=40), max_size=10), keep=st.integers(0, 60))
def test_what_is_kept_is_the_beginning_of_what_was_written(chunks: list[bytes], keep: int) -> None:
    async def take() -> tuple[str, bool]:
        output = Output(keep_bytes=keep)
        for chunk in chunks:
            os.write(output.write_fd, chunk)
        output.close_writer()
        output.drain()
        taken = output.take()
        output.close()
        return taken

    text, cut = asyncio.run(take())
    written = b"".join(chunks)
    assert cut == (len(written) > keep)
    whole = written[:keep].decode("utf-8", "replace")
    assert text == whole or (cut and whole.startswith(text) and len(whole) - len(text) <= 3)


# -- folders ---------------------------------------------------------------------------------------


def test_a_folder_is_added_up_without_following_links(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    (outside / "big").write_bytes(bytes(10 * MiB))
    (inside / "a/b").mkdir(parents=True)
    (inside / "a/b/file").write_bytes(bytes(1000))
    (inside / "link").symlink_to(outside)
    found = measure_folder(str(inside), max_entries=100)
    assert found.entries == 4
    assert 1000 <= found.size_bytes < 100_000
    assert measure_folder(str(inside), max_entries=2).entries == 3
    assert measure_folder(str(tmp_path / "nowhere"), max_entries=2).entries == 0


def test_a_sparse_file_counts_as_long_as_it_is(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(100 * MiB)
    assert measure_folder(str(tmp_path), max_entries=10).size_bytes == 100 * MiB


def test_folders_too_deep_to_be_walked_count_as_too_many(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(40):
        os.mkdir("d" * 200, dir_fd=at)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)
    assert measure_folder(str(tmp_path), max_entries=100).entries > 100


async def test_deleted_files_that_are_kept_open_are_found(tmp_path: Path) -> None:
    output = Output(keep_bytes=100)
    code = (
        "import os, sys, time\nfile = open(sys.argv[1], 'wb'); file.write(bytes(2**20)); file.flush()\n"
        "os.unlink(sys.argv[1]); print('ready', flush=True); time.sleep(60)"
    )
    process = start(code, str(tmp_path / "x"), stdout=output.write_fd)
    output.close_writer()
    ready = asyncio.Event()
    output.on_read = lambda _: ready.set()
    await asyncio.wait_for(ready.wait(), 60)
    assert measure_deleted(process.pid, file_bytes=MiB) >= MiB
    resident, highest = read_memory(process.pid)
    assert 0 < resident <= highest
    process.kill()
    await process.wait()
    output.close()
    assert (measure_deleted(process.pid, file_bytes=MiB), read_memory(process.pid)) == (0, (0, 0))


# -- copies ----------------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A folder to copy from and one to copy to."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    return source, target


def copy(source: Path, target: Path, room: Room, *, skip: str = "") -> None:
    """Copy everything."""
    reader, writer = os.open(source, os.O_RDONLY), os.open(target, os.O_RDONLY)
    try:
        copy_files(reader, writer, room=room, unless={}, skip=skip)
    finally:
        os.close(reader)
        os.close(writer)


def test_only_regular_files_with_one_name_are_copied(folders: tuple[Path, Path]) -> None:
    source, target = folders
    (source / "plain").write_text("1")
    (source / "deep").mkdir()
    (source / "deep/plain").write_text("2")
    (source / "link").symlink_to("/etc/passwd")
    (source / "folder-link").symlink_to("/etc")
    (source / "one").write_text("twice")
    os.link(source / "one", source / "two")
    os.mkfifo(source / "fifo")
    (source / "skipped").mkdir()
    (source / "skipped/x").write_text("3")
    copy(source, target, Room(size_bytes=100, entries=10), skip="skipped")
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*")) == ["deep", "deep/plain", "plain"]


def test_a_link_in_the_target_is_replaced_and_not_followed(folders: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = folders
    canary = tmp_path / "canary"
    canary.write_text("untouched")
    (source / "file").write_text("new")
    (target / "file").symlink_to(canary)
    copy(source, target, Room(size_bytes=100, entries=10))
    assert canary.read_text() == "untouched"
    assert (target / "file").read_text() == "new"
    (source / "folder").mkdir()
    (source / "folder/x").write_text("new")
    (target / "folder").symlink_to(tmp_path)
    with pytest.raises(OSError, match="folder"):
        copy(source, target, Room(size_bytes=100, entries=10))
    assert not (tmp_path / "x").exists()


def test_copying_stops_where_there_is_no_room(folders: tuple[Path, Path]) -> None:
    source, target = folders
    for n in range(5):
        (source / str(n)).write_bytes(bytes(100))
    with pytest.raises(TooMuch):
        copy(source, target, Room(size_bytes=250, entries=10))
    with pytest.raises(TooMuch):
        copy(source, target, Room(size_bytes=9999, entries=3))
    assert len(os.listdir(target)) < 5


def test_listed_files_can_be_removed_again(folders: tuple[Path, Path]) -> None:
    source, _ = folders
    (source / "a").mkdir()
    (source / "a/b").write_text("1")
    opened = os.open(source, os.O_RDONLY)
    try:
        assert list(list_files(opened)) == ["a/b"]
        remove_files(opened, ["a/b", "a/gone", "a/b/c"])
        assert list_files(opened) == {}
    finally:
        os.close(opened)
