"""``hermod ask``."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

from agent_core.tools.results import load_result
from bot.cli.local import LocalAnswer, open_thread
from bot.cli.setup import print_json, print_text, set_up
from bot.storage.base import Store
from bot.tools.research.sources import list_sources


async def run_ask(question: str, *, config: Path | None, as_json: bool, verbose: bool, agent: str = "") -> int:
    """Ask one question in a new thread; ``agent`` names the worker that answers, empty: the usual agent."""
    settings = set_up(config, verbose=verbose)
    drawn = sys.stdout if sys.stdout.isatty() and not as_json else None
    async with open_thread(settings, channel="ask", output=drawn, agent=agent) as thread:
        try:
            answer = await thread.ask(question)
        except asyncio.CancelledError:
            await thread.stop()  # nobody comes back to this thread, so its run would stay open for ever
            raise
        sources = await _find_sources(thread.app.store, answer)
    if as_json:
        print_json(describe_answer(replace(answer, text="\n\n".join(filter(None, (answer.text, sources))))))
    elif text := "\n\n".join(filter(None, (answer.text if drawn is None else "", sources))):
        print_text(text)
    return 0 if answer.run is not None and answer.run.state == "finished" else 1


async def _find_sources(store: Store, answer: LocalAnswer) -> str:
    """Write the sources of an answer, from the results in its run's journal; empty where it names them already."""
    found = None if answer.run is None else await store.load_run(answer.run.run_id)
    steps = () if found is None else found[1]
    results = [load_result(s.entry.result) for s in steps if s.entry.kind == "tool" and s.entry.result]
    sources = list_sources(results)
    return "" if sources in answer.text else sources


def describe_answer(answer: LocalAnswer) -> dict[str, object]:
    """Build the JSON object of ``ask``: answer, run_id, state, usage, steps."""
    run = answer.run
    record = json.loads(run.record) if run is not None and run.record else {}
    return {
        "answer": answer.text,
        "run_id": None if run is None else run.run_id,
        "state": None if run is None else run.state,
        "error": record.get("error"),
        "usage": record.get("usage"),
        "steps": record.get("steps", []),
    }
