"""What is taken out of a folder that hostile code has filled."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from bot.tools.python_sandbox.collect import MOST_ENTRIES, MOST_LEFT_OUT, TABLE, Collected, collect_outputs, digest

CANARY = b"the bot's own secret"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "canary.txt").write_bytes(CANARY)
    folder = tmp_path / "run"
    (folder / "output").mkdir(parents=True)
    return folder


def collect(run: Path, *, most_files: int = 10, most_bytes: int = 1_000_000, **known: str) -> Collected:
    return collect_outputs(run, most_files=most_files, most_bytes=most_bytes, known=known)


def reasons(found: Collected) -> dict[str, str]:
    return {left.name: left.reason for left in found.left_out}


def names(found: Collected) -> list[str]:
    return [file.name for file in found.files]


def test_files_come_by_name_with_kind_and_rows(run: Path) -> None:
    (run / "output" / "b.csv").write_text("x\n1\n2\n")
    (run / "output" / "a.txt").write_text("hello")
    found = collect(run)
    assert [(f.name, f.kind, f.rows, f.content) for f in found.files] == [
        ("a.txt", "txt", None, b"hello"),
        ("b.csv", "csv", 2, b"x\n1\n2\n"),
    ]
    assert found.left_out == ()


def test_sandbox_bug_7_links_special_files_and_folders_are_named_and_left(run: Path) -> None:
    output = run / "output"
    os.symlink(run.parent / "canary.txt", output / "link.txt")
    os.symlink("/dev/zero", output / "endless")
    os.symlink("nowhere", output / "broken")
    os.link(run.parent / "canary.txt", output / "hard.txt")
    os.mkfifo(output / "pipe")
    (output / "deep" / "er").mkdir(parents=True)
    (output / "deep" / "er" / "x.txt").write_text("x")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(output / "sock"))
        found = collect(run)
    assert found.files == ()
    assert reasons(found) == {
        "link.txt": "it is a link",
        "endless": "it is a link",
        "broken": "it is a link",
        "hard.txt": "it is a hard link",
        "pipe": "it is no regular file",
        "deep": "it is a folder; only files directly in output/ are taken",
        "sock": "it is no regular file",
    }


def test_an_output_folder_that_is_a_link_is_not_followed(run: Path) -> None:
    (run / "output").rmdir()
    os.symlink(run.parent, run / "output")
    found = collect(run)
    assert found.files == ()
    assert list(reasons(found).values()) == ["it is no folder that can be read"]


def test_a_run_folder_that_is_a_link_is_refused(run: Path) -> None:
    os.symlink(run, run.parent / "other")
    with pytest.raises(NotADirectoryError):
        collect(run.parent / "other")


def test_a_missing_output_folder_is_told(run: Path) -> None:
    (run / "output").rmdir()
    assert list(reasons(collect(run)).values()) == ["it is no folder that can be read"]


def test_sizes_and_counts_are_capped_and_a_sparse_giant_is_not_read(run: Path) -> None:
    output = run / "output"
    with (output / "a-giant.bin").open("wb") as file:
        file.truncate(50 * 2**30)
    for n in range(4):
        (output / f"f{n}.txt").write_bytes(b"x" * 400)
    found = collect(run, most_files=3, most_bytes=1000)
    assert names(found) == ["f0.txt", "f1.txt"]
    assert "53687.1 MB" in reasons(found)["a-giant.bin"]
    assert "200 B are left" in reasons(found)["f2.txt"]
    few = collect(run, most_files=1)
    assert names(few) == ["f0.txt"]
    assert reasons(few)["f1.txt"] == "a run hands back at most 1 files"


def test_the_look_stops_after_a_bound_of_entries(run: Path) -> None:
    for n in range(MOST_ENTRIES + 50):
        (run / "output" / f"{n:05}").touch()
    found = collect(run, most_files=1)
    assert len(found.files) == 1
    assert len(found.left_out) == MOST_LEFT_OUT
    assert found.more_left_out == MOST_ENTRIES - 1 - MOST_LEFT_OUT + 1


def test_sandbox_bug_14_names_that_are_no_text_or_steer_a_terminal_are_cleaned(run: Path) -> None:
    output = os.fsencode(run / "output")
    for name in (b"\xff\xfe.txt", b"a\nb.txt", b"\x1b[2Jx.txt", "x\u202etxt.exe".encode(), b"-rf", b"@everyone"):
        with open(os.path.join(output, name), "wb") as file:
            file.write(b"x")
    assert names(collect(run)) == ["2Jx.txt", "rf", "everyone", "a b.txt", "xtxt.exe", "txt"]


def test_two_names_that_are_cleaned_to_one_stay_two_files(run: Path) -> None:
    (run / "output" / "a:b.txt").write_text("1")
    (run / "output" / "a;b.txt").write_text("2")
    assert [(f.name, f.content) for f in collect(run).files] == [("a_b.txt", b"1"), ("a_b-2.txt", b"2")]


def test_only_what_is_new_or_changed_is_news(run: Path) -> None:
    for name, text in (("same.txt", "1"), ("changed.txt", "2"), ("new.txt", "3")):
        (run / "output" / name).write_text(text)
    known = {"same.txt": digest(b"1"), "changed.txt": digest(b"1"), "gone.txt": digest(b"1")}
    found = collect_outputs(run, most_files=10, most_bytes=100, known=known)
    assert names(found) == ["changed.txt", "new.txt"]
    assert found.gone == ("gone.txt",)


def test_a_table_is_no_file_and_a_forged_one_is_bounded(run: Path) -> None:
    (run / "output" / TABLE).write_bytes(b'{"x": 1}')
    found = collect(run)
    assert (found.files, found.table) == ((), b'{"x": 1}')
    (run / "output" / TABLE).write_bytes(b"x" * 1_000_000)
    assert collect(run).table == b""
    (run / "output" / TABLE).unlink()
    os.symlink(run.parent / "canary.txt", run / "output" / TABLE)
    assert collect(run).table == b""


def test_no_descriptor_is_left_open(run: Path) -> None:
    (run / "output" / "a.txt").write_text("x")
    os.symlink("/etc/passwd", run / "output" / "b")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        collect(run)
    assert len(os.listdir("/proc/self/fd")) == before
