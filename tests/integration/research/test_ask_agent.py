"""``hermod ask --agent``: a worker answers in the place of the usual agent."""

from __future__ import annotations

from pathlib import Path

from tests.integration.cli.command import hermod


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
    done = hermod(tmp_path, "sessions", "list", "--json")
    assert done.code == 0
