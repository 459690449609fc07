"""What a thread remembers across runs: summaries, whole outputs, kept answers; and the words about it."""

from __future__ import annotations

from dataclasses import replace

from agent_core.agent import Agent
from agent_core.context import SystemClock
from agent_core.llm.cache import AnswerCache, MemoryExact
from agent_core.llm.scripted import call, say
from agent_core.memory.summarize import SUMMARY_MARK
from agent_core.tools.outputs import register_read_output
from agent_core.tools.registry import ToolRegistry
from bot.memory import load_memory
from bot.storage.base import Store
from tests.unit.bot.desk import Desk, desk
from tests.unit.bot.recording import message
from tests.unit.engine.running import WordCounter

AGENT = Agent(name="operations", memory_tokens=600, stream=False)
LONG = "word " * 60
TURNS = [*(say(f"answer {n} {LONG}") for n in range(4)), say("they need an index"), say("ok")]
"""Four answers fit into the budget; before the fifth the older half becomes a summary."""


async def ask(made: Desk, *texts: str, first: int = 1, thread: str = "t1", channel: str = "C1") -> None:
    for number, text in enumerate(texts, first):
        await made.inbox.accept(message(text, number=number, thread=thread, channel=channel))
        await made.dispatcher.work_all()


async def test_a_summary_outlives_the_process_and_stands_for_the_messages_that_it_covers(store: Store) -> None:
    made, _ = desk(
        store, [*(say(f"answer {n} {LONG}") for n in range(4)), say("they need an index"), say("ok")], agent=AGENT
    )
    await ask(made, *(f"question {n} {LONG}" for n in range(5)))
    row = await store.load_summary("memory:W1/C1/t1")
    assert row is not None
    assert (row.text, row.author) == ("they need an index", "model")
    again, provider = desk(store, [say("yes")], agent=replace(AGENT, memory_tokens=5_000))
    await ask(again, "and now?", first=9)
    sent = [m.content for m in provider.requests[0].messages]
    assert sent[1] == f"{SUMMARY_MARK}\n\nthey need an index"
    assert not any("question 0" in text for text in sent)
    assert any("question 4" in text for text in sent)


async def test_people_see_correct_and_drop_the_summary_with_words_in_the_thread(store: Store) -> None:
    made, _ = desk(
        store, [*(say(f"answer {n} {LONG}") for n in range(4)), say("they need an index"), say("ok")], agent=AGENT
    )
    await ask(made, "!summary", *(f"question {n} {LONG}" for n in range(5)), "!summary", first=1)
    assert made.texts[0].startswith("This thread has no summary")
    assert "they need an index" in made.texts[-1]
    await ask(made, "!summary they need *no* index", "!summary", first=20)
    assert "they need *no* index" in made.texts[-1]
    assert "memory:" in made.texts[-1], "who corrected it is told"
    await ask(made, "!summary forget", "!summary", first=30)
    assert made.texts[-1].startswith("This thread has no summary")
    memory = await load_memory(store, "memory:W1/C1/t1", WordCounter())
    assert not any("question 0" in m.content for m in memory.conversation.messages), "what it stood for stays unsent"


async def test_a_forgotten_thread_begins_anew(store: Store) -> None:
    made, provider = desk(store, [say("noted"), say("which secret?")])
    await ask(made, "the code word is tuna", "!forget", "what was the code word?")
    assert "forgotten" in made.texts[1]
    assert not any("tuna" in f"{m}" for m in provider.requests[1].messages)


async def test_a_question_that_only_begins_with_an_exclamation_mark_is_a_question(store: Store) -> None:
    made, _ = desk(store, [say("it is loud")])
    await ask(made, "!important: what is slow?")
    assert made.texts == ["it is loud"]


async def test_how_the_models_are_doing_can_be_asked_in_the_thread(store: Store) -> None:
    made, provider = desk(store, [])
    await ask(made, "!providers")
    assert "breaker closed" in made.texts[0]
    assert provider.requests == []


async def test_a_long_output_can_be_read_in_a_later_turn_of_the_thread_only(store: Store) -> None:
    registry = ToolRegistry()
    register_read_output(registry)

    @registry.register
    def read_log() -> str:
        """Read a long log."""
        return "x" * 30_000 + "needle" + "y" * 30_000

    made, provider = desk(store, [call(("read_log", {})), say("long")], registry=registry)
    await ask(made, "log?")
    output_id = provider.requests[1].messages[-2].tool_calls[0].id
    arguments = {"output_id": output_id, "start": 29_990, "end": 30_020}
    later, provider = desk(store, [call(("read_output", arguments)), say("found")], registry=registry)
    await ask(later, "the middle?", first=5)
    assert "needle" in provider.requests[1].messages[-1].content
    other, provider = desk(store, [call(("read_output", arguments)), say("no")], registry=registry)
    await ask(other, "the middle?", first=7, thread="t2")
    assert "unknown_output" in provider.requests[1].messages[-1].content


async def test_an_answer_is_kept_for_its_own_channel_and_never_for_another(store: Store) -> None:
    cache = AnswerCache(exact=MemoryExact(), clock=SystemClock(), wait_s=30.0)
    made, provider = desk(store, [say("a b-tree"), say("asked again")], cache=cache)
    await ask(made, "what is an index?", first=1, thread="t1")
    await ask(made, "What is  an index", first=2, thread="t2")
    assert made.texts == ["a b-tree", "a b-tree"]
    assert len(provider.requests) == 1
    await ask(made, "what is an index?", first=3, thread="t3", channel="C2")
    assert made.texts[-1] == "asked again"
    rows = await store.load_usage(since=(await store.list_runs(limit=9))[-1].started_at)
    assert sum(row.requests for row in rows) == 2


async def test_an_answer_that_rests_on_live_data_is_not_kept_unless_the_tool_says_for_how_long(store: Store) -> None:
    registry = ToolRegistry()

    @registry.register
    def count_rows() -> int:
        """Count."""
        return 5

    @registry.register(cache_ttl_s=60)
    def describe() -> str:
        """Describe."""
        return "five columns"

    cache = AnswerCache(exact=MemoryExact(), clock=SystemClock(), wait_s=30.0)
    live = [call(("count_rows", {})), say("5")]
    kept = [call(("describe", {})), say("five")]
    made, provider = desk(store, [*live, *live, *kept], registry=registry, cache=cache)
    await ask(made, "how many rows?", first=1, thread="t1")
    await ask(made, "how many rows?", first=2, thread="t2")
    await ask(made, "which columns?", first=3, thread="t3")
    await ask(made, "which columns?", first=4, thread="t4")
    assert made.texts == ["5", "5", "five", "five"]
    assert len(provider.requests) == 6
