"""Every benchmark, one after another: ``python -m benchmarks``, or some of them by name."""

from __future__ import annotations

import sys

from benchmarks import overhead, startup

BENCHMARKS = {"overhead": overhead.main, "startup": startup.main}

if __name__ == "__main__":
    names = sys.argv[1:] or list(BENCHMARKS)
    raise SystemExit(max(BENCHMARKS[name]() for name in names))
