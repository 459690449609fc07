"""Attacks and abuses on a real MariaDB, with root's rights and with a reader's: nothing changes, everything ends."""

from __future__ import annotations

import time

import pytest

from agent_core.errors import ToolFailed
from tests.integration.readonly_sql.mysql_state import Place, make_place, read_state
from tests.servers.mariadb import MariaLab
from tests.unit.readonly_sql.mysql_statements import ATTACKS, READS

# The server's time-out, the wait for its answer, and a busy machine.
_BOUND_S = 30.0

_REFUSALS = {"not_read_only", "parse_failed", "multiple_statements", "insufficient_privilege"}


@pytest.fixture
async def place(mariadb: MariaLab) -> Place:
    return await make_place(mariadb)


@pytest.mark.parametrize("root", [True, False], ids=["root", "reader"])
async def test_no_attack_changes_anything_and_every_one_is_refused(place: Place, root: bool) -> None:
    async with place.lab.admin(place.database) as admin, place.lab.connect(place.database, "root") as other:
        await other.execute("set @mine = 'untouched'")
        before = await read_state(place.lab, admin, place.database)
        for attack in ATTACKS:
            began = time.monotonic()
            with pytest.raises(ToolFailed) as refusal:
                await place.run(attack, root=root)
            assert refusal.value.code in _REFUSALS, (attack, refusal.value.code, refusal.value.message)
            assert refusal.value.fix, attack
            assert time.monotonic() - began < _BOUND_S, attack
        after = await read_state(place.lab, admin, place.database)
        assert await other.value("select @mine") == "untouched"
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
