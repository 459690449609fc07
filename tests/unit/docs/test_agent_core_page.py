"""docs/agent-core.md is run: its agent as a program, each further block after it, with a model server and without."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import agent_core
from agent_core.memory.validity import is_sendable
from tests.servers.openai import OpenAIServer

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "agent-core.md").read_text(encoding="utf-8")
SECTIONS = {
    heading: re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    for heading, _, text in (part.partition("\n") for part in PAGE.split("\n## ")[1:])
}
KEY = "sk-local-0123456789abcdefghij"
PROGRAMS = ("Twenty lines", "Several models")  # the second names models of a vendor
PLAN = {"assignments": [{"id": "a1", "worker": "disks", "task": "how full is db1?", "depends_on": []}]}


def environ(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "ANTHROPIC_"))}
    return kept | {"PYTHONPATH": str(ROOT)} | variables


async def run_program(folder: Path, **variables: str) -> str:
    (folder / "agent.py").write_text(SECTIONS["Twenty lines"][0], encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "agent.py",
        cwd=folder, env=environ(**variables), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(models=()) as running:
        yield running
        assert running.violations == []


def script(server: OpenAIServer) -> None:
    """Play a model that looks after hosts."""
    server.on(system="^You divide a task").tools(("final_answer", PLAN))
    server.on(system="^You write the answer").text("db1 comes first [disks:a1].")
    server.on(user="Is it urgent").tools(("final_answer", {"host": "db1", "urgent": True}))
    server.on(user="words, or 200 characters").text("The disk of db1 fills up.")
    server.on(user="log of host", step=0).tools(("read_log", {"host": "db1"}))
    server.on(user="db1", step=0, tool="disk_usage", where=lambda r: "Keep in mind" not in r.last_user).tools(
        ("disk_usage", {"host": "db1"})
    )
    server.on(user="web1", step=0).tools(("disk_usage", {"host": "web1"}))
    server.on().text("The disk of db1 is 91 % full.")


@asynccontextmanager
async def run_blocks(heading: str) -> AsyncIterator[dict[str, Any]]:
    """Run the agent's block but for its last line, then those of a section; yield all names."""
    program = SECTIONS["Twenty lines"][0]
    start, end = program.rsplit("asyncio.run(main())", 1)
    assert not end.strip()
    names: dict[str, Any] = {"__name__": "agent"}
    try:
        for block in (start, *SECTIONS[heading]):
            code = compile(block, f"docs/agent-core.md ({heading})", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            waiting = eval(code, names)
            if inspect.isawaitable(waiting):
                await waiting
        yield names
    finally:
        for name in {"provider", "router"} & names.keys():
            await names[name].aclose()


@pytest.fixture
def model(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> OpenAIServer:
    script(server)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    return server


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_the_agent_has_at_most_20_lines_of_code() -> None:
    (program,) = SECTIONS["Twenty lines"]
    lines = [line for line in program.splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 20
    assert max(map(len, PAGE.splitlines())) <= 120


async def test_the_agent_answers_with_a_model(server: OpenAIServer, tmp_path: Path) -> None:
    script(server)
    out = await run_program(tmp_path, OPENAI_API_KEY=KEY, OPENAI_BASE_URL=server.base_url)
    assert out == "The disk of db1 is 91 % full.\n"
    assert '"used_percent":91' in server.requests[1].tool_results["disk_usage"]


async def test_the_agent_answers_without_a_model(tmp_path: Path) -> None:
    out = await run_program(tmp_path)
    assert "91" in out
    assert "No language model was used" in out


async def test_a_run_tells_what_it_does(model: OpenAIServer, capsys: pytest.CaptureFixture[str]) -> None:
    async with run_blocks("What a run tells while it works"):
        assert capsys.readouterr().out == "[disk_usage: ok]\nThe disk of db1 is 91 % full."


async def test_several_models_share_the_load(model: OpenAIServer, capsys: pytest.CaptureFixture[str]) -> None:
    async with run_blocks("Several models") as names:
        assert names["record"].answer == "The disk of db1 is 91 % full."
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == ["first", "second", "third", "offline"]
    assert sum(int(line.split()[2]) for line in shown) == 2


async def test_when_all_models_are_down_the_tools_stay_usable(
    server: OpenAIServer, model: OpenAIServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.rules.clear()
    server.on().fail(400, message="all is broken")
    async with run_blocks("Several models") as names:
        assert "91" in names["record"].answer
        assert "No language model was used" in names["record"].answer
    assert "all is broken" in capsys.readouterr().out


async def test_an_answer_has_the_wanted_form(model: OpenAIServer, capsys: pytest.CaptureFixture[str]) -> None:
    async with run_blocks("Answers of one form"):
        assert capsys.readouterr().out == "db1 True\n"


async def test_a_supervisor_says_who_found_what(model: OpenAIServer, capsys: pytest.CaptureFixture[str]) -> None:
    async with run_blocks("Supervisor and workers"):
        shown = capsys.readouterr().out
    assert shown == "db1 comes first [disks:a1].\ndisks:a1 The disk of db1 is 91 % full.\n"


async def test_a_long_memory_becomes_a_summary(model: OpenAIServer, capsys: pytest.CaptureFixture[str]) -> None:
    async with run_blocks("A memory that summarises") as names:
        talk = names["talk"]
        assert talk.summary.text == "The disk of db1 fills up."
        assert len(talk) == 16
    assert re.fullmatch(r"\d+ messages became: The disk of db1 fills up.\n", capsys.readouterr().out)


async def test_an_answer_is_served_again(model: OpenAIServer, capsys: pytest.CaptureFixture[str]) -> None:
    async with run_blocks("Answers that are kept"):
        assert capsys.readouterr().out == "answer\ncache\n"
    assert len(model.requests) == 1


async def test_a_run_is_traced(model: OpenAIServer, capsys: pytest.CaptureFixture[str]) -> None:
    async with run_blocks("Traces"):
        shown = capsys.readouterr().out
    assert re.search(r"2\. tool +disk_usage", shown)


async def test_a_run_takes_a_word_in_between_and_can_be_stopped(
    model: OpenAIServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async with run_blocks("Limits, stopping, and a word in between") as names:
        assert names["record"].answer == "The disk of db1 is 91 % full."
        assert "And that of db1?" in [m.content for m in names["talk"].messages]
        assert is_sendable(names["talk"].messages)
    assert "messages can be sent again" in capsys.readouterr().out


async def test_a_long_result_is_kept_whole(model: OpenAIServer) -> None:
    async with run_blocks("Long results") as names:
        result = names["record"].steps[1].detail
        assert len(result) <= 4_000
        (output_id,) = re.findall(r'read_output\(output_id="(\w+)"', result)
        kept = await names["outputs"].get("thread-1", output_id)
        assert kept.count("\n") == 4_999


@pytest.mark.parametrize("heading", [h for h, blocks in SECTIONS.items() if blocks and h not in PROGRAMS])
async def test_every_block_also_runs_without_a_model(offline: None, heading: str) -> None:
    async with run_blocks(heading) as names:
        assert "loop" in names


def test_the_page_imports_from_the_engine_only_public_names() -> None:
    imported = re.findall(r"from (agent_core[\w.]*) import ([\w, ]+)", PAGE)
    assert {module for module, _ in imported} == {"agent_core"}
    assert {word for _, names in imported for word in names.split(", ")} <= set(agent_core.__all__)


def test_the_reference_is_up_to_date_and_has_every_public_name() -> None:
    from scripts.write_docs import render_page

    page = render_page("api.md")
    assert page == (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), "run: make docs"
    assert re.findall(r"^### (\w+)$", page, flags=re.MULTILINE) == sorted(agent_core.__all__, key=str.lower)
    for name in agent_core.__all__:
        if name != "RunEvent":
            assert inspect.getdoc(getattr(agent_core, name)), name


def test_importing_the_engine_imports_no_module_of_it_before_a_name_is_used() -> None:
    code = "import sys, agent_core; print([m for m in sys.modules if m.startswith('agent_core.') or m == 'pydantic'])"
    done = subprocess.run([sys.executable, "-c", code], env=environ(), capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_public_name_is_found_and_no_other() -> None:
    assert {name for name in agent_core.__all__ if getattr(agent_core, name) is None} == set()
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = agent_core.Nonsense
