"""``hermod ask``."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from bot.cli.local import LocalAnswer, open_thread
from bot.cli.setup import print_json, print_text, set_up


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
    if as_json:
        print_json(describe_answer(answer))
    elif drawn is None:
        print_text(answer.text)
    return 0 if answer.run is not None and answer.run.state == "finished" else 1


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
