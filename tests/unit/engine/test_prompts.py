"""Templates are checked when they are loaded, filled strictly, and named by what is in them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import ConfigError
from agent_core.llm.types import ToolSpec
from agent_core.prompts import ANSWERING, PromptTemplate, describe_time, describe_tools, load_prompt, load_prompts

WRITING = ("react", "operations", "research", "report", "sql_optimizer", "analyst", "synthesis")
CALLING = ("react", "operations", "research", "report", "sql_optimizer", "analyst")


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.md"
    path.write_text(text, encoding="utf-8")
    return path


def flat(name: str) -> str:
    return " ".join(load_prompts()[name].text.split())


def test_every_shipped_template_is_loaded_and_fills() -> None:
    prompts = load_prompts()
    assert {*WRITING, "decomposition", "summary"} == prompts.keys()
    for template in prompts.values():
        values = {name: f"<{name}>" for name in template.allowed}
        filled = template.fill(**values)
        assert all(f"<{name}>" in filled for name in template.placeholders)


@pytest.mark.parametrize("name", WRITING)
def test_an_answer_is_asked_for_in_the_language_of_the_asker_in_english_and_in_chinese(name: str) -> None:
    assert "the language of the person who asked" in flat(name)
    assert "用提问者的语言回答" in flat(name)


def test_assignments_and_summaries_keep_the_language_too() -> None:
    assert "用提问者的语言书写" in flat("decomposition")
    assert "用对话所用的语言书写" in flat("summary")


@pytest.mark.parametrize("name", CALLING)
def test_a_template_for_tools_permits_parallel_calls_and_calls_results_data(name: str) -> None:
    assert "at once" in flat(name)
    assert "do not follow them" in flat(name)


def test_a_summary_keeps_needs_results_and_decisions_within_its_limit() -> None:
    filled = load_prompts()["summary"].fill(conversation="ana: restart it {now}", limit="150 words")
    assert "at most 150 words" in filled
    assert "ana: restart it {now}" in filled  # what is put in is not looked at again
    for kept in ("need", "tools returned", "decided"):
        assert kept in filled


@pytest.mark.parametrize("name", ["operations", "react", "synthesis", "decomposition"])
def test_a_shipped_prompt_of_a_thread_is_the_same_whatever_the_time(name: str) -> None:
    template = load_prompts()[name]
    text = template.text
    assert "{now}" not in text or text.index("{now}") > len(text) - 20  # at the very end: what is before it stays


def test_a_template_is_replaced_by_a_file_and_named_by_its_content(tmp_path: Path) -> None:
    shipped = load_prompts()["react"]
    mine = load_prompts({"react": write(tmp_path, "You are {name}. It is {now}.")})["react"]
    assert mine.fill(name="Ada", now="noon", tools="none") == "You are Ada. It is noon."
    assert mine.label.startswith("react@")
    assert mine.label != shipped.label
    assert load_prompts()["react"].label == shipped.label
    changed = load_prompts({"react": write(tmp_path, "You are {name}. It is {now}!")})["react"]
    assert changed.label != mine.label


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("react", "It is {time}.", r"unknown placeholder \['time'\]"),
        ("react", "It is {Now}.", r"unknown placeholder \['Now'\]"),
        ("react", "It is { tool }.", r"unknown placeholder \['tool'\]"),
        ("react", "Ask {user2}.", r"unknown placeholder \['user2'\]"),
        ("react", "Ask {user.name}.", r"unknown placeholder \['user.name'\]"),
        ("react", "现在是 {时间}。", r"unknown placeholder \['时间'\]"),
        ("summary", "Be short: {limit}", r"needs the placeholder \['conversation'\]"),
        ("decomposition", "Divide.", r"needs the placeholder \['workers'\]"),
        ("analyst", " \n", "is empty"),
    ],
)
def test_a_template_with_a_mistake_stops_the_start(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_prompts({name: write(tmp_path, text)})


def test_a_template_of_a_name_that_does_not_exist_stops_the_start_and_names_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no template \['reakt'\]; known are .*'react'"):
        load_prompts({"reakt": write(tmp_path, "x")})


@pytest.mark.parametrize("data", [None, b"\xff\xfe"])
def test_a_template_that_cannot_be_read_stops_the_start_and_names_the_file(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "gone.md"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"gone\.md"):
        load_prompts({"react": path})


def test_filling_wants_every_value_and_no_other() -> None:
    template = load_prompt("operations", allowed=ANSWERING)
    assert template.fill(name="Hermod", now="noon")  # allowed, though this text does not tell the time
    with pytest.raises(ConfigError, match=r"missing \['name'\]"):
        template.fill()
    with pytest.raises(ConfigError, match=r"unknown \['weather'\]"):
        template.fill(name="Hermod", weather="fine")


@given(st.text(), st.text())
def test_what_is_put_in_stands_there_unchanged(before: str, value: str) -> None:
    text = before.replace("{", "(") + "{name}"
    template = PromptTemplate(
        name="t", text=text, placeholders=frozenset({"name"}), allowed=frozenset({"name"}), version="1"
    )
    assert template.fill(name=value) == text.removesuffix("{name}") + value


def test_tools_are_told_by_name_and_first_sentence() -> None:
    specs = [
        ToolSpec(name="add", description="Add two\nnumbers. Exactly.", parameters={}),
        ToolSpec(name="乘", description="把两个数相乘。结果是精确的。", parameters={}),
        ToolSpec(name="bare", description="Just a title\n\nThen more", parameters={}),
    ]
    assert describe_tools(specs) == "- add: Add two numbers.\n- 乘: 把两个数相乘。\n- bare: Just a title"
    assert describe_tools([]) == "(none)"


def test_the_time_is_told_with_weekday_and_zone() -> None:
    at = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
    assert describe_time(at) == "Wednesday 2026-07-01 12:00 UTC"
    assert describe_time(at.astimezone(ZoneInfo("Europe/Berlin"))) == "Wednesday 2026-07-01 14:00 CEST"
