"""What ``recommend_indexes`` answers. Durations in seconds, costs in the planner's units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.tools.envelope import Envelope

VerifiedBy = Literal["hypopg", "scratch_copy", "heuristic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpedQuery:
    """A statement that an index helps.

    Args:
        fingerprint, sql: which one, without literals.
        calls: in the window, where the statements were taken from one; else null.
        cost_before, cost_after: of its plan without and with the index; after is null when nothing verified it.
        gain: the share of the cost that is gone, 0..1; null when nothing verified it.
        measured_before_s, measured_after_s: the best of three executions on the copy, where there was one.
    """

    fingerprint: str
    sql: str
    calls: int | None
    cost_before: float
    cost_after: float | None
    gain: float | None
    measured_before_s: float | None = None
    measured_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexAdvice:
    """One index.

    Args:
        ddl: the statement that makes it. Nobody has run it.
        table: schema and table.
        gain: of the statement that it helps most, 0..1; null when nothing verified it.
        size_bytes: as estimated.
        verified_by: ``hypopg`` (the target's planner, with a hypothetical index), ``scratch_copy`` (built and
            measured on a copy of a sample), ``heuristic`` (nothing but the look of the plan).
        basis: what the numbers are of, in words.
        queries: the statements that it helps.
        write_cost: what it costs whoever writes to the table, in words.
        redundant_with: existing indexes that nobody needs beside it.
    """

    ddl: str
    table: str
    gain: float | None
    size_bytes: int
    verified_by: VerifiedBy
    basis: str
    queries: tuple[HelpedQuery, ...]
    write_cost: str
    redundant_with: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unhelped:
    """A statement for which no index is advised, and why."""

    fingerprint: str
    sql: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionableIndex:
    """An existing index of one of the tables that does nothing, or nothing that another one does not do."""

    index: str
    table: str
    problem: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport(Envelope):
    """The envelope. ``rows``: what to build, the most useful first; ``no_advice``: what no index helps."""

    rows: tuple[IndexAdvice, ...]
    no_advice: tuple[Unhelped, ...]
    existing: tuple[QuestionableIndex, ...]
