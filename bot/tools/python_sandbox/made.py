"""What runs made: kept for the next run of the thread, and until the answer that brings it along is stored.

A run's files are on the disk before its result is in the journal, under a name that the result holds. So a process
that takes the run up after ``kill -9`` finds exactly the files of the results that it replays: none is lost, and none
comes twice.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter
from pydantic_core import to_json

from bot.tools.python_sandbox.cell import CELL_CHARS, HEAD_COLUMNS, HEAD_ROWS
from bot.tools.python_sandbox.collect import LeftOut, digest
from bot.tools.python_sandbox.files import FileKind, MadeFile, clean_file_name
from bot.tools.python_sandbox.folders import MADE, OUTPUTS, Folders, remove_tree
from bot.tools.python_sandbox.types import SandboxOutcome

RUN_PYTHON = "run_python"
"""The name of the tool."""

ID = re.compile(r"py_[0-9a-f]{16}")
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_INDEX = "made.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The head of a data frame, as the code's process told it: texts that nobody vouches for."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    row_count: int
    column_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """All that one call of ``run_python`` came to.

    Args:
        output_id: names it.
        outcome: how the program ended, and what it printed.
        files: new files, their contents included.
        left_out, more_left_out: see ``Collected``.
        table: of a data frame that the code ended with.
        missing: attached files that could not be handed in, and why.
    """

    output_id: str
    outcome: SandboxOutcome
    files: tuple[MadeFile, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    more_left_out: int = 0
    table: Table | None = None
    missing: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    name: str
    kind: FileKind
    rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    outcome: SandboxOutcome
    files: tuple[_Entry, ...]
    left_out: tuple[LeftOut, ...]
    more_left_out: int
    table: Table | None
    missing: tuple[LeftOut, ...]


_INDEXES = TypeAdapter(_Index)
_TABLES = TypeAdapter(Table)


def new_output_id() -> str:
    """Make the name of one call's output."""
    return f"py_{secrets.token_hex(8)}"


def read_table(content: bytes) -> Table | None:
    """Read what ``bot.tools.python_sandbox.cell`` wrote about a data frame; None for anything else."""
    try:
        table = _TABLES.validate_json(content, strict=True) if content else None
    except ValueError:
        return None
    if table is None or not table.columns or not _is_count(table.row_count) or not _is_count(table.column_count):
        return None
    rows = (table.columns, *table.rows)
    # Larger than ``cell`` writes it: forged, to fill the channel or the model's window with it.
    fits = len(table.columns) <= HEAD_COLUMNS and len(table.rows) <= HEAD_ROWS
    if not fits or any(len(row) != len(table.columns) for row in rows):
        return None
    return table if all(len(text) <= CELL_CHARS for row in rows for text in row) else None


def _is_count(number: int) -> bool:
    return 0 <= number < 1 << 63


class MadeFiles:
    """What runs made. Everything blocks.

    Args:
        folders: where it is kept.
    """

    def __init__(self, folders: Folders) -> None:
        self._folders = folders

    def lay_out(self, thread_key: str, into: Path) -> int:
        """Copy what earlier runs of the thread made into a new run's ``output``; return how many bytes that are."""
        size = 0
        for entry in self._folders.list_files(self._folders.find(thread_key) / OUTPUTS):
            shutil.copyfile(entry.path, into / entry.name, follow_symlinks=False)
            size += (into / entry.name).stat().st_size
        return size

    def list_known(self, thread_key: str) -> dict[str, str]:
        """Return the digests of what earlier runs of the thread made, by name."""
        found = self._folders.list_files(self._folders.find(thread_key) / OUTPUTS)
        return {entry.name: digest(Path(entry.path).read_bytes()) for entry in found}

    def discard(self, thread_key: str, names: Collection[str]) -> None:
        """Drop files of earlier runs that code has removed."""
        for name in names:
            if name == clean_file_name(name):
                (self._folders.find(thread_key) / OUTPUTS / name).unlink(missing_ok=True)

    def save(self, thread_key: str, run_id: str, made: Made) -> None:
        """Keep what a call made, for its answer and for the next run.

        Raises:
            OSError: there is no room for it.
        """
        folder = self._folders.open(thread_key)
        kept = self._find(thread_key, run_id, made.output_id)
        kept.mkdir(mode=0o700, parents=True)
        for number, file in enumerate(made.files):
            self._folders.write(kept / str(number), file.content)
            self._folders.write(folder / OUTPUTS / file.name, file.content)
        index = _Index(
            outcome=made.outcome,
            files=tuple(_Entry(name=f.name, kind=f.kind, rows=f.rows) for f in made.files),
            left_out=made.left_out,
            more_left_out=made.more_left_out,
            table=made.table,
            missing=made.missing,
        )
        self._folders.write(kept / _INDEX, to_json(index))
        self._folders.touch(kept.parent)
        self._folders.trim(folder / OUTPUTS)

    def load(self, thread_key: str, run_id: str, output_ids: Sequence[str]) -> list[Made]:
        """Load what calls of a run made, in the given order; what is not there any more is left out."""
        found: list[Made] = []
        for output_id in output_ids:
            kept = self._find(thread_key, run_id, output_id)
            try:
                index = _INDEXES.validate_json((kept / _INDEX).read_bytes())
                files = tuple(
                    MadeFile(name=e.name, kind=e.kind, rows=e.rows, content=(kept / str(n)).read_bytes())
                    for n, e in enumerate(index.files)
                )
            except (FileNotFoundError, ValueError):  # swept, forgotten, or of another version
                continue
            found.append(
                Made(
                    output_id=output_id,
                    outcome=index.outcome,
                    files=files,
                    left_out=index.left_out,
                    more_left_out=index.more_left_out,
                    table=index.table,
                    missing=index.missing,
                )
            )
        return found

    def drop(self, thread_key: str, run_id: str) -> None:
        """Drop what was kept for the answer of a run, once that is stored: its own, and that of the runs inside it."""
        kept = self._folders.find(thread_key) / MADE
        remove_tree(kept / _check(run_id, _RUN_ID))
        for inside in kept.glob(f"{run_id}-*"):  # workers of a report: ``RUN-w1`` ...
            remove_tree(inside)

    def _find(self, thread_key: str, run_id: str, output_id: str) -> Path:
        run = self._folders.find(thread_key) / MADE / _check(run_id, _RUN_ID)
        return run / _check(output_id, ID)


def _check(name: str, pattern: re.Pattern[str]) -> str:
    if pattern.fullmatch(name) is None:
        raise ValueError(f"not a name of what a run made: {name!r}")
    return name
