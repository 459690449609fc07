"""The files of a run on either end of the wire: read without following anything, written only when all have arrived.

The folder of a run on a runner is filled by untrusted code, and what a runner sends by whoever has it in their hands.
So names are looked up in folders that are held open, links and special files are refused by the kernel, and what
arrives stands under names of our own until the whole message was read. All of this blocks: call it in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, ParamSpec, Self, TypeVar

from bot.tools.python_sandbox.files import clean_file_name
from bot.tools.python_sandbox.folders import remove_tree
from bot.tools.python_sandbox.runner_wire import CHUNK_BYTES, MOST_PARTS, Part, is_safe_name

Place = Literal["input", "output"]

_PLACES: tuple[Place, ...] = ("input", "output")
_MOST_ENTRIES = 2 * MOST_PARTS
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


async def uninterrupted(
    work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """Do something in a thread, and wait until it is done even when that wait is cancelled.

    So that nothing is removed or closed while a thread still makes it or writes to it.
    """
    task = asyncio.create_task(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # it is of no interest any more
        raise


class NotSendable(Exception):
    """A file cannot be sent as it is; the message says which, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A file that is sent, and the name that it has here."""

    part: Part
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What a run changed in ``output/``.

    Args:
        files: new and changed ones.
        gone: of those that were there before.
        left: how many entries are not sent.
    """

    files: tuple[Leaving, ...] = ()
    gone: tuple[str, ...] = ()
    left: int = 0


def list_sent(folder: Path, *, most_bytes: int) -> tuple[Leaving, ...]:
    """List the files of a run's ``input/`` and ``output/`` that are to be sent; whatever is no plain file stays.

    Raises:
        NotSendable: they are too many or too large, or one has a name that the other side would refuse.
        OSError: the folder cannot be read.
    """
    found: list[Leaving] = []
    for place in _PLACES:
        for name, size in _list_files(folder, place).files:
            if not is_safe_name(name):
                raise NotSendable(f"a file of {place}/ has a name that cannot be sent: {clean_file_name(name)}")
            found.append(Leaving(part=Part(place=place, name=name, size=size), name=name))
    total = sum(file.part.size for file in found)
    if len(found) > MOST_PARTS or total > most_bytes:
        raise NotSendable(f"there are {len(found)} files with {total:,} bytes, and at most {most_bytes:,} can be sent")
    return tuple(found)


def find_news(folder: Path, known: Mapping[str, str], *, most_files: int, most_bytes: int) -> News:
    """Find out what a run that has ended changed in ``output/``.

    Args:
        folder: of the run.
        known: digests (SHA-256) of what was there before, by name.
        most_files, most_bytes: that may be sent.
    """
    files: list[Leaving] = []
    listed = _list_files(folder, "output")
    left = listed.others
    for name, size in listed.files:
        if name in known and _digest(folder, name, size) == known[name]:
            continue
        if len(files) >= min(most_files, MOST_PARTS) or size > most_bytes:
            left += 1
            continue
        most_bytes -= size
        safe = name if is_safe_name(name) else clean_file_name(name, taken=[file.part.name for file in files])
        if any(file.part.name == safe for file in files):
            left += 1
            continue
        files.append(Leaving(part=Part(place="output", name=safe, size=size), name=name))
    gone = set() if listed.more else known.keys() - {name for name, _ in listed.files}
    return News(files=tuple(files), gone=tuple(sorted(gone)), left=left)


def read_file(folder: Path, file: Leaving) -> Iterator[bytes]:
    """Read a file piece by piece, exactly as many bytes as were announced.

    Raises:
        OSError: it is another one by now.
    """
    with _place(folder, file.part.place) as place:
        reader = os.open(file.name, _READ, dir_fd=place)
        try:
            if not stat.S_ISREG(os.fstat(reader).st_mode):
                raise OSError(f"{file.part.name} is no regular file any more")
            room = file.part.size
            while room:
                chunk = os.read(reader, min(room, CHUNK_BYTES))
                if not chunk:
                    raise OSError(f"{file.part.name} became shorter")
                room -= len(chunk)
                yield chunk
        finally:
            os.close(reader)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """Plain files with one name and their sizes, how many entries are something else, and whether there are more."""

    files: Sequence[tuple[str, int]] = ()
    others: int = 0
    more: bool = False


def _list_files(folder: Path, place: Place) -> _Listed:
    found: list[tuple[str, int]] = []
    others = 0
    try:
        with _place(folder, place) as opened, os.scandir(opened) as entries:
            for entry in entries:
                if len(found) + others >= _MOST_ENTRIES:
                    return _Listed(files=sorted(found), others=others + 1, more=True)
                status = os.stat(entry.name, dir_fd=opened, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                    found.append((entry.name, status.st_size))
                else:
                    others += 1
    except (FileNotFoundError, NotADirectoryError):
        return _Listed()
    except PermissionError:  # made by the code, with a mode that shuts its owner out
        return _Listed(others=1, more=True)
    return _Listed(files=sorted(found), others=others)


@contextlib.contextmanager
def _place(folder: Path, place: Place) -> Iterator[int]:
    opened = os.open(folder, _FOLDER)
    try:
        inner = os.open(place, _FOLDER, dir_fd=opened)
        try:
            yield inner
        finally:
            os.close(inner)
    finally:
        os.close(opened)


def _digest(folder: Path, name: str, size: int) -> str:
    file = Leaving(part=Part.model_construct(place="output", name=name, size=size), name=name)
    seen = hashlib.sha256()
    try:
        for chunk in read_file(folder, file):
            seen.update(chunk)
    except OSError:
        return ""
    return seen.hexdigest()


class Landing:
    """Takes files that arrive into a run's folder. They get their names all at once, or none does.

    Args:
        folder: of the run; ``input/`` and ``output/`` are made where they are missing, and made anew where something
            else has their name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[Place, int] = {}
        self._arrived: list[tuple[Part, str]] = []
        self._writer = -1
        self._seen = hashlib.sha256()
        self._digests: dict[tuple[Place, str], str] = {}

    def open(self) -> Self:
        """Open the folders; ``close`` them in the end."""
        opened = os.open(self._folder, _FOLDER)
        try:
            for place in _PLACES:
                self._places[place] = _open_own(opened, place)
        except OSError:
            self.close()
            raise
        finally:
            os.close(opened)
        return self

    def close(self) -> None:
        """Remove what did not get its name, and close everything."""
        self._close_writer()
        for part, made in self._arrived:
            with contextlib.suppress(OSError):
                os.unlink(made, dir_fd=self._places[part.place])
        self._arrived.clear()
        for opened in self._places.values():
            os.close(opened)
        self._places.clear()

    def begin(self, part: Part) -> None:
        """Begin with the next file."""
        made = f".{secrets.token_hex(12)}.part"
        self._writer = os.open(made, _WRITE, 0o600, dir_fd=self._places[part.place])
        self._arrived.append((part, made))
        self._seen = hashlib.sha256()

    def write(self, chunk: bytes) -> None:
        """Write the next piece of the file.

        Raises:
            OSError: the disk is full.
        """
        self._seen.update(chunk)
        view = memoryview(chunk)
        while view:
            view = view[os.write(self._writer, view) :]

    def end(self) -> None:
        """End the file."""
        part, _ = self._arrived[-1]
        self._digests[part.place, part.name] = self._seen.hexdigest()
        self._close_writer()

    def commit(self) -> Mapping[str, str]:
        """Give all files their names, over what was there, and return the digests of those in ``output/``.

        A folder that has a file's name stays, and the file goes.
        """
        while self._arrived:
            part, made = self._arrived[0]
            opened = self._places[part.place]
            try:
                os.replace(made, part.name, src_dir_fd=opened, dst_dir_fd=opened)
            except IsADirectoryError:
                os.unlink(made, dir_fd=opened)
            self._arrived.pop(0)
        return {name: digest for (place, name), digest in self._digests.items() if place == "output"}

    def adopt(self, folder: Path) -> None:
        """Move the files of another run's folder here: ``input/`` then holds these alone, ``output/`` these as well.

        The folders themselves stay what they are, because a kept interpreter knows them.
        """
        for name in os.listdir(self._places["input"]):
            try:
                os.unlink(name, dir_fd=self._places["input"])
            except IsADirectoryError:
                remove_tree(self._folder / "input" / name)
        for place in _PLACES:
            with _place(folder, place) as source:
                for name in os.listdir(source):
                    with contextlib.suppress(IsADirectoryError):
                        os.replace(name, name, src_dir_fd=source, dst_dir_fd=self._places[place])

    def remove(self, names: Sequence[str]) -> None:
        """Remove files of ``output/``; ones that are not there, or are folders, are no error."""
        for name in names:
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(name, dir_fd=self._places["output"])

    def _close_writer(self) -> None:
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1


def _open_own(folder: int, name: str) -> int:
    for last in (False, True):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
        try:
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.chmod(name, 0o700, dir_fd=folder)  # the code may have made one that shuts its owner out
            opened = os.open(name, _FOLDER, dir_fd=folder)
        except NotADirectoryError:  # also a link: openat(2) with O_DIRECTORY and O_NOFOLLOW
            if last:
                raise
            os.unlink(name, dir_fd=folder)
            continue
        return opened
    raise AssertionError("the loop ends in its second round")
