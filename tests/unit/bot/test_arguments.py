"""Words that a person writes become a tool's arguments, or a mistake that says how they are written."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.context import SystemClock
from agent_core.llm.types import ToolSpec
from agent_core.tools.builtin import register_builtin
from agent_core.tools.registry import ToolRegistry
from bot.arguments import (
    BadArguments,
    describe_arguments,
    describe_usage,
    fields_of,
    join_words,
    read_arguments,
    split_words,
    write_arguments,
)
from bot.storage import open_store
from bot.tools.slow_queries import register_slow_query_tools
from bot.tools.targets import Target, Targets


def build_specs(*targets: str) -> dict[str, ToolSpec]:
    registry = ToolRegistry()
    known = Targets([Target.from_url(name, f"postgresql://u@h/{name}") for name in targets])
    register_slow_query_tools(registry, known, open_store("sqlite:///never-opened.db"), SystemClock())
    register_builtin(registry)

    async def annotate(
        text: str, tags: list[str] | None = None, urgent: bool = False, number: int | None = None
    ) -> str:
        """Annotate."""
        return text

    registry.register(annotate)
    return {spec.name: spec for spec in registry.specs()}


SPECS = build_specs("shop", "crm")
SLOW, EXPLAIN, CALCULATOR = SPECS["get_slow_queries"], SPECS["explain_query"], SPECS["calculator"]
ORDERS = "select * from orders where note = 'x  y' and customer_id = 42"


def read(spec: ToolSpec, text: str, *, strict: bool = False) -> dict[str, object]:
    return read_arguments(spec, text, split_words(text), strict=strict)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        ("target=shop limit=5", {"target": "shop", "limit": 5}),
        ("last_2h 0.5 shop", {"time_range": "last_2h", "threshold": 0.5, "target": "shop"}),
        ("shop last 2 hours", {"target": "shop", "time_range": "last 2 hours"}),
        ("SHOP", {"target": "shop"}),
        ("45 minutes 500ms calls", {"time_range": "45 minutes", "threshold": 0.5, "order_by": "calls"}),
        ("threshold=2min include_system", {"threshold": 120.0, "include_system": True}),
        ("include_system=no limit=100", {"include_system": False, "limit": 100}),
        ('time_range="last 2 hours"', {"time_range": "last 2 hours"}),
        ("“last 2 hours” target=‘crm’", {"time_range": "last 2 hours", "target": "crm"}),
    ],
)
def test_values_are_typed_and_their_order_does_not_matter(
    text: str, arguments: dict[str, object], strict: bool
) -> None:
    found = read(SLOW, text, strict=strict)
    assert found == arguments
    assert {k: type(v) for k, v in found.items()} == {k: type(v) for k, v in arguments.items()}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("text", "sql", "target"),
    [
        (ORDERS, ORDERS, None),
        (f"{ORDERS} target=shop", ORDERS, "shop"),
        (f"target=shop {ORDERS}", ORDERS, "shop"),
        (f'"{ORDERS}" target=shop', ORDERS, "shop"),
        (f"`{ORDERS}`", ORDERS, None),
        (f"```sql\n{ORDERS}\n```", ORDERS, None),
        (f"sql=`{ORDERS}`", ORDERS, None),
        ("explain select 1;", "select 1", None),
        ("select c from t where target=3", "select c from t where target=3", None),
        ("select c from t where a = 1 and target=3", "select c from t where a = 1 and target=3", None),
    ],
)
def test_sql_is_taken_as_it_stands_with_its_own_quotes_and_equal_signs(
    text: str, sql: str, target: str | None, strict: bool
) -> None:
    assert read(EXPLAIN, text, strict=strict) == {"sql": sql} | ({"target": target} if target else {})


@pytest.mark.parametrize(
    "text", ["why is it slow", "with more detail", "the last one", f"{ORDERS} please", "select", "", "it for shop"]
)
def test_a_sentence_is_no_statement_where_it_might_be_a_question(text: str) -> None:
    with pytest.raises(BadArguments):
        read(EXPLAIN, text, strict=True)


def test_a_text_that_cannot_be_checked_is_taken_where_only_a_command_can_be_meant() -> None:
    assert read(SPECS["annotate"], "disk is full urgent=yes") == {"text": "disk is full", "urgent": True}
    assert read(SPECS["annotate"], 'number=3 "disk is full"', strict=True) == {"text": "disk is full", "number": 3}
    assert read(SPECS["annotate"], 'x tags=["a","b"]') == {"text": "x", "tags": ["a", "b"]}
    with pytest.raises(BadArguments):
        read(SPECS["annotate"], "disk is full", strict=True)


@pytest.mark.parametrize(
    ("spec", "text", "said"),
    [
        (SLOW, "limt=5", "no argument 'limt'; did you mean limit?"),
        (SLOW, "last_2h limt=5", "no argument 'limt'"),
        (SLOW, "limit=5 limit=6", "limit is given twice"),
        (SLOW, "limit=many", "limit=many: it has to be a whole number"),
        (SLOW, "include_system=perhaps", "yes or no"),
        (SLOW, "order_by=meen", "one of total, mean, max, p95, calls, io, temp, wal; did you mean mean?"),
        (SLOW, "target=shpo", "one of crm, shop; did you mean shop?"),
        (SLOW, "whatever", "'whatever' fits no argument of get_slow_queries"),
        (SLOW, '"last 2 hours', "the quote before '\"last 2 hours' is not closed"),
        (EXPLAIN, "target=shop", "explain_query needs sql or fingerprint"),
        (CALCULATOR, "x=3", "no argument 'x'"),
        (SPECS["annotate"], "x tags=5", "a JSON list"),
    ],
)
def test_a_mistake_says_what_is_wrong(spec: ToolSpec, text: str, said: str) -> None:
    with pytest.raises(BadArguments) as e:
        read(spec, text)
    assert said in str(e.value)


def test_words_that_a_shell_has_split_keep_their_blanks() -> None:
    text, words = join_words(["target=shop", f"sql={ORDERS}"])
    assert read_arguments(EXPLAIN, text, words) == {"target": "shop", "sql": ORDERS}
    text, words = join_words(["select", "1"])
    assert read_arguments(EXPLAIN, text, words) == {"sql": "select 1"}
    text, words = join_words([ORDERS])
    assert read_arguments(EXPLAIN, text, words) == {"sql": ORDERS}


def test_how_a_tool_is_called_names_kinds_defaults_and_choices() -> None:
    usage = "explain_query [sql=...] [fingerprint=...] [params=...] [mode=...] [format=...] [target=...]"
    assert describe_usage(EXPLAIN) == f"write: {usage}"
    lines = describe_arguments(SLOW)
    assert "- `limit` (a whole number; usually 20): Most rows to return." in lines
    choices = "total, mean, max, p95, calls, io, temp, wal; usually total"
    assert any(line.startswith(f"- `order_by` ({choices}): total: time of all executions") for line in lines)
    assert describe_arguments(EXPLAIN)[0].startswith("- `sql` (a text): One statement; ")


def test_a_fingerprint_stands_for_the_statement_and_a_name_is_taken_by_name_only() -> None:
    assert read(EXPLAIN, "9f3c2ab41d0e77aa") == {"fingerprint": "9f3c2ab41d0e77aa"}
    assert read(SLOW, "user=app database=shop") == {"user": "app", "database": "shop"}
    with pytest.raises(BadArguments, match="fits no argument"):
        read(SLOW, "app_user")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(
    text=TEXTS,
    urgent=st.booleans(),
    number=st.integers(-(10**17), 10**17),
    tags=st.lists(TEXTS, max_size=3),
)
def test_written_arguments_are_read_back_as_they_were(text: str, urgent: bool, number: int, tags: list[str]) -> None:
    arguments = {"text": text, "urgent": urgent, "number": number, "tags": tags}
    assert read(SPECS["annotate"], write_arguments(arguments), strict=True) == arguments


@given(st.text(max_size=60), st.sampled_from(sorted(SPECS)), st.booleans())
def test_any_text_is_read_or_told_what_is_wrong(text: str, name: str, strict: bool) -> None:
    with suppress(BadArguments):
        assert read(SPECS[name], text, strict=strict).keys() <= fields_of(SPECS[name]).keys()


@given(st.text(max_size=60))
def test_words_cover_the_text_in_order(text: str) -> None:
    try:
        words = split_words(text)
    except BadArguments:
        return
    places = [(w.start, w.end) for w in words]
    assert places == sorted(places)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(places))
    assert " ".join(text[a:b] for a, b in places).split() == text.split()
