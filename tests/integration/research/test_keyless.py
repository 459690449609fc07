"""Web search without a key: the unmodified library, through a local proxy that plays the search engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_core.errors import ToolFailed
from bot.tools.research.keyless import BACKENDS, MOST_AT_ONCE, Keyless
from bot.tools.research.results import Found
from tests.servers.web.engines import SearchEngines

FOUND = (
    ("pg_stat_statements", "https://www.postgresql.org/docs/current/pgstatstatements.html", "It tracks overhead."),
    ("Again", "https://postgresql.org/docs/current/pgstatstatements.html", "The same page, overhead."),
    ("No page", "javascript:alert(1)", "overhead"),
    ("Overhead measured", "https://blog.example.com/overhead", "About one percent of overhead."),
)


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[SearchEngines]:
    async with SearchEngines(folder=tmp_path, found=FOUND) as made:
        yield made


def build(engines: SearchEngines, timeout_s: float = 60.0) -> Keyless:
    return Keyless(timeout_s=timeout_s, proxy=engines.proxy, ca_file=engines.ca_file)


def warnings_of(answer: Found | BaseException) -> tuple[str, ...]:
    assert isinstance(answer, Found)
    assert answer.rows == ()
    return answer.warnings


async def test_search_engines_are_asked_and_their_results_cleaned(engines: SearchEngines) -> None:
    found = await build(engines).search("pg_stat_statements overhead", 5)
    assert sorted(row.url for row in found.rows) == [
        "https://blog.example.com/overhead",
        "https://www.postgresql.org/docs/current/pgstatstatements.html",
    ]
    assert found.warnings == ()
    hosts = {host for host, _ in engines.asked}
    assert "html.duckduckgo.com" in hosts
    assert all(any(name in host for name in BACKENDS) for host in hosts)
    assert any("pg_stat_statements" in line for _, line in engines.asked)


async def test_no_result_is_told_apart_from_a_failure(engines: SearchEngines) -> None:
    engines.found = ()
    found = await build(engines).search("x", 5)
    assert found.rows == ()
    assert "may also have refused" in found.warnings[0]


async def test_engines_that_refuse_are_never_a_plain_nothing(engines: SearchEngines) -> None:
    engines.status = 429
    (answer,) = await asyncio.gather(build(engines).search("x", 5), return_exceptions=True)
    # the library tells some refusals from an empty page, by the engine that it asks last
    assert "refused to answer" in (str(answer) if isinstance(answer, ToolFailed) else "".join(warnings_of(answer)))


async def test_engines_that_cannot_be_reached_are_told(tmp_path: Path) -> None:
    async with SearchEngines(folder=tmp_path) as gone:
        pass
    with pytest.raises(ToolFailed) as failed:
        await build(gone).search("x", 5)
    assert (failed.value.code, failed.value.retryable) == ("search_failed", True)
    assert "127.0.0.1" not in str(failed.value)


async def test_engines_that_do_not_answer_are_given_up(engines: SearchEngines) -> None:
    engines.hang = True
    with pytest.raises(ToolFailed) as failed:
        await build(engines, timeout_s=1.5).search("x", 5)
    assert failed.value.code == "search_failed"


async def test_a_place_is_free_again_after_each_search(engines: SearchEngines) -> None:
    keyless = build(engines)
    for _ in range(MOST_AT_ONCE + 1):
        assert (await keyless.search("pg_stat_statements overhead", 5)).rows


async def test_only_so_many_searches_run_at_a_time(engines: SearchEngines) -> None:
    engines.hang = True
    keyless = build(engines)
    under_way = [asyncio.create_task(keyless.search(f"x{n}", 5)) for n in range(MOST_AT_ONCE)]
    await engines.wait_for_requests(2 * MOST_AT_ONCE)  # each search asks two engines at once
    with pytest.raises(ToolFailed) as failed:
        await keyless.search("one more", 5)
    assert failed.value.code == "rate_limited"
    for task in under_way:
        task.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)
