"""What the engine costs over a hand loop on the raw SDK, and what the frameworks cost.

In each round every contender does every cell's work in turn, so that a busy machine slows all of them alike. CPU is
process time; the table has the minimum of all rounds, and the median of each round's ratio to ``raw`` in that round.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from benchmarks.cells import CELLS, Cell
from benchmarks.contenders import CONTENDERS
from benchmarks.fleet import Worker, WorkerFailed, open_server, start_worker
from benchmarks.table import Row, render_ratio

CPU_BOUNDS = {
    ("sequential, 1 call a round", "hermod"): 1.15,
    ("sequential, 1 call a round", "hermod-traced"): 1.25,
    ("sequential, 4 calls a round", "hermod"): 1.15,
    ("sequential, 4 calls a round", "hermod-traced"): 1.25,
    ("200 at once", "hermod"): 0.65,
}
SPEED_BOUND = 1.4
LAG_BOUND_MS = 50.0
STREAM_BOUND = 11.0

Rounds = list[dict[str, object]]
Found = dict[tuple[str, str], Rounds]
"""What each contender (second) measured in each cell (first), a list entry a round."""


def measure(*, rounds: int, share: float, with_peers: bool, peers: Path) -> tuple[list[Row], list[str]]:
    """Let all contenders take turns.

    Args:
        rounds: how often.
        share: of each cell's runs, where they are made one after another.
        with_peers: the frameworks too.
        peers: their environment.

    Returns:
        Rows of the table, and lines about versions and about contenders that could not be measured.
    """
    cells = [c if c.together else replace(c, runs=max(1, round(c.runs * share))) for c in CELLS]
    names = [name for name, contender in CONTENDERS.items() if with_peers or not contender.peer]
    notes: list[str] = []
    found: Found = {}
    with open_server() as url:
        workers = _start(names, url, peers, notes)
        try:
            for n in range(rounds):
                print(f"  round {n + 1} of {rounds}", file=sys.stderr, flush=True)
                _take_turns(cells, workers, found, notes)
        finally:
            for worker in workers.values():
                worker.stop()
    return _build_rows(cells, found), notes


def _start(names: Sequence[str], url: str, peers: Path, notes: list[str]) -> dict[str, Worker]:
    workers: dict[str, Worker] = {}
    for name in names:
        try:
            workers[name] = start_worker(name, url, peers)
        except WorkerFailed as e:
            notes.append(f"left out: {e}")
        else:
            versions = ", ".join(f"{library} {v}" for library, v in workers[name].versions.items())
            notes.append(f"{name}: {versions}")
    return workers


def _take_turns(cells: Sequence[Cell], workers: dict[str, Worker], found: Found, notes: list[str]) -> None:
    for cell in cells:
        for name, worker in list(workers.items()):
            try:
                found.setdefault((cell.name, name), []).append(worker.measure(cell))
            except WorkerFailed as e:
                if not CONTENDERS[name].peer:
                    raise SystemExit(f"bench: {e}") from e
                notes.append(f"left out from here on: {e}")
                workers.pop(name).stop()


def _build_rows(cells: Sequence[Cell], found: Found) -> list[Row]:
    rows: list[Row] = []
    for cell in cells:
        who = [name for name in CONTENDERS if (cell.name, name) in found]
        rows += [_cpu_row(cell, name, found) for name in who]
        if cell.together:
            rows += [_speed_row(cell, name, found) for name in who]
            rows += [_lag_row(cell, name, found[cell.name, name]) for name in who]
    rows += _stream_rows(cells, found)
    rows += [_memory_row(name, found) for name in CONTENDERS if (cells[-1].name, name) in found]
    return rows


def _figures(rounds: Rounds, key: str) -> list[float]:
    return [cast(float, measured[key]) for measured in rounds]


def _ratios(found: Found, cell: Cell, name: str, key: str) -> list[float]:
    """A contender's figures over those of ``raw``, round by round."""
    mine, raw = _figures(found[cell.name, name], key), _figures(found[cell.name, "raw"], key)
    return [a / b for a, b in zip(mine, raw, strict=False)]


def _cpu_row(cell: Cell, name: str, found: Found) -> Row:
    rounds = found[cell.name, name]
    ratios, bound = _ratios(found, cell, name, "cpu_ms"), CPU_BOUNDS.get((cell.name, name))
    errors = int(sum(_figures(rounds, "errors")))
    said = next((f" ({measured['first_error']})" for measured in rounds if measured["errors"]), "")
    must_work = not CONTENDERS[name].peer
    bounds = ([f"<= {bound} x"] if bound else []) + (["0 errors"] if must_work else [])
    return Row(
        cell=f"{cell.name}: CPU a run",
        who=CONTENDERS[name].label,
        value=f"{min(_figures(rounds, 'cpu_ms')):.2f} ms" + (f", {errors} ERRORS{said}" if errors else ""),
        ratio=render_ratio(ratios),
        bound=", ".join(bounds),
        holds=(bound is None or statistics.median(ratios) <= bound) and not (must_work and errors),
    )


def _speed_row(cell: Cell, name: str, found: Found) -> Row:
    speeds = [1 / ratio for ratio in _ratios(found, cell, name, "wall_ms")]
    bound = SPEED_BOUND if name == "hermod" else None
    return Row(
        cell=f"{cell.name}: runs a second",
        who=CONTENDERS[name].label,
        value=f"{1000 / min(_figures(found[cell.name, name], 'wall_ms')):.0f} /s",
        ratio=render_ratio(speeds),
        bound=f">= {bound} x" if bound else "",
        holds=bound is None or statistics.median(speeds) >= bound,
    )


def _lag_row(cell: Cell, name: str, rounds: Rounds) -> Row:
    """The quietest round counts, as for CPU: on a busy machine others take the core away for longer than the bound."""
    found = [sorted(cast(list[float], measured["lags_ms"])) for measured in rounds]
    p99 = [lags[int(0.99 * (len(lags) - 1))] for lags in found]
    bound = LAG_BOUND_MS if name == "hermod" else None
    return Row(
        cell=f"{cell.name}: event-loop lag, p99",
        who=CONTENDERS[name].label,
        value=f"{min(p99):.0f} ms",
        ratio=f"[{min(p99):.0f}-{max(p99):.0f} ms]",
        bound=f"< {bound:.0f} ms" if bound else "",
        holds=bound is None or min(p99) < bound,
    )


def _stream_rows(cells: Sequence[Cell], found: Found) -> list[Row]:
    short, long = (cell for cell in cells if cell.streams)
    rows: list[Row] = []
    for name in (name for name in CONTENDERS if (long.name, name) in found):
        pairs = zip(
            _figures(found[short.name, name], "cpu_ms"), _figures(found[long.name, name], "cpu_ms"), strict=False
        )
        ratios = [b / a for a, b in pairs]
        bound = STREAM_BOUND if name == "hermod" else None
        rows.append(
            Row(
                cell="streaming 2,000 over 200 chunks: CPU",
                who=CONTENDERS[name].label,
                value=f"{statistics.median(ratios):.1f} x",
                ratio=f"[{min(ratios):.1f}-{max(ratios):.1f}]",
                bound=f"<= {bound:.0f} x" if bound else "",
                holds=bound is None or statistics.median(ratios) <= bound,
            )
        )
    return rows


def _memory_row(name: str, found: Found) -> Row:
    most = max(max(_figures(rounds, "rss_mib")) for (_, who), rounds in found.items() if who == name)
    return Row(cell="resident memory, most", who=CONTENDERS[name].label, value=f"{most:.0f} MiB")
