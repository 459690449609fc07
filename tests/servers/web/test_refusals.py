"""The local services refuse what the real ones refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.servers.web import WebServer

BRAVE, TAVILY, SCHOLAR = "/brave/res/v1/web/search", "/tavily/search", "/graph/v1/paper/search"


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with WebServer(key="right") as made:
        yield made


async def get(server: WebServer, path: str, headers: dict[str, str] | None = None, **query: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(server.url(path), params=query, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_searxng_refuses_a_question_without_words_or_format(server: WebServer) -> None:
    assert (await get(server, "/searxng/search", q="", format="json"))[0] == 400
    assert (await get(server, "/searxng/search", q="a"))[0] == 400
    assert (await get(server, "/searxng/search", q="a", format="json"))[0] == 200


@pytest.mark.parametrize(
    ("headers", "query", "word"),
    [
        ({}, {"q": "a"}, "VALIDATION"),
        ({"X-Subscription-Token": "wrong"}, {"q": "a"}, "SUBSCRIPTION_TOKEN_INVALID"),
        ({"X-Subscription-Token": "right"}, {"q": ""}, "VALIDATION"),
        ({"X-Subscription-Token": "right"}, {"q": "a " * 51}, "VALIDATION"),
        ({"X-Subscription-Token": "right"}, {"q": "a" * 401}, "VALIDATION"),
        ({"X-Subscription-Token": "right"}, {"q": "a", "count": "21"}, "VALIDATION"),
    ],
)
async def test_brave_refuses(server: WebServer, headers: dict[str, str], query: dict[str, str], word: str) -> None:
    status, text = await get(server, BRAVE, headers, **query)
    assert status == 422
    assert word in text


@pytest.mark.parametrize(
    ("key", "body", "status"),
    [("wrong", {"query": "a"}, 401), ("right", {}, 400), ("right", {"query": "a", "max_results": 21}, 400)],
)
async def test_tavily_refuses(server: WebServer, key: str, body: dict[str, object], status: int) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.url(TAVILY), json=body, headers=headers) as answer,
    ):
        assert answer.status == status


@pytest.mark.parametrize("query", ["", "learned index", "all:a OR", 'all:"a', "submittedDate:[2020 TO 2021]"])
async def test_arxiv_answers_a_question_that_it_cannot_read_with_an_error_in_a_feed(
    server: WebServer, query: str
) -> None:
    _, text = await get(server, "/arxiv/api/query", search_query=query)
    assert "/api/errors" in text


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 400),
        ({"query": "a", "fields": "title,citations"}, 400),
        ({"query": "a", "limit": "101"}, 400),
        ({"query": "a", "year": "twenty"}, 400),
        ({"query": "a", "year": "2020-2024"}, 200),
    ],
)
async def test_semantic_scholar_refuses(server: WebServer, query: dict[str, str], status: int) -> None:
    assert (await get(server, SCHOLAR, None, **query))[0] == status
    assert (await get(server, SCHOLAR, {"x-api-key": "wrong"}, query="a"))[0] == 403
