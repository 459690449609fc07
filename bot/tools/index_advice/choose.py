"""Choosing among candidates by trying them: the one that helps most, then the next beside it, while they help.

Where two help alike the simpler one wins; one that carries further columns has to help clearly more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bot.tools.index_advice.candidates import Move
from bot.tools.index_advice.shape import IndexShape, is_prefix
from bot.tools.slow_queries.explain_prepare import Prepared

LEAST_GAIN = 25.0
"""Cost that has to be gone, in the planner's units: reading a page costs 1, so less is no gain that anyone feels."""

_ALIKE = 0.95
_CLEARLY_MORE = 1.25
# A second index for a statement that has been helped has to be worth its place.
_LEAST_OF_ORIGINAL = 0.2
# What costs no more than this without an index does not need it.
_NO_LONGER_NEEDED = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A statement to help.

    Args:
        fingerprint, sql: which one, as it was asked.
        prepared: as it is planned; of a write the reading part.
        tables: those that it reads, as SQL has them.
        aliases: the same with the aliases of its plan.
        moves: what to try for it.
        weight: executions, in whatever period.
        calls: executions in the window; None without one.
    """

    fingerprint: str
    sql: str = field(repr=False)
    prepared: Prepared = field(repr=False)
    tables: frozenset[str]
    aliases: tuple[tuple[str, str], ...]
    moves: tuple[Move, ...] = field(repr=False)
    weight: float = 1.0
    calls: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An index that exists as far as the planner of the bench is concerned.

    ``name`` is how plans call it; ``handle`` is the bench's own.
    """

    shape: IndexShape
    name: str
    handle: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCost:
    """What a plan costs, and the names of the indexes in it."""

    cost: float
    indexes: frozenset[str]


class Bench(Protocol):
    """Where indexes are tried: the target with HypoPG, or a copy."""

    async def plan(self, query: Query) -> PlanCost | None:
        """The plan of ``query`` with what is built now; None when it has none here."""
        ...

    async def add(self, shape: IndexShape) -> Built | None:
        """Make an index; None when it cannot be made (its expression is not immutable, say)."""
        ...

    async def remove(self, built: Built) -> None:
        """Take it away again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may be advised. ``min_gain``: the least share of a statement's cost that has to go, 0..1."""

    max_indexes: int = 5
    size_budget_bytes: int | None = None
    min_gain: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a choice does to one statement; ``indexes`` are those that its plan has then."""

    query: Query
    before: float
    after: float
    indexes: frozenset[str] = frozenset()

    @property
    def gain(self) -> float:
        """The share of the cost that is gone."""
        return 1 - self.after / self.before if self.before > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Indexes that are advised together, and the statements that they help."""

    built: tuple[Built, ...]
    effects: tuple[Effect, ...]

    @property
    def benefit(self) -> float:
        """Cost that is gone, over all executions."""
        return sum((effect.before - effect.after) * effect.query.weight for effect in self.effects)

    @property
    def complexity(self) -> int:
        """The sum of its indexes'."""
        return sum(one.shape.complexity for one in self.built)

    @property
    def carries(self) -> bool:
        """Whether one of its indexes carries further columns."""
        return any(one.shape.include for one in self.built)


async def choose_indexes(bench: Bench, queries: Sequence[Query], limits: Limits) -> tuple[Chosen, ...]:
    """Return what to build, the most useful first; it all stays built on the bench."""
    plans = {query: plan for query in queries if (plan := await bench.plan(query)) is not None}
    original = {query: plan.cost for query, plan in plans.items()}
    costs = dict(original)
    chosen: list[Chosen] = []
    trials: dict[Move, Chosen | None] = {}
    while (room := limits.max_indexes - sum(len(one.built) for one in chosen)) > 0:
        for move in _open_moves(costs, chosen):
            if move not in trials:
                trials[move] = await _try(bench, move, costs, original, limits)
        opened = set(_open_moves(costs, chosen))
        tried = [t for m, t in trials.items() if t and m in opened and len(m) <= room and _fits(t, chosen, limits)]
        best = _pick(tried)
        kept = None if best is None else await _keep(bench, best)
        if kept is None:
            break
        chosen.append(kept)
        costs |= {effect.query: effect.after for effect in kept.effects}
        # What was tried for a statement that is cheaper now has to be tried again; the rest stands.
        helped = {move for effect in kept.effects for move in effect.query.moves}
        trials = {move: _without(trial, kept) for move, trial in trials.items() if move not in helped}
    return await _account(bench, await _prune(bench, chosen, costs), original)


def _without(trial: Chosen | None, kept: Chosen) -> Chosen | None:
    """A trial without the statements that another choice has helped meanwhile."""
    if trial is None:
        return None
    gone = {effect.query for effect in kept.effects}
    effects = tuple(effect for effect in trial.effects if effect.query not in gone)
    return Chosen(built=trial.built, effects=effects) if effects else None


def _open_moves(costs: Mapping[Query, float], chosen: Iterable[Chosen]) -> Iterable[Move]:
    """What is not there yet, each once; only of statements that have anything to gain."""
    taken = [one.shape for choice in chosen for one in choice.built]
    moves = dict.fromkeys(move for query, cost in costs.items() if cost >= LEAST_GAIN for move in query.moves)
    return [move for move in moves if not any(_is_same(shape, other) for shape in move for other in taken)]


def _is_same(shape: IndexShape, other: IndexShape) -> bool:
    return (
        (shape.schema, shape.table, shape.where) == (other.schema, other.table, other.where)
        and is_prefix(shape.keys, other.keys)
        and set(shape.include) <= {*other.include, *(key.text for key in other.keys)}
    )


async def _try(
    bench: Bench, move: Move, costs: Mapping[Query, float], original: Mapping[Query, float], limits: Limits
) -> Chosen | None:
    built = await _add_all(bench, move)
    if built is None:
        return None
    effects: list[Effect] = []
    try:
        tables = {shape.relation for shape in move}
        for query, before in costs.items():
            if not tables & query.tables:
                continue
            plan = await bench.plan(query)
            least = max(LEAST_GAIN, original[query] * _LEAST_OF_ORIGINAL)
            if plan is None or not plan.indexes & {one.name for one in built}:
                continue
            if before - plan.cost >= least and 1 - plan.cost / before >= limits.min_gain:
                effects.append(Effect(query=query, before=before, after=plan.cost, indexes=plan.indexes))
    finally:
        for one in reversed(built):
            await bench.remove(one)
    return Chosen(built=built, effects=tuple(effects)) if effects else None


async def _add_all(bench: Bench, move: Move) -> tuple[Built, ...] | None:
    built: list[Built] = []
    for shape in move:
        one = await bench.add(shape)
        if one is None:
            for other in reversed(built):
                await bench.remove(other)
            return None
        built.append(one)
    return tuple(built)


def _fits(trial: Chosen, chosen: Iterable[Chosen], limits: Limits) -> bool:
    if limits.size_budget_bytes is None:
        return True
    used = sum(one.size_bytes for choice in (*chosen, trial) for one in choice.built)
    return used <= limits.size_budget_bytes


def _pick(tried: Sequence[Chosen]) -> Chosen | None:
    """The best; of those that help nearly as much the simplest."""
    best = _simplest([one for one in tried if not one.carries])
    carrying = _simplest([one for one in tried if one.carries])
    if best is None or carrying is None:
        return best or carrying
    return carrying if carrying.benefit >= best.benefit * _CLEARLY_MORE else best


def _simplest(tried: Sequence[Chosen]) -> Chosen | None:
    most = max((one.benefit for one in tried), default=0.0)
    near = [one for one in tried if one.benefit >= most * _ALIKE]
    return min(near, key=lambda one: (one.complexity, -one.benefit), default=None)


async def _keep(bench: Bench, best: Chosen) -> Chosen | None:
    built = await _add_all(bench, tuple(one.shape for one in best.built))
    return None if built is None else Chosen(built=built, effects=best.effects)


async def _prune(bench: Bench, chosen: Sequence[Chosen], costs: Mapping[Query, float]) -> tuple[Chosen, ...]:
    """Drop what a later choice made superfluous."""
    kept: list[Chosen] = []
    for at, choice in enumerate(chosen):
        if at == len(chosen) - 1:
            kept.append(choice)
            continue
        for one in reversed(choice.built):
            await bench.remove(one)
        missed = False
        for effect in choice.effects:
            without = await bench.plan(effect.query)
            missed |= without is None or without.cost > costs[effect.query] * (1 + _NO_LONGER_NEEDED) + 1
        if missed and (again := await _keep(bench, choice)) is not None:
            kept.append(again)
    return tuple(kept)


async def _account(bench: Bench, chosen: Sequence[Chosen], original: Mapping[Query, float]) -> tuple[Chosen, ...]:
    """Say of each choice what it does beside those before it, now that it is known which stay."""
    for choice in reversed(chosen):
        for one in reversed(choice.built):
            await bench.remove(one)
    costs = dict(original)
    told: list[Chosen] = []
    for choice in chosen:
        kept = await _keep(bench, choice)
        if kept is None:
            continue
        effects: list[Effect] = []
        for effect in choice.effects:
            query, before = effect.query, costs[effect.query]
            plan = await bench.plan(query)
            if plan is not None and plan.cost < before:
                effects.append(Effect(query=query, before=before, after=plan.cost, indexes=plan.indexes))
                costs[query] = plan.cost
        told.append(Chosen(built=kept.built, effects=tuple(effects)))
    return tuple(told)
