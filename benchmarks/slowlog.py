"""Reading slow logs, in turns with pgBadger and pt-query-digest: ``python -m benchmarks.slowlog --help``.

Logs with known figures are generated; every count, sum and maximum of ours is compared with the truth and with a bare
reference pass (``slowlog_floor.py``) before any time counts. CPU is user and system time of the whole process, with its
start.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.slowlog_logs import SHAPES, Kind, write_log
from benchmarks.table import Row, render_table

PG_PREFIX = "%m [%p] %q%u@%d/%a "
BOUNDS = {"pg-stderr": 150_000, "pg-csv": None, "pg-json": None, "mysql": 300_000, "mariadb": 300_000}
MOST_MIB = 64
_LINES_PER_ENTRY = {"pg-stderr": 2.1, "pg-csv": 2.1, "pg-json": 1.0, "mysql": 7.1, "mariadb": 9.1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one process took."""

    cpu_s: float
    rss_mib: float


def measure(*, lines: int, rounds: int, kinds: Sequence[Kind] = ("pg-stderr", "mysql")) -> list[Row]:
    """Generate logs of about ``lines`` lines, read each in turns by everybody, and return the table's rows.

    Raises:
        RuntimeError: a figure of ours is not the truth's.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="hermod-bench-") as folder:
        for kind in kinds:
            log = Path(folder) / kind
            truth = write_log(log, kind, entries=round(lines / _LINES_PER_ENTRY[kind]), seed=1)
            # The kernel counts our own peak as a child's, up to its exec: this process has to stay small.
            with log.open("rb") as stream:
                count = sum(1 for _ in stream)
            commands = _build_commands(kind, log, Path(folder))
            costs: dict[str, list[Cost]] = {who: [] for who in commands}
            for _ in range(rounds):
                for who, command in commands.items():
                    costs[who].append(_run(command, Path(folder) / f"{who}.out"))
            _compare(json.loads((Path(folder) / "hermod.out").read_text()), truth, kind)
            _compare_floor((Path(folder) / "reference pass.out").read_text(), truth)
            rows += [_row(kind, who, count, found) for who, found in costs.items()]
            log.unlink()
    return rows


def _build_commands(kind: Kind, log: Path, folder: Path) -> dict[str, list[str]]:
    commands = {
        "hermod": [sys.executable, "-m", "bot", "slowlog", str(log), "--json"],
        "reference pass": [sys.executable, str(Path(__file__).with_name("slowlog_floor.py")), kind, str(log)],
    }
    badger, digest = shutil.which("pgbadger"), shutil.which("pt-query-digest")
    if badger and kind in ("pg-stderr", "pg-csv"):
        form = ["-f", "csv"] if kind == "pg-csv" else ["-f", "stderr", "-p", PG_PREFIX]
        out = ["-x", "json", "-o", str(folder / "badger.json")]
        commands["pgBadger"] = [badger, "-q", "-j", "1", *form, *out, str(log)]
    if digest and kind in ("mysql", "mariadb"):
        commands["pt-query-digest"] = [digest, "--no-version-check", "--limit", "20", str(log)]
    return commands


def _run(command: list[str], out: Path) -> Cost:
    with out.open("wb") as stream:
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, stream.fileno(), 1)])
        _, status, usage = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(f"{command[0]} ended with {os.waitstatus_to_exitcode(status)}")
    return Cost(cpu_s=usage.ru_utime + usage.ru_stime, rss_mib=usage.ru_maxrss / 1024)


def _row(kind: Kind, who: str, lines: int, costs: Sequence[Cost]) -> Row:
    best = min(cost.cpu_s for cost in costs)
    memory = max(cost.rss_mib for cost in costs)
    bound = BOUNDS[kind] if who == "hermod" else None
    return Row(
        cell=f"{kind}, {lines:,} lines",
        who=who,
        value=f"{best:.2f} s CPU, {lines / best:,.0f} lines/s, {memory:.0f} MiB",
        bound=f">= {bound:,} lines/s, <= {MOST_MIB} MiB" if bound else "",
        holds=bound is None or (lines / best >= bound and memory <= MOST_MIB),
    )


def _compare(answer: dict[str, object], truth: dict[str, dict[str, float]], kind: Kind) -> None:
    rows = answer["rows"]
    if not isinstance(rows, list):
        raise RuntimeError("the answer has no rows")
    found = {name: [row for row in rows if SHAPES[name].sign in row["sql"]] for name in truth}
    for name, figures in truth.items():
        if len(found[name]) != 1:
            raise RuntimeError(f"{kind}: {len(found[name])} shapes for {name}")
        (row,) = found[name]
        exact = row["calls"] == figures["count"] and abs(row["max_s"] - figures["max_s"]) < 1e-6
        near = abs(row["total_s"] - figures["total_s"]) < 1e-3
        percentile = abs(row["p95_s"] - figures["p95_s"]) <= 0.01 * figures["p95_s"]
        if not (exact and near and percentile):
            raise RuntimeError(f"{kind}: {name} is {row}, and should be {figures}")
    if len(rows) != len(truth):
        raise RuntimeError(f"{kind}: {len(rows)} shapes, and should be {len(truth)}")


def _compare_floor(text: str, truth: dict[str, dict[str, float]]) -> None:
    counts = sorted(int(line.split()[0]) for line in text.splitlines())
    if counts != sorted(int(figures["count"]) for figures in truth.values()):
        raise RuntimeError(f"the reference pass counts {counts}")


def main() -> int:
    """Measure and print; 1 when a bound does not hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slowlog", description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", default=["pg-stderr", "mysql"], choices=list(BOUNDS))
    args = parser.parse_args()
    rows = measure(lines=args.lines, rounds=args.rounds, kinds=args.kinds)
    print(render_table(rows))
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
