"""The folder of a thread: private, bounded, forgotten, swept, and what is kept in it."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from adapters.chat import FileRef
from bot.tools.python_sandbox.collect import LeftOut
from bot.tools.python_sandbox.files import MadeFile
from bot.tools.python_sandbox.folders import MADE, OUTPUTS, RUNS, SESSION, UPLOADS, Folders, remove_tree
from bot.tools.python_sandbox.made import Made, MadeFiles, Table, new_output_id, read_table
from bot.tools.python_sandbox.sessions_key import load_session_key
from bot.tools.python_sandbox.types import RunStatus, SandboxOutcome
from bot.tools.python_sandbox.uploads import Uploads

KEY, OTHER = "slack:T1/C1/1.1", "slack:T1/C1/2.2"


class HandClock:
    def __init__(self) -> None:
        self.at = datetime(2026, 5, 1, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    async def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)

    def advance(self, **by: float) -> None:
        self.at += timedelta(**by)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def folders(tmp_path: Path, clock: HandClock) -> Folders:
    return Folders(tmp_path / "root", clock=clock, most_files=3, most_bytes=1000)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def made(*files: MadeFile, output_id: str = "", stdout: str = "") -> Made:
    outcome = SandboxOutcome(status=RunStatus.OK, stdout=stdout)
    return Made(output_id=output_id or new_output_id(), outcome=outcome, files=files)


def text_file(name: str, text: str = "x") -> MadeFile:
    return MadeFile(name=name, content=text.encode(), kind="txt")


# -- the folder ------------------------------------------------------------------------------------


def test_a_folder_is_private_and_its_name_tells_nothing(folders: Folders) -> None:
    old = os.umask(0)
    try:
        folder = folders.open(KEY)
    finally:
        os.umask(old)
    assert {mode(p) for p in (folders.root, folder, folder / UPLOADS, folder / OUTPUTS, folder / RUNS)} == {0o700}
    assert not set(KEY.replace("/", ":").split(":")) & set(folder.name.split("-"))
    assert folders.find(OTHER) != folder
    assert Folders(folders.root, clock=HandClock()).find(KEY) == folder


def test_sandbox_bug_18_a_folder_of_somebody_else_or_a_link_is_never_used(folders: Folders, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folders.root.symlink_to(elsewhere)
    with pytest.raises(OSError, match="no folder"):
        folders.open(KEY)
    assert list(elsewhere.iterdir()) == []
    folders.root.unlink()
    folders.root.mkdir(mode=0o755)
    if os.geteuid() == 0:
        os.chown(folders.root, 12345, 12345)
        with pytest.raises(PermissionError, match="another user"):
            folders.open(KEY)
        os.chown(folders.root, 0, 0)
    folders.open(KEY)
    assert mode(folders.root) == 0o700


def test_a_written_file_is_whole_or_not_there(folders: Folders) -> None:
    folder = folders.open(KEY) / OUTPUTS
    folders.write(folder / "a.txt", b"one")
    folders.write(folder / "a.txt", b"two")
    assert (folder / "a.txt").read_bytes() == b"two"
    assert os.listdir(folder) == ["a.txt"]
    with pytest.raises(FileNotFoundError):
        folders.write(folder / "missing" / "a.txt", b"x")
    (folder / "dir").mkdir()
    with pytest.raises(IsADirectoryError):
        folders.write(folder / "dir", b"x")
    assert sorted(os.listdir(folder)) == ["a.txt", "dir"]


# -- removing --------------------------------------------------------------------------------------


def test_sandbox_bug_14_a_tree_deeper_than_any_path_and_stack_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    at = os.open(top, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d" * 60, dir_fd=at)
        deeper = os.open("d" * 60, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    remove_tree(top)
    assert not top.exists()


def test_links_inside_are_removed_and_never_followed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "secret.txt").write_text("x")
    top = tmp_path / "top"
    (top / "in").mkdir(parents=True)
    os.symlink(canary, top / "link")
    os.symlink(canary, top / "in" / "link")
    os.mkfifo(top / "in" / "pipe")
    os.link(canary / "secret.txt", top / "hard")
    remove_tree(top)
    assert not top.exists()
    assert (canary / "secret.txt").read_text() == "x"
    os.symlink(canary, top)
    remove_tree(top)
    assert not top.is_symlink()
    assert (canary / "secret.txt").read_text() == "x"
    remove_tree(tmp_path / "not there")


def test_folders_without_rights_are_removed(tmp_path: Path) -> None:
    (tmp_path / "top" / "a" / "b").mkdir(parents=True)
    (tmp_path / "top" / "a" / "b" / "x").write_text("x")
    for folder in ("top/a/b", "top/a", "top"):
        os.chmod(tmp_path / folder, 0)
    remove_tree(tmp_path / "top")
    assert not (tmp_path / "top").exists()


# -- sweeping and forgetting -----------------------------------------------------------------------


def test_files_go_after_a_day_and_the_folder_with_the_last_of_them(folders: Folders, clock: HandClock) -> None:
    Uploads(folders).note(KEY, "m1", 1.0, [FileRef(id="F1", name="old.csv")])
    clock.advance(hours=20)
    MadeFiles(folders).save(KEY, "r1", made(text_file("new.txt")))
    clock.advance(hours=5)
    assert folders.sweep() == 0
    assert folders.count(KEY) == 1
    assert os.listdir(folders.find(KEY) / OUTPUTS) == ["new.txt"]
    assert os.listdir(folders.find(KEY) / MADE) == ["r1"]
    clock.advance(hours=20)
    assert folders.sweep() == 1
    assert os.listdir(folders.root) == []


def test_what_dead_processes_left_is_swept_and_what_works_is_not(folders: Folders, clock: HandClock) -> None:
    dead = folders.new_run(KEY)
    clock.advance(hours=2)
    alive = folders.new_run(KEY)
    folder = folders.find(KEY)
    (folder / RUNS / SESSION).mkdir()
    (folders.root / ".gone-1234").mkdir()
    assert folders.sweep() == 0
    assert not dead.exists()
    assert os.listdir(folder / RUNS) == [alive.name]
    key = load_session_key(folders, folder)
    folders.lay_out(folder / RUNS / SESSION)
    folders.sweep()
    assert (folder / RUNS / SESSION).exists()
    assert load_session_key(folders, folder) == key
    clock.advance(hours=25)
    folders.sweep()
    assert not folder.exists()


def test_sweeping_before_there_is_anything_is_fine(folders: Folders) -> None:
    assert folders.sweep() == 0
    assert folders.count(KEY) == 0


def test_forgetting_drops_all_of_one_thread(folders: Folders) -> None:
    uploads, files = Uploads(folders), MadeFiles(folders)
    for key in (KEY, OTHER):
        uploads.note(key, "m1", 1.0, [FileRef(id="F1", name="a.csv")])
        uploads.save(key, uploads.list(key)[0], b"1,2")
        files.save(key, "r1", made(text_file("x.txt")))
    session = load_session_key(folders, folders.find(KEY))
    assert folders.count(KEY) == 2
    assert folders.forget(KEY) == 2
    assert (folders.count(KEY), folders.count(OTHER)) == (0, 2)
    assert len(os.listdir(folders.root)) == 1
    assert load_session_key(folders, folders.open(KEY)) != session
    assert folders.forget("slack:T1/C1/9.9") == 0


# -- attached files --------------------------------------------------------------------------------


def test_files_are_noted_once_under_names_that_differ(folders: Folders) -> None:
    uploads = Uploads(folders)
    files = [FileRef(id="F1", name="../data.csv"), FileRef(id="F2", name="DATA.csv")]
    uploads.note(KEY, "m1", 1.0, files)
    uploads.note(KEY, "m1", 1.0, files)
    uploads.note(KEY, "m2", 2.0, [FileRef(id="F3", name="data.csv")])
    assert [u.name for u in uploads.list(KEY)] == ["data.csv", "DATA-2.csv", "data-3.csv"]
    assert uploads.list(OTHER) == []


def test_an_input_is_a_copy_that_cannot_be_changed_for_the_thread(folders: Folders) -> None:
    uploads = Uploads(folders)
    uploads.note(KEY, "m1", 1.0, [FileRef(id="F1", name="a.csv"), FileRef(id="F2", name="b.csv")])
    first, second = uploads.list(KEY)
    uploads.save(KEY, first, b"1,2")
    uploads.save(KEY, second, None, "it did not come")
    run = folders.new_run(KEY)
    assert uploads.copy(KEY, ["a.csv", "b.csv"], run / "input") == {"a.csv": 3}
    copied, kept = run / "input" / "a.csv", uploads.find(KEY, first)
    assert kept is not None
    assert (copied.read_bytes(), mode(copied), copied.stat().st_nlink) == (b"1,2", 0o444, 1)
    assert copied.stat().st_ino != kept.stat().st_ino
    assert mode(run / "input") == 0o555
    assert [u.problem for u in uploads.list(KEY)] == ["", "it did not come"]
    remove_tree(run)
    assert kept.read_bytes() == b"1,2"


def test_the_quota_drops_the_oldest_contents_and_notes(folders: Folders, clock: HandClock) -> None:
    uploads = Uploads(folders)
    for n in range(3):
        clock.advance(seconds=1)
        uploads.note(KEY, f"m{n}", float(n), [FileRef(id="F", name=f"{n}.bin")])
        uploads.save(KEY, uploads.list(KEY)[n], b"x" * 400)
    here = [uploads.find(KEY, u) is not None for u in uploads.list(KEY)]
    assert here == [False, True, True]
    clock.advance(seconds=1)
    uploads.note(KEY, "m9", 9.0, [FileRef(id="F", name="9.bin")])
    assert [u.name for u in uploads.list(KEY)] == ["1.bin", "2.bin", "9.bin"]


def test_the_files_of_a_deleted_message_go(folders: Folders) -> None:
    uploads = Uploads(folders)
    uploads.note(KEY, "m1", 1.0, [FileRef(id="F1", name="a.csv")])
    uploads.note(KEY, "m2", 2.0, [FileRef(id="F2", name="b.csv")])
    uploads.save(KEY, uploads.list(KEY)[0], b"1")
    uploads.erase(KEY, "m1")
    assert [u.name for u in uploads.list(KEY)] == ["b.csv"]
    assert len(os.listdir(folders.find(KEY) / UPLOADS)) == 1


def test_a_note_that_cannot_be_read_is_passed_over(folders: Folders) -> None:
    uploads = Uploads(folders)
    uploads.note(KEY, "m1", 1.0, [FileRef(id="F1", name="a.csv")])
    (folders.find(KEY) / UPLOADS / "broken.json").write_text("{")
    assert [u.name for u in uploads.list(KEY)] == ["a.csv"]


# -- what runs made --------------------------------------------------------------------------------


def test_what_a_run_made_is_loaded_as_it_was_saved_and_dropped_with_its_answer(folders: Folders) -> None:
    files = MadeFiles(folders)
    table = Table(columns=("a",), rows=(("1",),), row_count=9, column_count=1)
    first = Made(
        output_id=new_output_id(),
        outcome=SandboxOutcome(status=RunStatus.TIMEOUT, stdout="half, 漢", stderr="e", stdout_cut=True),
        files=(
            MadeFile(name="p.png", content=b"\x89PNG", kind="png"),
            MadeFile(name="c.csv", content=b"", kind="csv", rows=0),
        ),
        left_out=(LeftOut(name="x", reason="it is a link"),),
        more_left_out=4,
        table=table,
        missing=(LeftOut(name="y", reason="gone"),),
    )
    second = made(text_file("b.txt"))
    files.save(KEY, "r1", first)
    files.save(KEY, "r1", second)
    again = MadeFiles(Folders(folders.root, clock=HandClock()))
    (loaded,) = again.load(KEY, "r1", [first.output_id])
    assert (loaded.files, loaded.table, loaded.left_out, loaded.missing) == (
        first.files,
        table,
        first.left_out,
        first.missing,
    )
    assert loaded.outcome == first.outcome
    assert [m.output_id for m in again.load(KEY, "r1", [second.output_id, "py_0000000000000000", first.output_id])] == [
        second.output_id,
        first.output_id,
    ]
    again.save(KEY, "r1-w2", first)  # a worker's
    again.save(KEY, "r12", first)
    again.drop(KEY, "r1")
    assert again.load(KEY, "r1", [first.output_id]) == []
    assert again.load(KEY, "r1-w2", [first.output_id]) == []
    assert len(again.load(KEY, "r12", [first.output_id])) == 1
    again.drop(KEY, "r1")


@pytest.mark.parametrize(("run_id", "output_id"), [("../..", "py_0123456789abcdef"), ("r1", "../../x"), ("r1", "")])
def test_a_name_that_is_no_name_reaches_no_file(folders: Folders, run_id: str, output_id: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        MadeFiles(folders).load(KEY, run_id, [output_id])


def test_the_next_run_finds_what_earlier_ones_made_and_misses_what_they_removed(
    folders: Folders, clock: HandClock
) -> None:
    files = MadeFiles(folders)
    files.save(KEY, "r1", made(text_file("a.txt", "1"), text_file("b.txt", "2")))
    clock.advance(seconds=1)
    files.save(KEY, "r2", made(text_file("a.txt", "11")))
    run = folders.new_run(KEY)
    assert files.lay_out(KEY, run / "output") == 3
    assert (run / "output" / "a.txt").read_text() == "11"
    assert set(files.list_known(KEY)) == {"a.txt", "b.txt"}
    files.discard(KEY, ["b.txt", "../../etc/passwd"])
    assert set(files.list_known(KEY)) == {"a.txt"}


def test_only_the_newest_files_are_kept_for_the_next_run(folders: Folders, clock: HandClock) -> None:
    files = MadeFiles(folders)
    for n in range(5):
        clock.advance(seconds=1)
        files.save(KEY, "r1", made(text_file(f"{n}.txt", "x" * 100)))
    assert set(files.list_known(KEY)) == {"2.txt", "3.txt", "4.txt"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"columns": [], "rows": [], "row_count": 0, "column_count": 0}',
        b'{"columns": ["a"], "rows": [["1", "2"]], "row_count": 1, "column_count": 1}',
        b'{"columns": ["a"], "rows": [[1]], "row_count": 1, "column_count": 1}',
        b'{"columns": ["a"], "rows": [], "row_count": -1, "column_count": 1}',
        b'{"columns": "abc", "rows": [], "row_count": 1, "column_count": 1}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_forged_table_is_none(content: bytes) -> None:
    assert read_table(content) is None


def test_a_table_is_read() -> None:
    table = read_table(b'{"columns": ["a"], "rows": [["1"]], "row_count": 5, "column_count": 2}')
    assert table == Table(columns=("a",), rows=(("1",),), row_count=5, column_count=2)
