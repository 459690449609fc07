"""Log files that may be read: inside a configured root, regular files only, no links followed.

A file is opened step by step from the root with ``O_NOFOLLOW``, and what was opened is what is read: nobody can put a
link there in between.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agent_core.errors import ToolFailed

MOST_FILES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog:
    """An open file: the descriptor belongs to whoever opened it."""

    name: str
    descriptor: int
    size_bytes: int
    modified_at: float


@contextmanager
def open_logs(root: Path, path: str | None, *, since: float) -> Iterator[Sequence[OpenLog]]:
    """Open the files to read, and close them at the end.

    Args:
        root: the configured folder or file.
        path: inside of the root; None or empty means all of its files that are no links and not hidden.
        since: files of a folder that were last written before this (seconds since 1970) are left out.

    Yields:
        The files, oldest first; at most ``MOST_FILES``, the newest ones.

    Raises:
        ToolFailed: ``path_refused`` (outside of the root, a link, no file), ``file_missing``, ``no_logs``.
    """
    with ExitStack() as stack:
        try:
            place = os.open(root, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise _refuse_root(error) from error
        stack.callback(os.close, place)
        kind = os.fstat(place).st_mode
        if stat.S_ISREG(kind):
            if path and PurePosixPath(path).name != root.name:
                raise _missing(path)
            yield [_describe(place, root.name)]
        elif not stat.S_ISDIR(kind):
            raise _refuse(root.name)
        elif path:
            yield [_open_inside(stack, place, root, path)]
        else:
            found = _open_all(stack, place, since)
            if not found:
                raise ToolFailed(
                    "there is no log in the target's folder for this range",
                    code="no_logs",
                    fix="ask for a longer time range, or look whether the server writes its log there",
                )
            yield found


@contextmanager
def open_upload(name: str, path: Path) -> Iterator[Sequence[OpenLog]]:
    """Open one attached file that lies on this disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield [_describe(descriptor, name)]
    finally:
        os.close(descriptor)


def _open_inside(stack: ExitStack, place: int, root: Path, path: str) -> OpenLog:
    asked = PurePosixPath(path)
    if asked.is_absolute():
        if not asked.is_relative_to(root):
            raise _refuse(path)
        asked = asked.relative_to(root)
    parts = asked.parts
    if not parts or ".." in parts or "\0" in path:
        raise _refuse(path)
    for part in parts[:-1]:
        place = _step(stack, place, part, path, os.O_DIRECTORY)
    log = _describe(_step(stack, place, parts[-1], path, os.O_NONBLOCK), str(asked))
    if log.size_bytes < 0:
        raise _refuse(path)
    return log


def _step(stack: ExitStack, place: int, part: str, path: str, flags: int) -> int:
    try:
        descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=place)
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError:
        raise _refuse(path) from None
    stack.callback(os.close, descriptor)
    return descriptor


def _open_all(stack: ExitStack, place: int, since: float) -> list[OpenLog]:
    with os.scandir(place) as entries:
        names = [
            (info.st_mtime, entry.name)
            for entry in entries
            if not entry.name.startswith(".") and stat.S_ISREG((info := entry.stat(follow_symlinks=False)).st_mode)
        ]
    found: list[OpenLog] = []
    for modified, name in sorted(names, reverse=True)[:MOST_FILES]:
        if modified >= since:
            log = _describe(_step(stack, place, name, name, os.O_NONBLOCK), name)
            if log.size_bytes > 0:
                found.append(log)
    return found[::-1]


def _describe(descriptor: int, name: str) -> OpenLog:
    info = os.fstat(descriptor)
    size = info.st_size if stat.S_ISREG(info.st_mode) else -1
    return OpenLog(name=name, descriptor=descriptor, size_bytes=size, modified_at=info.st_mtime)


def _refuse(path: str) -> ToolFailed:
    return ToolFailed(
        f"{path[:200]!r} cannot be read: only regular files inside the target's folder can, and no links",
        code="path_refused",
        fix="pass a path relative to the folder of the target, or leave path out to read all of its logs",
    )


def _missing(path: str) -> ToolFailed:
    return ToolFailed(
        f"there is no file {path[:200]!r} in the target's folder",
        code="file_missing",
        fix="pass a path relative to the folder of the target, or leave path out to read all of its logs",
    )


def _refuse_root(error: OSError) -> ToolFailed:
    return ToolFailed(
        f"the folder of the target cannot be opened ({error.strerror})",
        code="path_refused",
        fix="a person has to look at the path in the target's url and at its rights; it may not be a link",
    )
