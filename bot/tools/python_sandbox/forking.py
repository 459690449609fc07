"""What the backends that fork from a zygote have in common: one run, from its turn to its outcome."""

from __future__ import annotations

import asyncio
import contextlib
import json
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL

from bot.tools.python_sandbox.child.landlock import landlock_abi
from bot.tools.python_sandbox.child_files import install_child
from bot.tools.python_sandbox.forked_run import ForkedRun, ZygoteBroken
from bot.tools.python_sandbox.interpreter import COMMON, PRELOADED, Interpreter
from bot.tools.python_sandbox.kept import Kept, KeptInterpreters, KeptLimits, Pipes
from bot.tools.python_sandbox.limiter import Limiter, read_cpu
from bot.tools.python_sandbox.outcome import build_outcome
from bot.tools.python_sandbox.place import Place
from bot.tools.python_sandbox.pool import RUNS_PER_ZYGOTE, ZygotePool
from bot.tools.python_sandbox.probe import Probe
from bot.tools.python_sandbox.process import Exit, Output, read_memory
from bot.tools.python_sandbox.turns import Turns, count_places
from bot.tools.python_sandbox.types import (
    Enforcement,
    KiB,
    RunStatus,
    SandboxOutcome,
    SandboxRun,
    SandboxUnavailable,
)
from bot.tools.python_sandbox.warm import REPLY_TIMEOUT_S, Zygote

_REAP_TIMEOUT_S = 15.0
_SESSION_CPU_S = 3600


def by_folder(run: SandboxRun) -> str:
    """Let two runs wait for each other only if they have the same folder."""
    return str(run.folder)


def by_thread(run: SandboxRun) -> str:
    """Let the runs of a thread wait for each other: their folders lie in one folder of the thread."""
    return str(run.folder.parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How a backend works, beside its limits.

    Args:
        warm: fork runs from a process that has the packages loaded; False: a new interpreter for each, which shares
            neither addresses nor hash seed with any other.
        preload: the packages; those that are not installed are left out.
        reply_timeout_s: how long the process that forks may take to answer before it is replaced.
        places: runs at once; 0: two for each core.
        key: whose turn a run takes.
        runs_per_zygote: after so many it is replaced.
        kept: limits of kept interpreters.
        marks: private folder that remembers which sessions there were; None: only in memory.
        cache: private folder for matplotlib's font list and the child's compiled modules.
        without: rules of the child's policy that are left out; for tests only, which show that each is needed.
    """

    warm: bool = True
    preload: tuple[str, ...] = PRELOADED
    reply_timeout_s: float = REPLY_TIMEOUT_S
    places: int = 0
    key: Callable[[SandboxRun], str] = by_folder
    runs_per_zygote: int = RUNS_PER_ZYGOTE
    kept: KeptLimits = field(default_factory=KeptLimits)
    marks: Path | None = None
    cache: Path
    without: tuple[str, ...] = ()


class ForkingBackend(ABC):
    """Runs programs in processes that a zygote forks. Use one of its subclasses."""

    name: str
    enforcing = True
    fonts: str
    """Where a new interpreter finds the list of fonts that another one made."""
    rules_left_out: tuple[str, ...] = ()
    """Rules of the child's policy that this backend cannot use."""

    def __init__(self, interpreter: Interpreter, tuning: Tuning) -> None:
        self.interpreter = interpreter
        self.tuning = tuning
        self._child: Path | None = None
        self._turns = Turns(tuning.places or count_places())
        most = tuning.runs_per_zygote
        self._plain = ZygotePool(lambda: self.start_zygote(COMMON if tuning.warm else ()), runs_per_zygote=most)
        self._packed = ZygotePool(lambda: self.start_zygote((*COMMON, *tuning.preload)), runs_per_zygote=most)
        self._kept = KeptInterpreters(tuning.kept, tuning.marks)
        self._probe = Probe(self, interpreter)

    @abstractmethod
    async def start_zygote(self, preload: tuple[str, ...]) -> Zygote:
        """Start a zygote in this backend's surroundings.

        Raises:
            ZygoteBroken: it does not come up.
        """

    @abstractmethod
    def open_place(self, pool: ZygotePool, run: SandboxRun) -> AbstractAsyncContextManager[tuple[Zygote, Place]]:
        """Hold a zygote and a place for the run's files."""

    async def find_child(self) -> Path:
        """Return the folder of the child's compiled modules, made at the first use."""
        if self._child is None:
            self._child = await install_child(self.interpreter, self.tuning.cache)
        return self._child

    async def describe(self) -> Mapping[str, str]:
        """Return what is worth knowing about this backend here; the probe's verdict is kept for as long as it is so."""
        abi = await asyncio.to_thread(landlock_abi)
        return {
            "kernel": platform.release(),
            "landlock": str(abi) if abi else "none",
            "python": f"{self.interpreter.executable} ({self.interpreter.version})",
        }

    async def probe(self) -> Enforcement:
        """Run canaries for real and tell what was held. Never raises."""
        return await self._probe.run()

    async def run(self, run: SandboxRun) -> SandboxOutcome:
        """Run one program and wait until its last process is gone. Cancelling kills it.

        Raises:
            SandboxUnavailable: it could not be started; nothing of it was run.
        """
        size_bytes = len(run.code.encode("utf-8", "surrogatepass"))
        if size_bytes > run.limits.source_bytes:
            return SandboxOutcome(
                status=RunStatus.ERROR,
                exit_code=1,
                detail=f"The program is longer than {run.limits.source_bytes // KiB} KiB; nothing was run.",
            )
        async with self._turns.take(self.tuning.key(run)):
            return await (self._run_kept(run) if run.session else self._run_once(run))

    async def aclose(self) -> None:
        """End every process that this backend has."""
        await self._kept.aclose()
        await self._plain.aclose()
        await self._packed.aclose()

    def _choose_pool(self, run: SandboxRun) -> ZygotePool:
        """Take the zygote that has the packages if the program seems to need one.

        Forking one with pandas in memory, and the end of such a process, take as long as all else together, so other
        programs are spared it. A wrong guess costs time only: every package can be imported in both.
        """
        names = {name.partition(".")[0] for name in self.tuning.preload}
        wanted = self.tuning.warm and (bool(run.session) or any(name in run.code for name in names))
        return self._packed if wanted else self._plain

    # -- one program, one process ------------------------------------------------------------------

    async def _run_once(self, run: SandboxRun) -> SandboxOutcome:
        limiter = Limiter(run.limits)
        stdout, stderr = (Output(keep_bytes=run.limits.output_bytes) for _ in range(2))
        stdout.on_read = stderr.on_read = limiter.count_output
        with contextlib.closing(stdout), contextlib.closing(stderr):
            async with self.open_place(self._choose_pool(run), run) as (zygote, place):
                await place.bring_in(run)
                started = time.monotonic()
                exit_ = await self._fork_once(run, zygote, place, limiter, (stdout, stderr))
                duration_s = time.monotonic() - started
                await self._settle(run, place, limiter, exit_)
            return build_outcome(run.limits, limiter.cause, exit_, stdout, stderr, duration_s=duration_s)

    async def _fork_once(
        self, run: SandboxRun, zygote: Zygote, place: Place, limiter: Limiter, outputs: tuple[Output, Output]
    ) -> Exit:
        request = self._build_request(run, place)
        try:
            fds = [output.write_fd for output in outputs]
            process = await zygote.fork(request, fds, cold=not self.tuning.warm)
        except ZygoteBroken as error:
            await zygote.aclose()  # it may have begun the run, and has taken it along
            return Exit(code=-SIGKILL, broken=str(error))
        finally:
            for output in outputs:
                output.close_writer()
        limiter.attach(process.kill)
        watch = limiter.watch(folder=place.watched, before=place.before, pid=process.pid)
        async with _dead_unless_done(process), watch:
            return await process.wait()

    async def _settle(self, run: SandboxRun, place: Place, limiter: Limiter, exit_: Exit) -> None:
        if exit_.refused and limiter.cause is None:
            raise SandboxUnavailable(f"the sandbox refused to run the program: {exit_.refused}")
        if await place.hand_back(run, failed=exit_.code != 0):
            limiter.end(RunStatus.DISK)

    def _build_request(self, run: SandboxRun, place: Place) -> bytes:
        limits = run.limits
        policy = {
            "scratch": place.path,
            "input": place.input,
            "memory_bytes": limits.memory_bytes,
            "cpu_s": _SESSION_CPU_S if run.session else max(1, round(limits.cpu_s)),
            "file_bytes": limits.file_bytes,
            "open_files": limits.open_files,
            "without": (*self.tuning.without, *self.rules_left_out),
        }
        fonts = "" if self.tuning.warm or "plot" not in run.code else self.fonts
        body = json.dumps({"policy": policy, "code": "" if run.session else run.code, "fonts": fonts}).encode()
        return len(body).to_bytes(4, "big") + body

    # -- an interpreter that is kept ---------------------------------------------------------------

    async def _start_kept(self, run: SandboxRun) -> Kept:
        async with AsyncExitStack() as resources:
            zygote, place = await resources.enter_async_context(self.open_place(self._choose_pool(run), run))
            pipes = resources.enter_context(contextlib.closing(Pipes(run.limits.output_bytes)))
            await place.bring_in(run)
            try:
                process = await zygote.fork(self._build_request(run, place), pipes.child_ends)
            except ZygoteBroken as error:
                raise SandboxUnavailable(f"the sandbox did not start an interpreter: {error}") from error
            pipes.close_child_ends()
            return Kept(process, place, pipes, resources.pop_all())

    async def _run_kept(self, run: SandboxRun) -> SandboxOutcome:
        async with self._kept.borrow(run.session, lambda: self._start_kept(run)) as (kept, state):
            limiter = Limiter(run.limits)
            pipes, process, place = kept.pipes, kept.process, kept.place
            pipes.stdout.on_read = pipes.stderr.on_read = limiter.count_output
            limiter.attach(process.kill)
            async with _dead_unless_done(process):
                # A new interpreter has its files from before the fork. It may still be locking itself in, and would
                # find its input writable while that is laid out anew.
                if kept.ran:
                    await place.bring_in(run)
                started, cpu_before = time.monotonic(), read_cpu(process.pid)
                watch = limiter.watch(folder=place.watched, before=place.before, pid=process.pid, watch_cpu=True)
                async with watch:
                    code = await kept.execute(run.code)
                duration_s = time.monotonic() - started
                exit_ = await _find_exit(kept, limiter, code, cpu_before)
                await self._settle(run, place, limiter, exit_)
            if not process.ended and limiter.cause is not None:
                await _end(process)
            return build_outcome(
                run.limits, limiter.cause, exit_, pipes.stdout, pipes.stderr, duration_s=duration_s, state=state
            )


async def _find_exit(kept: Kept, limiter: Limiter, code: int | None, cpu_before: float) -> Exit:
    """Say how a program of a kept interpreter ended, which is killed unless it can go on."""
    pid = kept.process.pid
    cpu_s, peak_bytes = read_cpu(pid) - cpu_before, read_memory(pid)[1] - kept.base_bytes
    if code is None or limiter.cause is not None:
        return await _end(kept.process)
    return Exit(code=code, cpu_s=cpu_s, peak_memory_bytes=max(peak_bytes, 0))


async def _end(process: ForkedRun) -> Exit:
    process.kill()
    async with asyncio.timeout(_REAP_TIMEOUT_S):
        return await process.wait()


@asynccontextmanager
async def _dead_unless_done(process: ForkedRun) -> AsyncIterator[None]:
    """End the process when the block is left early, and wait until it is gone."""
    try:
        yield
    except BaseException:
        await _end(process)
        raise
