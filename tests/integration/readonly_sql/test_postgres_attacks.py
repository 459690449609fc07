"""Attacks and abuses on real Postgres servers, as a superuser and as the granted reader: nothing changes, all end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_core.errors import ToolFailed
from tests.integration.readonly_sql.postgres_field import Field, Stopwatch, open_field
from tests.integration.readonly_sql.postgres_statements import ATTACKS, BOUNDED, READS
from tests.servers.postgres import Lab

_REFUSALS = {"not_read_only", "not_allowed", "multiple_statements", "parse_failed"}
_TIMEOUT_S = 1.0
_BOUND_S = 20.0
"""Of a call with that time-out, on a busy machine."""


@pytest.fixture(scope="module")
def field(postgres: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    folder: Path = tmp_path_factory.mktemp("attacked")
    folder.chmod(0o777)
    with open_field(postgres, folder) as built:
        yield built


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_is_refused_and_nothing_changes(field: Field, name: str) -> None:
    for target in field.roles:
        watch = Stopwatch()
        failure = await field.refuse(target, ATTACKS[name], timeout_s=_TIMEOUT_S)
        assert failure.code in _REFUSALS, f"{failure.code}: {failure.message}"
        assert watch.seconds < _BOUND_S
    field.check_untouched()


@pytest.mark.parametrize("name", BOUNDED)
async def test_what_is_too_much_ends_in_time_or_within_the_caps(field: Field, name: str) -> None:
    for target in field.roles:
        watch = Stopwatch()
        answer = await field.try_to_run(target, BOUNDED[name], timeout_s=_TIMEOUT_S)
        if isinstance(answer, ToolFailed):
            assert answer.code in {"statement_timeout", "query_failed"}, answer.message
        else:
            assert answer.row_count == len(answer.rows) <= 100
            assert sum(len(str(cell)) for row in answer.rows for cell in row) < 1_200_000
        assert watch.seconds < _BOUND_S
    field.check_untouched()


async def test_no_honest_read_is_refused(field: Field) -> None:
    refused: list[str] = []
    for target in field.roles:
        for sql in READS.values():
            answer = await field.try_to_run(target, sql)
            if isinstance(answer, ToolFailed):
                refused.append(f"{target.name}: {sql}: {answer.code}: {answer.message}")
            else:
                assert len(answer.columns) == len(answer.types)
                assert all(len(row) == len(answer.columns) for row in answer.rows)
    assert not refused, "\n".join(refused)
    field.check_untouched()


def test_the_lists_are_as_long_as_promised() -> None:
    assert len(ATTACKS) + len(BOUNDED) >= 44 + 130
    assert len(READS) >= 60
