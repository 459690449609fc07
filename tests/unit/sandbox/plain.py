"""A backend that locks nothing in: a plain interpreter as a process of its own, for tests of what is around it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bot.tools.python_sandbox.types import (
    Enforcement,
    RunStatus,
    SandboxOutcome,
    SandboxRun,
    SandboxUnavailable,
    SessionState,
)

ENVIRON = {"PATH": "/usr/bin:/bin", "MPLBACKEND": "Agg", "OPENBLAS_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}


class PlainBackend:
    """Runs code by ``python -I -c`` in the run's folder.

    ``runs`` are those that were asked for, ``unavailable`` refuses them, ``before`` is called with each run,
    ``changes`` with what it came to. ``most_at_once`` counts runs of one thread.
    """

    name = "plain"

    def __init__(self, *, enforcing: bool = True) -> None:
        self.enforcing = enforcing
        self.runs: list[SandboxRun] = []
        self.unavailable = ""
        self.before: Callable[[SandboxRun], None] = lambda run: None
        self.changes: Callable[[SandboxOutcome], SandboxOutcome] = lambda outcome: outcome
        self.state: SessionState = "fresh"
        self.started = asyncio.Event()
        self.running: list[Path] = []
        self.most_at_once = 0

    async def probe(self) -> Enforcement:
        return Enforcement(backend=self.name, works=True)

    async def run(self, run: SandboxRun) -> SandboxOutcome:
        self.runs.append(run)
        if self.unavailable:
            raise SandboxUnavailable(self.unavailable)
        self.running.append(run.folder.parent)
        self.most_at_once = max(self.most_at_once, self.running.count(run.folder.parent))
        try:
            return await self._run(run)
        finally:
            self.running.remove(run.folder.parent)

    async def _run(self, run: SandboxRun) -> SandboxOutcome:
        self.before(run)
        begun = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-c",
            run.code,
            cwd=run.folder,
            env={**ENVIRON, "MPLCONFIGDIR": os.environ.get("MPLCONFIGDIR", "/tmp")},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.started.set()
        status = RunStatus.OK
        reading = asyncio.ensure_future(process.communicate())
        try:
            done, _ = await asyncio.wait({reading}, timeout=run.limits.wall_s)
            if not done:
                status = RunStatus.TIMEOUT
        finally:
            if not reading.done():
                process.send_signal(signal.SIGKILL)
                await asyncio.wait({reading})  # reaped, also where the run is cancelled
        stdout, stderr = await reading
        code = process.returncode or 0
        if status is RunStatus.OK and code:
            status = RunStatus.ERROR
        kept = run.limits.output_bytes
        return self.changes(
            SandboxOutcome(
                status=status,
                stdout=stdout[:kept].decode(errors="replace"),
                stderr=stderr[:kept].decode(errors="replace"),
                stdout_cut=len(stdout) > kept,
                stderr_cut=len(stderr) > kept,
                exit_code=code,
                duration_s=time.monotonic() - begun,
                state=self.state,
                detail="It did not end in time and was ended." if status is RunStatus.TIMEOUT else "",
            )
        )

    async def aclose(self) -> None: ...
