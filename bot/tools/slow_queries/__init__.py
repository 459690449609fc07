"""Slow queries and plans of live databases."""

from bot.tools.slow_queries.slow_queries import read_slow_queries, record_reading
from bot.tools.slow_queries.tools import register_slow_query_tools

__all__ = ["read_slow_queries", "record_reading", "register_slow_query_tools"]
