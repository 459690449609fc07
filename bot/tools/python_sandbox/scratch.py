"""Files into a scratch file system and out of it, through descriptors only: no path of the host, and no link followed.

Copied are regular files with one name and folders; whatever else there is stays where it is and goes with the file
system. These functions block: call them in a thread.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bot.tools.python_sandbox.process import give_rights

TMPFS_MAGIC = 0x01021994
MOST_DEPTH = 8
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK_BYTES = 1024 * 1024

Seen = Mapping[str, tuple[int, int, int]]
"""Of each file: inode, size and time of the last change, by its path below the folder."""


@dataclass(slots=True)
class Room:
    """How much may still be copied."""

    size_bytes: int
    entries: int


class TooMuch(Exception):
    """There is more to be copied than there is room for."""


def list_files(folder: int) -> Seen:
    """List the regular files below a folder that is held open."""
    found: dict[str, tuple[int, int, int]] = {}
    _list(folder, "", found, MOST_DEPTH)
    return found


def copy_files(source: int, target: int, *, room: Room, unless: Seen, skip: str = "") -> None:
    """Copy what is below one folder into another, both held open, over what is there.

    Args:
        source, target: descriptors of folders.
        room: how much may be copied; counted down.
        unless: files that are left out as long as they are what is said here.
        skip: a folder at the top that is left out.

    Raises:
        TooMuch: the room was not enough; what was copied before stays.
        OSError: a disk is full or broken.
    """
    _copy_folder(source, target, "", room, unless, skip, MOST_DEPTH)


def remove_files(folder: int, paths: list[str]) -> None:
    """Remove files below a folder, as ``list_files`` named them; ones that are gone are no error."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path, dir_fd=folder)


def set_modes(folder: int, name: str, folder_mode: int, file_mode: int) -> None:
    """Set the modes of a folder in a folder and of all below it; it need not be there."""
    try:
        inner = os.open(name, _FOLDER, dir_fd=folder)
    except OSError:
        return
    try:
        os.fchmod(inner, 0o700)
        for entry in _names(inner):
            kind = os.stat(entry, dir_fd=inner, follow_symlinks=False).st_mode
            if stat.S_ISDIR(kind):
                set_modes(inner, entry, folder_mode, file_mode)
            elif stat.S_ISREG(kind):
                os.chmod(entry, file_mode, dir_fd=inner)
        os.fchmod(inner, folder_mode)
    finally:
        os.close(inner)


def is_full(folder: int) -> bool:
    """Tell whether a file system has no room for another page or another file."""
    found = os.fstatvfs(folder)
    return found.f_bavail == 0 or found.f_favail == 0


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as listing:
        return [entry.name for entry in listing]


def _list(folder: int, prefix: str, found: dict[str, tuple[int, int, int]], depth: int) -> None:
    for name in _names(folder):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            found[prefix + name] = (status.st_ino, status.st_size, status.st_ctime_ns)
        elif stat.S_ISDIR(status.st_mode) and depth:
            with _opened(name, _FOLDER, folder) as inner:
                _list(inner, f"{prefix}{name}/", found, depth - 1)


def _copy_folder(source: int, target: int, prefix: str, room: Room, unless: Seen, skip: str, depth: int) -> None:
    for name in _names(source):
        status = os.stat(name, dir_fd=source, follow_symlinks=False)
        path = prefix + name
        if stat.S_ISDIR(status.st_mode) and depth and path != skip:
            _take(room, 0)
            _make_folder(name, target)
            with _opened(name, _FOLDER, source) as inner, _opened(name, _FOLDER, target) as into:
                _copy_folder(inner, into, f"{path}/", room, unless, skip, depth - 1)
        elif _is_plain(status) and unless.get(path) != (status.st_ino, status.st_size, status.st_ctime_ns):
            _take(room, status.st_size)
            _copy_file(source, target, name, status.st_size)


def _make_folder(name: str, target: int) -> None:
    """Make a folder, unless there is one; a program's own file in its place gives way, and a link is an error later."""
    try:
        os.mkdir(name, 0o700, dir_fd=target)
    except FileExistsError:
        if stat.S_ISREG(os.stat(name, dir_fd=target, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=target)
            os.mkdir(name, 0o700, dir_fd=target)


def _is_plain(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _take(room: Room, size_bytes: int) -> None:
    room.size_bytes -= size_bytes
    room.entries -= 1
    if room.size_bytes < 0 or room.entries < 0:
        raise TooMuch


def _copy_file(source: int, target: int, name: str, size_bytes: int) -> None:
    """Copy at most as much as was counted, into a file that takes its place only when it is whole."""
    made = f".{os.urandom(8).hex()}.part"
    with _opened(name, _FILE, source) as reader:
        if not stat.S_ISREG(os.fstat(reader).st_mode):
            return
        writer = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=target)
        try:
            with open(writer, "wb") as file:
                while size_bytes and (chunk := os.read(reader, min(size_bytes, _CHUNK_BYTES))):
                    file.write(chunk)
                    size_bytes -= len(chunk)
            _put_in_place(made, name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(made, dir_fd=target)
            raise


def _put_in_place(made: str, name: str, folder: int) -> None:
    """Give a file its name; a folder that has it makes room if it is empty, else the file is dropped."""
    try:
        os.replace(made, name, src_dir_fd=folder, dst_dir_fd=folder)
    except IsADirectoryError:
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=folder)
            os.replace(made, name, src_dir_fd=folder, dst_dir_fd=folder)
            return
        os.unlink(made, dir_fd=folder)


@contextlib.contextmanager
def _opened(name: str, flags: int, folder: int) -> Iterator[int]:
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except PermissionError:  # the code may have made it without any right, and then it is still this user's
        give_rights(name, folder)
        descriptor = os.open(name, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
