"""``web_search``: what each service is asked, what comes back, and what its refusals mean."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import SecretStr

from tests.integration.research.conftest import BuildDesk, keyed
from tests.servers.web import WebServer

QUERY = '{"query": "pg_stat_statements overhead"}'


def read(content: str) -> dict[str, Any]:
    value = json.loads(content)
    assert isinstance(value, dict)
    return value


async def test_searxng_is_asked_for_json_and_its_results_are_cleaned(server: WebServer, build_desk: BuildDesk) -> None:
    result = await build_desk().call("web_search", QUERY)
    assert result.ok, result.content
    found = read(result.content)
    assert (found["source"], found["searched_for"]) == ("SearXNG", "pg_stat_statements overhead")
    assert [(row["title"], row["url"], row["published"]) for row in found["rows"]] == [
        (
            "F.32. pg_stat_statements",
            "https://www.postgresql.org/docs/current/pgstatstatements.html",
            "2026-05-14",
        ),
        ("What it costs & why", "https://blog.example.com/overhead", ""),
        ("[Deploy succeeded] (https://evil.example) @everyone", "https://wiki.example.com/stat", ""),
    ]
    (asked,) = server.asked("/searxng/search")
    assert asked.query == {"q": "pg_stat_statements overhead", "format": "json"}


async def test_brave_is_asked_with_its_key_in_a_header(server: WebServer, build_desk: BuildDesk) -> None:
    result = await build_desk(**keyed(server, "brave")).call("web_search", QUERY)
    assert result.ok, result.content
    first = read(result.content)["rows"][0]
    assert first["snippet"] == 'It tracks planning "and" execution.'
    assert first["published"] == "2026-02-01T08:30:00"
    (asked,) = server.asked("/brave/res/v1/web/search")
    assert asked.query == {"q": "pg_stat_statements overhead", "count": "5"}
    assert server.key not in result.content


async def test_tavily_is_asked_with_a_bearer_key(server: WebServer, build_desk: BuildDesk) -> None:
    result = await build_desk(**keyed(server, "tavily")).call("web_search", QUERY)
    assert result.ok, result.content
    rows = read(result.content)["rows"]
    assert [(row["title"], row["published"]) for row in rows] == [("Overhead measured", "2026-05-04"), ("Two", "")]
    (asked,) = server.asked("/tavily/search")
    assert asked.json == {"query": "pg_stat_statements overhead", "max_results": 5, "search_depth": "basic"}


@pytest.mark.parametrize("provider", ["brave", "tavily"])
async def test_no_service_is_asked_for_more_than_the_settings_allow(
    server: WebServer, build_desk: BuildDesk, provider: str
) -> None:
    desk = build_desk(**keyed(server, provider), max_results=1)
    result = await desk.call("web_search", '{"query": "a", "max_results": 20}')
    assert len(read(result.content)["rows"]) == 1
    (asked,) = server.log
    assert "1" in (asked.query.get("count"), str(asked.json and asked.json["max_results"]))  # type: ignore[index]


async def test_a_long_question_is_shortened_to_what_brave_takes(server: WebServer, build_desk: BuildDesk) -> None:
    desk = build_desk(**keyed(server, "brave"))
    result = await desk.call("web_search", json.dumps({"query": "a b " * 100}))
    assert result.ok, result.content
    assert len(server.log[0].query["q"].split()) == 50


@pytest.mark.parametrize("provider", ["brave", "tavily"])
async def test_a_refused_key_is_told_with_the_service_and_what_to_do(
    server: WebServer, build_desk: BuildDesk, provider: str
) -> None:
    desk = build_desk(**keyed(server, provider) | {"api_key": SecretStr("tvly-wrong")})
    result = await desk.call("web_search", QUERY)
    error = read(result.content)["error"]
    assert (error["code"], error["retryable"]) == ("key_refused", False)
    assert error["message"].lower().startswith(f"{provider} refuses the key")
    assert "[research]" in error["fix"]
    assert "tvly-wrong" not in result.content
    assert len(server.log) == 1


@pytest.mark.parametrize(
    ("status", "code", "again"),
    [
        (429, "rate_limited", True),
        (402, "quota_used_up", False),
        (432, "quota_used_up", False),
        (500, "search_failed", True),
    ],
)
async def test_refusals_are_told_apart(
    server: WebServer, build_desk: BuildDesk, status: int, code: str, again: bool
) -> None:
    server.failures["/tavily/search"] = (status, '{"detail": {"error": "no"}}')
    result = await build_desk(**keyed(server, "tavily")).call("web_search", QUERY)
    error = read(result.content)["error"]
    assert (error["code"], error["retryable"]) == (code, again)
    assert "Tavily" in error["message"]
    assert result.attempts == (3 if again else 1)


async def test_a_searxng_without_json_is_told_with_the_remedy(server: WebServer, build_desk: BuildDesk) -> None:
    server.failures["/searxng/search"] = (403, "<h1>Forbidden</h1>")
    error = read((await build_desk().call("web_search", QUERY)).content)["error"]
    assert error["code"] == "search_failed"
    assert "search.formats" in error["fix"]


@pytest.mark.parametrize("body", ["<html>", "[]", '{"results": null}', '{"results": "x"}', "[" * 100_000])
async def test_an_answer_in_another_shape_is_no_empty_answer(
    server: WebServer, build_desk: BuildDesk, body: str
) -> None:
    server.failures["/searxng/search"] = (200, body)
    error = read((await build_desk().call("web_search", QUERY)).content)["error"]
    assert (error["code"], error["retryable"]) == ("search_failed", False)


@pytest.mark.parametrize("provider", ["searxng", "brave", "tavily"])
async def test_nothing_found_is_an_answer_that_says_so(server: WebServer, build_desk: BuildDesk, provider: str) -> None:
    server.nothing = True
    server.unresponsive = [["google", "CAPTCHA"], ["bing", "timeout"]]
    changes = {} if provider == "searxng" else keyed(server, provider)
    result = await build_desk(**changes).call("web_search", QUERY)
    found = read(result.content)
    assert (found["ok"], found["rows"]) == (True, [])
    assert any("found nothing" in warning for warning in found["warnings"])
    if provider == "searxng":
        assert "SearXNG got no answer of: google: CAPTCHA; bing: timeout" in found["warnings"]


async def test_a_service_that_is_not_there_is_named(build_desk: BuildDesk) -> None:
    desk = build_desk(search_url="http://127.0.0.1:9/")
    error = read((await desk.call("web_search", QUERY)).content)["error"]
    assert (error["code"], error["retryable"]) == ("search_failed", True)
    assert error["message"].startswith("SearXNG: ")


@pytest.mark.parametrize("query", ["", " ", "?!", "<b></b>"])
async def test_a_question_without_words_is_sent_back(server: WebServer, build_desk: BuildDesk, query: str) -> None:
    result = await build_desk().call("web_search", json.dumps({"query": query}))
    assert not result.ok
    assert server.log == []
