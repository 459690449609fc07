"""Which indexes would help: found from plans, proved with HypoPG or on a copy, never built on the target."""

from bot.tools.index_advice.tools import register_index_advice_tools

__all__ = ["register_index_advice_tools"]
