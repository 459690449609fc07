"""How long a report over four workers takes: ``python -m benchmarks.report [--rounds N]``; exits 1 over its bound.

Every answer of the local model server takes 300 ms. A report is a decomposition, four workers that do not need each
other (each one answer with tool calls, and one with its finding), and the text: four answers behind each other where
the workers run side by side. The bound is that critical path plus 20 %, all else included: the tools, the journal,
laying out, and the evidence. In each round a control takes turns with it, the same report with one worker at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.table import Row, render_table
from bot.storage.sqlite import SqliteStore
from tests.integration.reports.stage import DIVIDES, WRITES, Stage, openai, plan_call
from tests.servers.openai import OpenAIServer

ANSWER_S = 0.3
WORKERS = 4
ROUNDS = 5
BOUND = 1.2
SIDE_BY_SIDE_S = 4 * ANSWER_S
ONE_BY_ONE_S = (2 + 2 * WORKERS) * ANSWER_S


def play(server: OpenAIServer) -> None:
    """Script the model: every answer takes ``ANSWER_S``."""
    plan = plan_call(*((f"a{n}", "sql_optimizer", f"look at part {n}") for n in range(1, WORKERS + 1)))
    calls = (("get_slow_queries", {"target": "shop"}), ("index_health", {"target": "shop"}))
    written = "Slow [sql_optimizer:a1].\n---\nThe body [sql_optimizer:a2]."
    server.on(system=DIVIDES).tools(plan).after(ANSWER_S)
    server.on(system="^You are sql_optimizer", step=0).tools(*calls).after(ANSWER_S)
    server.on(system="^You are sql_optimizer").text("looked").after(ANSWER_S)
    server.on(system=WRITES).text(written).after(ANSWER_S)


async def _time_report(stage: Stage) -> float:
    begun = time.perf_counter()
    answer = await stage.run()
    taken_s = time.perf_counter() - begun
    if answer.error or "Slow [sql_optimizer:a1]." not in answer.text:
        raise RuntimeError(f"the report went wrong: {answer.text}")
    return taken_s


async def measure(rounds: int) -> list[Row]:
    """Make reports in turns with the control; the rows of the table."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "hermod.db")
        await store.open()
        async with OpenAIServer() as server:
            play(server)
            model = openai(server)
            stages = {
                "side by side": Stage(store, model, max_parallel=WORKERS),
                "one by one (control)": Stage(store, model, max_parallel=1),
            }
            taken: dict[str, list[float]] = {who: [] for who in stages}
            await _time_report(stages["side by side"])  # imports and connections
            for _ in range(rounds):
                for who, stage in stages.items():
                    taken[who].append(await _time_report(stage))
            await model.aclose()
        await store.close()
    paths_s = dict(zip(stages, (SIDE_BY_SIDE_S, ONE_BY_ONE_S), strict=True))
    return [
        Row(
            cell=f"report over {WORKERS} workers, answers of {ANSWER_S * 1000:.0f} ms",
            who=who,
            value=f"{min(times):.3f} s",
            ratio=f"{min(times) / paths_s[who]:.3f} of {paths_s[who]:.1f} s [at most {max(times):.3f} s]",
            bound=f"<= {BOUND:.2f}" if who == "side by side" else "",
            holds=who != "side by side" or min(times) <= BOUND * paths_s[who],
        )
        for who, times in taken.items()
    ]


def main() -> int:
    """Measure, print, and say whether the bound holds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rows = asyncio.run(measure(parser.parse_args().rounds))
    sys.stdout.write(f"{render_table(rows)}\n")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
