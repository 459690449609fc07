"""Runs code on the host, locked in by nothing. For people who have said in the settings that they accept that.

Time, output and the limits of the process are kept, so that a mistake does no harm; code that means harm is free to do
all that the bot's user may. ``hermod doctor`` says so in red.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

from bot.tools.python_sandbox.forking import Tuning
from bot.tools.python_sandbox.interpreter import Interpreter, build_environ
from bot.tools.python_sandbox.limiter import Limiter
from bot.tools.python_sandbox.outcome import build_outcome
from bot.tools.python_sandbox.process import ChildProcess, Output, measure_folder, spawn
from bot.tools.python_sandbox.turns import Turns, count_places
from bot.tools.python_sandbox.types import Enforcement, SandboxOutcome, SandboxRun, SandboxUnavailable

_START = """
import resource, sys
memory, cpu, size = map(int, sys.argv[2:])
with open(int(sys.argv[1]), "rb") as file:
    code = file.read()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.argv[:] = ["<code>"]
exec(compile(code, "<code>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
"""
_MOST_BEFORE = 20_000


class HostBackend:
    """Runs code without any lock.

    Args:
        interpreter: runs the code.
        tuning: how.
    """

    name = "none-i-accept-host-code-execution"
    enforcing = False

    def __init__(self, interpreter: Interpreter, tuning: Tuning) -> None:
        self._interpreter, self._tuning = interpreter, tuning
        self._turns = Turns(tuning.places or count_places())
        self._running: set[ChildProcess] = set()

    async def probe(self) -> Enforcement:
        """Say that nothing is enforced. Never raises."""
        reason = (
            "code is run on the host, with the rights of this process and with all that it can read; "
            "set sandbox.backend to auto"
        )
        return Enforcement(backend=self.name, works=False, reason=reason)

    async def run(self, run: SandboxRun) -> SandboxOutcome:
        """Run one program and wait until it and its process group are gone. Cancelling kills them.

        Raises:
            SandboxUnavailable: it could not be started.
        """
        if run.session:
            raise SandboxUnavailable("kept interpreters need a backend that locks code in; turn sandbox.sessions off")
        async with self._turns.take(self._tuning.key(run)):
            return await self._run(run)

    async def aclose(self) -> None:
        """End every process that is still running."""
        for process in tuple(self._running):
            _kill_group(process)
            await process.wait()

    async def _run(self, run: SandboxRun) -> SandboxOutcome:
        limiter = Limiter(run.limits)
        stdout, stderr = (Output(keep_bytes=run.limits.output_bytes) for _ in range(2))
        stdout.on_read = stderr.on_read = limiter.count_output
        with contextlib.closing(stdout), contextlib.closing(stderr):
            before = await asyncio.to_thread(measure_folder, str(run.folder), max_entries=_MOST_BEFORE)
            started = time.monotonic()
            process = self._start(run, stdout, stderr)
            limiter.attach(lambda: _kill_group(process))
            try:
                async with limiter.watch(folder=str(run.folder), before=before, pid=process.pid):
                    exit_ = await process.wait()
            finally:
                _kill_group(process)
                await process.wait()
                self._running.discard(process)
            return build_outcome(
                run.limits, limiter.cause, exit_, stdout, stderr, duration_s=time.monotonic() - started
            )

    def _start(self, run: SandboxRun, stdout: Output, stderr: Output) -> ChildProcess:
        limits = run.limits
        code = os.memfd_create("code", os.MFD_CLOEXEC)
        try:
            os.write(code, run.code.encode("utf-8", "surrogatepass"))
            os.lseek(code, 0, os.SEEK_SET)
            numbers = [str(n) for n in (code, limits.memory_bytes, max(1, round(limits.cpu_s)), limits.file_bytes)]
            process = spawn(
                [self._interpreter.executable, "-I", "-B", "-X", "utf8", "-c", _START, *numbers],
                environ={**build_environ(str(self._tuning.cache)), "HOME": str(run.folder)},
                stdout=stdout.write_fd,
                stderr=stderr.write_fd,
                keep_fds=(code,),
                folder=str(run.folder),
            )
        except OSError as error:
            raise SandboxUnavailable(f"the program could not be started: {error.strerror}") from error
        finally:
            os.close(code)
            stdout.close_writer()
            stderr.close_writer()
        self._running.add(process)
        return process


def _kill_group(process: ChildProcess) -> None:
    """Kill the process and all of its group, which has its number; one that left the group is out of reach."""
    if not process.ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
