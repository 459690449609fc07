"""The interpreter that runs the code, and the parts of the machine that it needs to see."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bot.tools.python_sandbox.types import SandboxUnavailable

PRELOADED = ("numpy", "pandas", "matplotlib", "matplotlib.pyplot")
COMMON = ("collections", "csv", "datetime", "json", "math", "random", "re")
"""Modules of the standard library that are loaded for every run; they cost next to nothing."""
_ASK_TIMEOUT_S = 20.0
_DESCRIBE = """
import json, sys
print(json.dumps({"prefix": sys.prefix, "base_prefix": sys.base_prefix, "version": sys.version.split()[0]}))
"""
_SYSTEM_PREFIXES = ("/usr", "/usr/local")
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
_FONTS = ("/usr/share/fonts", "/usr/local/share/fonts")
_DATA = (*_FONTS, "/usr/share/zoneinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python that runs code in the sandbox.

    Args:
        executable: as it is started; a virtual environment's own.
        prefix, base_prefix: its ``sys.prefix`` and ``sys.base_prefix``.
        version: such as ``3.12.4``.
    """

    executable: str
    prefix: str
    base_prefix: str
    version: str

    def paths(self) -> tuple[str, ...]:
        """Return the folders and files that it needs, those that exist, links among them as they are.

        Its libraries, the machine's shared libraries, fonts and time zones; nothing of ``/etc`` but the list of shared
        libraries, and of a prefix that holds more than Python only the library folders.
        """
        folder = f"python{'.'.join(self.version.split('.')[:2])}"
        wanted = [*_LIBRARIES, *_DATA, os.path.realpath(self.executable)]
        for prefix in dict.fromkeys((self.prefix, self.base_prefix)):
            if prefix not in _SYSTEM_PREFIXES:
                wanted += [f"{prefix}/lib", f"{prefix}/lib64", f"{prefix}/pyvenv.cfg"]
            elif prefix == "/usr":
                wanted += [f"/usr/lib/{folder}", "/usr/lib/python3"]
        return tuple(path for path in dict.fromkeys(wanted) if os.path.lexists(path))


def build_environ(cache: str) -> Mapping[str, str]:
    """Return all that the sandbox's processes get of an environment.

    One thread for linear algebra: more would share one processor limit, and a process with threads forks badly. It
    counts when numpy is loaded, so it cannot be set later.

    Args:
        cache: folder for the font list of matplotlib.
    """
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    return {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": cache,
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": cache,
        **dict.fromkeys(threads, "1"),
    }


async def find_interpreter(executable: str | None) -> Interpreter:
    """Ask an interpreter about itself.

    Args:
        executable: its path; None: the one that runs this, with the packages beside it.

    Raises:
        SandboxUnavailable: it is not there, or does not answer.
    """
    path = executable or sys.executable
    if executable is None:
        return Interpreter(
            executable=path, prefix=sys.prefix, base_prefix=sys.base_prefix, version=sys.version.split()[0]
        )
    try:
        process = await asyncio.create_subprocess_exec(
            *(path, "-I", "-B", "-c", _DESCRIBE),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
        )
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            stdout, _ = await process.communicate()
        found = json.loads(stdout)
    except (OSError, ValueError, TimeoutError) as error:
        raise SandboxUnavailable(
            f"sandbox.python: {executable} cannot be used as an interpreter ({str(error) or 'no answer'}); "
            "name a Python 3.11 or later, or leave the key out"
        ) from error
    return Interpreter(executable=path, **found)


def check_folder(folder: Path) -> None:
    """Make a folder of this user's own that nobody else may look into.

    Raises:
        SandboxUnavailable: it belongs to someone else, or cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.lstat(folder)
        if found.st_uid != os.geteuid() or not os.path.isdir(folder) or os.path.islink(folder):
            raise SandboxUnavailable(f"{folder} belongs to another user; remove it, or name another folder")
        folder.chmod(0o700)
    except OSError as error:
        raise SandboxUnavailable(f"{folder} cannot be used: {error.strerror}; name another folder") from error


def name_fonts() -> str:
    """Name the fonts of this machine as they are now: matplotlib keeps its list of them until the end of days."""
    # Whole seconds: the layers of an image keep no finer times.
    seen = [f"{folder} {int(os.stat(folder).st_mtime)}" for top in _FONTS for folder, _, _ in os.walk(top)]
    return hashlib.sha256("\n".join(sorted(seen)).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def copy_font_list(interpreter: Interpreter, cache: Path) -> None:
    """Take over the font list that was built with an image, if it is of the fonts that are there now.

    Building one takes seconds, and a container with a read-only root forgets it with each start. It blocks.

    Args:
        interpreter: below whose prefix it lies, in ``share/hermod/`` and a folder of the cache's name.
        cache: ``fonts-`` and ``name_fonts()``; what is there already stays.

    Raises:
        OSError: the cache cannot be written.
    """
    for built in (Path(interpreter.prefix) / "share/hermod" / cache.name).glob("fontlist*.json"):
        if not (cache / built.name).exists():
            shutil.copyfile(built, made := cache / f".{os.getpid()}.{built.name}")
            made.replace(cache / built.name)
