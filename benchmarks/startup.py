"""What imports and ``hermod --help`` cost: ``python -m benchmarks.startup``.

Processes are started one after another in turns; the minimum CPU time of all rounds is given, less that of a bare
interpreter.
"""

from __future__ import annotations

import json
import subprocess
import sys

ROUNDS = 7
MEASURE = """
import resource, runpy, sys, json
{code}
used = resource.getrusage(resource.RUSAGE_SELF)
sys.stderr.write(json.dumps({{"cpu_s": used.ru_utime + used.ru_stime, "rss_mib": used.ru_maxrss / 1024}}))
"""
HELP = """
import sys
sys.argv = ["hermod", "--help"]
from bot.cli import main
try:
    main()
except SystemExit:
    pass
"""
CASES = {
    "bare interpreter": "pass",
    "import openai": "import openai; openai.resources.chat",
    "import agent_core": "import agent_core",
    "import agent_core.runtime.loop": "import agent_core.runtime.loop",
    "hermod --help": HELP,
}
ENGINE_SHARE = 0.25
ENGINE_RSS_MIB = 30
HELP_CPU_S = 0.6


def measure(code: str) -> dict[str, float]:
    """Run one process and return its CPU seconds and resident memory."""
    command = [sys.executable, "-c", MEASURE.format(code=code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    result: dict[str, float] = json.loads(done.stderr.rpartition("{")[1] + done.stderr.rpartition("{")[2])
    return result


def main() -> int:
    """Measure, print the table, and fail when a bound does not hold."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CASES}
    for _ in range(ROUNDS):
        for name, code in CASES.items():
            found[name].append(measure(code))
    cpu = {name: min(row["cpu_s"] for row in rows) for name, rows in found.items()}
    rss = {name: min(row["rss_mib"] for row in rows) for name, rows in found.items()}
    bare = cpu["bare interpreter"]
    vendor = cpu["import openai"] - bare
    print(f"{ROUNDS} interleaved rounds, minimum; CPU less that of a bare interpreter ({bare:.3f} s)")
    for name in CASES:
        share = (cpu[name] - bare) / vendor
        print(f"{name:<32}{cpu[name] - bare:>8.3f} s CPU{share:>8.2f} x openai{rss[name]:>7.0f} MiB")
    failed = (
        (cpu["import agent_core"] - bare) / vendor > ENGINE_SHARE
        or rss["import agent_core"] > ENGINE_RSS_MIB
        or cpu["hermod --help"] > HELP_CPU_S
    )
    print(f"bounds: import agent_core <= {ENGINE_SHARE} x openai and <= {ENGINE_RSS_MIB} MiB")
    print(f"        hermod --help <= {HELP_CPU_S} s CPU")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
