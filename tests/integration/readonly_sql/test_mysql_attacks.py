"""Attacks and abuses on a real MariaDB, with root's rights and with a reader's: nothing changes, everything ends."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_core.context import SystemClock
from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.answer import SqlRequest, SqlRows
from bot.tools.readonly_sql.mysql import run_on_mysql
from bot.tools.targets import Target
from tests.integration.readonly_sql.mysql_state import fill, read_state
from tests.servers.mariadb import MariaLab
from tests.unit.readonly_sql.mysql_statements import ATTACKS, READS

_TIMEOUT_S = 2.0
# The server's time-out, the wait for its answer, and a busy machine.
_BOUND_S = 30.0

_REFUSALS = {"not_read_only", "parse_failed", "multiple_statements", "insufficient_privilege"}


@dataclass(frozen=True, kw_only=True)
class Place:
    lab: MariaLab
    database: str
    root: Target
    reader: Target

    def spell(self, statement: str) -> str:
        return statement.replace("{db}", self.database).replace("{dir}", str(self.lab.server.folder))

    async def run(
        self, statement: str, *, root: bool = False, timeout_s: float = _TIMEOUT_S, max_rows: int = 50
    ) -> SqlRows:
        request = SqlRequest(sql=self.spell(statement), timeout_s=timeout_s, max_rows=max_rows)
        return await run_on_mysql(self.root if root else self.reader, SystemClock(), request)


@pytest.fixture
async def place(mariadb: MariaLab) -> Place:
    database = await mariadb.create_database()
    async with mariadb.admin(database) as admin:
        await fill(admin, database, Path(mariadb.server.folder))
    reader = await mariadb.create_reader(database)
    async with mariadb.admin() as admin:
        for schema in (database, "sys"):
            await admin.execute(f"grant execute on {schema}.* to {reader}@'%'")
        for table in ("proc", "innodb_table_stats"):
            await admin.execute(f"grant select on mysql.{table} to {reader}@'%'")
    risks = ("superuser", "file_privilege")
    return Place(
        lab=mariadb,
        database=database,
        root=mariadb.target(database, "root", accept_risks=risks),
        reader=mariadb.target(database, reader),
    )


@pytest.mark.parametrize("root", [True, False], ids=["root", "reader"])
async def test_no_attack_changes_anything_and_every_one_is_refused(place: Place, root: bool) -> None:
    async with place.lab.admin(place.database) as admin:
        before = await read_state(place.lab, admin, place.database)
        for attack in ATTACKS:
            began = time.monotonic()
            with pytest.raises(ToolFailed) as refusal:
                await place.run(attack, root=root)
            assert refusal.value.code in _REFUSALS, (attack, refusal.value.code, refusal.value.message)
            assert refusal.value.fix, attack
            assert time.monotonic() - began < _BOUND_S, attack
        after = await read_state(place.lab, admin, place.database)
    assert after == before


@pytest.mark.parametrize("root", [True, False], ids=["root", "reader"])
async def test_no_honest_read_is_refused(place: Place, root: bool) -> None:
    refused: list[str] = []
    for read in READS:
        try:
            answer = await place.run(read, root=root, timeout_s=20.0)
        except ToolFailed as failure:
            refused.append(f"{read}: {failure.message}")
            continue
        assert answer.engine == "mariadb"
        assert len(answer.columns) == len(answer.types)
        assert all(len(row) == len(answer.columns) for row in answer.rows), read
    assert refused == []
