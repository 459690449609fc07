"""The tools of this folder, as a model sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from agent_core.context import Clock
from agent_core.llm.types import ToolExample
from agent_core.tools.registry import ToolRegistry
from bot.storage.snapshots import HistoryStore
from bot.tools.query_history.answer import QueryTrend, WindowComparison
from bot.tools.query_history.compare import compare_two_windows
from bot.tools.query_history.trend import read_trend
from bot.tools.slow_queries.time_range import FORMS
from bot.tools.target_argument import TARGET, with_names
from bot.tools.targets import Targets

TREND_DESCRIPTION = """\
Show how one statement shape behaved over time: calls, total, mean and standard deviation for each bucket of a time \
range, drawn as a chart. Use it for "since when is this statement slow", "did it get slower", "trend", "history of \
fingerprint ...", "plot its duration over the day", "趋势", "走势", "从什么时候开始变慢", after get_slow_queries \
has given the fingerprint.

The numbers rest on readings of the counters that the collector stores every minute. A bucket with calls null is not \
known (no reading), one with calls 0 did not run; say so. `coverage` of a bucket tells how well it is covered. The \
chart goes along with the answer as a picture where there is a plotting library; `chart` shows the means as text, \
from 0 to `highest_s`.

Example: {"fingerprint": "9f3c2ab41d0e77aa", "time_range": "last_1d", "bucket": "1h"}"""

COMPARE_DESCRIPTION = """\
Compare two time ranges of a database: which statement shapes regressed, are new, improved or are gone in b, compared \
with a (the one before). Use it for "what changed since yesterday", "compare today with yesterday", "what got slower \
after the deployment", "before and after", "regression", "对比", "比较昨天和今天", "发布后哪些查询变慢了".

Row 1 cost most extra time (`extra_s`, seconds). A shape is named only if the change matters, is larger than that of \
all statements together (`common_factor`) and is no chance (`p_value`, Welch's test). No rows mean: nothing changed. \
`a` and `b` state the windows and what they cover; tell the person where `coverage.complete` is false.

Example: {"a": "yesterday", "b": "today"}"""


class TrendArguments(BaseModel):
    """Arguments of ``query_trend``."""

    fingerprint: Annotated[
        str,
        Field(
            min_length=1,
            max_length=64,
            description="Of a statement shape, as get_slow_queries shows it.",
            json_schema_extra={"format": "fingerprint"},
        ),
    ]
    time_range: Annotated[
        str, Field(max_length=200, description=f"One of: {FORMS}", json_schema_extra={"format": "time-range"})
    ] = "last_1d"
    bucket: Annotated[
        str | None, Field(max_length=40, description="Length of a bucket, such as 5min or 1h; about 40 by default.")
    ] = None
    target: Annotated[str | None, Field(description=TARGET)] = None


class CompareArguments(BaseModel):
    """Arguments of ``compare_windows``."""

    a: Annotated[
        str,
        Field(
            max_length=200, description=f"The range before. One of: {FORMS}", json_schema_extra={"format": "time-range"}
        ),
    ]
    b: Annotated[
        str,
        Field(
            max_length=200,
            description="The range after, in the same forms; the two have no common time.",
            json_schema_extra={"format": "time-range"},
        ),
    ]
    target: Annotated[str | None, Field(description=TARGET)] = None


def register_query_history_tools(registry: ToolRegistry, targets: Targets, store: HistoryStore, clock: Clock) -> None:
    """Register ``query_trend`` and ``compare_windows``.

    Args:
        registry: where they go.
        targets: what they may look at; the names become an enum in the schema.
        store: has the readings of the counters (``bot.storage.base.Store``).
        clock: the time that ranges are relative to.

    Raises:
        ConfigError: the names are taken.
    """

    async def query_trend(arguments: TrendArguments) -> QueryTrend:
        return await read_trend(
            targets,
            store,
            clock,
            fingerprint=arguments.fingerprint,
            time_range=arguments.time_range,
            bucket=arguments.bucket,
            target=arguments.target,
        )

    async def compare_windows(arguments: CompareArguments) -> WindowComparison:
        return await compare_two_windows(targets, store, clock, a=arguments.a, b=arguments.b, target=arguments.target)

    names = sorted(targets)
    registry.register(
        query_trend,
        description=TREND_DESCRIPTION,
        arguments=with_names(TrendArguments, names),
        examples=_trend_examples(),
    )
    registry.register(
        compare_windows,
        description=COMPARE_DESCRIPTION,
        arguments=with_names(CompareArguments, names),
        examples=_compare_examples(names),
    )


def _trend_examples() -> tuple[ToolExample, ...]:
    shape = "9f3c2ab41d0e77aa"
    return (
        ToolExample(
            question=f"show the trend of fingerprint {shape} over the last day",
            arguments={"fingerprint": shape, "time_range": "last_1d"},
        ),
        ToolExample(
            question=f"since when has shape {shape} become slower this week? hourly buckets",
            arguments={"fingerprint": shape, "time_range": "last_1w", "bucket": "1h"},
        ),
        ToolExample(
            question=f"画出指纹 {shape} 最近6小时的趋势", arguments={"fingerprint": shape, "time_range": "last_6h"}
        ),
    )


def _compare_examples(names: Sequence[str]) -> tuple[ToolExample, ...]:
    first = names[0] if names else "shop"
    noon = "2026-05-01T11:00:00Z/2026-05-01T12:00:00Z"
    after = "2026-05-01T12:00:00Z/2026-05-01T13:00:00Z"
    return (
        ToolExample(question="compare today with yesterday", arguments={"a": "yesterday", "b": "today"}),
        ToolExample(
            question=f"what regressed on {first} after the release: compare {noon} and {after}",
            arguments={"a": noon, "b": after, "target": first},
        ),
        ToolExample(question="对比昨天和今天，哪些查询退化了？", arguments={"a": "yesterday", "b": "today"}),
    )
