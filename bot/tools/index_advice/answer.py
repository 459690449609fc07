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
        cost_saved: the share of the cost that is gone, 0..1; null when nothing verified it.
        measured_before_s, measured_after_s: the best of three executions on the copy, where there was one.
    """

    fingerprint: str
    sql: str
    calls: int | None
    cost_before: float
    cost_after: float | None
    cost_saved: float | None
    measured_before_s: float | None = None
    measured_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexAdvice:
    """One index. Costs and times are those of the statement that it helps most.

    Args:
        index: what it is on, in short.
        cost_before, cost_after, cost_saved, measured_before_s, measured_after_s: see ``HelpedQuery``.
        size_bytes: as estimated.
        verified_by: ``hypopg`` (the target's planner, with a hypothetical index), ``scratch_copy`` (built and
            measured on a copy of a sample), ``heuristic`` (nothing but the look of the plan).
        ddl: the statement that makes it. Nobody has run it.
        queries: the statements that it helps.
        write_cost: what it costs whoever writes to the table, in words.
        redundant_with: existing indexes that nobody needs beside it.
    """

    index: str
    cost_before: float
    cost_after: float | None
    cost_saved: float | None
    measured_before_s: float | None
    measured_after_s: float | None
    size_bytes: int
    verified_by: VerifiedBy
    ddl: str
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
    """The envelope.

    Args:
        basis: what gains, costs and times are of, in words; empty without advice.
        to_run: what a person would run, line by line; the comments say what may go then.
        rows: what to build, the most useful first.
        no_advice: the statements that no index helps.
        existing: indexes of the same tables that are not worth their place.
    """

    basis: str
    rows: tuple[IndexAdvice, ...]
    to_run: tuple[str, ...]
    no_advice: tuple[Unhelped, ...]
    existing: tuple[QuestionableIndex, ...]
