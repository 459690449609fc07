"""A database to attack on a Postgres server, with somebody who watches everything that must not change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow

from agent_core.context import SystemClock
from agent_core.errors import ToolFailed
from bot.tools.grants import PASSWORD, build_grant_script
from bot.tools.readonly_sql.answer import Parameter, SqlRequest, SqlRows
from bot.tools.readonly_sql.tools import run_readonly_sql
from bot.tools.targets import Target, Targets
from tests.integration.readonly_sql.postgres_statements import FIELD
from tests.servers.postgres import Lab

CLOCK = SystemClock()

_WATCHED = """
select jsonb_build_object(
  'acct', (select string_agg(a::text, ' ' order by id) from lab_acct a),
  'txt', (select string_agg(t::text, ' ' order by t::text) from lab_txt t),
  'things', (select string_agg(t::text, ' ' order by t::text) from side.things t),
  'sequence', (select row(last_value, is_called)::text from hseq),
  'classes', (select md5(string_agg(format('%s %s %s %s %s', oid, relname, relfilenode, relacl, relowner), ' '
              order by oid)) from pg_catalog.pg_class where relpersistence = 'p'),
  'temporary', (select count(*) from pg_catalog.pg_class where relpersistence = 't'),
  'attributes', (select md5(string_agg(a::text, ' ' order by attrelid, attnum)) from pg_attribute a
                 where attrelid >= 16384),
  'functions', (select md5(string_agg(format('%s %s %s', oid, proname, prosrc), ' ' order by oid)) from pg_proc),
  'types', (select md5(string_agg(format('%s %s', oid, typname), ' ' order by oid)) from pg_type),
  'schemas', (select string_agg(nspname::text, ' ' order by oid) from pg_namespace
              where nspname !~ '^pg_(toast_)?temp'),
  'roles', (select md5(string_agg(format('%s %s %s %s', rolname, rolsuper, rolpassword, rolconnlimit), ' '
            order by oid)) from pg_authid),
  'members', (select string_agg(format('%s %s', roleid, member), ' ' order by roleid, member) from pg_auth_members),
  'databases', (select string_agg(datname::text, ' ' order by oid) from pg_database),
  'role settings', (select string_agg(s::text, ' ' order by s::text) from pg_db_role_setting s),
  'objects', (select md5(string_agg(format('%s %s', loid, encode(data, 'hex')), ' ' order by loid, pageno))
              from pg_largeobject),
  'others', (select jsonb_build_array((select count(*) from pg_trigger), (select count(*) from pg_extension),
             (select count(*) from pg_publication), (select count(*) from pg_rewrite), (select count(*) from pg_policy),
             (select count(*) from pg_replication_slots), (select count(*) from pg_replication_origin),
             (select count(*) from pg_prepared_xacts), (select count(*) from pg_default_acl),
             (select count(*) from pg_description where objoid >= 16384), (select count(*) from pg_collation),
             (select count(*) from pg_event_trigger), (select count(*) from pg_tablespace))),
  'advisory', (select count(*) from pg_locks where locktype = 'advisory'),
  'files', jsonb_build_array(md5(pg_read_file('postgresql.auto.conf')), md5(pg_read_file('postgresql.conf'))),
  'loaded', pg_conf_load_time(),
  'settings', (select md5(string_agg(format('%s %s', name, setting), ' ' order by name)) from pg_settings
               where source in ('configuration file', 'database', 'user')),
  'wal', pg_walfile_name(pg_current_wal_insert_lsn()),
  'resets', jsonb_build_array((select stats_reset from pg_stat_statements_info),
             (select min(stats_reset) from pg_catalog.pg_stat_database), (select stats_reset from pg_stat_bgwriter),
             (select min(stats_reset) from pg_stat_slru)),
  'victims', (select string_agg(pid::text, ' ' order by pid) from pg_stat_activity where application_name = 'victim'))
"""


@dataclass(frozen=True, kw_only=True)
class Field:
    """``superuser`` and ``reader`` are targets on it; ``file`` is what an attack would write."""

    lab: Lab
    database: str
    superuser: Target
    reader: Target
    file: Path
    watcher: psycopg.Connection[TupleRow]
    seen: list[object] = field(default_factory=list)

    @property
    def roles(self) -> tuple[Target, Target]:
        return (self.superuser, self.reader)

    async def run(
        self,
        target: Target,
        sql: str,
        *parameters: Parameter,
        max_rows: int = 100,
        timeout_s: float = 10.0,
    ) -> SqlRows:
        request = SqlRequest(
            sql=sql.replace("{file}", str(self.file)), parameters=parameters, max_rows=max_rows, timeout_s=timeout_s
        )
        return await run_readonly_sql(Targets([target]), CLOCK, request, target=target.name)

    async def try_to_run(
        self, target: Target, sql: str, *parameters: Parameter, timeout_s: float = 10.0
    ) -> SqlRows | ToolFailed:
        """Run it, and return how it ended."""
        try:
            return await self.run(target, sql, *parameters, timeout_s=timeout_s)
        except ToolFailed as error:
            return error

    async def refuse(self, target: Target, sql: str, *parameters: Parameter, timeout_s: float = 10.0) -> ToolFailed:
        """Run what has to fail, and return how."""
        answer = await self.try_to_run(target, sql, *parameters, timeout_s=timeout_s)
        assert isinstance(answer, ToolFailed), f"{sql[:200]!r} ran and gave {answer.rows[:3]!r}"
        return answer

    def remember(self) -> None:
        """Take what is there now as what must not change."""
        self.seen[:] = [self._look()]

    def check_untouched(self) -> None:
        """Fail when anything is not as it was at the look before; the first look is taken by ``open_field``."""
        now = self._look()
        before, self.seen[:] = self.seen[0], [now]
        assert now == before

    def _look(self) -> object:
        row = self.watcher.execute(_WATCHED).fetchone()
        assert row is not None
        return (row[0], self.file.exists())


@contextmanager
def open_field(lab: Lab, folder: Path) -> Iterator[Field]:
    """Build the database, its granted reader, and the victims' sessions; from outside an event loop."""
    database = asyncio.run(lab.create_database())
    role = f"reader of {database}"  # a name that has to be quoted
    secret = lab.passwords[role] = f"s3cret-{database}-pass"
    script = build_grant_script(lab.targets(database, "postgres")["lab"], account=role, schemas=("public", "side"))
    with psycopg.connect(lab.server.url(database), autocommit=True) as admin:
        admin.execute(FIELD.encode())
        admin.execute(script.replace(PASSWORD, secret).encode())
    superuser = lab.targets(database, "postgres", "as_superuser", allow_sql=True)["as_superuser"]
    reader = lab.targets(database, role, "as_reader", allow_sql=True)["as_reader"]
    urls = (lab.server.url(database), lab.url(database, role))
    victims = [psycopg.connect(url, autocommit=True, application_name="victim") for url in urls]
    watcher = psycopg.connect(lab.server.url(database), autocommit=True)
    watcher.execute("set search_path = pg_catalog, public")
    try:
        built = Field(
            lab=lab, database=database, superuser=superuser, reader=reader, file=folder / "written", watcher=watcher
        )
        built.remember()
        yield built
    finally:
        watcher.close()
        for victim in victims:
            victim.close()


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began
