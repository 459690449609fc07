"""How healthy a database is: its indexes, its tables, the server."""

from bot.tools.database_health.db_health import read_db_health
from bot.tools.database_health.index_health import read_index_health
from bot.tools.database_health.table_health import read_table_health
from bot.tools.database_health.tools import register_health_tools

__all__ = ["read_db_health", "read_index_health", "read_table_health", "register_health_tools"]
