"""Processes as the bot sees them: started, read with caps, killed and reaped, without blocking the event loop."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import ctypes
import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from bot.tools.python_sandbox.types import KiB

CHUNK_BYTES = 128 * KiB
_PR_SET_DUMPABLE = 4
_LOST_STATUS = 255
_NO_FILES = (b"/dev/zero ", b"/memfd:", b"/SYSV")
"""How shared memory is called among the mapped files; it takes none of the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a process ended, as ``wait4`` told it.

    Args:
        code: the exit code; negative: the signal that ended it.
        cpu_s: processor seconds, of user and kernel.
        peak_memory_bytes: resident memory at its highest.
        refused: why the code was not run at all; empty when it was.
        broken: why nobody knows how it ended; empty when ``wait4`` told it.
    """

    code: int
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    refused: str = ""
    broken: str = ""


def harden_process() -> None:
    """Make this process unreadable to others of its user: no ``/proc/PID/environ``, no ``mem``, no ``ptrace``, no core.

    Call it once, early in the start of the bot; it needs no privilege. A process that executes another program starts
    anew, so children are not affected. Does nothing where the system has no ``prctl`` (prctl(2), PR_SET_DUMPABLE).
    """
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class ChildProcess:
    """One child of this process, held by a pidfd, so that a signal can never reach a stranger with the same number."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    def kill(self) -> None:
        """Send SIGKILL; nothing happens when it has ended."""
        if not self._exit.done():
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    @property
    def ended(self) -> bool:
        """Whether it has been reaped."""
        return self._exit.done()

    async def wait(self) -> Exit:
        """Wait until it is reaped. May be called by several tasks; cancelling one leaves the process alone."""
        return await asyncio.shield(self._exit)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        try:
            _, status, usage = os.wait4(self.pid, 0)
        except ChildProcessError:  # SIGCHLD is ignored in this process, so that the kernel has reaped it
            self._exit.set_result(Exit(code=_LOST_STATUS))
            return
        self._exit.set_result(
            Exit(
                code=os.waitstatus_to_exitcode(status),
                cpu_s=usage.ru_utime + usage.ru_stime,
                peak_memory_bytes=usage.ru_maxrss * KiB,
            )
        )


def spawn(
    argv: Sequence[str],
    *,
    environ: Mapping[str, str],
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
    keep_fds: Sequence[int] = (),
    folder: str = "/",
) -> ChildProcess:
    """Start a program in a session of its own, with nothing on stdin and no descriptor but those that are named.

    It is started by the thread of the event loop, which lives as long as the bot: "the parent died" signals of the
    child (prctl(2), PR_SET_PDEATHSIG) belong to that thread.

    Raises:
        OSError: the program is not there, or no process can be made.
    """
    started = subprocess.Popen(  # noqa: S603 - the arguments are the backend's own
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=dict(environ),
        cwd=folder,
        pass_fds=tuple(keep_fds),
        start_new_session=True,
    )
    started.returncode = 0  # it is reaped by wait4, so that its use of the processor and of memory is known
    return ChildProcess(started.pid)


class Output:
    """What arrives in one pipe: the first bytes are kept, all are counted, and the rest is dropped."""

    def __init__(self, *, keep_bytes: int) -> None:
        self._read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read_fd, False)
        self._keep_bytes = keep_bytes
        self._kept = bytearray()
        self._reading = True
        self.on_read: Callable[[int], None] | None = None
        """Told how many bytes were read, after each time."""
        self.cut = False
        asyncio.get_running_loop().add_reader(self._read_fd, self._read)

    def close_writer(self) -> None:
        """Close this process's own writing end, once the child has it."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def stop(self) -> None:
        """Read no more; a writer that goes on is held up by the full pipe."""
        if self._reading:
            self._reading = False
            asyncio.get_running_loop().remove_reader(self._read_fd)

    def drain(self) -> None:
        """Take what is in the pipe now, at most its capacity; for when all writers have ended, or pause."""
        while self._reading and self._read():
            pass

    def take(self) -> tuple[str, bool]:
        """Return what was kept (replacement characters for what is not UTF-8), whether more came, and start anew."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text, cut = decoder.decode(bytes(self._kept), final=not self.cut), self.cut  # half a character is left out
        self._kept.clear()
        self.cut = False
        return text, cut

    def close(self) -> None:
        """Close both ends. May be called again."""
        self.stop()
        self.close_writer()
        if self._read_fd >= 0:
            os.close(self._read_fd)
            self._read_fd = -1

    def _read(self) -> bool:
        try:
            chunk = os.read(self._read_fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self.stop()
            return False
        room = self._keep_bytes - len(self._kept)
        self._kept += chunk[:room]
        self.cut = self.cut or len(chunk) > room
        if self.on_read is not None:
            self.on_read(len(chunk))
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderUse:
    """What a folder holds: bytes (the larger of length and blocks of each file) and entries at any depth."""

    size_bytes: int = 0
    entries: int = 0


EMPTY = FolderUse()


def measure_folder(folder: str, *, max_entries: int) -> FolderUse:
    """Add up a folder, following no link. Stops once there are more than ``max_entries``; call it in a thread.

    A path that is too long for the kernel counts as too many entries: folders can be nested beyond what can be walked.
    """
    size_bytes = entries = 0
    waiting = [folder]
    while waiting and entries <= max_entries:
        try:
            with _scan(waiting.pop()) as listing:
                for entry in listing:
                    entries += 1
                    if entries > max_entries:
                        break
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:  # it went away while it was looked at
                        continue
                    size_bytes += max(found.st_size, found.st_blocks * 512) if stat.S_ISREG(found.st_mode) else 0
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return FolderUse(size_bytes=size_bytes, entries=max_entries + 1)
    return FolderUse(size_bytes=size_bytes, entries=entries)


def _scan(folder: str) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
    try:
        return os.scandir(folder)
    except PermissionError:
        give_rights(folder)
        return os.scandir(folder)


def give_rights(name: str, folder: int | None = None) -> None:
    """Let this user read and enter what code has made without any right; it is still this user's.

    Args:
        name: of a file or a folder; a link is not followed.
        folder: descriptor of the folder that has it; None: ``name`` is a path.

    Raises:
        OSError: it is somebody else's, or gone.
    """
    path = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{path}", 0o700)  # chmod itself would follow a link
    finally:
        os.close(path)


def measure_deleted(pid: int, *, file_bytes: int) -> int:
    """Return the bytes of files that a process has deleted but keeps open; 0 when it has ended or hides them.

    They take room on the disk and are in no folder. Of one that is only mapped nobody tells the length (it takes a
    privilege), so it counts as the largest file that there can be.

    Args:
        pid: the process.
        file_bytes: the limit of one file.
    """
    size_bytes = 0
    open_files: set[int] = set()
    try:
        with os.scandir(f"/proc/{pid}/fd") as listing:
            for entry in listing:
                try:
                    found = entry.stat()
                except OSError:  # closed meanwhile
                    continue
                if found.st_nlink == 0 and stat.S_ISREG(found.st_mode) and found.st_ino not in open_files:
                    open_files.add(found.st_ino)
                    size_bytes += max(found.st_size, found.st_blocks * 512)
        return size_bytes + file_bytes * len(_find_deleted_mappings(pid) - open_files)
    except OSError:
        return size_bytes


def _find_deleted_mappings(pid: int) -> set[int]:
    """Return the inodes of deleted files that a process has mapped (proc_pid_maps(5))."""
    with open(f"/proc/{pid}/maps", "rb") as maps:
        lines = [line.split(maxsplit=5) for line in maps if line.endswith(b" (deleted)\n")]
    return {int(line[4]) for line in lines if not line[5].startswith(_NO_FILES)}


def read_memory(pid: int) -> tuple[int, int]:
    """Return a process's resident bytes now and at their highest; zeros when it has ended."""
    found = {"VmRSS": 0, "VmHWM": 0}
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
        for line in status:
            name, _, value = line.partition(":")
            if name in found:
                found[name] = int(value.split()[0]) * KiB
    return found["VmRSS"], found["VmHWM"]
