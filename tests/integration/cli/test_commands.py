"""The commands, their JSON and their exit codes (the outside contract)."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integration.cli.command import Done, hermod


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one asked question in its storage."""
    path = tmp_path_factory.mktemp("hermod")
    (path / "hermod.toml").write_text('[storage]\nurl = "sqlite:///hermod.db"\n')
    return path


@pytest.fixture(scope="module")
def asked(folder: Path) -> Done:
    return hermod(folder, "ask", "what is 17 * 23?", "--json")


def keys(data: object) -> list[str]:
    assert isinstance(data, Mapping)
    return sorted(data)


def test_ask_answers_and_exits_0(folder: Path) -> None:
    done = hermod(folder, "ask", "What is 2**10 + math.sqrt(144)?")
    assert done.code == 0
    assert "1036" in done.out
    assert "language model" in done.out
    assert done.err == ""


def test_ask_json_is_one_object_with_a_schema_version(asked: Done) -> None:
    assert asked.code == 0
    assert keys(asked.data) == ["answer", "error", "run_id", "schema", "state", "steps", "usage"]
    assert asked.data["schema"] == 1
    assert asked.data["state"] == "finished"
    assert "391" in str(asked.data["answer"])
    steps = asked.data["steps"]
    assert isinstance(steps, list)
    assert [(s["kind"], s["name"]) for s in steps] == [
        ("model", "offline"),
        ("tool", "calculator"),
        ("model", "offline"),
    ]
    assert keys(asked.data["usage"]) == [
        "cached_input_tokens", "cost_usd", "exact", "input_tokens", "output_tokens", "reasoning_tokens", "requests",
        "total_tokens",
    ]  # fmt: skip


def test_a_failed_run_exits_1_and_says_why(folder: Path) -> None:
    done = hermod(
        folder,
        "ask",
        "hi",
        HERMOD_MODELS__0__MODEL="m",
        HERMOD_MODELS__0__API_KEY="sk-not-a-key-1234567",
        HERMOD_MODELS__0__BASE_URL="http://127.0.0.1:9/v1",
    )
    assert done.code == 1
    assert "I could not answer" in done.out
    assert "not reachable" in done.out
    assert "sk-not-a-key" not in done.out + done.err


def test_tools_run_prints_the_envelope_at_top_level(folder: Path) -> None:
    done = hermod(folder, "tools", "run", "calculator", "expression=2**10 + math.sqrt(144)", "--json")
    assert done.code == 0
    assert done.data["ok"] is True
    assert done.data["result"] == 1036.0
    assert done.data["schema"] == 1


def test_tools_run_takes_a_lone_text_and_exits_1_on_a_failure(folder: Path) -> None:
    assert hermod(folder, "tools", "run", "current_time", "Europe/Berlin").code == 0
    failed = hermod(folder, "tools", "run", "current_time", "zone=Europe/Berln", "--json")
    assert failed.code == 1
    assert failed.data["ok"] is False
    unknown = hermod(folder, "tools", "run", "no_such_tool")
    assert unknown.code == 1
    assert "calculator" in unknown.err
    wrong = hermod(folder, "tools", "run", "calculator", "expresion=1")
    assert wrong.code == 1
    assert "write: calculator expression=..." in wrong.err


def test_tools_list_names_every_tool(folder: Path) -> None:
    done = hermod(folder, "tools", "list", "--json")
    items = done.data["items"]
    assert isinstance(items, list)
    assert {"get_slow_queries", "explain_query", "calculator", "current_time"} <= {i["name"] for i in items}
    assert all(keys(i) == ["description", "effect", "name", "parameters"] for i in items)
    assert "calculator" in hermod(folder, "tools", "list").out


def test_sessions_and_trace_and_usage_show_what_happened(folder: Path, asked: Done) -> None:
    listed = hermod(folder, "sessions", "list", "--json").data["items"]
    assert isinstance(listed, list)
    assert keys(listed[0]) == ["busy", "last_at", "messages", "runs", "thread", "tokens"]
    run_id = str(asked.data["run_id"])
    thread = next(i["thread"] for i in listed if run_id in hermod(folder, "sessions", "show", i["thread"]).out)
    shown = hermod(folder, "sessions", "show", thread, "--json").data
    assert keys(shown) == ["items", "runs", "schema", "summary", "thread"]
    assert shown["summary"] is None
    items = shown["items"]
    assert isinstance(items, list)
    assert [i["role"] for i in items] == ["user", "assistant", "tool", "assistant"]
    trace = hermod(folder, "trace", run_id[:8], "--json").data
    assert keys(trace) == ["run", "schema", "steps"]
    text = hermod(folder, "trace", run_id).out
    assert re.search(r"2\. tool +calculator", text)
    usage = hermod(folder, "usage", "--json").data
    assert keys(usage) == ["by", "days", "schema", "totals"]
    assert keys(usage["by"]) == ["offline"]
    assert "offline:" in hermod(folder, "usage").out


def test_unknown_threads_and_runs_exit_1_with_the_way_to_find_them(folder: Path) -> None:
    missing = hermod(folder, "sessions", "show", "slack:T/C/1")
    assert (missing.code, "sessions list" in missing.err) == (1, True)
    missing = hermod(folder, "trace", "rffffffff")
    assert (missing.code, "sessions show" in missing.err) == (1, True)


def test_audit_verify_finds_a_changed_line(folder: Path, asked: Done) -> None:
    assert hermod(folder, "audit", "verify").code == 0
    with sqlite3.connect(folder / "hermod.db") as connection:
        connection.execute("UPDATE audit SET actor = 'somebody else' WHERE seq = 1")
    connection.close()
    done = hermod(folder, "audit", "verify", "--json")
    assert done.code == 1
    assert done.data["first_broken"] == 1


def test_bad_settings_exit_2_with_one_line_a_mistake(folder: Path) -> None:
    done = hermod(folder, "ask", "hi", HERMOD_LIMITS__MAX_STEP="3", HERMOD_HTTP__PORT="http")
    assert done.code == 2
    assert done.out == ""
    lines = done.err.strip().splitlines()
    assert len(lines) == 2
    assert any("HERMOD_LIMITS__MAX_STEP" in line and "MAX_STEPS" in line for line in lines)
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('[storage]\nurl = "postgresql://u:topsecret1@h/d"', "Postgres"),
        ('[storage]\nurl = "sqlite:////proc/none/hermod.db"', "hermod.db"),
        ('[tools]\nmodules = ["no_such_module"]', "no_such_module"),
        ("[discord]\ntoken = 'Bot abcdefgh'", "discord.token"),
        ("not toml", "hermod.toml"),
    ],
)
def test_settings_that_cannot_work_are_refused_without_a_trace(tmp_path: Path, toml: str, said: str) -> None:
    (tmp_path / "hermod.toml").write_text(toml)
    done = hermod(tmp_path, "ask", "hi")
    assert done.code == 2
    assert said in done.err
    assert "topsecret1" not in done.err
    assert "Traceback" not in done.err


def test_run_without_a_platform_says_what_to_configure(folder: Path) -> None:
    done = hermod(folder, "run")
    assert done.code == 2
    assert "[slack]" in done.err


def test_doctor_tells_the_state_of_each_part(folder: Path) -> None:
    done = hermod(folder, "doctor", "--json")
    assert done.code == 0
    items = done.data["items"]
    assert isinstance(items, list)
    assert {"storage", "model offline", "targets", "platforms"} <= {i["part"] for i in items}
    broken = hermod(folder, "doctor", HERMOD_TARGETS__SHOP__URL="postgresql://u:topsecret1@127.0.0.1:9/d")
    assert broken.code == 1
    assert "fix:" in broken.out
    assert "topsecret1" not in broken.out + broken.err


def test_the_doctor_finds_what_would_stop_the_start(folder: Path) -> None:
    prompts = folder / "prompts"
    prompts.mkdir()
    (prompts / "operations.md").write_text("You are {nmae}.")
    told = "prompts.folder: prompt operations: unknown placeholder ['nmae']"
    done = hermod(folder, "doctor", HERMOD_PROMPTS__FOLDER="prompts")
    assert done.code == 1
    assert told in done.out
    started = hermod(folder, "ask", "what is 2 * 3?", HERMOD_PROMPTS__FOLDER="prompts")
    assert (started.code, started.out) == (2, "")
    assert started.err.startswith(f"hermod: {told}")
    assert len(started.err.splitlines()) == 1


def test_manifest_and_version_are_printed(folder: Path) -> None:
    assert "display_information" in hermod(folder, "manifest").out
    assert re.fullmatch(r"hermod \d+\.\d+\.\d+\n", hermod(folder, "--version").out)


def test_ask_works_while_somebody_else_reads_the_same_file(folder: Path) -> None:
    hermod(folder, "ask", "what is 2 * 3?")
    with sqlite3.connect(folder / "hermod.db", timeout=5) as other:
        other.execute("BEGIN")
        before = other.execute("SELECT count(*) FROM run").fetchone()
        done = hermod(folder, "ask", "what is 6 * 7?")
        assert (done.code, "42" in done.out) == (0, True)
        assert other.execute("SELECT count(*) FROM run").fetchone() == before
        other.rollback()
        assert other.execute("SELECT count(*) FROM run").fetchone() == (before[0] + 1,)
    other.close()


def test_a_failure_is_one_json_object_too(folder: Path) -> None:
    for words in (
        ("tools", "run", "no_such_tool"),
        ("tools", "run", "calculator", "expresion=1"),
        ("trace", "rffffffff"),
        ("sessions", "show", "slack:T/C/1"),
    ):
        done = hermod(folder, *words, "--json")
        assert done.code == 1
        assert done.err == ""
        assert done.data["ok"] is False
        assert keys(done.data["error"]) == ["code", "message"]


@pytest.mark.parametrize("words", [("--version",), ("jobs", "--help")])
def test_a_command_that_only_prints_loads_neither_the_engine_nor_the_storage(
    folder: Path, words: tuple[str, ...]
) -> None:
    done = hermod(folder, *words, PYTHONPROFILEIMPORTTIME="1")
    assert done.code == 0
    loaded = {line.rpartition("|")[2].strip() for line in done.err.splitlines()}
    assert "bot.cli" in loaded
    assert not loaded & {"agent_core", "adapters.chat", "bot.storage.base"}
