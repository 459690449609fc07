"""What is told about a run that has ended."""

from __future__ import annotations

import re
from signal import SIGKILL, SIGSYS, SIGXCPU, Signals

from bot.tools.python_sandbox.process import Exit, Output
from bot.tools.python_sandbox.types import MiB, RunStatus, SandboxLimits, SandboxOutcome, SessionState

_CPU_ROUNDING_S = 0.6
"""The kernel's limit is in whole seconds, and it is a tick early or late."""
_OUT_OF_MEMORY = re.compile(r"(?:[\w.]*\.)?(?:_?Array)?MemoryError(?::|\Z)")


def build_outcome(
    limits: SandboxLimits,
    cause: RunStatus | None,
    exit_: Exit,
    stdout: Output,
    stderr: Output,
    *,
    duration_s: float,
    state: SessionState = "fresh",
) -> SandboxOutcome:
    """Put together how a run ended and what it wrote; the outputs start anew.

    Args:
        limits: of the run.
        cause: why the parent killed it, if it did.
        exit_: as the kernel told it.
        stdout, stderr: what it wrote.
        duration_s: from its start to its end.
        state: of its interpreter.
    """
    for output in (stdout, stderr):
        output.drain()
    (out, out_cut), (err, err_cut) = stdout.take(), stderr.take()
    last_line = err.rstrip().rpartition("\n")[2]
    status, detail = judge(exit_, cause, limits, out_of_memory=_OUT_OF_MEMORY.match(last_line) is not None)
    return SandboxOutcome(
        status=status,
        stdout=out,
        stderr=err,
        stdout_cut=out_cut,
        stderr_cut=err_cut,
        exit_code=exit_.code,
        duration_s=duration_s,
        cpu_s=exit_.cpu_s,
        peak_memory_bytes=exit_.peak_memory_bytes,
        state=state,
        detail=detail,
    )


def judge(
    exit_: Exit, cause: RunStatus | None, limits: SandboxLimits, *, out_of_memory: bool = False
) -> tuple[RunStatus, str]:
    """Say how a run ended, and in a sentence for people why.

    Args:
        exit_: as the kernel told it.
        cause: why the parent killed it, if it did.
        limits: of the run.
        out_of_memory: the program ended with a MemoryError. That is its own word, because the kernel keeps no record of
            memory that it refused.
    """
    if exit_.broken:
        return RunStatus.CRASHED, (
            f"The process that starts programs broke, and this one with it ({exit_.broken}). The next one is new."
        )
    killed = exit_.code == -SIGKILL
    match cause:
        case RunStatus.OUTPUT_CAP:
            return cause, f"It wrote more than {_size(limits.output_read_bytes)} of output and was ended."
        case RunStatus.DISK:
            return cause, (
                f"It filled its folder and was ended: {_size(limits.scratch_bytes)} "
                f"and {limits.scratch_files} files are the limit."
            )
        case RunStatus.TIMEOUT if killed:
            return cause, f"It did not end within {limits.wall_s:g} s and was ended."
    # The signal alone proves nothing: a program can send it to itself.
    signalled = exit_.code == -SIGXCPU and exit_.cpu_s >= limits.cpu_s - _CPU_ROUNDING_S
    if cause is RunStatus.CPU or (killed and exit_.cpu_s >= limits.cpu_s) or signalled:
        return RunStatus.CPU, f"It used {limits.cpu_s:g} s of the processor, which is the limit."
    return _judge_code(exit_.code, limits, out_of_memory)


def _judge_code(code: int, limits: SandboxLimits, out_of_memory: bool) -> tuple[RunStatus, str]:
    if code > 0 and out_of_memory:
        return RunStatus.MEMORY, f"It needed more than {_size(limits.memory_bytes)} of memory."
    if code == -SIGSYS:
        return RunStatus.BLOCKED, "It made a system call that the sandbox does not allow, and was ended."
    if code == -SIGKILL:
        return RunStatus.CRASHED, "It was killed from outside, probably because the machine ran out of memory."
    if code < 0:
        return RunStatus.CRASHED, f"The interpreter itself crashed ({Signals(-code).name})."
    return (RunStatus.OK, "") if code == 0 else (RunStatus.ERROR, "")


def _size(size_bytes: int) -> str:
    return f"{size_bytes / MiB:.3g} MiB"
