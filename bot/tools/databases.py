"""Every tool that looks into a live database, registered together."""

from __future__ import annotations

from agent_core.context import Clock
from agent_core.tools.registry import ToolRegistry
from bot.storage.base import Store
from bot.tools.activity.tools import register_activity_tools
from bot.tools.database_health.tools import register_health_tools
from bot.tools.index_advice.tools import register_index_advice_tools
from bot.tools.query_history.tools import register_query_history_tools
from bot.tools.readonly_sql.tools import register_readonly_sql_tools
from bot.tools.shown_sql import offer_sql
from bot.tools.slow_queries import register_slow_query_tools
from bot.tools.targets import Targets


def register_database_tools(registry: ToolRegistry, targets: Targets, store: Store, clock: Clock) -> None:
    """Register them, each with the argument ``echo_sql``.

    Args:
        registry: where they go.
        targets: what they may look at.
        store: keeps readings of the statistics.
        clock: time.

    Raises:
        ConfigError: a name is taken.
    """
    plain = ToolRegistry()
    register_slow_query_tools(plain, targets, store, clock)
    register_query_history_tools(plain, targets, store, clock)
    register_index_advice_tools(plain, targets, store, clock)
    register_activity_tools(plain, targets, clock)
    register_health_tools(plain, targets, clock)
    register_readonly_sql_tools(plain, targets, clock)
    for tool in plain.tools():
        registry.add(offer_sql(tool))
