"""Scratch file systems of runs, mounted by the zygote under names that it does not keep.

What was in the zygote's memory is in that of each later run, freed or not. Whoever knows the name of a folder there can
ask for the names and sizes of files in it (Landlock does not decide about stat(2)). So a name is in no Python object,
only in buffers that are overwritten.
"""

from __future__ import annotations

import ctypes
import os

# Not from typing, and no contextlib: what is imported here is paid at every cold start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MNT_DETACH = 2, 4, 8, 2
_NAME_BYTES, _PATH_BYTES, _HEXADECIMAL = 16, 256, b"0123456789abcdef"
_LIBC = ctypes.CDLL(None, use_errno=True)


class NewScratch:
    """Mount a file system under a random name; forget the name and close its root after the block.

    Args:
        below: the folder in which it is mounted.
        options: of tmpfs.

    Returns:
        Its path, which is gone with the block, and the descriptor of its root.

    Raises:
        OSError: the kernel refused it.
    """

    def __init__(self, below: str, options: str) -> None:
        self._below, self._options = f"{below}/".encode(), options.encode()
        self._path = (ctypes.c_ubyte * _PATH_BYTES)()
        self._root = -1

    def __enter__(self) -> tuple[memoryview, int]:
        try:
            self._name()
            _check(_LIBC.mkdir(self._path, 0o700))
            flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
            _check(_LIBC.mount(b"scratch", self._path, b"tmpfs", flags, self._options))
            self._root = _check(_LIBC.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError:
            self._forget()
            raise
        return memoryview(self._path)[: len(self._below) + 2 * _NAME_BYTES], self._root

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        os.close(self._root)
        self._forget()

    def _name(self) -> None:
        name = (ctypes.c_ubyte * _NAME_BYTES)()
        try:
            _check(_LIBC.getrandom(name, _NAME_BYTES, 0))
            for at, char in enumerate(self._below):
                self._path[at] = char
            for at, byte in enumerate(name):
                end = len(self._below) + 2 * at
                self._path[end], self._path[end + 1] = _HEXADECIMAL[byte >> 4], _HEXADECIMAL[byte & 15]
        finally:
            ctypes.memset(name, 0, _NAME_BYTES)

    def _forget(self) -> None:
        ctypes.memset(self._path, 0, _PATH_BYTES)


def unmount_scratch(root: int) -> None:
    """Unmount a file system, given its root; one that cannot be is unmounted with the last process of its namespace."""
    path = (ctypes.c_ubyte * _PATH_BYTES)()
    try:
        _check(_LIBC.readlink(f"/proc/self/fd/{root}".encode(), path, _PATH_BYTES - 1))
        _check(_LIBC.umount2(path, _MNT_DETACH))
        _check(_LIBC.rmdir(path))
    except OSError:
        return
    finally:
        ctypes.memset(path, 0, _PATH_BYTES)


def _check(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
