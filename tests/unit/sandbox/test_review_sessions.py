"""What a kept interpreter may leave in its folder to spoil the thread's next call."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters.chat import FileRef
from agent_core.context import SystemClock
from bot.tools.python_sandbox.folders import RUNS, SESSION, Folders
from bot.tools.python_sandbox.uploads import Uploads

THREAD = "slack:T1:C1:1.1"


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """An empty place."""
    return Folders(tmp_path / "root", clock=SystemClock())


@pytest.mark.parametrize("name", ["input", "output"])
def test_a_file_in_place_of_a_folder_makes_room(folders: Folders, name: str) -> None:
    run = folders.open(THREAD) / RUNS / SESSION
    folders.lay_out(run)
    (run / name).rmdir()
    (run / name).write_text("in the way")
    folders.lay_out(run)
    assert (run / name).is_dir()


def test_a_folder_in_place_of_an_attached_file_makes_room(folders: Folders) -> None:
    uploads = Uploads(folders)
    file = FileRef(id="F1", name="sales.csv", media_type="text/csv", size=3, address="F1")
    uploads.note(THREAD, "1.1", datetime(2026, 1, 1, tzinfo=UTC).timestamp(), [file])
    (noted,) = uploads.list(THREAD)
    uploads.save(THREAD, noted, b"a,b")
    run = folders.open(THREAD) / RUNS / SESSION
    folders.lay_out(run)
    (run / "input" / "sales.csv" / "deep").mkdir(parents=True)
    assert uploads.copy(THREAD, ["sales.csv"], run / "input") == {"sales.csv": 3}
    assert (run / "input" / "sales.csv").read_bytes() == b"a,b"
