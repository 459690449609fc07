"""An attack on the sandbox's child, and the rules that it needs to be left out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bot.tools.python_sandbox.child.policy import MiB, Policy
from tests.sandbox.child_process import ChildRun, run_child

SECRET = "canary-5d1f0c"
LIBC = "import ctypes, errno, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What is tried, and the rules that have to be left out for it to get through. ``limits``: of the policy."""

    name: str
    code: str
    without: tuple[str, ...]
    memory_bytes: int = 512 * MiB
    cpu_s: int = 20
    file_bytes: int = 16 * MiB
    open_files: int = 64
    landlock_abi: int = 0
    native_libraries: bool = True

    def run(self, scratch: Path, code: str, without: tuple[str, ...]) -> ChildRun:
        policy = Policy(
            scratch=str(scratch),
            input=str(scratch / "input"),
            memory_bytes=self.memory_bytes,
            cpu_s=self.cpu_s,
            file_bytes=self.file_bytes,
            open_files=self.open_files,
            landlock_abi=self.landlock_abi,
            native_libraries=self.native_libraries,
            without=without,
        )
        # As it was when the files came; the run before has made them read-only.
        (scratch / "input").chmod(0o755)
        for path in (scratch / "input").iterdir():
            path.chmod(0o644)
        return run_child(code, policy)
