"""What locking code in costs, against a plain ``python -I -c`` of the same interpreter.

The control and each backend take turns in every round, with a pause between them so that none pays for what another
leaves to be cleaned up. The minimum of all rounds is given, and the ratio of the medians; the plain start is made the
cheapest way that this program has (``bot.tools.python_sandbox.process.spawn``), and waited for the same way.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.table import Row
from bot.tools.python_sandbox.forking import ForkingBackend, Tuning
from bot.tools.python_sandbox.interpreter import build_environ, find_interpreter
from bot.tools.python_sandbox.landlock_backend import LandlockBackend
from bot.tools.python_sandbox.namespaces_backend import NamespacesBackend, find_bubblewrap
from bot.tools.python_sandbox.process import Output, read_memory, spawn
from bot.tools.python_sandbox.types import MiB, RunStatus, SandboxLimits, SandboxOutcome, SandboxRun

PRINT, PANDAS = "print(1)", "import pandas\nprint(int(pandas.Series([1, 2, 3]).sum()))"
ROUNDS, PANDAS_ROUNDS, CLIENT_RUNS, CLIENTS = 8, 2, 15, 2
PAUSE_S = 0.05
WARM_BOUND, WARM_PANDAS_BOUND, COLD_BOUNDS = 1.2, 0.10, {"landlock": 1.8, "namespaces": 2.5}
KILL_BOUND_S, LAG_BOUND_S, FLOOD_BOUND_MIB, PRIVATE_BOUND_MIB = 0.2, 0.05, 8, 15
_SLEEPING = 5
_DESCRIBE = """
import pandas, time
pandas.DataFrame({"a": range(1000), "b": range(1000)}).describe()
with open("/proc/self/smaps_rollup") as file:
    private = [line for line in file if line.startswith(("Private_Clean", "Private_Dirty"))]
print(sum(int(line.split()[1]) for line in private))
"""
_FLOOD = "import sys\nfor _ in range(1024):\n    sys.stdout.write('x' * 2**20)\n"


class Bench:
    """Backends by name, one folder for all runs."""

    def __init__(self, backends: Mapping[str, ForkingBackend], folder: Path) -> None:
        self.backends, self.folder = backends, folder

    async def run(self, who: str, code: str, **limits: float) -> SandboxOutcome:
        """Run a program in one backend."""
        wanted = SandboxLimits(cpu_s=60.0, **{"wall_s": 60.0, **limits})  # type: ignore[arg-type]
        return await self.backends[who].run(SandboxRun(code=code, folder=self.folder, limits=wanted))

    async def plain(self, code: str) -> str:
        """Run a program in an interpreter of its own, without any lock."""
        output = Output(keep_bytes=1000)
        try:
            process = spawn([sys.executable, "-I", "-c", code], environ=build_environ("/tmp"), stdout=output.write_fd)
            output.close_writer()
            await process.wait()
            output.drain()
            return output.take()[0]
        finally:
            output.close()

    async def checked(self, who: str, code: str, wanted: str) -> None:
        """Run a program and make sure of its output."""
        said = await self.plain(code) if who == "plain" else (await self.run(who, code)).stdout
        if said != wanted:
            raise RuntimeError(f"{who} said {said!r}, not {wanted!r}")


@asynccontextmanager
async def _open() -> AsyncIterator[Bench]:
    interpreter = await find_interpreter(None)
    programs = find_bubblewrap()
    with tempfile.TemporaryDirectory(prefix="hermod-bench-") as name:
        root = Path(name)
        (root / "run").mkdir()

        def tune(*, warm: bool) -> Tuning:
            return Tuning(cache=root, warm=warm, places=8, key=lambda run: str(id(run)))

        async with AsyncExitStack() as stack:
            backends: dict[str, ForkingBackend] = {}
            for warm in (True, False):
                how = "warm" if warm else "cold"
                backends[f"landlock, {how}"] = LandlockBackend(interpreter, tune(warm=warm))
                if programs:
                    backends[f"namespaces, {how}"] = NamespacesBackend(interpreter, tune(warm=warm), programs[0])
            for backend in backends.values():
                stack.push_async_callback(backend.aclose)
            yield Bench(backends, root / "run")


async def _take_turns(bench: Bench, names: list[str], code: str, wanted: str, rounds: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        await bench.checked(name, code, wanted)
    for _ in range(rounds):
        for name in names:
            await asyncio.sleep(PAUSE_S)
            began = time.perf_counter()
            await bench.checked(name, code, wanted)
            took[name].append(time.perf_counter() - began)
    return took


def _rate(cell: str, took: dict[str, list[float]], bounds: Mapping[str, float]) -> list[Row]:
    rows = []
    plain = took["plain"]
    for name, times in took.items():
        ratio = min(statistics.median(times) / statistics.median(plain), min(times) / min(plain))
        value = f"{min(times) * 1000:.1f} ms (p50 {statistics.median(times) * 1000:.1f})"
        bound = bounds.get(name)
        rows.append(
            Row(
                cell=cell,
                who=name,
                value=value,
                ratio=""
                if name == "plain"
                else f"{min(times) / min(plain):.2f}, p50 {statistics.median(times) / statistics.median(plain):.2f}",
                bound="" if bound is None else f"<= {bound} x",
                holds=bound is None or ratio <= bound,
            )
        )
    return rows


async def _rate_clients(bench: Bench, rounds: int) -> list[Row]:
    names = ["plain", *(name for name in bench.backends if name.endswith("warm"))]
    per_s: dict[str, list[float]] = {name: [] for name in names}

    async def client(name: str) -> None:
        for _ in range(CLIENT_RUNS):
            await bench.checked(name, PRINT, "1\n")

    for _ in range(rounds):
        for name in names:
            await asyncio.sleep(PAUSE_S)
            began = time.perf_counter()
            await asyncio.gather(*(client(name) for _ in range(CLIENTS)))
            per_s[name].append(CLIENTS * CLIENT_RUNS / (time.perf_counter() - began))
    best = {name: max(rates) for name, rates in per_s.items()}
    return [
        Row(
            cell=f"{CLIENTS} clients, print(1)",
            who=name,
            value=f"{best[name]:.0f} runs/s",
            ratio="" if name == "plain" else f"{best[name] / best['plain']:.2f}",
            bound="" if name == "plain" else ">= 1.0 x",
            holds=best[name] >= best["plain"],
        )
        for name in names
    ]


async def _rate_kills(bench: Bench, name: str, times: int) -> Row:
    late = []
    for _ in range(times):
        outcome = await bench.run(name, "while True: pass", wall_s=0.3)
        late.append(outcome.duration_s - 0.3 if outcome.status is RunStatus.TIMEOUT else float("inf"))
    return Row(
        cell="from the deadline to the last process gone",
        who=name,
        value=f"{statistics.median(late) * 1000:.0f} ms, at most {max(late) * 1000:.0f}",
        bound=f"< {KILL_BOUND_S * 1000:.0f} ms",
        holds=max(late) < KILL_BOUND_S,
    )


async def _rate_lag(bench: Bench, name: str) -> Row:
    runs = [asyncio.create_task(bench.run(name, "import time\ntime.sleep(1)")) for _ in range(_SLEEPING)]
    worst = 0.0
    while not all(run.done() for run in runs):
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        worst = max(worst, time.perf_counter() - began - 0.005)
    await asyncio.gather(*runs)
    return Row(
        cell=f"{_SLEEPING} sleeping runs: how late a trivial coroutine is",
        who=name,
        value=f"{worst * 1000:.0f} ms at most",
        bound=f"< {LAG_BOUND_S * 1000:.0f} ms",
        holds=worst < LAG_BOUND_S,
    )


async def _rate_flood(bench: Bench, name: str) -> Row:
    before = read_memory(os.getpid())[0]
    outcome = await bench.run(name, _FLOOD)
    grown_mib = (read_memory(os.getpid())[0] - before) / MiB
    return Row(
        cell="1 GiB of output: growth of the bot",
        who=name,
        value=f"{grown_mib:.1f} MiB, ended as {outcome.status}",
        bound=f"< {FLOOD_BOUND_MIB} MiB",
        holds=grown_mib < FLOOD_BOUND_MIB and outcome.status is RunStatus.OUTPUT_CAP,
    )


async def _rate_memory(bench: Bench, name: str) -> Row:
    """Let a run look at itself, in a backend that does not hide /proc (nothing else of it differs)."""
    backend = bench.backends[name]
    seeing = type(backend)(backend.interpreter, Tuning(cache=backend.tuning.cache, without=("landlock",)))
    try:
        run = SandboxRun(code=_DESCRIBE, folder=bench.folder, limits=SandboxLimits(wall_s=60.0, cpu_s=60.0))
        private_mib = min([int((await seeing.run(run)).stdout) / 1024 for _ in range(3)])
    finally:
        await seeing.aclose()
    return Row(
        cell="private memory of a run with pandas' describe()",
        who=name,
        value=f"{private_mib:.1f} MiB",
        bound=f"<= {PRIVATE_BOUND_MIB} MiB",
        holds=private_mib <= PRIVATE_BOUND_MIB,
    )


async def _measure(rounds: int) -> list[Row]:
    async with _open() as bench:
        warm = [name for name in bench.backends if name.endswith("warm")]
        cold = [name for name in bench.backends if name.endswith("cold")]
        took = await _take_turns(bench, ["plain", *warm, *cold], PRINT, "1\n", rounds * ROUNDS)
        bounds = dict.fromkeys(warm, WARM_BOUND) | {name: COLD_BOUNDS[name.partition(",")[0]] for name in cold}
        rows = _rate("sandbox: print(1)", took, bounds)
        took = await _take_turns(bench, ["plain", *warm, *cold], PANDAS, "6\n", rounds * PANDAS_ROUNDS)
        rows += _rate("sandbox: import pandas", took, dict.fromkeys(warm, WARM_PANDAS_BOUND))
        rows += await _rate_clients(bench, rounds)
        for name in warm:
            rows.append(await _rate_kills(bench, name, rounds * 3))
        for name in warm:
            rows.append(await _rate_lag(bench, name))
        for name in warm:
            rows.append(await _rate_flood(bench, name))
        rows.append(await _rate_memory(bench, warm[0]))
    return rows


def measure(rounds: int) -> list[Row]:
    """Run everything in turns; the rows of the table."""
    return asyncio.run(_measure(rounds))
