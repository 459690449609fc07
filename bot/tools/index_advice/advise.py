"""``recommend_indexes``: which indexes would help, tried out before they are advised.

Tried with HypoPG on the target where it is installed, else on a throw-away copy of a sample where the operator
allows it and programs of a server are there, else only guessed from the plan and marked so. The target is only read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.tools.index_advice.answer import HelpedQuery, IndexAdvice, IndexReport, Unhelped, VerifiedBy
from bot.tools.index_advice.candidates import find_redundant
from bot.tools.index_advice.choose import Chosen, Effect, Limits, Query, choose_indexes
from bot.tools.index_advice.heuristic import guess_indexes
from bot.tools.index_advice.hypothetical import open_hypothetical
from bot.tools.index_advice.scratch import Copy, NoScratch, ScratchLimits, open_copy
from bot.tools.index_advice.scratch_bench import ScratchBench
from bot.tools.index_advice.shape import IndexShape
from bot.tools.index_advice.statements import Asked, Statement, fetch_busiest
from bot.tools.index_advice.study import Studied, Study, study_statements
from bot.tools.index_advice.words import describe_write_cost, explain_silence, find_questionable
from bot.tools.shown_sql import note_sql, record_sql
from bot.tools.slow_queries.connection import open_read_only
from bot.tools.slow_queries.explain_find import find_statement
from bot.tools.slow_queries.explain_reads import only_reads
from bot.tools.slow_queries.history import SnapshotStore
from bot.tools.slow_queries.redact_sql import redact_sql
from bot.tools.slow_queries.statement_check import take_statement
from bot.tools.slow_queries.time_range import parse_time_range
from bot.tools.targets import Target, Targets

STATEMENT_TIMEOUT_S = 10.0
"""For planning on the target, each statement, in seconds."""

# Of measured times; smaller differences are noise of the machine.
_FASTER = 0.9
_NOT_THERE = "it cannot be planned on the copy: it needs a view, a function or a right that is missing there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked: one statement, or those of a range. None of the three: the last day."""

    sql: str | None = None
    fingerprint: str | None = None
    time_range: str | None = None
    limits: Limits = Limits()
    target: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Times of a statement on the copy, without and with an index, in seconds."""

    before_s: float
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came out of trying.

    Args:
        chosen: what helps, the most useful first.
        verified_by, basis: how that is known.
        measured: by (index, statement's fingerprint), where there was a copy.
        rejected: statements that the planner would have helped and the clock did not, with the reason.
    """

    chosen: tuple[Chosen, ...]
    verified_by: VerifiedBy
    basis: str
    measured: Mapping[tuple[IndexShape, str], Measured]
    rejected: Mapping[str, str]
    warnings: tuple[str, ...] = ()


async def recommend_indexes(
    targets: Targets, store: SnapshotStore, clock: Clock, question: Question, *, scratch: ScratchLimits | None
) -> IndexReport:
    """Advise indexes.

    Args:
        targets: the configured databases.
        store: earlier readings of the counters, for ranges.
        clock: time.
        question: what for.
        scratch: how much may be copied to a throw-away server here, of targets with ``allow_sql``; None: nothing.

    Raises:
        ToolFailed: with one of the codes in ``docs/tools.md``.
    """
    began = clock.monotonic()
    where = targets.resolve(question.target)
    where.require("postgresql", tool="recommend_indexes")
    asked = await _ask(where, store, clock, question)
    single = question.sql is not None or question.fingerprint is not None
    # A copy reads rows, which only an operator may allow.
    allowed = scratch if where.allow_sql else None
    return await advise(where, clock, asked, question.limits, scratch=allowed, strict=single, began=began)


async def advise(
    where: Target,
    clock: Clock,
    asked: Asked,
    limits: Limits,
    *,
    scratch: ScratchLimits | None,
    strict: bool = False,
    began: float | None = None,
) -> IndexReport:
    """Advise indexes for given statements; ``strict`` fails with the first one that has no plan.

    Raises:
        ToolFailed: as ``recommend_indexes``.
    """
    start = clock.monotonic() if began is None else began
    async with open_read_only(where, own_queries=False, statement_timeout_s=STATEMENT_TIMEOUT_S) as db:
        version = db.version
        study = await study_statements(db, asked.statements, strict=strict)
        queries = [one.query for one in study.studied if one.query.moves]
        tried: Tried | None = None
        async with open_hypothetical(db) as bench:
            if bench is not None:
                chosen = await choose_indexes(bench, queries, limits)
                basis = "the target's planner, with the index as HypoPG imagines it; nothing was measured"
                tried = Tried(chosen=chosen, verified_by="hypopg", basis=basis, measured={}, rejected={})
    if tried is None:
        tried = await _try_without_hypopg(where, study, queries, limits, scratch)
    return _build_report(where, version, asked, study, tried, limits, took_ms=(clock.monotonic() - start) * 1000)


async def _ask(where: Target, store: SnapshotStore, clock: Clock, question: Question) -> Asked:
    given = [part for part in (question.sql, question.fingerprint, question.time_range) if part is not None]
    if len(given) > 1:
        raise ToolFailed(
            "more than one of sql, fingerprint and time_range was given",
            code="parse_failed",
            fix="pass one of them",
        )
    if question.sql is not None:
        return Asked(statements=(Statement(sql=take_statement(question.sql)[0]),))
    if question.fingerprint is not None:
        async with open_read_only(where) as db:
            text = await find_statement(db, question.fingerprint)
        return Asked(statements=(Statement(sql=take_statement(text)[0]),))
    asked = parse_time_range(question.time_range or "last_1d", now=clock.now())
    return await fetch_busiest(where, store, clock, asked)


async def _try_without_hypopg(
    where: Target, study: Study, queries: Sequence[Query], limits: Limits, scratch: ScratchLimits | None
) -> Tried:
    reason = "rows may only be copied to a scratch server where allow_sql is set for the target"
    if scratch is not None and queries:
        try:
            return await _try_on_copy(where, study, queries, limits, scratch)
        except NoScratch as no:
            reason = str(no)
    advice = guess_indexes(study.studied, limits)
    basis = "the look of the plan only: a large scan that keeps few rows"
    warning = f"nothing was tried: HypoPG is not installed on the target, and {reason}"
    return Tried(
        chosen=advice,
        verified_by="heuristic",
        basis=basis,
        measured={},
        rejected={},
        warnings=(warning,) if queries else (),
    )


async def _try_on_copy(
    where: Target, study: Study, queries: Sequence[Query], limits: Limits, scratch: ScratchLimits
) -> Tried:
    names = {name for query in queries for name in query.tables}
    tables = [t for t in study.tables.values() if IndexShape(schema=t.schema, table=t.name, keys=()).relation in names]
    async with open_copy(where, tables, study.search_path, scratch) as copy:
        with record_sql() as on_copy:
            tried = await _try_and_measure(ScratchBench(copy), copy, study, queries, limits)
        note_sql(lambda: f"-- {len(on_copy)} statements ran on the throw-away copy, none of them on the target")
        return tried


async def _try_and_measure(
    bench: ScratchBench, copy: Copy, study: Study, queries: Sequence[Query], limits: Limits
) -> Tried:
    chosen = await choose_indexes(bench, queries, limits)
    measured: dict[tuple[IndexShape, str], Measured] = {}
    rejected = {q.fingerprint: _NOT_THERE for q in queries if await bench.plan(q) is None}
    kept: list[Chosen] = []
    for choice in chosen:
        effects: list[Effect] = []
        for effect in choice.effects:
            times = await _measure(bench, study, choice, effect.query)
            if times is not None and times.after_s > times.before_s * _FASTER:
                rejected[effect.query.fingerprint] = (
                    "the planner expects an index to help, but on the copy the statement took "
                    f"{times.before_s:.3g} s without and {times.after_s:.3g} s with it"
                )
                continue
            effects.append(effect)
            if times is not None:
                measured |= {(one.shape, effect.query.fingerprint): times for one in choice.built}
        if effects:
            kept.append(Chosen(built=choice.built, effects=tuple(effects)))
    parts = [
        f"{name} {'whole' if share >= 1 else f'{share:.0%} of its rows'}"
        for (_, name), share in sorted(copy.shares.items())
    ]
    return Tried(
        chosen=tuple(kept),
        verified_by="scratch_copy",
        basis=f"built on a copy under Postgres {copy.version}: {', '.join(parts)}; costs and times are the copy's",
        measured=measured,
        rejected=rejected,
        warnings=copy.warnings,
    )


async def _measure(bench: ScratchBench, study: Study, choice: Chosen, query: Query) -> Measured | None:
    """Run a statement with the choice and without; None when it cannot be run."""
    if not only_reads(query.prepared.sql):
        return None
    uses = next(one.uses for one in study.studied if one.query is query)
    values = await bench.choose_values(query, [c for use in uses for c in use.comparisons])
    if values is None:
        return None
    after_s = await bench.measure(query, values)
    async with bench.without(choice.built):
        before_s = await bench.measure(query, values)
    return None if before_s is None or after_s is None else Measured(before_s=before_s, after_s=after_s)


def _build_report(
    where: Target, version: str, asked: Asked, study: Study, tried: Tried, limits: Limits, *, took_ms: float
) -> IndexReport:
    rows = tuple(_build_rows(study, tried))
    helped = {effect.query.fingerprint for choice in tried.chosen for effect in choice.effects}
    silent = [
        Unhelped(
            fingerprint=one.query.fingerprint,
            sql=redact_sql(one.query.sql),
            reason=tried.rejected.get(one.query.fingerprint)
            or _explain(one, limits, guessed=tried.verified_by == "heuristic"),
        )
        for one in study.studied
        if one.query.fingerprint not in helped
    ]
    return IndexReport(
        target=where.name,
        engine="postgresql",
        engine_version=version,
        source=f"plans of {len(study.studied)} statements, and indexes {_SOURCES[tried.verified_by]}",
        window=asked.window,
        coverage=asked.coverage,
        warnings=tried.warnings,
        basis=tried.basis if rows else "",
        rows=rows,
        to_run=_build_lines(rows),
        no_advice=(*silent, *study.refused),
        existing=find_questionable(study.tables.values()),
        took_ms=round(took_ms, 1),
    )


_SOURCES: Mapping[VerifiedBy, str] = {
    "hypopg": "tried with HypoPG",
    "scratch_copy": "built and measured on a throw-away copy",
    "heuristic": "guessed, not tried",
}


def _explain(one: Studied, limits: Limits, *, guessed: bool) -> str:
    return explain_silence(one.uses, one.cost, limits, tried=len(one.query.moves), guessed=guessed)


def _build_rows(study: Study, tried: Tried) -> list[IndexAdvice]:
    rows: list[IndexAdvice] = []
    taken = {index.name for table in study.tables.values() for index in table.indexes}
    for choice in tried.chosen:
        for one in choice.built:
            table = study.tables[one.shape.schema, one.shape.table]
            name = one.shape.build_name(taken)
            taken.add(name)
            guessed = tried.verified_by == "heuristic"
            queries = tuple(
                _build_helped(effect, one.shape, tried)
                for effect in choice.effects
                if guessed or one.name in effect.indexes
            )
            if not queries:
                continue
            most = max(queries, key=lambda query: (query.cost_saved or 0.0, query.cost_before))
            rows.append(
                IndexAdvice(
                    index=one.shape.describe(),
                    cost_before=most.cost_before,
                    cost_after=most.cost_after,
                    cost_saved=most.cost_saved,
                    measured_before_s=most.measured_before_s,
                    measured_after_s=most.measured_after_s,
                    size_bytes=one.size_bytes,
                    verified_by=tried.verified_by,
                    ddl=one.shape.build_ddl(name, concurrently=True) + ";",
                    queries=queries,
                    write_cost=describe_write_cost(one.shape, table),
                    redundant_with=find_redundant(one.shape, table.indexes),
                )
            )
    return rows


def _build_lines(rows: Sequence[IndexAdvice]) -> tuple[str, ...]:
    lines: list[str] = []
    for row in rows:
        lines.append(row.ddl)
        lines += [f"-- index {name} is not needed beside it" for name in row.redundant_with]
    return tuple(lines)


def _build_helped(effect: Effect, shape: IndexShape, tried: Tried) -> HelpedQuery:
    times = tried.measured.get((shape, effect.query.fingerprint))
    known = tried.verified_by != "heuristic"
    return HelpedQuery(
        fingerprint=effect.query.fingerprint,
        sql=redact_sql(effect.query.sql),
        calls=effect.query.calls,
        cost_before=round(effect.before, 2),
        cost_after=round(effect.after, 2) if known else None,
        cost_saved=round(effect.gain, 4) if known else None,
        measured_before_s=None if times is None else round(times.before_s, 6),
        measured_after_s=None if times is None else round(times.after_s, 6),
    )
