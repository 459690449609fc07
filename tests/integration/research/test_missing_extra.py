"""Without the libraries of the extra the tools are there, and say how to install them."""

from __future__ import annotations

import json
import sys

import pytest

from tests.integration.research.conftest import BuildDesk
from tests.servers.web import WebServer


@pytest.mark.parametrize(
    ("module", "tool", "arguments"),
    [("trafilatura", "read_webpage", "url"), ("ddgs", "web_search", "query")],
)
async def test_a_missing_library_is_told_with_the_line_that_installs_it(
    server: WebServer, build_desk: BuildDesk, monkeypatch: pytest.MonkeyPatch, module: str, tool: str, arguments: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    desk = build_desk(provider="auto", search_url=None)
    result = await desk.call(tool, json.dumps({arguments: server.url("/page/news")}))
    error = json.loads(result.content)["error"]
    assert (error["code"], error["retryable"]) == ("missing_extra", False)
    assert "pip install 'hermod-bot[research]'" in error["fix"]


async def test_plain_texts_need_no_library(
    server: WebServer, build_desk: BuildDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    result = await build_desk().call("read_webpage", json.dumps({"url": server.url("/page/text")}))
    assert result.ok
