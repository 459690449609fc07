"""Run paraphrases through the offline provider and compare the calls by meaning."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_core.llm.offline import OfflineProvider
from agent_core.llm.types import ModelMessage, ModelRequest, ToolSpec
from tests.evals.toolset import canned_result

HERE = Path(__file__).parent
NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


class FixedClock:
    """Always Tuesday noon."""

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the offline provider does not wait")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A question, the questions before it, and the calls it should lead to (``accept``: another right reading)."""

    question: str
    after: tuple[str, ...]
    calls: list[Any]
    accept: list[Any] | None
    group: str


def load_cases(name: str) -> list[Case]:
    lines = (HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        Case(
            question=d["q"],
            after=tuple(d.get("after", ())),
            calls=d["calls"],
            accept=d.get("accept"),
            group=d.get("set", "both"),
        )
        for d in map(json.loads, lines)
    ]


async def ask(case: Case, tools: Sequence[ToolSpec]) -> tuple[list[Any], str]:
    """Return the calls that the last question led to, and the text where it led to none."""
    provider = OfflineProvider(FixedClock())
    history: list[ModelMessage] = []
    for question in case.after:
        history.append(ModelMessage(role="user", content=question))
        for _ in range(3):
            message = (await provider.complete(ModelRequest(messages=tuple(history), tools=tuple(tools)))).message
            history.append(message)
            if not message.tool_calls:
                break
            history.extend(
                ModelMessage(role="tool", content=canned_result(c.name), tool_call_id=c.id) for c in message.tool_calls
            )
    history.append(ModelMessage(role="user", content=case.question))
    message = (await provider.complete(ModelRequest(messages=tuple(history), tools=tuple(tools)))).message
    return [[c.name, json.loads(c.arguments)] for c in message.tool_calls], message.content


def same_calls(made: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Compare two lists of calls by meaning: 60 minutes are an hour, ``17*23`` is ``17 * 23``."""
    return len(made) == len(wanted) and all(
        a[0] == b[0] and _same_arguments(a[1], b[1])
        for a, b in zip(sorted(made, key=str), sorted(wanted, key=str), strict=True)
    )


def _same_arguments(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return set(a) == set(b) and all(_canonical(k, a[k]) == _canonical(k, b[k]) for k in a)


def _canonical(name: str, value: Any) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return round(float(value), 6)
    text = str(value)
    if m := re.fullmatch(r"last_(\d+)(s|min|h|d|w)", text):
        return int(m.group(1)) * _SECONDS[m.group(2)]
    if name == "expression":
        names = {k: v for k, v in vars(math).items() if not k.startswith("_")} | {
            "math": math,
            "round": round,
            "abs": abs,
        }
        return round(float(eval(text, {"__builtins__": {}}, names)), 9)
    return " ".join(text.split())


async def score(cases: Sequence[Case], tools: Sequence[ToolSpec]) -> tuple[float, list[str]]:
    """Return the share of right answers and a line for each miss."""
    misses: list[str] = []
    for case in cases:
        made, text = await ask(case, tools)
        right = same_calls(made, case.calls) or (case.accept is not None and same_calls(made, case.accept))
        if not right:
            said = json.dumps(made, ensure_ascii=False) if made else f"no call: {text.splitlines()[0][:100]}"
            wanted = json.dumps(case.calls, ensure_ascii=False)
            misses.append(f"{case.after or ''}{case.question!r}\n    wanted {wanted}\n    got    {said}")
    return 1 - len(misses) / len(cases), misses
