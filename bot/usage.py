"""What was used, summed up for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from agent_core.context import Clock
from bot.arguments import BadArguments
from bot.commands import USAGE, Invocation, OwnCommand
from bot.models import count
from bot.storage.base import Store, UsageRow

USUAL_DAYS = 30
MOST_DAYS = 366


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Requests, tokens and US dollars; ``cost_usd`` is None when the price of a part is not known."""

    requests: int = 0
    tokens: int = 0
    cost_usd: float | None = 0.0

    @property
    def text(self) -> str:
        """What it comes to, in words."""
        if not self.requests:
            return "nothing"
        cost = "cost unknown" if self.cost_usd is None else f"${self.cost_usd:.4f}"
        return f"{count(self.requests, 'request')}, {self.tokens:,} tokens, {cost}"


def sum_up(rows: Iterable[UsageRow]) -> Spent:
    """Sum usage up."""
    rows = list(rows)
    costs = [row.cost_usd for row in rows]
    return Spent(
        requests=sum(row.requests for row in rows),
        tokens=sum(row.input_tokens + row.output_tokens for row in rows),
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
    )


def begin_of_day(now: datetime) -> datetime:
    """Return when the UTC day began."""
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def render_usage(rows: Sequence[UsageRow], *, days: int, now: datetime) -> str:
    """Write what one person used: today, in the last ``days``, and by model."""
    today = sum_up(row for row in rows if row.at >= begin_of_day(now))
    lines = [f"You used today (UTC): {today.text}.", f"In the last {count(days, 'day')}: {sum_up(rows).text}."]
    models = sorted({row.model for row in rows})
    if len(models) > 1:
        lines += ["", *(f"- {model}: {sum_up(r for r in rows if r.model == model).text}" for model in models)]
    return "\n".join(lines)


def build_usage_command(store: Store, clock: Clock) -> OwnCommand:
    """Build the command ``usage [DAYS]``: a person's own usage, told to that person only."""

    async def run(asked: Invocation) -> str:
        days = _read_days(asked.text)
        if days is None:
            raise BadArguments(f"{asked.text[:40]!r} is no number of days from 1 to {MOST_DAYS}")
        now = clock.now()
        author = f"{asked.thread.platform}:{asked.author.id}"
        since = min(begin_of_day(now), now - timedelta(days=days))
        return render_usage(await store.load_usage(since=since, author=author), days=days, now=now)

    return OwnCommand(info=USAGE, run=run, accepts=lambda text: _read_days(text) is not None, private=True)


def _read_days(text: str) -> int | None:
    if not text:
        return USUAL_DAYS
    days = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
    return days if 1 <= days <= MOST_DAYS else None
