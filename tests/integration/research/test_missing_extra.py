"""Without the libraries of the extra the tools are there, and say how to install them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bot.doctor import examine
from bot.settings import load_settings
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


@pytest.mark.parametrize(
    ("hidden", "text", "said"),
    [
        (("ddgs", "trafilatura"), "", "warning: no answer comes of web_search and read_webpage"),
        (("ddgs",), 'search_url = "http://127.0.0.1:1"', "ok: searches with searxng"),
        (("trafilatura",), 'search_url = "http://127.0.0.1:1"', "warning: no answer comes of read_webpage"),
        ((), "", "ok: searches with keyless"),
        (("ddgs", "trafilatura"), "enabled = false", ""),
    ],
)
async def test_the_doctor_tells_who_searches_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: tuple[str, ...], text: str, said: str
) -> None:
    for module in hidden:
        monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / "hermod.toml"
    path.write_text(f'[storage]\nurl = "sqlite:///{tmp_path}/h.db"\n[sandbox]\nenabled = false\n[research]\n{text}\n')
    settings = load_settings(path, {})
    found = [finding async for finding in examine(settings, {}, {}) if finding.part == "research"]
    told = [f"{f.state}: {f.text.removeprefix('the extra research is not installed, so ')}" for f in found]
    assert told == ([said] if said else [])
    assert all("hermod-bot[research]" in f.fix for f in found if f.state == "warning")


async def test_plain_texts_need_no_library(
    server: WebServer, build_desk: BuildDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    result = await build_desk().call("read_webpage", json.dumps({"url": server.url("/page/text")}))
    assert result.ok
