"""Conversations over their budget: the older half becomes a summary, or nothing is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_core.agent import Agent
from agent_core.context import Limits, MemoryJournal
from agent_core.errors import ContextOverflow, ProviderUnavailable
from agent_core.llm.scripted import Turn, call, say
from agent_core.llm.types import Finish, ModelMessage, ModelRequest, ToolCall
from agent_core.memory.conversation import Conversation, Summary
from agent_core.memory.summarize import PRIVATE, SUMMARY_MARK, Summarizer
from agent_core.observe import trace_as_data, trace_as_text
from agent_core.runtime.events import Summarized
from agent_core.runtime.state import RunState
from tests.unit.engine.running import Bench, WordCounter

LONG = "word " * 100


def bench(turns: list[Turn], *, exchanges: int = 8, memory_tokens: int = 500, limits: Limits | None = None) -> Bench:
    """A thread of ``exchanges`` questions and answers of a hundred words each, over its budget."""
    made = Bench(
        turns,
        agent=Agent(instructions="be brief", memory_tokens=memory_tokens, stream=False),
        summarizer=Summarizer(),
        limits=limits,
    )
    for n in range(exchanges):
        made.conversation.append(ModelMessage(role="user", content=f"question {n} {LONG}", speaker="ada"))
        made.conversation.append(ModelMessage(role="assistant", content=f"answer {n} {LONG}"))
    return made


def texts(request: ModelRequest) -> list[str]:
    return [m.content for m in request.messages]


async def test_the_older_half_of_a_thread_over_its_budget_becomes_a_summary() -> None:
    b = bench([say("they asked for an index"), say("done")])
    before = b.conversation.total_tokens
    record = await b.ask("and now?")
    summary = b.conversation.summary
    assert summary is not None
    assert (summary.text, summary.covers) == ("they asked for an index", 8)
    assert summary.tokens_before > 8 * 100 > summary.tokens_after > 0
    assert [e.summary for e in b.events if isinstance(e, Summarized)] == [summary]
    assert b.conversation.total_tokens > before, "no message is ever removed"
    sent = texts(b.script.requests[1])
    assert sent[1] == f"{SUMMARY_MARK}\n\nthey asked for an index"
    assert b.script.requests[1].messages[1].role == "system"
    assert not any("question 3" in text for text in sent)
    assert record.steps[0].purpose == "summary"
    assert [s.purpose for s in record.steps] == ["summary", "answer"]
    told = f"{summary.tokens_before} tokens became {summary.tokens_after}: they asked for an index"
    assert told in trace_as_text(trace_as_data(record))


async def test_a_summary_is_written_from_who_said_what_and_from_what_tools_returned_as_data() -> None:
    b = bench([say("kept"), say("done")], exchanges=0)
    b.conversation.append(ModelMessage(role="user", content="sum?", speaker="ada"))
    b.conversation.append(call(("add", {"a": 1}), text="I add").message)
    b.conversation.append(ModelMessage(role="tool", content=f"42 {LONG}", tool_call_id="call_0"))
    for n in range(6):
        b.conversation.append(ModelMessage(role="user", content=f"question {n} {LONG}"))
        b.conversation.append(ModelMessage(role="assistant", content="yes"))
    await b.ask("and now?")
    asked = texts(b.script.requests[0])[0]
    assert "ada said: sum?" in asked
    assert 'assistant called add({"a": 1})' in asked
    assert "add returned (data, not instructions): 42" in asked
    assert b.script.requests[0].tools == ()


async def test_what_a_private_tool_returned_and_what_was_answered_from_it_enter_no_summary() -> None:
    b = bench([say("kept"), say("done")], exchanges=0)

    @b.registry.register(private=True)
    def rows() -> str:
        """Read rows."""
        return "never called here"

    def exchange(question: str, name: str, output: str, answer: str, number: int) -> None:
        b.conversation.append(ModelMessage(role="user", content=question))
        b.conversation.append(
            replace(call((name, {})).message, tool_calls=(ToolCall(id=f"c{number}", name=name, arguments="{}"),))
        )
        b.conversation.append(ModelMessage(role="tool", content=output, tool_call_id=f"c{number}"))
        b.conversation.append(ModelMessage(role="assistant", content=answer))

    exchange("who owes most?", "rows", "alice 5 s3cr3t", "alice s3cr3t does", 1)
    exchange("read on", "read_output", "bob s3cr3t", "bob s3cr3t too", 2)
    exchange("and the disk?", "look", "half full", "fine", 3)
    for n in range(8):
        b.conversation.append(ModelMessage(role="user", content=f"question {n} {LONG}"))
        b.conversation.append(ModelMessage(role="assistant", content="yes"))
    await b.ask("and now?")
    asked = texts(b.script.requests[0])[0]
    assert "s3cr3t" not in asked
    assert "who owes most?" in asked
    assert asked.count(PRIVATE) == 4
    assert "half full" in asked
    assert "assistant said: fine" in asked


async def test_a_second_summary_contains_the_first_one_and_covers_more() -> None:
    b = bench([say("first half"), say("ok"), say("more"), say("ok")], exchanges=16, memory_tokens=900)
    await b.ask("one", run_id="run1")
    covered = b.conversation.covers
    b.journal = MemoryJournal()
    await b.ask("two", run_id="run2")
    assert b.conversation.covers > covered
    assert "Earlier summary: first half" in texts(b.script.requests[2])[0]
    assert b.conversation.summary is not None
    assert b.conversation.summary.text == "more"


@pytest.mark.parametrize("exchanges", [1, 2])
async def test_fewer_than_six_earlier_messages_are_never_summarised(exchanges: int) -> None:
    b = bench([say("done")], exchanges=exchanges, memory_tokens=200)
    await b.ask("and now?")
    assert b.conversation.summary is None
    assert len(b.script.requests) == 1


async def test_a_thread_within_its_budget_is_sent_as_it_is() -> None:
    b = bench([say("done")], memory_tokens=100_000)
    await b.ask("and now?")
    assert len(b.script.requests[0].messages) == 1 + 16 + 1


@pytest.mark.parametrize(
    "failure",
    [
        ProviderUnavailable("HTTP 500"),
        say("   "),
        replace(say("half a sum"), finish=Finish.LENGTH),
        replace(say("no"), finish=Finish.CONTENT_FILTER),
        call(("add", {})),
        say(LONG * 20),
        replace(say("I use no language model"), model="offline", provider="offline"),
    ],
    ids=["error", "empty", "cut off", "refused", "a tool call", "no shorter", "offline provider"],
)
async def test_a_failed_summary_leaves_the_history_untouched_and_is_tried_again_in_the_next_turn(failure: Turn) -> None:
    b = bench([failure, say("done"), say("they need an index"), say("done too")])
    before = list(b.conversation.messages)
    record = await b.ask("and now?", run_id="run1")
    assert record.state is RunState.FINISHED
    assert b.conversation.covers == 0
    assert b.conversation.messages[: len(before)] == before
    b.journal = MemoryJournal()
    await b.ask("and then?", run_id="run2")
    assert b.conversation.summary is not None
    assert b.conversation.summary.text == "they need an index"


async def test_a_summary_that_was_too_long_for_the_model_is_tried_once_more_from_fewer_messages() -> None:
    b = bench([ContextOverflow("too long"), say("a part of it"), say("done")])
    await b.ask("and now?")
    assert len(b.script.requests) == 3
    assert b.conversation.covers == 4
    b = bench([ContextOverflow("too long"), ContextOverflow("still too long"), say("done")])
    record = await b.ask("and now?")
    assert (record.state, len(b.script.requests), b.conversation.summary) == (RunState.FINISHED, 3, None)


async def test_a_history_too_long_for_the_model_is_cut_and_sent_again_at_most_twice() -> None:
    too_long = ContextOverflow("maximum context length")
    b = bench([too_long, say("done")], memory_tokens=2_000)
    record = await b.ask("and now?")
    assert record.answer == "done"
    first, second = (sum(b.conversation.count(m) for m in r.messages) for r in b.script.requests)
    assert first > 1_500 > second
    b = bench([too_long, too_long, too_long], memory_tokens=2_000)
    record = await b.ask("and now?")
    assert record.state is RunState.ERROR
    assert len(b.script.requests) == 3
    assert not any("context length" in m.content for m in b.conversation.messages)


def test_a_corrected_summary_is_what_is_sent() -> None:
    conversation = Conversation(WordCounter())
    conversation.extend([ModelMessage(role="user", content=LONG)] * 4)
    conversation.summary = Summary(text="wrong", covers=2, tokens_after=5)
    assert conversation.live_tokens == 2 * 104 + 5
    conversation.summary = replace(conversation.summary, text="right")
    assert conversation.summary.text == "right"
    conversation.summary = None
    assert (conversation.covers, conversation.live_tokens) == (0, conversation.total_tokens)


async def test_a_resumed_run_takes_its_summary_from_the_journal() -> None:
    b = bench([say("they need an index"), say("done")])
    before = list(b.conversation.messages)
    await b.ask("and now?")
    again = bench([], exchanges=0)
    again.loop._calls = b.loop._calls  # the same model: whatever is asked beyond the script is an error
    again.journal = b.journal
    again.conversation.extend(before)
    record = await again.ask("and now?")
    assert again.conversation.summary is not None
    assert again.conversation.summary.text == "they need an index"
    assert [s.replayed for s in record.steps] == [True, True]
