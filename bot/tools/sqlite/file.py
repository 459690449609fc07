"""Whether an SQLite file can be read without writing anything beside it. Standard library only."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

_MAGIC = b"SQLite format 3\0"
_WAL_VERSION = 2


class Unusable(Exception):
    """The file cannot be read; ``kind`` is a key of ``failures``, ``said`` a few words."""

    def __init__(self, kind: str, said: str = "") -> None:
        super().__init__(said)
        self.kind = kind
        self.said = said


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A file as it was found.

    Args:
        path: of the file.
        unshared: it is in WAL mode and no program has it open: opened in the usual way, even a reader would create
            ``-wal`` and ``-shm`` files and leave them, so it is read as if it could not change.
        identity: device, file, size and time of the last change.
    """

    path: str
    unshared: bool
    identity: tuple[int, int, int, int]


def look_at(path: str) -> FileState:
    """Look at a file before SQLite does.

    Raises:
        Unusable: it is missing, a link, a folder, no SQLite database, or left behind in the middle of a change.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        raise Unusable("missing", "absolute" if os.path.exists(f"/{path}") else "") from None
    except OSError as error:
        raise Unusable("unreadable", error.strerror or "") from None
    if stat.S_ISLNK(found.st_mode):
        raise Unusable("link")
    if not stat.S_ISREG(found.st_mode):
        raise Unusable("folder" if stat.S_ISDIR(found.st_mode) else "special")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise Unusable("unreadable", error.strerror or "") from None
    with os.fdopen(descriptor, "rb") as file:
        head = file.read(20)
    if head and not head.startswith(_MAGIC):
        raise Unusable("no_database")
    wal = len(head) == 20 and _WAL_VERSION in head[18:20]
    return FileState(path=path, unshared=wal and not _is_shared(path), identity=_identify(found))


def still_same(state: FileState) -> bool:
    """False if somebody wrote to a file that was read as if it could not change."""
    if not state.unshared:
        return True
    try:
        return _identify(os.lstat(state.path)) == state.identity and not _size(f"{state.path}-wal")
    except OSError:
        return False


def _is_shared(path: str) -> bool:
    """In WAL mode: other programs have it open, or left their files."""
    log, index = _size(f"{path}-wal"), os.path.exists(f"{path}-shm")
    if log and not index:
        raise Unusable("left_open")
    return index and log is not None


def _size(path: str) -> int | None:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return None


def _identify(found: os.stat_result) -> tuple[int, int, int, int]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
