"""Slash commands and their twins: the same words, the same answer; and what is a question stays one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from adapters.chat import Command, FileRef, Reply, ThreadRef
from adapters.commands import write_text
from agent_core.context import RunContext
from agent_core.llm.scripted import say
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from bot.access import AccessPolicy
from bot.commands import CommandRunner, RunTool, Tell, list_slash_commands
from bot.forget import NOTHING, NOTHING_FORGOTTEN
from bot.offers import build_offers
from bot.storage.base import Store
from tests.unit.bot.desk import Desk, desk
from tests.unit.bot.recording import ALICE, message

AT = datetime(2026, 1, 1, tzinfo=UTC)
URL = "https://hooks.slack.com/commands/T1/1/x"


def build_tools(ran: list[object]) -> ToolRegistry:
    registry = ToolRegistry()

    async def get_slow_queries(limit: int = 20, target: str | None = None) -> str:
        """List slow queries. And more."""
        ran.append((limit, target))
        return f"{limit} of {target}"

    async def look() -> str:
        """Look."""
        ran.append("look")
        return "looked"

    registry.register(get_slow_queries)
    registry.register(look)
    return registry


def slash(text: str, name: str = "hermod", *, number: int = 1) -> Command:
    place = ThreadRef(platform="memory", workspace="W1", channel="C1", thread=f"command-{number}")
    return Command(thread=place, id=f"c{number}", author=ALICE, name=name, text=text, sent_at=AT, respond_to=URL)


async def test_a_command_whose_work_breaks_is_answered_where_its_answer_was_announced(store: Store) -> None:
    made, _ = desk(store, [])  # the script is empty: the provider raises an AssertionError
    (post,) = await give(made, slash("ask which queries are slow?"))
    assert "Something in me broke" in post.text
    assert (post.respond_to, post.private_to) == (URL, "")


async def give(made: Desk, *given: Command) -> Sequence[Reply]:
    for command in given:
        await made.inbox.accept(command)
    await made.dispatcher.work_all()
    return made.chat.posts


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("slowq", "target=shop limit=5"),
        ("hermod", "slowq target=shop limit=5"),
        ("hermod", "get_slow_queries limit=5 target=shop"),
        ("hermod", "SLOWQ  5 target='shop'"),
    ],
)
async def test_a_command_runs_its_tool_and_everybody_sees_the_answer(store: Store, name: str, text: str) -> None:
    ran: list[object] = []
    made, provider = desk(store, [], registry=build_tools(ran))
    (post,) = await give(made, slash(text, name))
    assert ran == [(5, "shop")]
    assert (post.text, post.respond_to, post.private_to, post.feedback) == ("5 of shop", URL, "", "")
    assert provider.requests == []


@pytest.mark.parametrize(
    "text", ["slowq target=shop limit=5", "Slowq 5 target=“shop”", "get_slow_queries limit=5 target=shop"]
)
async def test_a_mention_with_the_same_words_is_the_same_command(store: Store, text: str) -> None:
    ran: list[object] = []
    made, provider = desk(store, [], registry=build_tools(ran))
    await made.inbox.accept(message(text))
    await made.dispatcher.work_all()
    assert ran == [(5, "shop")]
    assert provider.requests == []
    assert [(p.text, p.thread, p.respond_to) for p in made.chat.posts] == [("5 of shop", message("").thread, "")]


@pytest.mark.parametrize(
    "text",
    [
        "slowq for the shop, please",
        "slowq limit=many",
        "slowq limt=5",
        "usage of the disk",
        "forget what I said about the disk",
        "memory is full, why?",
        "help me with the disk",
        "look",
        "look closely",
        "the slowq command",
        "ask bob",
    ],
)
async def test_a_mention_that_is_not_a_whole_command_is_a_question(store: Store, text: str) -> None:
    ran: list[object] = []
    made, provider = desk(store, [say("answer")], registry=build_tools(ran))
    await made.inbox.accept(message(text))
    await made.dispatcher.work_all()
    assert (made.texts, ran) == (["answer"], [])
    assert provider.requests[0].messages[-1].content == text


async def test_a_word_without_a_mention_or_with_a_file_is_no_command(store: Store) -> None:
    ran: list[object] = []
    made, _ = desk(store, [say("one"), say("two"), say("three")], registry=build_tools(ran))
    await made.inbox.accept(message("hi", number=1))
    await made.inbox.accept(message("forget", number=2, mentioned=False))
    await made.dispatcher.work_all()
    await made.inbox.accept(replace(message("slowq", number=3), files=(FileRef(id="F1", name="log.txt"),)))
    await made.dispatcher.work_all()
    assert ran == []
    assert "I have forgotten" not in " ".join(made.texts)


async def test_a_command_shares_its_turn_with_no_question(store: Store) -> None:
    ran: list[object] = []
    made, provider = desk(store, [say("one"), say("two")], registry=build_tools(ran))
    for number, text in enumerate(("first", "slowq limit=3", "second"), 1):
        await made.inbox.accept(message(text, number=number))
    await made.dispatcher.work_all()
    assert made.texts == ["one", "3 of None", "two"]
    assert [r.messages[-1].content for r in provider.requests] == ["first", "second"]


async def test_ask_runs_the_agent_and_repeats_the_question_which_nobody_saw(store: Store) -> None:
    made, provider = desk(store, [say("because of the index")])
    (post,) = await give(made, slash("ask why is\nit slow?"))
    assert provider.requests[0].messages[-1].content == "why is\nit slow?"
    assert post.text == "> why is\n> it slow?\n\nbecause of the index"
    assert (post.respond_to, post.private_to) == (URL, "")
    run = (await made.store.list_runs(limit=1))[0]
    assert post.feedback == run.run_id


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (slash("slowq limt=5"), "no argument 'limt'; did you mean limit?"),
        (slash("limit=many", "slowq"), "it has to be a whole number"),
        (slash("slwq"), "Did you mean `slowq`?"),
        (slash("why is it slow?"), "`/hermod ask why is it slow?`"),
        (slash("ask"), "Write your question behind it"),
        (slash("", "py"), "There is no command `py` here"),
        (slash("help slowq"), "`/slowq [limit=...] [target=...]`: List slow queries."),
        (slash("help", "slowq"), "- `limit` (a whole number; usually 20)"),
        (slash("help nothing"), "There is no command `nothing`"),
        (slash(""), "`/hermod ask QUESTION`"),
        (slash("help"), "`/hermod look`: Look."),
        (slash("usage 0"), "no number of days"),
        (slash("", "forget"), "this command knows no thread".capitalize()),
        (slash("https://example.com/x", "forget"), "is not the link of a message"),
    ],
)
async def test_help_and_mistakes_are_told_to_the_one_who_wrote_them(store: Store, given: Command, said: str) -> None:
    made, provider = desk(store, [], registry=build_tools([]))
    (post,) = await give(made, given)
    assert said in post.text
    assert (post.private_to, post.respond_to) == (ALICE.id, URL)
    assert provider.requests == []


@pytest.mark.parametrize(("given", "said"), [(slash("", "forget"), NOTHING_FORGOTTEN), (slash("memory"), NOTHING)])
async def test_a_slash_command_in_a_thread_of_which_nothing_is_kept_is_told_so(
    store: Store, given: Command, said: str
) -> None:
    made, _ = desk(store, [], registry=build_tools([]))
    (post,) = await give(made, replace(given, thread=message("").thread))
    assert post.text == said


async def test_a_mistake_is_told_with_the_words_that_people_write(store: Store) -> None:
    made, _ = desk(store, [], registry=build_tools([]))
    (said,) = await give(made, slash("bogus=1", name="slowq"))
    assert said.text.startswith("`/slowq` has no argument 'bogus'")


async def test_a_tool_that_a_person_may_not_use_is_not_told_of(store: Store) -> None:
    ran: list[object] = []
    made, _ = desk(store, [say("answer")], registry=build_tools(ran), policy=AccessPolicy(tools=("look",)))
    first, second = await give(made, slash("limit=3", "slowq", number=1), slash("help", number=2))
    assert "There is no command `slowq` here" in first.text
    assert "slowq" not in second.text
    await made.inbox.accept(message("slowq limit=3"))
    await made.dispatcher.work_all()
    assert made.texts[-1] == "answer"
    assert ran == []


async def test_somebody_who_may_not_speak_is_told_so_alone(store: Store) -> None:
    made, _ = desk(store, [], policy=AccessPolicy(users=("U9",)))
    (post,) = await give(made, slash("help"))
    assert "not open to you" in post.text
    assert post.private_to == ALICE.id


async def test_help_as_a_mention_is_told_to_the_one_who_asked(store: Store) -> None:
    made, _ = desk(store, [], registry=build_tools([]))
    await made.inbox.accept(message("help"))
    await made.dispatcher.work_all()
    assert "/slowq" in made.texts[0]
    assert made.chat.posts[0].private_to == ALICE.id


def test_slash_commands_come_from_the_registered_tools() -> None:
    registry = build_tools([])
    assert [c.name for c in list_slash_commands(registry.specs())] == [
        "hermod",
        "slowq",
        "usage",
        "forget",
        "jobs",
        "report",
    ]

    async def run_python(code: str) -> str:
        """Run Python. Safely."""
        return code

    registry.register(run_python)
    found = {c.name: c for c in list_slash_commands(registry.specs(), "ops-")}
    assert list(found) == ["ops-hermod", "ops-slowq", "ops-py", "ops-usage", "ops-forget", "ops-jobs", "ops-report"]
    assert (found["ops-py"].summary, found["ops-py"].usage) == ("Run Python", "code=...")


async def test_a_prefix_is_part_of_the_slash_command_and_may_be_left_out_of_a_mention(store: Store) -> None:
    ran: list[object] = []
    made, _ = desk(store, [], registry=build_tools(ran), command_prefix="ops-")
    await give(made, slash("limit=1", "ops-slowq", number=1), slash("slowq limit=2", "ops-hermod", number=2))
    await made.inbox.accept(message("slowq limit=3", number=3))
    await made.inbox.accept(message("ops-slowq limit=4", number=4))
    await made.dispatcher.work_all()
    assert ran == [(1, None), (2, None), (3, None), (4, None)]
    (help_,) = [p for p in await give(made, slash("help", "ops-hermod", number=5)) if "run directly" in p.text]
    assert "`/ops-slowq " in help_.text


def discord(text: str, name: str, *, number: int) -> Command:
    """What a person filled in on a platform whose commands have typed options."""
    place = ThreadRef(platform="discord", workspace="7", channel="8", thread=f"command-{number}")
    return Command(thread=place, id=f"d{number}", author=ALICE, name=name, text=text, sent_at=AT, respond_to="1/token")


async def test_ask_is_a_command_of_its_own_and_repeats_the_question(store: Store) -> None:
    made, provider = desk(store, [say("because of the index")])
    (post,) = await give(made, slash("why is\nit slow?", "ask"))
    assert provider.requests[0].messages[-1].content == "why is\nit slow?"
    assert post.text == "> why is\n> it slow?\n\nbecause of the index"


async def test_ask_without_a_question_is_told_so(store: Store) -> None:
    made, provider = desk(store, [])
    (post,) = await give(made, slash(" ", "ask"))
    assert "Write your question behind it" in post.text
    assert post.private_to == ALICE.id
    assert provider.requests == []


def build_runner(registry: ToolRegistry) -> CommandRunner:
    return CommandRunner(ToolExecutor(registry), registry=registry, prefix="ops-")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("hermod", "help", "`/slowq [limit=...] [target=...]`"),
        ("hermod", "", "`/ask QUESTION`"),
        ("hermod", "slwq now", "For a question write `/ask slwq now`"),
        ("slowq", "limt=5", "`/slowq` has no argument 'limt'"),
        ("ask", "", "`/ask which queries are slow?`"),
    ],
)
def test_help_names_the_commands_as_the_platform_has_them(name: str, text: str, said: str) -> None:
    given = discord(text, name, number=1)
    runner = build_runner(build_tools([]))
    reading = runner.read(RunContext.create(given.thread.key), given)
    assert isinstance(reading, Tell)
    assert said in reading.text
    assert "ops-" not in reading.text


def test_what_was_filled_in_is_the_same_command_as_the_typed_one() -> None:
    runner, spec = build_runner(build_tools([])), build_tools([]).specs()[0]
    (offer,) = [o for o in build_offers([spec], ()) if o.name == "slowq"]
    given = discord(write_text(offer, {"limit": 5, "target": 'a "shop"'}), "slowq", number=1)
    reading = runner.read(RunContext.create(given.thread.key), given)
    assert isinstance(reading, RunTool)
    assert reading.arguments == {"limit": 5, "target": 'a "shop"'}
