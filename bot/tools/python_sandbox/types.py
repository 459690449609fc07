"""What goes into the sandbox and what comes out of it, whichever backend locks the code in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

KiB, MiB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What one run may use. Sizes are bytes, times are seconds.

    Args:
        wall_s: kept by the parent; ends with SIGKILL.
        cpu_s: RLIMIT_CPU.
        memory_bytes: above what the preloaded packages take.
        file_bytes: of one file.
        scratch_bytes, scratch_files: of everything that the run leaves or makes in its folder.
        open_files: RLIMIT_NOFILE.
        output_bytes: kept of stdout and of stderr each.
        output_read_bytes: a run that writes more than this is ended.
        files_out, files_out_bytes: new files of ``output/`` that are handed back, and all of them together.
        source_bytes: of the code.
    """

    wall_s: float = 30.0
    cpu_s: float = 5.0
    memory_bytes: int = 512 * MiB
    file_bytes: int = 16 * MiB
    scratch_bytes: int = 64 * MiB
    scratch_files: int = 1000
    open_files: int = 64
    output_bytes: int = 64 * KiB
    output_read_bytes: int = 1 * MiB
    files_out: int = 10
    files_out_bytes: int = 8 * MiB
    source_bytes: int = 64 * KiB


class RunStatus(StrEnum):
    """How a run ended; told by the kernel (``wait4``) and the parent's own clocks, never by the code itself."""

    OK = "ok"
    ERROR = "error"
    """The program ended with an exception or a non-zero exit."""
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CPU = "cpu"
    BLOCKED = "blocked_call"
    """It made a system call that ends the process."""
    OUTPUT_CAP = "output_cap"
    DISK = "disk"
    """It filled its folder: too many bytes, or too many files."""
    CRASHED = "crashed"


SessionState = Literal["fresh", "continued", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRun:
    """One program to run.

    Args:
        code: Python source.
        folder: the run's own folder on the host; it has ``input/`` (read-only for the code) and ``output/``. It is the
            code's working directory, and the only place where it may write.
        limits: see ``SandboxLimits``.
        session: names an interpreter that is kept between runs; empty: a fresh one, thrown away afterwards.
    """

    code: str
    folder: Path
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOutcome:
    """What a run left.

    Args:
        status: how it ended.
        stdout, stderr: what was kept of them, decoded with replacement characters.
        stdout_cut, stderr_cut: more was written than kept.
        exit_code: of the process; negative: the signal that ended it.
        duration_s: wall seconds.
        cpu_s: processor seconds.
        peak_memory_bytes: of the run itself, above what was preloaded.
        state: of the interpreter.
        detail: a sentence for people about how it ended, or about files that could not be handed back; else empty for
            ``ok`` and ``error``.
    """

    status: RunStatus
    stdout: str = ""
    stderr: str = ""
    stdout_cut: bool = False
    stderr_cut: bool = False
    exit_code: int = 0
    duration_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    state: SessionState = "fresh"
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    """What a backend was seen to enforce, by running canaries.

    Args:
        backend: its name.
        works: every canary was held.
        reason: why it does not work, and what to do; empty when it does.
        facts: for ``hermod doctor``, such as the Landlock ABI and the paths of programs.
    """

    backend: str
    works: bool
    reason: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


class SandboxUnavailable(Exception):
    """Nothing is run, because no backend can lock the code in here; the message says why and what to do."""


class SandboxBackend(Protocol):
    """Locks code in. All methods may be called concurrently."""

    name: str
    enforcing: bool
    """False only for the backend that runs code on the host, which is named in the settings to be allowed."""

    async def probe(self) -> Enforcement:
        """Run canaries for real and tell what was held. Never raises."""
        ...

    async def run(self, run: SandboxRun) -> SandboxOutcome:
        """Run one program and wait until its last process is gone. Cancelling kills it.

        Raises:
            SandboxUnavailable: it could not be started; nothing of it was run.
        """
        ...

    async def aclose(self) -> None:
        """End every process that this backend has."""
        ...
