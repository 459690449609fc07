"""What the engine costs over a hand loop on the raw SDK: ``python -m benchmarks.overhead``.

Each cell is a process of its own; in each round all cells run one after another, so that a busy machine slows all of
them alike. Only CPU time and ratios are meaningful; the minimum of all rounds is given beside the median ratio.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile

CONTENDERS = ("raw", "raw-aiohttp", "hermod", "hermod-sqlite")
ROUNDS = 6
CELLS = {"sequential": (30, "0"), "concurrent": (200, "1")}
BOUNDS = {"sequential": 1.15, "concurrent": 0.65}


def measure(contender: str, url: str, cell: str) -> dict[str, float]:
    """Run one cell in a process of its own."""
    runs, together = CELLS[cell]
    command = [sys.executable, "-m", "benchmarks.contenders", contender, url, str(runs), together]
    with tempfile.TemporaryDirectory(prefix="hermod-bench-") as folder:
        environ = os.environ | {"BENCH_FOLDER": folder}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environ)
    if done.returncode != 0:
        raise SystemExit(f"{contender} {cell} failed:\n{done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> int:
    """Measure, print the table, and fail when a bound does not hold."""
    command = [sys.executable, "-m", "benchmarks.model_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        found: dict[tuple[str, str], list[dict[str, float]]] = {}
        try:
            for _ in range(ROUNDS):
                for cell in CELLS:
                    for contender in CONTENDERS:
                        found.setdefault((cell, contender), []).append(measure(contender, url, cell))
        finally:
            assert server.stdin is not None
            server.stdin.close()
    return report(found)


def report(found: dict[tuple[str, str], list[dict[str, float]]]) -> int:
    """Print one row a cell and contender; return 1 when the engine is above its bound."""
    failed = 0
    print(f"three tool rounds and an answer (4 requests a run), {ROUNDS} interleaved rounds, CPU of the client")
    print(
        f"{'cell':<12}{'contender':<15}{'min CPU/run':>12}{'ratio':>8}{'  [min-max]':<16}"
        f"{'runs/s':>8}{'errors':>8}{'RSS':>8}"
    )
    for (cell, contender), rows in found.items():
        raw = found[cell, "raw"]
        ratios = [row["cpu_ms"] / base["cpu_ms"] for row, base in zip(rows, raw, strict=True)]
        median, best = statistics.median(ratios), min(row["cpu_ms"] for row in rows)
        errors = int(sum(row["errors"] for row in rows))
        spread = f"  [{min(ratios):.2f}-{max(ratios):.2f}]"
        speed = 1000 / min(row["wall_ms"] for row in rows)
        rss = max(row["rss_mib"] for row in rows)
        print(
            f"{cell:<12}{contender:<15}{best:>9.2f} ms{median:>8.2f}{spread:<16}{speed:>8.0f}{errors:>8}{rss:>5.0f}MiB"
        )
        failed |= errors > 0 or (contender == "hermod" and median > BOUNDS[cell])
    print("bounds: " + ", ".join(f"hermod {cell} <= {bound}" for cell, bound in BOUNDS.items()))
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
