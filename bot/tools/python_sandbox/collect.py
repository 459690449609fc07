"""Files out of a folder that untrusted code has filled: nothing there is trusted, followed, unpacked or run.

To be called after the last process that could write there is gone. Names are looked up in folders that are held open,
links and special files are refused by the kernel (``O_NOFOLLOW``, ``O_NONBLOCK``, ``fstat``), and a file with another
name somewhere (a hard link) is left where it is. See openat(2) and https://cwe.mitre.org/data/definitions/59.html.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bot.tools.python_sandbox.files import MadeFile, clean_file_name, count_rows, format_size, read_kind

OUTPUT = "output"
TABLE = ".table.json"
"""Where the last expression of a program leaves its data frame (``bot.tools.python_sandbox.cell``)."""

MOST_ENTRIES = 2000
TABLE_BYTES = 256 * 1024
MOST_LEFT_OUT = 20
"""Files that are named among those left out; of the others only the number is told."""

_CHUNK = 256 * 1024
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A file that is not handed on. Its name is cleaned."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a run left in its ``output/``.

    Args:
        files: new and changed ones, by name.
        left_out: what was not taken, and why; at most ``MOST_LEFT_OUT``.
        more_left_out: how many others were not.
        table: content of ``TABLE``, unread; empty for none.
        gone: names of known files that are not there any more.
    """

    files: tuple[MadeFile, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    more_left_out: int = 0
    table: bytes = b""
    gone: tuple[str, ...] = ()


def digest(content: bytes) -> str:
    """Return what two equal contents share."""
    return hashlib.sha256(content).hexdigest()


def collect_outputs(
    folder: Path, *, most_files: int, most_bytes: int, known: Mapping[str, str] | None = None
) -> Collected:
    """Read the new files of ``folder/output``. It blocks: run it in a thread.

    Args:
        folder: of a run that has ended (``SandboxRun.folder``).
        most_files: taken at most.
        most_bytes: of all taken files together.
        known: digests (``digest``) of files that were there before, by name; unchanged ones are no news.

    Raises:
        OSError: the folder of the run itself cannot be read.
    """
    collector = _Collector(most_files, most_bytes, known or {})
    run = os.open(folder, _FOLDER_FLAGS)
    try:
        try:
            output = os.open(OUTPUT, _FOLDER_FLAGS, dir_fd=run)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
                raise
            collector.leave(f"{OUTPUT}/", "it is no folder that can be read")
            return collector.end()
        try:
            collector.take_all(output)
        finally:
            os.close(output)
    finally:
        os.close(run)
    return collector.end()


class _Collector:
    def __init__(self, most_files: int, most_bytes: int, known: Mapping[str, str]) -> None:
        self._most_files = most_files
        self._room = most_bytes
        self._known = known
        self._files: list[MadeFile] = []
        self._left_out: list[LeftOut] = []
        self._more = 0
        self._table = b""
        self._gone: tuple[str, ...] = ()

    def leave(self, name: str, reason: str) -> None:
        if len(self._left_out) < MOST_LEFT_OUT:
            self._left_out.append(LeftOut(name=clean_file_name(name), reason=reason))
        else:
            self._more += 1

    def end(self) -> Collected:
        return Collected(
            files=tuple(self._files),
            left_out=tuple(self._left_out),
            more_left_out=self._more,
            table=self._table,
            gone=self._gone,
        )

    def take_all(self, folder: int) -> None:
        names, more = _list_names(folder)
        for name in names:
            if name == TABLE:
                content = _read_file(folder, name, TABLE_BYTES)
                self._table = content if isinstance(content, bytes) else b""
            else:
                self._take(folder, name)
        self._gone = () if more else tuple(sorted(self._known.keys() - set(names)))
        if more:
            self.leave(
                "(more files)", f"the folder has more than {MOST_ENTRIES} entries; the others were not looked at"
            )

    def _take(self, folder: int, name: str) -> None:
        before = self._known.get(name)
        room = self._room
        content = _read_file(folder, name, max(room, 0) if before is None else max(room, _KNOWN_BYTES))
        if isinstance(content, str):
            self.leave(name, content)
            return
        if before is not None and digest(content) == before:
            return
        if len(self._files) >= self._most_files:
            self.leave(name, f"a run hands back at most {self._most_files} files")
            return
        if len(content) > room:
            self.leave(name, _too_big(len(content), room))
            return
        self._room -= len(content)
        clean = clean_file_name(name, taken=[file.name for file in self._files])
        kind = read_kind(clean, content)
        self._files.append(MadeFile(name=clean, content=content, kind=kind, rows=count_rows(kind, content)))


_KNOWN_BYTES = 100 * 1024 * 1024
"""A file that was handed back before is read to see whether it changed; it was within these bounds then."""


def _list_names(folder: int) -> tuple[list[str], bool]:
    names: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(names) == MOST_ENTRIES:
                return sorted(names), True
            names.append(entry.name)
    return sorted(names), False


def _read_file(folder: int, name: str, most: int) -> bytes | str:
    """Return the bytes of a regular file, or why it is not taken."""
    try:
        file = os.open(name, _FILE_FLAGS, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "it is a link"
        if error.errno in (errno.ENXIO, errno.ENODEV):
            return "it is no regular file"
        return f"it cannot be read ({os.strerror(error.errno or 0)})"
    try:
        return _read_open(file, os.fstat(file), os.fstat(folder), most)
    except OSError as error:
        return f"it cannot be read ({os.strerror(error.errno or 0)})"
    finally:
        os.close(file)


def _read_open(file: int, found: os.stat_result, folder: os.stat_result, most: int) -> bytes | str:
    if problem := _find_problem(found, folder):
        return problem
    if found.st_size > most:
        return _too_big(found.st_size, most)
    content = bytearray()
    while chunk := os.read(file, min(_CHUNK, most + 1 - len(content))):
        content += chunk
        if len(content) > most:
            return _too_big(len(content), most)
    return bytes(content)


def _find_problem(found: os.stat_result, folder: os.stat_result) -> str:
    if stat.S_ISDIR(found.st_mode):
        return "it is a folder; only files directly in output/ are taken"
    if not stat.S_ISREG(found.st_mode):
        return "it is no regular file"
    if found.st_nlink != 1:
        return "it is a hard link"
    return "" if found.st_dev == folder.st_dev else "it is on another file system"


def _too_big(size: int, room: int) -> str:
    return f"it has {format_size(size)}, and only {format_size(room)} are left of what a run hands back"
