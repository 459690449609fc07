"""The child's own modules, compiled ahead: compiling them takes longer than all else in a cold start.

They are copied to a private folder, because the place where Hermod is installed may not be written, and the sandbox's
interpreter may be another one, which wants its own form of compiled files.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from bot.tools.python_sandbox.interpreter import Interpreter
from bot.tools.python_sandbox.types import SandboxUnavailable

CHILD_FOLDER = Path(__file__).parent / "child"
_COMPILE_TIMEOUT_S = 60
_COMPILE = """
import pathlib, py_compile, sys
for path in pathlib.Path(sys.argv[1]).glob("*.py"):
    py_compile.compile(str(path), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
"""


async def install_child(interpreter: Interpreter, cache: Path) -> Path:
    """Return a folder with the child's modules, compiled for this interpreter; made if it is not there.

    Args:
        interpreter: runs them.
        cache: a private folder that no run can write to.

    Raises:
        SandboxUnavailable: the folder cannot be written, or the interpreter cannot compile them.
    """
    try:
        return await asyncio.to_thread(_install, interpreter, cache)
    except OSError as error:
        raise SandboxUnavailable(f"{cache} cannot be used: {error.strerror}; name another sandbox.folder") from error


def _install(interpreter: Interpreter, cache: Path) -> Path:
    sources = {path.name: path.read_bytes() for path in sorted(CHILD_FOLDER.glob("*.py"))}
    named = hashlib.sha256(interpreter.version.encode())
    for name, content in sources.items():
        named.update(f"{name} {len(content)} ".encode() + content)
    wanted = cache / f"child-{named.hexdigest()[:16]}"
    if wanted.is_dir():
        return wanted
    made = Path(tempfile.mkdtemp(prefix="making-", dir=cache))
    try:
        for name, content in sources.items():
            (made / name).write_bytes(content)
        _compile(interpreter, made)
        made.rename(wanted)
    except OSError:
        if not wanted.is_dir():  # else another process was faster
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return wanted


def _compile(interpreter: Interpreter, folder: Path) -> None:
    try:
        subprocess.run(  # noqa: S603 - our own interpreter and code
            [interpreter.executable, "-I", "-c", _COMPILE, str(folder)],
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_COMPILE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxUnavailable(
            f"{interpreter.executable} cannot compile the sandbox's modules in {folder.parent}: {_tell(error)}"
        ) from error


def _tell(error: OSError | subprocess.SubprocessError) -> str:
    match error:
        case subprocess.CalledProcessError(stderr=bytes(stderr)) if stderr.strip():
            return stderr.decode(errors="replace").strip().splitlines()[-1]  # of a traceback: what was wrong
        case subprocess.TimeoutExpired():
            return f"it took more than {_COMPILE_TIMEOUT_S} s"
        case subprocess.CalledProcessError(returncode=code):
            return f"it ended with {code}"
    return str(error)
