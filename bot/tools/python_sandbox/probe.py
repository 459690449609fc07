"""What a backend holds, found by running code that tries: each verdict is read off a canary, never off the code's word.

One program tries to get at everything in turn; two more want too much memory and too much time. Around them stand a
process with a secret in its environment, a file with one, listeners on loopback and on a socket in the file system, and
a file that nobody may touch. What arrives there, or comes back in the output, was not held.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bot.tools.python_sandbox.interpreter import Interpreter
from bot.tools.python_sandbox.types import (
    Enforcement,
    MiB,
    RunStatus,
    SandboxLimits,
    SandboxOutcome,
    SandboxRun,
    SandboxUnavailable,
)

_TRIES = """
import glob, json, os, socket, sys, time
want = json.loads({want!r})
found = {{"prefix": sys.prefix}}
def attempt(act):
    try:
        act()
    except BaseException:
        pass
def show(path):
    with open(path, "rb") as file:
        print(file.read(100_000).decode("utf-8", "replace"), flush=True)
def say(family, address):
    with socket.socket(family) as sock:
        sock.settimeout(1)
        sock.connect(address)
        sock.sendall(b"hello")
def fork():
    if os.fork() == 0:
        open("output/forked", "w").close()
        os._exit(0)
    os.wait()
def overwrite():
    with open(want["outside"], "w") as file:
        file.write("overwritten")
attempt(lambda: print(dict(os.environ), flush=True))
attempt(lambda: show("/proc/%d/environ" % want["decoy"]))
for path in glob.glob("/proc/[0-9]*/environ"):
    attempt(lambda: show(path))
attempt(lambda: show(want["secret"]))
attempt(lambda: say(socket.AF_INET, ("127.0.0.1", want["port"])))
attempt(lambda: say(socket.AF_UNIX, want["socket"]))
attempt(fork)
attempt(overwrite)
attempt(lambda: os.kill(want["decoy"], 9))
try:
    import numpy
    found["numpy"] = numpy.__version__
except ImportError as error:
    found["numpy"] = ""
with open("output/found.json", "w") as file:
    json.dump(found, file)
"""
_HUNGRY = "kept = []\nwhile True:\n    kept.append(bytearray(16 * 1024 * 1024))\n"
_SLOW = 'import time\nopen("output/began", "w").close()\nwhile True:\n    time.sleep(0.01)\n'
_DECOY = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\n"
_MEMORY_BYTES = 128 * MiB
_LIMITS = SandboxLimits(cpu_s=10.0, output_bytes=4 * MiB, output_read_bytes=8 * MiB)
_SLOW_S, _SLOW_MARGIN_S = 0.5, 5.0
_HELD_TIMEOUT_S = 120.0


class Runs(Protocol):
    """What is probed."""

    name: str

    async def run(self, run: SandboxRun) -> SandboxOutcome:
        """Run one program."""
        ...

    async def describe(self) -> Mapping[str, str]:
        """Return what is worth knowing about the backend here."""
        ...


class Probe:
    """Probes one backend, and keeps the verdict for as long as kernel, backend and interpreter are the same.

    Args:
        backend: to be probed.
        interpreter: that it runs.
    """

    def __init__(self, backend: Runs, interpreter: Interpreter) -> None:
        self._backend, self._interpreter = backend, interpreter
        self._verdicts: dict[tuple[tuple[str, str], ...], Enforcement] = {}
        self._lock = asyncio.Lock()

    async def run(self) -> Enforcement:
        """Return the verdict. Never raises, but when it is cancelled."""
        async with self._lock:
            try:
                facts = dict(await self._backend.describe())
                key = tuple(sorted(facts.items()))
                if key not in self._verdicts:
                    self._verdicts[key] = await self._try(facts)
                return self._verdicts[key]
            except (OSError, SandboxUnavailable, TimeoutError, subprocess.SubprocessError) as error:
                return Enforcement(backend=self._backend.name, works=False, reason=str(error) or "it did not answer")

    async def _try(self, facts: dict[str, str]) -> Enforcement:
        async with asyncio.timeout(_HELD_TIMEOUT_S), _canaries() as canaries:
            code = _TRIES.format(want=json.dumps(canaries.want))
            outcome = await self._backend.run(canaries.build_run(code, _LIMITS))
            failures = list(canaries.judge(outcome))
            found = canaries.load_found()
            if not failures:
                failures += _judge_interpreter(found, outcome, self._interpreter, facts)
            if not failures:
                failures += await self._try_limits(canaries)
        facts["numpy"] = str(found.get("numpy") or "not installed")
        reason = "; ".join(failures)
        return Enforcement(backend=self._backend.name, works=not failures, reason=reason, facts=facts)

    async def _try_limits(self, canaries: Canaries) -> list[str]:
        failures = []
        limits = SandboxLimits(wall_s=20.0, cpu_s=10.0, memory_bytes=_MEMORY_BYTES)
        hungry = await self._backend.run(canaries.build_run(_HUNGRY, limits))
        if hungry.status is not RunStatus.MEMORY or hungry.peak_memory_bytes > 2 * _MEMORY_BYTES:
            failures.append(f"the memory limit did not hold (it ended as {hungry.status})")
        began = time.monotonic()
        slow_run = canaries.build_run(_SLOW, SandboxLimits(wall_s=_SLOW_S))
        slow = await self._backend.run(slow_run)
        if slow.status is not RunStatus.TIMEOUT or time.monotonic() - began > _SLOW_S + _SLOW_MARGIN_S:
            failures.append(f"the time limit did not hold (it ended as {slow.status})")
        return failures


def _judge_interpreter(
    found: Mapping[str, object], outcome: SandboxOutcome, interpreter: Interpreter, facts: Mapping[str, str]
) -> list[str]:
    if outcome.status is not RunStatus.OK or not found:
        last = outcome.stderr.strip().rpartition("\n")[2]
        return [f"an ordinary program did not run: it ended as {outcome.status} {outcome.detail}{last}"]
    if found.get("prefix") != interpreter.prefix:
        # A library of the same name elsewhere on the machine can be loaded instead, and the packages "disappear".
        return [f"it runs another interpreter: sys.prefix is {found.get('prefix')}, not {interpreter.prefix}"]
    return []


@dataclass(slots=True, kw_only=True)
class Canaries:
    """What must not be reached, and what was."""

    folder: Path
    token: str
    want: Mapping[str, object]
    decoy: subprocess.Popen[bytes]
    hits: list[str] = field(default_factory=list)
    _count: int = 0

    def build_run(self, code: str, limits: SandboxLimits) -> SandboxRun:
        """Return a run in a folder of its own."""
        self._count += 1
        folder = self.folder / f"run-{self._count}"
        for name in ("input", "output"):
            (folder / name).mkdir(parents=True, mode=0o700)
        return SandboxRun(code=code, folder=folder, limits=limits)

    def load_found(self) -> dict[str, object]:
        """Return what the first program found out; empty when it left nothing."""
        try:
            found = json.loads((self.folder / "run-1/output/found.json").read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def judge(self, outcome: SandboxOutcome) -> list[str]:
        """Say what was reached."""
        failures = [f"code in it could reach {hit}" for hit in sorted(set(self.hits))]
        if self.token in outcome.stdout + outcome.stderr:
            failures.append("code in it could read another process's environment, or a file outside its folder")
        if (self.folder / "run-1/output/forked").exists():
            failures.append("code in it could start a process")
        if (self.folder / "outside").read_text() != "untouched":
            failures.append("code in it could write outside its folder")
        if self.decoy.poll() is not None:
            failures.append("code in it could end another process")
        return failures


@asynccontextmanager
async def _canaries() -> AsyncIterator[Canaries]:
    # Whoever is cancelled while a thread makes a folder, or a server begins to serve, would never get to close it.
    folder = Path(tempfile.mkdtemp(prefix="hermod-probe-"))
    token = secrets.token_hex(16)
    hits: list[str] = []

    def note(what: str):  # type: ignore[no-untyped-def]
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            hits.append(what)
            writer.close()

        return accept

    try:
        with contextlib.ExitStack() as resources:
            (folder / "secret").write_text(token)
            (folder / "outside").write_text("untouched")
            tcp = await asyncio.start_server(note("a port of this machine"), "127.0.0.1", 0, start_serving=False)
            resources.callback(tcp.close)
            address = str(folder / "socket")
            unix = await asyncio.start_unix_server(note("a socket in the file system"), address, start_serving=False)
            resources.callback(unix.close)
            await tcp.start_serving()
            await unix.start_serving()
            command = [sys.executable, "-I", "-S", "-c", _DECOY]
            decoy = subprocess.Popen(  # noqa: ASYNC220, S603 - our own interpreter
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"SECRET": token}
            )
            resources.callback(decoy.communicate)
            resources.callback(decoy.kill)
            want = {
                "decoy": decoy.pid,
                "secret": str(folder / "secret"),
                "outside": str(folder / "outside"),
                "port": tcp.sockets[0].getsockname()[1],
                "socket": address,
            }
            await asyncio.to_thread(decoy.stdout.readline)  # type: ignore[union-attr]
            yield Canaries(folder=folder, token=token, want=want, decoy=decoy, hits=hits)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
