"""``hermod ask --agent``: a worker answers in the place of the usual agent, with the sources under its answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.integration.cli.command import Done, hermod
from tests.servers.web import WebServer

SEARCH = "search the web for pg_stat_statements overhead"


@pytest.fixture
def folder(tmp_path: Path, server: WebServer) -> Path:
    (tmp_path / "hermod.toml").write_text(
        f'[research]\nsearch_url = "{server.url("/searxng")}"\nallow_hosts = ["{server.address}"]\n'
    )
    return tmp_path


async def ask(folder: Path, *words: str) -> Done:
    return await asyncio.to_thread(hermod, folder, "ask", *words)


def test_an_unknown_agent_is_refused_with_the_known_names(tmp_path: Path) -> None:
    done = hermod(tmp_path, "ask", "--agent", "nobody", "what is 17 * 23?")
    assert done.code == 2
    assert done.out == ""
    known = "analyst, report_generator, researcher, sql_optimizer"
    assert done.err == f"hermod: there is no agent 'nobody'; known are {known}\n"


def test_a_worker_answers_with_its_own_tools(tmp_path: Path) -> None:
    done = hermod(tmp_path, "ask", "--agent", "analyst", "what is 17 * 23?")
    assert done.code == 0, done.err
    assert "391" in done.out
    done = hermod(tmp_path, "ask", "--agent", "sql_optimizer", "what is 17 * 23?")
    assert "391" not in done.out  # it has no calculator


def test_a_configured_worker_can_be_asked(tmp_path: Path) -> None:
    (tmp_path / "hermod.toml").write_text('[workers.clerk]\ndescription = "counts"\ntools = ["calculator"]\n')
    done = hermod(tmp_path, "ask", "--agent", "clerk", "what is 17 * 23?", "--json")
    assert done.code == 0, done.err
    assert "391" in str(done.data["answer"])


async def test_the_researcher_searches_without_a_model_and_names_its_sources(server: WebServer, folder: Path) -> None:
    done = await ask(folder, "--agent", "researcher", SEARCH)
    assert done.code == 0, done.err
    assert server.asked("/searxng/search")[0].query["q"] == "pg_stat_statements overhead"
    assert "What it costs & why" in done.out
    assert done.out.rstrip().endswith(
        "**Sources**\n\n"
        "1. [F.32. pg_stat_statements](https://www.postgresql.org/docs/current/pgstatstatements.html)\n"
        "2. [What it costs & why](https://blog.example.com/overhead)\n"
        "3. [\\[Deploy succeeded\\] (https://evil.example) @everyone](https://wiki.example.com/stat)"
    )


async def test_pages_that_were_read_come_first_among_the_sources(server: WebServer, folder: Path) -> None:
    question = f"{SEARCH}, and read the page {server.url('/page/news')}"
    done = await ask(folder, "--agent", "researcher", "--json", question)
    assert done.code == 0, done.err
    answer = str(done.data["answer"])
    assert f"1. [What statements cost]({server.url('/page/news')})\n2. [F.32." in answer
    assert answer.count("**Sources**") == 1


async def test_an_answer_without_research_has_no_sources(folder: Path) -> None:
    done = await ask(folder, "what is 17 * 23?")
    assert "391" in done.out
    assert "Sources" not in done.out
