"""``hermod feedback list``: what people thought of answers."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bot.app import open_storage
from bot.cli.setup import print_json, print_text, set_up
from bot.storage.base import FeedbackRow


async def run_feedback_list(days: float, *, config: Path | None, as_json: bool) -> int:
    """Print opinions, the newest first, and how many of each there are; the newest of a person and run counts."""
    async with open_storage(set_up(config)) as store:
        rows = await store.load_feedback(since=datetime.now(UTC) - timedelta(days=days))
    totals = Counter({"up": 0, "down": 0}) + Counter(row.value for row in rows)
    if as_json:
        counts = {"up": totals["up"], "down": totals["down"]}
        print_json({"days": days, "totals": counts, "items": [_as_data(row) for row in rows]})
        return 0
    for row in rows:
        print_text(f"{_instant(row.at)}  {row.value:<4}  run {row.run_id}  {row.thread_key}  {row.author}")
    print_text(f"{totals['up']} helped, {totals['down']} did not; `hermod trace RUN` shows what was done")
    return 0


def _as_data(row: FeedbackRow) -> dict[str, object]:
    return {
        "run_id": row.run_id,
        "thread": row.thread_key,
        "author": row.author,
        "value": row.value,
        "at": _instant(row.at),
    }


def _instant(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
