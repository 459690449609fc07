"""Report templates: strict when they are read, and verbatim when they are filled."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import ConfigError
from bot.jobs.templates import DEFAULT_TEMPLATE, fill, load_report_templates, parse_template

GOOD = """\
# Morning look: {job}
# 早间检查：{job}

Period: 36 h

## Assignments

- sql_optimizer, each target: On {target}, find what is slow
  in {period}.
  - `get_slow_queries target={target} time_range={period}`
  - `db_health target={target}`
- analyst, once: Compare {targets}.
- report_generator, last: Write.

## Text

Asked: {task}
"""


def test_a_template_is_read_with_its_parts() -> None:
    template = parse_template("morning", GOOD)
    assert (template.title, template.title_zh) == ("Morning look: {job}", "早间检查：{job}")
    assert template.length == timedelta(hours=36)
    assert [(p.worker, p.when) for p in template.parts] == [
        ("sql_optimizer", "each target"),
        ("analyst", "once"),
        ("report_generator", "last"),
    ]
    assert template.parts[0].text == "On {target}, find what is slow in {period}."
    assert template.parts[0].requests == (
        "get_slow_queries target={target} time_range={period}",
        "db_health target={target}",
    )
    assert template.rules == "Asked: {task}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("{job}", "{jab}"), "unknown placeholder {jab} in its title; known are {job}, {task}"),
        (("Asked: {task}", "Asked: {who} {task}"), "unknown placeholder {who} in its text"),
        (("Asked: {task}", "Asked."), "its text needs the placeholder {task}"),
        (("db_health target={target}", "db_health"), "needs the placeholder {target}: 'db_health'"),
        (("On {target}, find", "Find"), "an assignment for each target needs the placeholder {target}"),
        (("Compare {targets}", "Compare {target}"), "unknown placeholder {target} in its assignment of analyst"),
        (("Period: 36 h", "Period: soon"), "needs a line 'Period: 24 h'"),
        (("Period: 36 h", "Period: 0 h"), "needs a line 'Period: 24 h'"),
        (("# Morning look: {job}\n# 早间检查：{job}\n", ""), "begins with a title"),
        (("## Assignments", "## Parts"), "needs the headings '## Assignments'"),
        (("## Text", "## Words"), "needs the headings '## Assignments'"),
        (("- analyst, once:", "- analyst, twice:"), "cannot be read: '- analyst, twice: Compare {targets}.'"),
        (("- analyst, once:", "analyst:"), "cannot be read: 'analyst: Compare {targets}.'"),
    ],
)
def test_a_mistake_is_refused_with_what_would_be_right(change: tuple[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_template("morning", GOOD.replace(*change))
    assert said in str(refused.value)
    assert str(refused.value).startswith("report template morning: ")


def test_an_empty_list_of_assignments_is_refused() -> None:
    head, rest = GOOD.split("- sql_optimizer", 1)
    with pytest.raises(ConfigError, match="has no assignments"):
        parse_template("morning", f"{head}\n## Text{rest.split('## Text')[1]}")


def test_the_shipped_templates_are_there_with_the_default_one() -> None:
    templates = load_report_templates()
    assert set(templates) == {"daily-database", "weekly-regression", "oncall-handover"}
    assert DEFAULT_TEMPLATE in templates
    for template in templates.values():
        assert template.title != template.title_zh
        assert {"sql_optimizer", "report_generator"} <= {part.worker for part in template.parts}
        assert any(part.requests for part in template.parts)


def test_a_file_of_the_folder_replaces_a_shipped_template_or_is_a_further_one(tmp_path: Path) -> None:
    (tmp_path / "report-daily-database.md").write_text(GOOD, encoding="utf-8")
    (tmp_path / "report-capacity.md").write_text(GOOD.replace("36 h", "7 d"), encoding="utf-8")
    (tmp_path / "report.md").write_text("a prompt, not a template", encoding="utf-8")
    templates = load_report_templates(tmp_path)
    assert templates["daily-database"].length == timedelta(hours=36)
    assert templates["capacity"].length == timedelta(days=7)
    assert set(templates) == {"daily-database", "weekly-regression", "oncall-handover", "capacity"}


def test_a_file_that_cannot_be_used_stops_the_start_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "report-bad.md").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"report template bad: .*report-bad\.md cannot be read"):
        load_report_templates(tmp_path)
    (tmp_path / "report-bad.md").unlink()
    (tmp_path / "report-My Report.md").write_text(GOOD, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"report-NAME\.md"):
        load_report_templates(tmp_path)


VALUES = st.text(st.sampled_from("{}ab task\\1\n"), max_size=20)


@given(VALUES, VALUES)
def test_what_is_filled_in_stays_as_it_is(task: str, job: str) -> None:
    filled = fill("<{job}|{ task }|{job}>", {"job": job, "task": task})
    assert filled == f"<{job}|{task}|{job}>"


def read(text: str) -> str:
    """What a text is refused with; empty where it is a template."""
    try:
        parse_template("any", text)
    except ConfigError as e:
        return str(e)
    return ""


@given(st.text(st.sampled_from("#- \n`{}abtargeskTx,:onceP24h"), max_size=200))
def test_no_text_breaks_the_reading(text: str) -> None:
    assert read(text) == "" or read(text).startswith("report template any: ")
