"""``search_papers``: what the sources are asked, how their answers become one, and what happens when one fails."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import SecretStr

from bot.tools.research.papers import Turns
from tests.integration.research.conftest import BuildDesk, Desk
from tests.servers.web import WebServer
from tests.servers.web.papers import BOMB
from tests.unit.engine.running import HandClock

ARXIV, SCHOLAR = "/arxiv/api/query", "/graph/v1/paper/search"


async def search(desk: Desk, **arguments: object) -> dict[str, Any]:
    result = await desk.call("search_papers", json.dumps({"query": "learned index structures", **arguments}))
    value = json.loads(result.content)
    assert isinstance(value, dict)
    return value


async def test_papers_of_both_sources_come_once_with_all_that_is_known(
    server: WebServer, build_desk: BuildDesk
) -> None:
    found = await search(build_desk())
    assert found["warnings"] == []
    assert [(row["title"], row["arxiv"], row["doi"], row["citations"], row["year"]) for row in found["rows"]] == [
        ("Benchmarking learned indexes", "2006.12804", "10.14778/3421424.3421425", 200, 2020),
        ("The Case for Learned Index Structures", "1712.01208", "", 1300, 2017),
        ("ALEX: An Updatable Adaptive Learned Index", "", "", None, None),
    ]
    case, alex = found["rows"][1:]
    assert case["authors"] == "Tim Kraska, Alex Beutel"
    assert case["snippet"].startswith("Indexes are models")
    assert alex["authors"].endswith("Author 5 and others")
    assert len(alex["snippet"]) == 600


async def test_both_sources_are_asked_for_the_year(server: WebServer, build_desk: BuildDesk) -> None:
    await search(build_desk(), year=2020)
    (arxiv,), (scholar,) = server.asked(ARXIV), server.asked(SCHOLAR)
    assert arxiv.query["search_query"] == (
        "all:learned AND all:index AND all:structures AND submittedDate:[202001010000 TO 202012312359]"
    )
    assert scholar.query["year"] == "2020"
    assert "x-api-key" not in {name.lower() for name in scholar.headers}


@pytest.mark.parametrize("query", ['cost "OR" (all:x) AND NOT y', "C++ b-tree: a/b; 2.5", "数据库 索引"])
async def test_no_word_of_a_question_is_read_as_an_operator(
    server: WebServer, build_desk: BuildDesk, query: str
) -> None:
    found = await search(build_desk(), query=query)
    assert found["warnings"] == []


async def test_a_key_goes_to_semantic_scholar_only(server: WebServer, build_desk: BuildDesk) -> None:
    await search(build_desk(semantic_scholar_key=SecretStr(server.key)))
    assert server.asked(SCHOLAR)[0].headers["x-api-key"] == server.key
    assert server.key not in str(server.asked(ARXIV))


@pytest.mark.parametrize(("path", "name", "left"), [(ARXIV, "arXiv", 3), (SCHOLAR, "Semantic Scholar", 2)])
@pytest.mark.parametrize("status", [429, 500])
async def test_a_source_that_fails_is_named_and_the_other_serves(
    server: WebServer, build_desk: BuildDesk, path: str, name: str, left: int, status: int
) -> None:
    server.failures[path] = (status, '{"message": "Too Many Requests"}')
    found = await search(build_desk())
    assert len(found["rows"]) == left
    (warning,) = found["warnings"]
    assert warning.startswith(name)
    assert "missing here" in warning


async def test_it_fails_only_when_no_source_answers(server: WebServer, build_desk: BuildDesk) -> None:
    server.failures |= {ARXIV: (400, "no"), SCHOLAR: (403, "no")}
    error = (await search(build_desk()))["error"]
    assert error["code"] == "search_failed"
    assert "arXiv" in error["message"]
    assert "Semantic Scholar" in error["message"]


@pytest.mark.parametrize("body", [BOMB, BOMB.replace("UTF-8", "x"), "<feed", "", "<html></html>", "\0", "<a>" * 50_000])
async def test_a_feed_that_is_none_or_could_grow_is_refused(
    server: WebServer, build_desk: BuildDesk, body: str
) -> None:
    server.failures[ARXIV] = (200, body)
    found = await search(build_desk())
    assert len(found["rows"]) == 3
    assert "no feed of papers" in found["warnings"][0]


async def test_an_error_of_arxiv_in_the_form_of_a_paper_is_no_paper(server: WebServer, build_desk: BuildDesk) -> None:
    server.failures[ARXIV] = (
        200,
        '<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>https://arxiv.org/api/errors#x</id><title>Error</title>'
        "<summary>incorrect id format</summary></entry></feed>",
    )
    found = await search(build_desk())
    assert "incorrect id format" in found["warnings"][0]


async def test_nothing_found_is_an_answer_that_says_so(server: WebServer, build_desk: BuildDesk) -> None:
    server.nothing = True
    found = await search(build_desk())
    assert (found["ok"], found["rows"]) == (True, [])
    assert "fewer or other" in found["warnings"][0]


async def test_arxiv_is_asked_once_in_three_seconds(server: WebServer, build_desk: BuildDesk) -> None:
    clock = HandClock()
    desk = build_desk(clock=clock)
    for _ in range(3):
        await search(desk)
    assert clock.seconds == 6.0
    assert len(server.asked(ARXIV)) == 3


class StillClock(HandClock):
    """Time that stands still, as it does for those who come at the same moment."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


async def test_who_would_wait_for_long_is_told() -> None:
    turns = Turns(StillClock(), every_s=4.0)
    waits = [turns.wait() for _ in range(5)]
    told = await asyncio.gather(*waits, return_exceptions=True)
    assert [getattr(answer, "code", None) for answer in told] == [None, None, None, "rate_limited", "rate_limited"]
