"""The files of a thread on this machine: one private folder each, bounded, gone after a day.

    ROOT/HASH/uploads/    files that people attached, and where they are to be fetched
             /outputs/    what code made, laid out again for the next run
             /made/RUN/   what a run made and its answer has not posted yet
             /runs/       folders of runs under way; the only place that code sees

Everything here blocks for as long as a disk takes: callers run it in a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from agent_core.context import Clock
from bot.tools.python_sandbox.types import MiB

UPLOADS, OUTPUTS, MADE, RUNS = "uploads", "outputs", "made", "runs"
SESSION = "session"
"""The file that names a thread's kept interpreter, and the folder in ``runs`` that it works in."""

SWEEP_EVERY_S = 600.0
RUN_S = 3600.0
"""A run's folder that is older was left by a process that died."""

_GONE = ".gone-"
_USED = ".used"
"""Its time is when somebody last worked in the folder, by the clock that ages are reckoned by."""
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Folders:
    """Where the files of threads are. Safe to use from several threads and processes.

    Args:
        root: holds nothing else; made when it is first needed, with mode 0700.
        clock: the time that ages are reckoned by.
        keep_s: how long a file is kept after it was last written.
        most_files, most_bytes: of attached files of a thread, and of what its code made, each.
    """

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock,
        keep_s: float = 24 * 3600.0,
        most_files: int = 20,
        most_bytes: int = 64 * MiB,
    ) -> None:
        self.root = root
        self.keep_s = keep_s
        self.most_files = most_files
        self.most_bytes = most_bytes
        self._clock = clock

    def find(self, thread_key: str) -> Path:
        """Return a thread's folder, which may not exist. Its name tells nothing about the thread."""
        return self.root / hashlib.sha256(thread_key.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def open(self, thread_key: str) -> Path:
        """Make a thread's folder, and return it.

        Raises:
            OSError: it cannot be made; also when something else, or somebody else's folder, stands in its place.
        """
        _make_private(self.root)
        folder = self.find(thread_key)
        _make_private(folder)
        for name in (UPLOADS, OUTPUTS, MADE, RUNS):
            _make_private(folder / name)
        with open(folder / _USED, "ab", opener=_open_private):
            pass
        self.touch(folder / _USED)
        return folder

    def now(self) -> float:
        """Return the time as seconds since 1970."""
        return self._clock.now().timestamp()

    def touch(self, path: Path) -> None:
        """Give a path the present time."""
        os.utime(path, (self.now(), self.now()), follow_symlinks=False)

    def write(self, path: Path, content: bytes) -> None:
        """Write a file in one piece: whoever reads it meanwhile finds all of it, or what was there before."""
        made = path.parent / f".{secrets.token_hex(8)}"
        try:
            with open(made, "xb", opener=_open_private) as file:
                file.write(content)
            self.touch(made)
            os.replace(made, path)
        except BaseException:
            with contextlib.suppress(OSError):
                made.unlink()
            raise

    def list_files(self, folder: Path) -> list[os.DirEntry[str]]:
        """List the regular files of one of our folders, newest first; none where it does not exist."""
        try:
            with os.scandir(folder) as entries:
                found = [e for e in entries if not e.name.startswith(".") and e.is_file(follow_symlinks=False)]
            return sorted(found, key=_age, reverse=True)
        except FileNotFoundError:
            return []

    def trim(self, folder: Path) -> list[str]:
        """Drop what is over the quota, the oldest first, and say what that was."""
        dropped, room = [], self.most_bytes
        for number, entry in enumerate(self.list_files(folder)):
            room -= entry.stat(follow_symlinks=False).st_size
            if number >= self.most_files or room < 0:
                Path(entry.path).unlink(missing_ok=True)
                dropped.append(entry.name)
        return dropped

    # -- the end -------------------------------------------------------------------------------------

    def count(self, thread_key: str) -> int:
        """Count the files that are kept of a thread."""
        folder = self.find(thread_key)
        attached = [e for e in self.list_files(folder / UPLOADS) if e.name.endswith(".json")]
        return len(attached) + len(self.list_files(folder / OUTPUTS))

    def forget(self, thread_key: str) -> int:
        """Drop everything of a thread; return how many files that were.

        Raises:
            OSError: something could not be removed.
        """
        files, folder = self.count(thread_key), self.find(thread_key)
        gone = self.root / f"{_GONE}{secrets.token_hex(8)}"
        try:
            os.rename(folder, gone)  # in one step, so that a run that begins now finds none of it
        except FileNotFoundError:
            return 0
        remove_tree(gone)
        return files

    def sweep(self) -> int:
        """Drop what is too old, and what dead processes left; return how many threads are gone altogether."""
        try:
            names = sorted(os.listdir(self.root))
        except FileNotFoundError:
            return 0
        gone = 0
        for name in names:
            folder = self.root / name
            if name.startswith(_GONE):
                remove_tree(folder)
            elif not folder.is_symlink() and folder.is_dir():
                gone += self._sweep_thread(folder)
        return gone

    def _sweep_thread(self, folder: Path) -> bool:
        oldest = self.now() - self.keep_s
        for name in (UPLOADS, OUTPUTS):
            for entry in self.list_files(folder / name):
                if _age(entry) < oldest:
                    Path(entry.path).unlink(missing_ok=True)
        for run in _list_folders(folder / MADE):
            if run.stat().st_mtime < oldest:
                remove_tree(run)
        session = folder / SESSION
        if session.exists() and session.stat().st_mtime < oldest:
            session.unlink(missing_ok=True)
        for run in _list_folders(folder / RUNS):
            begun = run.name.partition("-")[0]
            stale = not session.exists() if run.name == SESSION else not begun.isdecimal() or self._is_stale(int(begun))
            if stale:
                remove_tree(run)
        return _age_of(folder / _USED) < oldest and self._drop_empty(folder)

    def _is_stale(self, begun: int) -> bool:
        return begun < self.now() - RUN_S

    def _drop_empty(self, folder: Path) -> bool:
        try:
            for name in (UPLOADS, OUTPUTS, MADE, RUNS):
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(folder / name)
            (folder / _USED).unlink(missing_ok=True)
            os.rmdir(folder)
        except OSError:  # something is in use: the next sweep looks again
            return False
        return True

    # -- runs ----------------------------------------------------------------------------------------

    def new_run(self, thread_key: str) -> Path:
        """Make the folder of one run, with an empty ``input`` and ``output``."""
        run = self.open(thread_key) / RUNS / f"{int(self.now())}-{secrets.token_hex(8)}"
        self.lay_out(run)
        return run

    def lay_out(self, run: Path) -> None:
        """Make a run's folder with ``input`` and ``output``; those of a kept interpreter stay as they are.

        A sandbox knows a folder by what it was when the interpreter began, so it is never made anew under its name.
        """
        run.mkdir(mode=0o700, exist_ok=True)
        for folder in (run / "input", run / "output"):
            try:
                folder.mkdir(mode=0o700, exist_ok=True)
            except FileExistsError:  # code put a file in its place, which would end every later call of the thread
                folder.unlink()
                folder.mkdir(mode=0o700)


def _make_private(folder: Path) -> None:
    """Make a folder that is ours alone.

    A folder of another user, or a link, in a place that others can write to is an old trap of caches and temporary
    files (https://cwe.mitre.org/data/definitions/379.html).
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{folder} is no folder")
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user (uid {found.st_uid})")
    if stat.S_IMODE(found.st_mode) != 0o700:
        os.chmod(folder, 0o700)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _age(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:  # dropped by somebody else meanwhile
        return 0.0


def _age_of(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _list_folders(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(folder)):
            if stat.S_ISDIR(os.lstat(folder / name).st_mode):
                yield folder / name


# -- removing --------------------------------------------------------------------------------------


def remove_tree(folder: Path) -> None:
    """Remove a folder, however deep and odd untrusted code made it; links are removed, never followed.

    Nothing here recurses: folders inside folders are moved up before they are emptied, so that neither the stack nor
    the longest path of the system is a bound.

    Raises:
        OSError: it cannot be removed; a folder that is not there is no error.
    """
    try:
        top = os.open(folder, _FOLDER_FLAGS)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(folder)
        return
    except PermissionError:
        os.chmod(folder, 0o700)
        top = os.open(folder, _FOLDER_FLAGS)
    try:
        os.fchmod(top, 0o700)
        while names := os.listdir(top):
            for name in names:
                _remove_entry(top, name)
    finally:
        os.close(top)
    os.rmdir(folder)


def _remove_entry(top: int, name: str) -> None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=top)
        return
    os.chmod(name, 0o700, dir_fd=top)
    inner = os.open(name, _FOLDER_FLAGS, dir_fd=top)
    try:
        for child in os.listdir(inner):
            if stat.S_ISDIR(os.stat(child, dir_fd=inner, follow_symlinks=False).st_mode):
                os.chmod(child, 0o700, dir_fd=inner)  # a folder that is moved is written to
                os.rename(child, secrets.token_hex(16), src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(child, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)
