"""What search services check and answer, as their reference pages say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiohttp import web


class Refusal(Exception):
    """A request that the service refuses."""

    def __init__(self, status: int, body: object) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


def answer_searxng(query: Mapping[str, str], *, nothing: bool, unresponsive: Sequence[Sequence[str]]) -> object:
    """https://docs.searxng.org/dev/search_api.html; the keys of a result are those of its JSON format."""
    if query.get("format") != "json":
        raise Refusal(400, {"error": "this server speaks JSON only"})
    if not query.get("q"):
        raise Refusal(400, {"error": "No query"})
    results = [
        _searxng(
            "https://www.postgresql.org/docs/current/pgstatstatements.html", "F.32. pg_stat_statements", "2026-05-14"
        ),
        _searxng("http://postgresql.org/docs/current/pgstatstatements.html#SEC", "The same page again", None),
        _searxng("https://blog.example.com/overhead", "What it <b>costs</b> &amp; why", None),
        _searxng("javascript:alert(1)", "No page", None),
        _searxng("ftp://files.example.com/x", "No page either", None),
        _searxng("https://wiki.example.com/stat", "[Deploy succeeded](https://evil.example) @everyone", None),
    ]
    return {
        "query": query["q"],
        "number_of_results": 0,
        "results": [] if nothing else results,
        "answers": [],
        "corrections": [],
        "infoboxes": [],
        "suggestions": [],
        "unresponsive_engines": unresponsive,
    }


def _searxng(url: str, title: str, published: str | None) -> dict[str, object]:
    return {
        "url": url,
        "title": title,
        "content": f"A passage about it, from {url.partition(':')[0]}.",
        "publishedDate": None if published is None else f"{published}T00:00:00",
        "engine": "duckduckgo",
        "engines": ["duckduckgo"],
        "parsed_url": [],
        "template": "default.html",
        "positions": [1],
        "score": 1.0,
        "category": "general",
    }


def answer_brave(request: web.Request, *, key: str, nothing: bool) -> object:
    """https://api-dashboard.search.brave.com/app/documentation/web-search/query (400 characters, 50 words)."""
    token = request.headers.get("X-Subscription-Token")
    if token is None:
        raise Refusal(422, _brave_error("VALIDATION", "Unable to validate request parameter(s)"))
    if token != key:
        raise Refusal(422, _brave_error("SUBSCRIPTION_TOKEN_INVALID", "The provided subscription token is invalid."))
    query, count = request.query.get("q", ""), request.query.get("count", "20")
    if not query or len(query) > 400 or len(query.split()) > 50 or not 1 <= int(count) <= 20:
        raise Refusal(422, _brave_error("VALIDATION", "Unable to validate request parameter(s)"))
    answer: dict[str, object] = {"type": "search", "query": {"original": query, "more_results_available": False}}
    if not nothing:
        answer["web"] = {
            "type": "search",
            "family_friendly": True,
            "results": [
                {
                    "title": "pg_stat_statements",
                    "url": "https://www.postgresql.org/docs/current/pgstatstatements.html",
                    "is_source_local": False,
                    "description": "It <strong>tracks</strong> planning &quot;and&quot; execution.",
                    "page_age": "2026-02-01T08:30:00",
                    "age": "February 1, 2026",
                    "language": "en",
                    "profile": {"name": "PostgreSQL"},
                    "meta_url": {"hostname": "www.postgresql.org"},
                },
                {"title": "Two", "url": "https://two.example.com/", "description": "Second"},
            ][: int(count)],
        }
    return answer


def _brave_error(code: str, detail: str) -> object:
    return {"type": "ErrorResponse", "error": {"id": "5d832250", "status": 422, "code": code, "detail": detail}}


def answer_tavily(request: web.Request, body: object, *, key: str, nothing: bool) -> object:
    """https://docs.tavily.com/documentation/api-reference/endpoint/search"""
    if request.headers.get("Authorization") != f"Bearer {key}":
        raise Refusal(401, {"detail": {"error": "Unauthorized: missing or invalid API key."}})
    if not isinstance(body, dict) or not isinstance(body.get("query"), str) or not body["query"]:
        raise Refusal(400, {"detail": {"error": "Query is missing."}})
    most = body.get("max_results", 5)
    if not isinstance(most, int) or not 0 <= most <= 20:
        raise Refusal(400, {"detail": {"error": "max_results must be between 0 and 20."}})
    results = [
        {
            "title": "Overhead measured",
            "url": "https://blog.example.com/overhead",
            "content": "About one percent.",
            "score": 0.92,
            "raw_content": None,
            "published_date": "Mon, 04 May 2026 10:00:00 GMT",
        },
        {"title": "Two", "url": "https://two.example.com/", "content": "Second", "score": 0.5, "raw_content": None},
    ]
    return {
        "query": body["query"],
        "follow_up_questions": None,
        "answer": None,
        "images": [],
        "results": [] if nothing else results[:most],
        "response_time": 0.8,
        "request_id": "1",
    }
