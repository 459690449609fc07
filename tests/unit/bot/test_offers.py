"""What a platform with typed commands is told, and that what people fill in is read back as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.chat import Author, ThreadRef
from adapters.commands import CommandOffer, CommandOption, Completing, write_text
from agent_core.context import SystemClock
from agent_core.llm.types import ToolSpec
from agent_core.tools.base import Effect
from agent_core.tools.builtin import register_builtin
from agent_core.tools.registry import ToolRegistry
from bot.access import AccessPolicy
from bot.arguments import fields_of, read_arguments, read_value, required_of, split_words, types_of
from bot.commands import FORGET, JOBS, MEMORY, REPORT, TOOL_COMMANDS, USAGE
from bot.jobs.commands import build_job_commands
from bot.jobs.desk import Asking, JobDesk
from bot.jobs.keeping import JobKeeper
from bot.offers import JOB_VERBS, RANGES, SUMMARY_MAX, build_complete, build_offers, shorten
from bot.storage import open_store
from bot.tools.slow_queries import register_slow_query_tools
from bot.tools.slow_queries.time_range import parse_time_range
from bot.tools.targets import Target, Targets

OWN = (USAGE, FORGET, MEMORY)
ALICE = Author(id="1", name="Alice")
PLACE = ThreadRef(platform="discord", workspace="7", channel="8", thread="9")

Colour = Literal["red", "green"]
Many = Literal[
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m",
    "n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z",
]  # fmt: skip


def build_registry(*targets: str) -> ToolRegistry:
    registry = ToolRegistry()
    known = Targets([Target.from_url(name, f"postgresql://u@h/{name}") for name in targets])
    register_slow_query_tools(registry, known, open_store("sqlite:///never-opened.db"), SystemClock())
    register_builtin(registry)

    async def run_python(code: str, note: str | int = "", keep: bool = False, letter: Many = "a") -> str:
        """Run Python in a sandbox: nothing leaves it. And more.

        Args:
            code: the program.
        """
        return code

    async def paint(
        colour: Colour,
        words: list[str],
        amount: float,
        count: int | None = None,
        name: str | None = None,
        extra: dict[str, int] | None = None,
    ) -> str:
        """Paint."""
        return colour

    registry.register(run_python, effect=Effect.EXEC)
    registry.register(paint)
    return registry


REGISTRY = build_registry("shop", "crm")
SPECS = {spec.name: spec for spec in REGISTRY.specs()}
OFFERS = {offer.name: offer for offer in build_offers(REGISTRY.specs(), OWN)}


def options(name: str) -> dict[str, CommandOption]:
    return {option.name: option for option in OFFERS[name].options}


def find_jobs(asking: Asking) -> Sequence[str]:
    """The jobs that this person may ask about here."""
    return ("daily", "weekly") if asking.place == "discord:7/8" else ()


def complete(
    what: str, typed: str, *, policy: AccessPolicy | None = None, author: Author = ALICE, place: ThreadRef = PLACE
) -> list[str]:
    found = build_complete(REGISTRY, OWN, ["shop", "crm"], policy or AccessPolicy(), jobs=find_jobs)
    return list(found(Completing(completes=what, typed=typed, thread=place, author=author)))


def test_the_commands_are_the_questions_the_short_named_tools_and_hermods_own() -> None:
    assert list(OFFERS) == ["ask", "hermod", "slowq", "explain", "py", "usage", "forget"]
    assert [o.name for o in OFFERS.values() if o.private] == ["usage", "forget"]
    assert [o.name for o in OFFERS.values() if o.plain] == ["ask", "hermod", "usage", "forget"]
    assert [o.name for o in build_offers((), ())] == ["ask", "hermod"]


def test_options_have_the_types_bounds_and_choices_of_the_schema() -> None:
    slowq = options("slowq")
    assert {name: option.kind for name, option in slowq.items()} == {
        "time_range": "text",
        "threshold": "number",
        "target": "text",
        "order_by": "text",
        "limit": "integer",
        "user": "text",
        "database": "text",
        "app": "text",
        "include_system": "boolean",
    }
    assert slowq["order_by"].choices == ("total", "mean", "max", "p95", "calls", "io", "temp", "wal")
    assert (slowq["limit"].minimum, slowq["limit"].maximum) == (1, 100)
    assert (slowq["threshold"].minimum, slowq["threshold"].maximum) == (0, 86_400)
    assert (slowq["target"].completes, slowq["target"].choices) == ("target", ())
    assert slowq["time_range"].completes == "time-range"
    assert slowq["limit"].summary == "Most rows to return. Usually 20."
    assert slowq["include_system"].summary.endswith("Usually no.")
    assert options("ask")["question"].required
    assert not options("hermod")["command"].required


def test_needed_options_come_first_and_every_text_fits() -> None:
    for spec in (*REGISTRY.specs(), *build_registry().specs()):
        offer = offer_of(spec)
        needed = [option.required for option in offer.options]
        assert needed == sorted(needed, reverse=True)
        assert {o.name for o in offer.options if o.required} == set(required_of(spec))
        texts = [offer.summary, *(option.summary for option in offer.options)]
        assert all(1 <= len(text) <= SUMMARY_MAX for text in texts), texts


def offer_of(spec: ToolSpec) -> CommandOffer:
    """Offer any tool as if it had a short name."""
    (offer,) = [o for o in build_offers([renamed(spec)], ()) if o.name == "py"]
    return offer


def renamed(spec: ToolSpec) -> ToolSpec:
    return ToolSpec(name="run_python", description=spec.description, parameters=spec.parameters)


def test_a_tool_whose_arguments_cannot_be_options_takes_them_as_one_text() -> None:
    schema: dict[str, Any] = {"properties": {"Name": {"type": "string"}}, "required": ["Name"]}
    offer = offer_of(ToolSpec(name="x", description="X.", parameters=schema))
    assert offer.plain
    assert [o.name for o in offer.options] == ["arguments"]
    many = {f"a{n}": {"type": "string"} for n in range(30)}
    offer = offer_of(ToolSpec(name="x", description="X.", parameters={"properties": many, "required": ["a29"]}))
    assert not offer.plain
    assert [o.name for o in offer.options] == ["a29", *(f"a{n}" for n in range(24))]


def test_more_choices_than_can_be_listed_are_suggested() -> None:
    letter = options("py")["letter"]
    assert letter.choices == ()
    assert complete(letter.completes, "") == list("abcdefghijklmnopqrstuvwxy")
    assert complete(letter.completes, "z") == ["z"]
    assert complete("nothing/known", "") == []


@pytest.mark.parametrize(
    ("what", "typed", "found"),
    [
        ("target", "", ["shop", "crm"]),
        ("target", "CR", ["crm"]),
        ("target", "op", ["shop"]),
        ("target", "x", []),
        ("word", "slow", ["slowq"]),
        ("word", "me", ["memory", "current_time"]),
        ("word", "ask", ["ask"]),
        ("word", "read_o", []),
        ("time-range", "last_2", ["last_2h"]),
        ("job", "", ["daily", "weekly"]),
        ("job", "WEEK", ["weekly"]),
        ("job-words", "pa", ["pause daily", "pause weekly"]),
        ("job-words", "stop w", ["stop weekly"]),
        ("job-words", "list", ["list"]),
        ("job-words", "add every monday", []),
    ],
)
def test_suggestions_begin_with_what_was_typed_or_hold_it(what: str, typed: str, found: list[str]) -> None:
    assert complete(what, typed) == found


def test_options_that_name_a_job_complete_the_jobs_of_the_channel() -> None:
    offers = {offer.name: offer for offer in build_offers((), (JOBS, REPORT))}
    assert [option.completes for option in offers["report"].options] == ["job"]
    assert [option.completes for option in offers["jobs"].options] == ["job-words"]
    elsewhere = ThreadRef(platform="discord", workspace="7", channel="88", thread="9")
    assert complete("job", "", place=elsewhere) == []
    assert complete("job-words", "", place=elsewhere) == ["list"]


def test_every_suggested_word_about_jobs_is_one_that_is_taken() -> None:
    store, clock = open_store("sqlite:///never-opened.db"), SystemClock()
    keeper = JobKeeper(store, clock, adapters={}, targets=(), workers=(), templates=(), wake=lambda: None)
    jobs, _ = build_job_commands(JobDesk(store, keeper, clock, policy=AccessPolicy()))
    assert jobs.accepts is not None
    suggested = [words for verb in ("list", *JOB_VERBS) for words in complete("job-words", verb)]
    assert len(suggested) == 1 + 2 * len(JOB_VERBS)
    assert all(jobs.accepts(words) for words in suggested)


def test_jobs_are_suggested_for_what_a_person_may_do_with_them() -> None:
    looks, changes = AccessPolicy(tools=("list_jobs",)), AccessPolicy(tools=("change_job",))
    assert complete("job-words", "", policy=looks) == ["list", "show daily", "show weekly"]
    assert "show daily" not in complete("job-words", "", policy=changes)
    assert "run daily" in complete("job-words", "", policy=changes)
    assert complete("job", "", policy=changes) == ["daily", "weekly"]
    assert complete("job", "", policy=looks) == []
    for what in ("job", "job-words"):
        assert complete(what, "", policy=AccessPolicy(users=("2",))) == []


def test_every_suggested_time_range_can_be_read() -> None:
    now = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
    for text in RANGES:
        assert parse_time_range(text, now=now).start < now


def test_nothing_is_suggested_that_a_person_may_not_use() -> None:
    for what in ("target", "word", "time-range", "run_python/letter"):
        assert complete(what, "") != []
        assert complete(what, "", policy=AccessPolicy(users=("2",))) == []
    assert complete("target", "", author=Author(id="1", name="Alice", unknown=True)) == []
    here = AccessPolicy(channel_targets={"discord:7/8": ("shop",)}, targets=("shop", "crm"))
    assert complete("target", "", policy=here) == ["shop"]
    elsewhere = ThreadRef(platform="discord", workspace="7", channel="88", thread="9")
    assert complete("target", "", policy=here, place=elsewhere) == []
    assert "py" not in complete("word", ""), "running code is off until a rule names it"
    assert "py" in complete("word", "", policy=AccessPolicy(tools=("run_python",)))


@given(st.text(max_size=300), st.integers(10, 120))
def test_a_shortened_text_fits_on_one_line(text: str, most: int) -> None:
    found = shorten(text, most)
    assert len(found) <= most
    assert "\n" not in found
    assert found == " ".join(text.split()) or found.endswith("…")


# -- there and back --------------------------------------------------------------------------------

NASTY = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.text(st.sampled_from("\\\"'`“”„«»‘’ \n\t=a{[,1"), max_size=20),
    st.sampled_from(
        ["null", "none", "", "true", "5", "a=b", 'limit="7"', "```sql\nselect 1\n```", "\\", '\\"', "\x1c"]
    ),
)


def values_for(schema: Mapping[str, object], option: CommandOption) -> st.SearchStrategy[object]:
    """What Discord may send for an option."""
    if choices := schema.get("enum"):
        assert isinstance(choices, list)
        return st.sampled_from([str(choice) for choice in choices])
    low, high = option.minimum, option.maximum
    match option.kind:
        case "integer":
            return st.integers(-(2**53) if low is None else int(low), 2**53 if high is None else int(high))
        case "number":
            return st.floats(-(2.0**53) if low is None else low, 2.0**53 if high is None else high, allow_nan=False)
        case "boolean":
            return st.booleans()
        case "text":
            if "array" in types_of(schema):
                return st.sampled_from(['["a", "b \\" c"]', "[]"])
            if "object" in types_of(schema):
                return st.sampled_from(['{"a": 1}', "{}"])
            return NASTY


@given(st.data(), st.sampled_from(sorted(SPECS)))
def test_what_was_filled_in_is_read_back_exactly(data: st.DataObject, name: str) -> None:
    spec = SPECS[name]
    offer, fields = offer_of(spec), fields_of(spec)
    given_values = {
        option.name: data.draw(values_for(fields[option.name], option), label=option.name)
        for option in offer.options
        if option.required
        or "x-needed-unless" in fields[option.name]
        or data.draw(st.booleans(), label=f"give {option.name}")
    }
    text = write_text(offer, given_values)
    found = read_arguments(spec, text, split_words(text))
    expected = {
        # JSON and SQL are filled in as a text, and mean the same as in any other command
        field: read_value(field, fields[field], str(value), quoted=True)
        if types_of(fields[field]) & {"array", "object"} or fields[field].get("format") == "sql"
        else value
        for field, value in given_values.items()
    }
    assert found == expected
    numbers = {k: v for k, v in expected.items() if "number" not in types_of(fields[k])}
    assert {k: type(found[k]) for k in numbers} == {k: type(v) for k, v in numbers.items()}


@example(0.00010172412479382241).via("the most digits behind the point")
@example(5e-324).via("the smallest number")
@example(2.0**53).via("the largest that Discord takes")
@given(st.floats(-(2.0**53), 2.0**53, allow_nan=False))
def test_every_number_keeps_all_its_digits(number: float) -> None:
    spec = SPECS["paint"]
    values = {"colour": "red", "words": "[]", "amount": number}
    text = write_text(offer_of(spec), values)
    assert read_arguments(spec, text, split_words(text)) == {"colour": "red", "words": [], "amount": number}


def test_free_text_is_passed_on_as_it_stands() -> None:
    assert write_text(OFFERS["ask"], {"question": 'why "is\nit" slow=1?'}) == 'why "is\nit" slow=1?'
    assert write_text(OFFERS["hermod"], {"arguments": "limit=5", "command": "slowq"}) == "slowq limit=5"
    assert write_text(OFFERS["usage"], {"days": 3}) == "3"
    assert write_text(OFFERS["usage"], {}) == ""


def test_every_short_name_has_an_offer_once_its_tool_is_registered() -> None:
    assert {OFFERS[short].name for tool, short in TOOL_COMMANDS.items() if tool in SPECS} == {"slowq", "explain", "py"}
