"""Runs attacks against a backend, several at once, and gathers what they achieved."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bot.tools.python_sandbox.forking import ForkingBackend, Tuning
from bot.tools.python_sandbox.host_backend import HostBackend
from bot.tools.python_sandbox.interpreter import find_interpreter
from bot.tools.python_sandbox.landlock_backend import LandlockBackend
from bot.tools.python_sandbox.namespaces_backend import NamespacesBackend, find_bubblewrap
from bot.tools.python_sandbox.types import MiB, RunStatus, SandboxBackend, SandboxLimits, SandboxRun, SandboxUnavailable
from tests.sandbox.battery.attacks import Attack
from tests.sandbox.battery.ground import CANARY, Ground, open_ground
from tests.sandbox.battery.judge import Finding, judge_run

AT_ONCE = 4
SURVIVOR_AFTER_S = 1.0
BEHIND = {"runner": "landlock"}
"""What locks code in where the backend's name does not tell."""

_ENDLESS = SandboxLimits(wall_s=1.5, cpu_s=10.0)
"""Of attacks that only the clock ends."""
_USUAL = SandboxLimits(wall_s=60.0, cpu_s=5.0, source_bytes=1 * MiB)
_TALKATIVE = replace(_USUAL, output_bytes=16 * MiB, output_read_bytes=16 * MiB)
"""Of attacks that print what they find: a secret must not hide behind the cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a battery found.

    Args:
        backend: whose name.
        ran: how many attacks were made.
        findings: what got through, but for what is known.
        known: what got through as is known.
        duration_s: of the whole.
    """

    backend: str
    ran: int
    findings: tuple[Finding, ...]
    known: tuple[Finding, ...]
    duration_s: float

    def describe(self) -> str:
        """Return a line for each finding."""
        lines = [f"{self.backend}: {self.ran} attacks in {self.duration_s:.1f} s, {len(self.findings)} findings"]
        lines += [f"  {found.level} {found.attack}: {found.what}" for found in self.findings]
        lines += [f"  known: {found.level} {found.attack}: {found.what}" for found in self.known]
        return "\n".join(lines)


@contextlib.asynccontextmanager
async def open_backend(kind: str, *, warm: bool, root: Path) -> AsyncIterator[SandboxBackend]:
    """Open a backend by its name, with its caches in a folder; ``host`` is the one that locks nothing in.

    ``runner`` is a runner on this machine, which has landlock, and what Hermod asks it with.
    """
    cache = root / "cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    interpreter = await find_interpreter(None)
    tuning = Tuning(cache=cache, preload=("random",), warm=warm, places=AT_ONCE)
    backend: ForkingBackend | HostBackend
    match kind:
        case "namespaces":
            backend = NamespacesBackend(interpreter, tuning, find_bubblewrap()[0])
        case "landlock" | "runner":
            backend = LandlockBackend(interpreter, tuning)
        case _:
            backend = HostBackend(interpreter, tuning)
    try:
        if kind == "runner":
            from tests.sandbox.runners import open_runner  # not a part of the copies that other users run

            async with open_runner(backend, root, places=AT_ONCE, ceilings=_TALKATIVE) as runner:
                yield runner.client
        else:
            yield backend
    finally:
        await backend.aclose()


async def run_battery(backend: SandboxBackend, attacks: Sequence[Attack], root: Path) -> Report:
    """Make every attack, each on a ground of its own.

    Args:
        backend: attacked.
        attacks: in any order; those that take long are begun first.
        root: an empty folder that this user owns.
    """
    began = time.monotonic()
    places = asyncio.Semaphore(AT_ONCE)
    interpreter_before = _stock_of_interpreter()

    async def make(attack: Attack) -> list[Finding]:
        async with places:
            return await _make(backend, attack, root)

    ordered = sorted(attacks, key=lambda attack: attack.oracle not in ("bounded", "nosurvivor"))
    found = [one for many in await asyncio.gather(*map(make, ordered)) for one in many]
    found += await _look_at_rest(backend, root)
    if _stock_of_interpreter() != interpreter_before:
        found.append(Finding(attack="(all)", level="escape", what="the interpreter's library was changed"))
    known = {attack.id: attack.known for attack in attacks}
    lock = BEHIND.get(backend.name, backend.name)
    accepted = tuple(one for one in found if lock in known.get(one.attack, ()))
    return Report(
        backend=backend.name,
        ran=len(ordered),
        findings=tuple(one for one in found if one not in accepted),
        known=accepted,
        duration_s=time.monotonic() - began,
    )


async def _make(backend: SandboxBackend, attack: Attack, root: Path) -> list[Finding]:
    limits = {"bounded": _ENDLESS, "canary": _TALKATIVE}.get(attack.oracle, _USUAL)
    with open_ground(root) as ground:
        run = SandboxRun(code=attack.fill(ground.values), folder=ground.run_folder, limits=limits)
        try:
            outcome = await backend.run(run)
        except SandboxUnavailable as error:
            return [Finding(attack=attack.id, level=attack.level, what=f"it was not run: {error}")]
        found = await asyncio.to_thread(judge_run, attack, ground, outcome, limits)
        return found + await _find_survivors(attack, ground)


async def _look_at_rest(backend: SandboxBackend, root: Path) -> list[Finding]:
    """Tell whether an ordinary program still runs, and finds nothing of the attacks."""
    code = "import json, os, random; print(json.dumps([1]), os.listdir('output'))"
    with open_ground(root) as ground:
        try:
            outcome = await backend.run(SandboxRun(code=code, folder=ground.run_folder, limits=_USUAL))
        except SandboxUnavailable as error:
            return [Finding(attack="(all)", level="dos", what=f"afterwards nothing can be run: {error}")]
    if (outcome.status, outcome.stdout, outcome.stderr) == (RunStatus.OK, "[1] []\n", ""):
        return []
    what = f"afterwards an ordinary program ends as {outcome.status}: {outcome.stdout[:200]}{outcome.stderr[-200:]}"
    return [Finding(attack="(all)", level="robust", what=what)]


async def _find_survivors(attack: Attack, ground: Ground) -> list[Finding]:
    if attack.oracle == "nosurvivor":
        await asyncio.sleep(SURVIVOR_AFTER_S)
    alive = await asyncio.to_thread(_find_marked, ground.mark)
    return [Finding(attack=attack.id, level=attack.level, what=f"{len(alive)} processes survived it")] if alive else []


def _find_marked(mark: str) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and Path("/proc", entry, "comm").read_text().startswith(mark):
                found.append(int(entry))
        except OSError:  # it ended meanwhile
            continue
    return found


def _stock_of_interpreter() -> tuple[int, ...]:
    library = Path(os.__file__).parent
    return library.stat().st_mtime_ns, (library / "os.py").stat().st_mtime_ns, (library / "os.py").stat().st_size


async def attack_in_folder(kind: str, *, warm: bool, attacks: Sequence[Attack]) -> Report:
    """Run a battery in a new temporary folder, with a secret in this process's environment, and clear it away."""
    root = Path(tempfile.mkdtemp(prefix="hermod-battery-"))
    os.environ["HERMOD_TOKEN"] = f"{CANARY}in-the-environment"
    try:
        async with open_backend(kind, warm=warm, root=root) as backend:
            report = await run_battery(backend, attacks, root)
            return replace(report, backend=f"{report.backend}, {'warm' if warm else 'cold'}, user {os.geteuid()}")
    finally:
        del os.environ["HERMOD_TOKEN"]
        shutil.rmtree(root, ignore_errors=True)
