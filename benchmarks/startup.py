"""What imports and ``hermod --help`` cost.

Processes are started one after another in turns; the minimum CPU time of all rounds is given, less that of a bare
interpreter.
"""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.table import Row, render_ratio

CODE = """
import json, sys, time
{code}
cpu_s = time.process_time()
from benchmarks.cells import peak_rss_mib
sys.stderr.write(json.dumps({{"cpu_s": cpu_s, "rss_mib": peak_rss_mib()}}))
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
BARE, VENDOR, ENGINE, PROGRAM = "bare interpreter", "import openai", "import agent_core", "hermod --help"
CASES = {
    BARE: "pass",
    VENDOR: "import openai; openai.resources.chat",
    ENGINE: "import agent_core",
    "import agent_core.runtime.loop": "import agent_core.runtime.loop",
    PROGRAM: HELP,
}
ENGINE_SHARE = 0.25
ENGINE_RSS_MIB = 30
HELP_CPU_S = 0.6


def start(code: str) -> dict[str, float]:
    """Run one process and return its CPU seconds and resident memory."""
    command = [sys.executable, "-c", CODE.format(code=code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    result: dict[str, float] = json.loads("{" + done.stderr.rpartition("{")[2])
    return result


def measure(rounds: int) -> list[Row]:
    """Start everything in turns; the rows of the table."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CASES}
    for _ in range(rounds):
        for name, code in CASES.items():
            found[name].append(start(code))
    bare = min(row["cpu_s"] for row in found[BARE])
    return [_row(name, found, bare) for name in CASES if name != BARE]


def _row(name: str, found: dict[str, list[dict[str, float]]], bare: float) -> Row:
    cpu = min(row["cpu_s"] for row in found[name]) - bare
    vendor = min(row["cpu_s"] for row in found[VENDOR]) - bare
    resident = min(row["rss_mib"] for row in found[name])
    ratios = [
        (mine["cpu_s"] - bare) / max(theirs["cpu_s"] - bare, 1e-6)
        for mine, theirs in zip(found[name], found[VENDOR], strict=True)
    ]
    bound, holds = "", True
    if name == ENGINE:
        bound = f"<= {ENGINE_SHARE} x, <= {ENGINE_RSS_MIB} MiB"
        holds = cpu / vendor <= ENGINE_SHARE and resident <= ENGINE_RSS_MIB
    elif name == PROGRAM:
        bound, holds = f"<= {HELP_CPU_S} s", cpu <= HELP_CPU_S
    return Row(
        cell="start: CPU over a bare interpreter, resident memory",
        who=name,
        value=f"{cpu:.3f} s, {resident:.0f} MiB",
        ratio=f"{render_ratio(ratios)} of openai",
        bound=bound,
        holds=holds,
    )
