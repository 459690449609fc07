"""Can the tools see what they need on a target? For ``hermod doctor``; it runs nothing of the user's."""

from __future__ import annotations

from agent_core.errors import ToolFailed
from bot.tools.slow_queries.connection import OWN_MARK, open_read_only
from bot.tools.slow_queries.failures import quote_name
from bot.tools.slow_queries.statements import fetch_extension, fetch_server
from bot.tools.targets import Target

_RIGHTS = f"""select {OWN_MARK} pg_has_role('pg_read_all_stats', 'usage') as stats,
  (select rolsuper from pg_roles where rolname = current_user) as super"""


async def preflight(target: Target) -> str:
    """Connect to a Postgres target and say what the role sees there, on one line.

    Raises:
        ToolFailed: with the code and the remedy of the first thing that is wrong.
    """
    if target.engine != "postgresql":
        raise ToolFailed(
            f"target {target.name!r} is {target.engine}; no tool of this release serves it yet",
            code="unsupported",
            fix="use a postgresql:// target",
        )
    async with open_read_only(target) as db:
        server = await fetch_server(db)
        extension = await fetch_extension(db)
        rights = await db.fetch_one(_RIGHTS)
        if rights is None or not rights["stats"]:
            role = quote_name(server.role)
            raise ToolFailed(
                f"target {target.name!r}: role {role} sees only its own statements",
                code="insufficient_privilege",
                fix=f"GRANT pg_monitor TO {role};",
            )
        warning = "; the role is a superuser, a role with pg_monitor alone is safer" if rights["super"] else ""
        return f"Postgres {db.version}, pg_stat_statements {extension.version}, role {server.role}{warning}"
