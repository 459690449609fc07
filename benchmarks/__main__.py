"""All benchmarks in one table: ``python -m benchmarks [--quick] [--rounds N] [--no-peers] [NAME ...]``.

Exits 1 when a bound does not hold. ``--quick`` takes less than a minute: two rounds, shorter ones, without the peers.
"""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path

from benchmarks import failover, memory, overhead, sandbox, slack_latency, startup
from benchmarks.table import Row, render_table

NAMES = ("overhead", "memory", "failover", "startup", "slack", "sandbox")
ROUNDS, QUICK_ROUNDS, QUICK_SHARE = 5, 2, 0.5


def main() -> int:
    """Measure, print the table, and say whether every bound holds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="two short rounds without the peers")
    parser.add_argument("--rounds", type=int, help=f"interleaved rounds (default {ROUNDS})")
    parser.add_argument("--no-peers", action="store_true", help="leave the frameworks out")
    parser.add_argument("--peers", type=Path, default=Path(".venv-bench"), help="the peers' environment")
    args = parser.parse_args()
    if unknown := set(args.names) - set(NAMES):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    rounds = args.rounds or (QUICK_ROUNDS if args.quick else ROUNDS)
    names = args.names or NAMES
    rows: list[Row] = []
    notes: list[str] = []
    if "overhead" in names:
        rows, notes = overhead.measure(
            rounds=rounds,
            share=QUICK_SHARE if args.quick else 1.0,
            with_peers=not (args.quick or args.no_peers),
            peers=args.peers,
        )
    if "memory" in names:
        rows += memory.measure(rounds)
    if "failover" in names:
        rows += failover.measure()
    if "startup" in names:
        rows += startup.measure(rounds)
    if "slack" in names:
        rows += slack_latency.measure(quick=args.quick)
    if "sandbox" in names:
        rows += sandbox.measure(rounds)
    print(
        f"{rounds} interleaved rounds, minimum; ratios to raw SDK (httpx2) of the same round; "
        f"Python {platform.python_version()}, {os.cpu_count()} cores"
    )
    print(render_table(rows))
    for note in notes:
        print(note)
    missed = [row for row in rows if not row.holds]
    print("every bound holds" if not missed else f"{len(missed)} bounds missed")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
