"""The tool of this folder, as a model sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from agent_core.context import Clock
from agent_core.llm.types import ToolExample
from agent_core.tools.registry import ToolRegistry
from bot.tools.index_advice.advise import Question, recommend_indexes
from bot.tools.index_advice.answer import IndexReport
from bot.tools.index_advice.choose import Limits
from bot.tools.index_advice.scratch import ScratchLimits
from bot.tools.slow_queries.history import SnapshotStore
from bot.tools.slow_queries.statement_check import LONGEST_SQL
from bot.tools.slow_queries.time_range import FORMS
from bot.tools.target_argument import TARGET, with_names
from bot.tools.targets import Targets

TIMEOUT_S = 120.0
"""For one call: a copy of large tables takes its time."""

DEFAULT_SCRATCH = ScratchLimits()
"""What is copied where the operator allows it."""

_MiB = 1024 * 1024

DESCRIPTION = """\
Advise indexes for a live Postgres database: for one statement (sql or fingerprint), or for the statements that took
the most time in a range. Use it for "recommend indexes", "which indexes should we add", "index advice", "advise an
index", "建议索引", "应该加什么索引". Candidates are tried before they are advised, never on the target's own data:
with HypoPG where it is installed, else on a throw-away copy of a sample.

Each row is one index with the statements that it helps: costs before and after, cost_saved (0..1), and times where they
were measured. verified_by tells how it is known; say so, above all for "heuristic" (a guess). no_advice says for
which statements no index helps, and why. Nothing is ever built: show the ddl and let a person run it.

Example: {"sql": "select * from orders where customer_id = $1"}"""


class IndexArguments(BaseModel):
    """Arguments of ``recommend_indexes``."""

    sql: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=LONGEST_SQL,
            description="One statement; $1 where a value is not known. At most one of sql, fingerprint, time_range.",
            json_schema_extra={"format": "sql"},
        ),
    ] = None
    fingerprint: Annotated[
        str | None, Field(max_length=100, description="Of a statement, as get_slow_queries gives it.")
    ] = None
    time_range: Annotated[
        str | None,
        Field(
            max_length=200,
            description=f"The busiest statements of it are looked at; without all three, last_1d. One of: {FORMS}",
            json_schema_extra={"format": "time-range"},
        ),
    ] = None
    max_indexes: Annotated[int, Field(ge=1, le=20, description="Most indexes to advise.")] = 5
    size_budget_mb: Annotated[
        float | None, Field(gt=0, le=10_000_000, allow_inf_nan=False, description="Most room for all of them, in MiB.")
    ] = None
    min_gain: Annotated[
        float,
        Field(
            ge=0.05,
            le=0.99,
            allow_inf_nan=False,
            description="Least share of a statement's cost that an index has to take away.",
        ),
    ] = 0.5
    target: Annotated[str | None, Field(description=TARGET)] = None


def register_index_advice_tools(
    registry: ToolRegistry,
    targets: Targets,
    store: SnapshotStore,
    clock: Clock,
    *,
    scratch: ScratchLimits | None = DEFAULT_SCRATCH,
) -> None:
    """Register ``recommend_indexes``.

    Args:
        registry: where it goes.
        targets: what it may look at.
        store: keeps the readings of the counters (``bot.storage.base.Store``).
        clock: time.
        scratch: how much of a target with ``allow_sql`` may be copied to a throw-away server on this machine;
            None: nothing.

    Raises:
        ConfigError: the name is taken.
    """

    async def recommend(arguments: IndexArguments) -> IndexReport:
        budget = arguments.size_budget_mb
        question = Question(
            sql=arguments.sql,
            fingerprint=arguments.fingerprint,
            time_range=arguments.time_range,
            limits=Limits(
                max_indexes=arguments.max_indexes,
                size_budget_bytes=None if budget is None else round(budget * _MiB),
                min_gain=arguments.min_gain,
            ),
            target=arguments.target,
        )
        return await recommend_indexes(targets, store, clock, question, scratch=scratch)

    names = sorted(targets)
    registry.register(
        recommend,
        name="recommend_indexes",
        description=DESCRIPTION,
        arguments=with_names(IndexArguments, names),
        examples=_examples(names),
        timeout_s=TIMEOUT_S,
    )


def _examples(names: Sequence[str]) -> tuple[ToolExample, ...]:
    first = names[0] if names else "shop"
    statement = "select id from tickets where owner = $1 and closed_at is null"
    return (
        ToolExample(question=f"recommend indexes for {statement}", arguments={"sql": statement}),
        ToolExample(
            question=f"suggest new indexes on {first} for the workload of the last 2 hours",
            arguments={"time_range": "last_2h", "target": first},
        ),
        ToolExample(question="which indexes should we add?", arguments={}),
        ToolExample(question=f"建议索引：{statement}", arguments={"sql": statement}),
    )
