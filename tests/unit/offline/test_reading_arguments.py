"""Arguments of unknown tools, read by their schema alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.tools.registry import ToolRegistry
from reading.clause import Clause
from reading.sqltext import read_sql
from reading.words import mend_spelling, tokenize
from reading.zones import read_zones
from tests.evals.scoring import NOW
from tests.evals.toolset import CORE
from tests.unit.offline.talking import Thread, make_spec

STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("explain select * from orders where id = 5?", "select * from orders where id = 5"),
        ("on shop: explain drop table items", "explain drop table items"),
        ("explain create unique index i on t (a);", "explain create unique index i on t (a)"),
        ("explain\n```sql\nselect 1\n```\nplease", "select 1"),
        ("plan of `select a, b from t` please", "select a, b from t"),
        ("EXPLAIN ANALYZE SELECT * FROM t;", "SELECT * FROM t"),
        ("explain WITH x AS (SELECT 1) SELECT * FROM x", "WITH x AS (SELECT 1) SELECT * FROM x"),
        ("explain update t set a = 1 where b = 'x; y'", "update t set a = 1 where b = 'x; y'"),
        ("解释 delete from t where a = 1 的执行计划", "delete from t where a = 1"),
        ("explain insert into t values ('的，what')", "insert into t values ('的，what')"),
        ("explain select 1; what is 2+2?", "select 1"),
        ("explain select 1; drop table t", "select 1; drop table t"),
        ("``select `a`, b from t``", "select `a`, b from t"),
    ],
)
def test_sql_is_taken_out_of_a_message(text: str, sql: str) -> None:
    found = read_sql(text)
    assert found is not None
    assert found.value == sql


@pytest.mark.parametrize(
    "text",
    [
        "show queries with more than 2 seconds",
        "select the slowest queries from the last hour",
        "update me on the slow queries",
        "please select one from our list",
        "insert coin",
        "explain the drop in throughput since yesterday",
        "explain create table",
    ],
)
def test_english_sentences_are_no_sql(text: str) -> None:
    assert read_sql(text) is None


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("time in New York", "America/New_York"),
        ("time in america/chicago", "America/Chicago"),
        ("in São Paulo? no, in Sao Paulo", "America/Sao_Paulo"),
        ("time in St. Petersburg", "Europe/Moscow"),
        ("LA time", "America/Los_Angeles"),
        ("UTC", "UTC"),
        ("UTC+8", "Etc/GMT-8"),
        ("上海几点", "Asia/Shanghai"),
        ("德国时间", "Europe/Berlin"),
        ("in India", "Asia/Kolkata"),
    ],
)
def test_places_become_time_zones(text: str, zone: str) -> None:
    assert [z.value for z in read_zones(text)] == [zone]


def test_an_unknown_place_is_handed_on_as_it_is_written() -> None:
    assert [(z.value, z.known) for z in read_zones("time in Atlantis")] == [("Atlantis", False)]


WEATHER = make_spec("get_weather", "Tell the weather of a city.", {"city": STRING, "days": INTEGER}, required=["city"])
ISSUE = make_spec(
    "create_ticket",
    "Open a ticket in the tracker.",
    {"title": STRING, "severity": {"enum": ["low", "high", "urgent"]}, "notify": {"type": "boolean"}},
    required=["title"],
    examples=[("open a ticket: checkout is down", {"title": "checkout is down"})],
)
KILL = make_spec("cancel_backend", "Cancel a session.", {"pid": INTEGER}, required=["pid"])
CONVERT = make_spec(
    "convert_units",
    "Convert an amount from one unit to another.",
    {"amount": {"type": "number"}, "unit": {"enum": ["km", "miles"]}},
    required=["amount"],
)
LOGS = make_spec(
    "tail_logs",
    "Show the newest log lines of a service.",
    {
        "service": STRING,
        "lines": {"type": "integer", "default": 50},
        "since": {"type": "string", "format": "time-range"},
    },
    required=["service"],
    examples=[("show the logs of checkout", {"service": "checkout"})],
)
TOOLS = (WEATHER, ISSUE, KILL, CONVERT, LOGS)


@pytest.mark.parametrize(
    ("question", "call"),
    [
        ("what is the weather in Paris?", ("get_weather", {"city": "Paris"})),
        ("weather for San Francisco please", ("get_weather", {"city": "San Francisco"})),
        ("weather in Rome for 3 days", ("get_weather", {"city": "Rome", "days": 3})),
        ('open a ticket "disk is full on db-3"', ("create_ticket", {"title": "disk is full on db-3"})),
        ("open a ticket: disk is full", ("create_ticket", {"title": "disk is full"})),
        (
            'open an urgent ticket "disk is full" and notify',
            ("create_ticket", {"title": "disk is full", "severity": "urgent", "notify": True}),
        ),
        ("cancel session with pid 4711", ("cancel_backend", {"pid": 4711})),
        ("cancel session 4711", ("cancel_backend", {"pid": 4711})),
        ("convert 12.5 miles", ("convert_units", {"amount": 12.5, "unit": "miles"})),
        ("show the logs of payments", ("tail_logs", {"service": "payments"})),
        ("tail_logs service=payments lines=10", ("tail_logs", {"service": "payments", "lines": 10})),
        ("logs of payments in the last hour", ("tail_logs", {"service": "payments", "since": "last_1h"})),
        ("payments 的日志，最近10分钟", ("tail_logs", {"service": "payments", "since": "last_10min"})),
    ],
)
async def test_tools_nobody_prepared_for_are_reached_with_their_arguments(question: str, call: tuple[str, Any]) -> None:
    assert await Thread(TOOLS).calls(question) == [call]


async def test_an_argument_named_like_a_column_is_read_from_a_row() -> None:
    running = make_spec("running_sessions", "List running sessions.")
    rows = {"ok": True, "rows": [{"pid": 11, "age_s": 2.0}, {"pid": 12, "age_s": 90.0}]}
    thread = Thread((running, KILL), {"running_sessions": rows})
    await thread.ask("running sessions")
    assert await thread.calls("cancel the first one") == [("cancel_backend", {"pid": 11})]
    assert await thread.calls("cancel the longest one") == [("cancel_backend", {"pid": 12})]


async def test_optional_arguments_are_found_behind_references_and_any_of() -> None:
    tool = make_spec("list_alerts", "List alerts.", {"level": {"anyOf": [{"$ref": "#/$defs/Level"}, {"type": "null"}]}})
    parameters = {**tool.parameters, "$defs": {"Level": {"enum": ["warning", "critical"], "type": "string"}}}
    tool = replace(tool, parameters=parameters)
    assert await Thread((tool,)).calls("list critical alerts") == [("list_alerts", {"level": "critical"})]


def test_slips_are_mended_towards_words_of_the_tools_only() -> None:
    lexicon = {"query", "queries", "hour", "explain"}
    assert mend_spelling("slow qeries last huor, expalin", lexicon) == "slow queries last hour, explain"
    for text in ("three of these", "form", "yours", "pg_qeury", "a/huor"):
        assert mend_spelling(text, lexicon) == text


def test_words_far_behind_in_a_pasted_text_say_nothing() -> None:
    assert Clause("x " * 100 + "in the last hour", NOW).times.durations
    assert not Clause("x " * 3000 + "in the last hour", NOW).times.durations


@given(st.text(max_size=80))
def test_tokens_stand_where_they_say(text: str) -> None:
    for token in tokenize(text):
        assert text.lower()[token.start : token.end].startswith(token.text[:1])
        assert token.start < token.end <= len(text.lower())


def hidden_tools() -> ToolRegistry:
    """Tools with nothing but a name, a signature and one sentence."""
    registry = ToolRegistry()

    @registry.register
    def disk_usage(host: str) -> str:
        """Show the disk usage of a host."""
        return host

    @registry.register
    def lookup_order(order_id: int) -> str:
        """Look up an order by its id."""
        return str(order_id)

    @registry.register
    def roll_dice(sides: int = 6, count: int = 1) -> str:
        """Roll dice."""
        return str(sides * count)

    @registry.register
    def reverse_text(text: str) -> str:
        """Reverse a piece of text."""
        return text

    @registry.register
    def echo(message: str) -> str:
        """Say a message back."""
        return message

    @registry.register
    def restart_service(service: str, force: bool = False) -> str:
        """Restart a service."""
        return f"{service} {force}"

    @registry.register
    def convert_temperature(value: float, unit: Literal["celsius", "fahrenheit"]) -> str:
        """Convert a temperature to the given unit."""
        return f"{value} {unit}"

    @registry.register
    def list_deployments(environment: Literal["staging", "production"] = "production", limit: int = 10) -> str:
        """List the latest deployments of an environment."""
        return f"{environment} {limit}"

    return registry


@pytest.mark.parametrize(
    ("question", "call"),
    [
        ("how full is the disk on web-1?", ("disk_usage", {"host": "web-1"})),
        ("look up order 1234", ("lookup_order", {"order_id": 1234})),
        ("查一下订单 42", ("lookup_order", {"order_id": 42})),
        ("roll a dice", ("roll_dice", {})),
        ("roll 2 dice with 20 sides", ("roll_dice", {"sides": 20, "count": 2})),
        ("reverse the text hello world", ("reverse_text", {"text": "hello world"})),
        ("please echo: good morning everyone", ("echo", {"message": "good morning everyone"})),
        ("restart the payments service", ("restart_service", {"service": "payments"})),
        ("restart service checkout with force", ("restart_service", {"service": "checkout", "force": True})),
        ("重启 payments 服务", ("restart_service", {"service": "payments"})),
        ("convert temperature 98.6 to celsius", ("convert_temperature", {"value": 98.6, "unit": "celsius"})),
        ("show the last 5 deployments on staging", ("list_deployments", {"environment": "staging", "limit": 5})),
    ],
)
async def test_tools_with_one_sentence_and_no_example_are_reached(question: str, call: tuple[str, Any]) -> None:
    assert await Thread((*CORE, *hidden_tools().specs())).calls(question) == [call]
