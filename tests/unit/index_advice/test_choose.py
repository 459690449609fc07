"""The choice among candidates, on a bench whose planner is a table of costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bot.tools.index_advice.choose import Built, Limits, PlanCost, Query, choose_indexes
from bot.tools.index_advice.shape import IndexShape, KeyPart
from bot.tools.slow_queries.explain_prepare import Prepared


def shape(*keys: str, include: tuple[str, ...] = (), where: str = "", table: str = "t") -> IndexShape:
    return IndexShape(schema="s", table=table, keys=tuple(KeyPart(k) for k in keys), include=include, where=where)


Costs = Callable[[frozenset[str]], float]


class TableBench:
    """Costs by what is built; counts what it had to build."""

    def __init__(self, costs: dict[str, Costs], *, size_bytes: int = 1000, refused: Iterable[IndexShape] = ()) -> None:
        self._costs = costs
        self._size = size_bytes
        self._refused = set(refused)
        self.built: dict[str, IndexShape] = {}
        self.builds = 0

    async def plan(self, query: Query) -> PlanCost | None:
        names = frozenset(one.describe() for one in self.built.values())
        return PlanCost(cost=self._costs[query.sql](names), indexes=frozenset(self.built))

    async def add(self, one: IndexShape) -> Built | None:
        if one in self._refused:
            return None
        self.builds += 1
        name = f"i{self.builds}"
        self.built[name] = one
        return Built(shape=one, name=name, handle=name, size_bytes=self._size)

    async def remove(self, built: Built) -> None:
        del self.built[built.handle]


def query(sql: str, *moves: tuple[IndexShape, ...], weight: float = 1.0) -> Query:
    return Query(
        fingerprint=sql,
        sql=sql,
        prepared=Prepared(sql=sql, asked=sql, types=()),
        tables=frozenset({"s.t"}),
        aliases=(("t", "s.t"),),
        moves=moves,
        weight=weight,
    )


def first_of(*pairs: tuple[str, float], otherwise: float = 1000.0) -> Costs:
    """The least cost of the indexes that are there."""
    return lambda names: min((cost for name, cost in pairs if name in names), default=otherwise)


async def choose(bench: TableBench, queries: list[Query], limits: Limits | None = None) -> list[str]:
    chosen = await choose_indexes(bench, queries, limits or Limits())
    told = [one.shape.describe() for choice in chosen for one in choice.built]
    assert sorted(told) == sorted(one.describe() for one in bench.built.values())  # what is advised stays built
    return told


async def test_of_two_that_help_alike_the_simpler_one_wins() -> None:
    costs = first_of(("t (a)", 20), ("t (a, b)", 10), ("t (a) INCLUDE (c)", 1))
    moves = ((shape("a", "b"),), (shape("a"),), (shape("a", include=("c",)),))
    assert await choose(TableBench({"q": costs}), [query("q", *moves)]) == ["t (a)"]


async def test_a_second_index_for_a_statement_has_to_be_worth_its_place() -> None:
    both = ((shape("a"),), (shape("b"),))

    def small(names: frozenset[str]) -> float:
        return 1000.0 if "t (a)" not in names else 60.0 if "t (b)" not in names else 12.0

    assert await choose(TableBench({"q": small}), [query("q", *both)]) == ["t (a)"]

    def staged(names: frozenset[str]) -> float:
        return 1000.0 if "t (a)" not in names else 400.0 if "t (b)" not in names else 10.0

    assert await choose(TableBench({"q": staged}), [query("q", *both)]) == ["t (a)", "t (b)"]


async def test_nothing_is_chosen_below_the_least_gain() -> None:
    costs = first_of(("t (a)", 600))
    one = [query("q", (shape("a"),))]
    assert await choose(TableBench({"q": costs}), one) == []
    assert await choose(TableBench({"q": costs}), one, Limits(min_gain=0.3)) == ["t (a)"]
    cheap = first_of(("t (a)", 1), otherwise=20)
    assert await choose(TableBench({"q": cheap}), one) == []


async def test_the_statement_that_runs_more_often_comes_first_and_limits_hold() -> None:
    costs = {"rare": first_of(("t (a)", 10)), "busy": first_of(("t (b)", 400))}
    queries = [query("rare", (shape("a"),)), query("busy", (shape("b"),), weight=50.0)]
    assert await choose(TableBench(costs), queries) == ["t (b)", "t (a)"]
    assert await choose(TableBench(costs), queries, Limits(max_indexes=1)) == ["t (b)"]
    assert await choose(TableBench(costs), queries, Limits(size_budget_bytes=1500)) == ["t (b)"]


async def test_an_earlier_choice_that_a_later_one_makes_superfluous_is_dropped() -> None:
    costs = {
        "one": first_of(("t (a)", 100), ("t (a, b)", 100)),
        "two": first_of(("t (a, b)", 100)),
    }
    queries = [query("one", (shape("a"),), weight=10.0), query("two", (shape("a", "b"),))]
    assert await choose(TableBench(costs), queries) == ["t (a, b)"]


async def test_indexes_that_help_only_together_are_taken_together() -> None:
    def both(names: frozenset[str]) -> float:
        return 10.0 if {"t (a)", "t (b)"} <= names else 1000.0

    bundle = (shape("a"), shape("b"))
    assert await choose(TableBench({"q": both}), [query("q", bundle)]) == ["t (a)", "t (b)"]
    assert await choose(TableBench({"q": both}), [query("q", bundle)], Limits(max_indexes=1)) == []


async def test_what_cannot_be_built_is_left_out_and_leaves_nothing_behind() -> None:
    bundle = (shape("a"), shape("lower(b)"))
    bench = TableBench({"q": first_of(("t (a)", 10))}, refused=[shape("lower(b)")])
    assert await choose(bench, [query("q", bundle)]) == []
    assert bench.built == {}


async def test_an_index_that_no_plan_uses_is_not_credited() -> None:
    class Idle(TableBench):
        async def plan(self, query: Query) -> PlanCost | None:
            return PlanCost(cost=10.0 if self.built else 1000.0, indexes=frozenset())

    assert await choose(Idle({}), [query("q", (shape("a"),))]) == []
