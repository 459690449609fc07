"""The pairs of ``tests/evals/cache_pairs.jsonl`` and the stored vectors of all-MiniLM-L6-v2 for them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agent_core.llm.cache import AnswerCache, CacheQuestion, MemoryExact, MemorySemantic
from tests.unit.engine.running import HandClock

EVALS = Path(__file__).parents[3] / "evals"


@dataclass(frozen=True, slots=True)
class Pair:
    group: str
    kind: str
    a: str
    b: str


@cache
def pairs(group: str) -> tuple[Pair, ...]:
    rows = [json.loads(line) for line in (EVALS / "cache_pairs.jsonl").read_text("utf-8").splitlines()]
    return tuple(Pair(row["set"], row["kind"], row["a"], row["b"]) for row in rows if row["set"] == group)


@cache
def minilm() -> dict[str, tuple[float, ...]]:
    """Unit vectors by text; see the README beside the file for how they were made."""
    found = {}
    for line in (EVALS / "cache_vectors.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        values = [b - 256 if b > 127 else b for b in base64.b64decode(row["int8"])]
        length = math.hypot(*values)
        found[row["text"]] = tuple(v / length for v in values)
    return found


def cosine(pair: Pair) -> float:
    return sum(x * y for x, y in zip(minilm()[pair.a], minilm()[pair.b], strict=True))


async def embed_alike(texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """Every text has the same vector: what holds then is the gate's doing alone."""
    return [[0.6, 0.8, 0.0] for _ in texts]


async def embed_minilm(texts: Sequence[str]) -> Sequence[Sequence[float]]:
    return [minilm()[text] for text in texts]


def asked(text: str, scope: str = "C1/oncall", context: str = "gpt") -> CacheQuestion:
    return CacheQuestion(scope=scope, text=text, context=context)


def memory_cache(**settings: object) -> AnswerCache:
    parts: dict[str, object] = {
        "exact": MemoryExact(),
        "semantic": MemorySemantic(),
        "embed": embed_alike,
        "clock": HandClock(),
        "wait_s": 30.0,  # a machine that is busy with other work is no backend that hangs
    }
    return AnswerCache(**(parts | settings))  # type: ignore[arg-type]
