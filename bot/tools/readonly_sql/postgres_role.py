"""The session for people's SQL on Postgres: what its role may do beyond reading, and what is pinned for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.answer import TOOL
from bot.tools.slow_queries.connection import OWN_MARK, SUPERUSER_RISK, ReadOnly
from bot.tools.slow_queries.failures import quote_name

FILE_RISK = "file_privilege"
WRITE_RISK = "write_privilege"

# https://www.postgresql.org/docs/current/predefined-roles.html
_RISKY_ROLES: Mapping[str, str] = {
    "pg_read_server_files": FILE_RISK,
    "pg_write_server_files": FILE_RISK,
    "pg_execute_server_program": FILE_RISK,
    "pg_write_all_data": WRITE_RISK,
}

# Everything is written with its schema, as the role's own search path holds until here. pg_catalog first: a function
# or view of the database cannot take a builtin's name. pg_temp last: behind a pooler a session may have tables of
# others. Texts of instants, and what a day is, do not depend on the role's settings.
_SESSION = f"""select {OWN_MARK}
  pg_catalog.set_config('search_path', pg_catalog.concat_ws(', ', 'pg_catalog'::pg_catalog.text,
    pg_catalog.regexp_replace(pg_catalog.current_setting('search_path'), '^\\s*$', 'pg_catalog'),
    'pg_temp'::pg_catalog.text), true),
  pg_catalog.set_config('timezone', 'UTC', true),
  pg_catalog.set_config('datestyle', 'ISO, YMD', true),
  pg_catalog.set_config('intervalstyle', 'postgres', true),
  pg_catalog.set_config('bytea_output', 'hex', true),
  pg_catalog.set_config('extra_float_digits', '1', true),
  case when pg_catalog.current_setting('is_superuser')::pg_catalog.bool
    then pg_catalog.set_config('temp_file_limit', '1GB', true) end,
  pg_catalog.current_setting('is_superuser')::pg_catalog.bool as superuser,
  current_user::pg_catalog.text as role,
  array(select r.rolname::pg_catalog.text from pg_catalog.pg_roles r
        where r.rolname::pg_catalog.text operator(pg_catalog.=) any (%s::pg_catalog.text[])
          and (pg_catalog.pg_has_role(current_user, r.oid, 'member')
               or pg_catalog.pg_has_role(session_user, r.oid, 'member'))
        order by 1) as risky"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Who runs the statement.

    Args:
        name: ``current_user``.
        superuser: the operator accepted that.
    """

    name: str
    superuser: bool

    def warnings(self) -> tuple[str, ...]:
        """What the person should know."""
        if not self.superuser:
            return ()
        return ("the role is a superuser, whom only the checks of the statement hold back",)


async def enter_session(db: ReadOnly) -> Role:
    """Pin the session's settings, and check what the role could do.

    Raises:
        ToolFailed: ``dangerous_role``: it may read or write the server's files, run programs there, or write
            everywhere, and the target does not accept that by name.
    """
    row = await db.fetch_one(_SESSION, (list(_RISKY_ROLES),))
    if row is None:
        raise ToolFailed(f"target {db.target.name!r} gave no answer", code="failed")
    role = Role(name=str(row["role"]), superuser=row["superuser"] is True)
    accepted = db.target.accept_risks
    risky = row["risky"]
    if role.superuser or not isinstance(risky, list):  # that it is accepted was checked when the connection was opened
        return role
    for member in risky:
        risk = _RISKY_ROLES[str(member)]
        if risk not in accepted and SUPERUSER_RISK not in accepted:
            raise ToolFailed(
                f"target {db.target.name!r}: role {quote_name(role.name)} is a member of {member}, and {TOOL} takes "
                "no role that reaches further than tables",
                code="dangerous_role",
                fix=f"REVOKE {member} FROM {quote_name(role.name)}; or use the role that 'hermod targets grant "
                f'{db.target.name}\' makes; or set accept_risks = ["{risk}"] in [targets.{db.target.name}]',
            )
    return role
