"""A run thinks, acts, observes and ends, whatever the model and the tools do."""

from __future__ import annotations

import asyncio
import json

import pytest

from agent_core.agent import Agent
from agent_core.context import JournalEntry, Limits, MemoryJournal, StepState
from agent_core.errors import (
    Deadline,
    ModelFailed,
    ProviderUnavailable,
    Repetition,
    ReplayMismatch,
    StepLimit,
    TokenLimit,
    ToolCallLimit,
    ToolFailed,
)
from agent_core.llm.scripted import Turn, call, say
from agent_core.llm.types import Finish, ModelMessage, ModelRequest, ModelResponse, ToolCall, Usage
from agent_core.memory.validity import is_sendable, make_sendable
from agent_core.observe import trace_as_data, trace_as_text
from agent_core.runtime.events import RunEnded, StateChanged, TextDelta, ToolFinished, ToolStarted
from agent_core.runtime.state import TRANSITIONS, RunRecord, RunState
from agent_core.tools.registry import ToolRegistry
from agent_core.tools.results import mark_untrusted
from tests.unit.engine.running import Bench, HandClock


def registry(log: list[str] | None = None) -> ToolRegistry:
    tools = ToolRegistry()

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        if log is not None:
            log.append(f"{a}+{b}")
        return a + b

    async def fail() -> str:
        """Fail in every case."""
        raise RuntimeError("no such luck")

    tools.register(add)
    tools.register(fail)
    return tools


async def test_a_question_without_tools_is_answered_in_one_step() -> None:
    bench = Bench([say("hello there")])
    record = await bench.ask("hi")
    assert (record.state, record.answer, len(record.steps)) == (RunState.FINISHED, "hello there", 1)
    assert [e.state for e in bench.events if isinstance(e, StateChanged)] == [RunState.THINKING, RunState.FINISHED]
    assert "".join(e.text for e in bench.events if isinstance(e, TextDelta)) == "hello there"
    assert isinstance(bench.events[-1], RunEnded)


async def test_tool_results_go_back_to_the_model_in_the_order_of_its_calls() -> None:
    bench = Bench(
        [call(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}), text="I add"), say("3 and 7")], registry=registry()
    )
    record = await bench.ask("sums?")
    sent = bench.script.requests[1].messages
    assert [m.content for m in sent if m.role == "tool"] == [mark_untrusted("3"), mark_untrusted("7")]
    assert record.plan == ("I add",)
    assert [(s.kind, s.name) for s in record.steps] == [
        ("model", "scripted"),
        ("tool", "add"),
        ("tool", "add"),
        ("model", "scripted"),
    ]
    kinds = [type(e) for e in bench.events]
    assert kinds.count(ToolStarted) == kinds.count(ToolFinished) == 2


async def test_a_failing_tool_an_unknown_tool_and_bad_arguments_do_not_end_the_run() -> None:
    bench = Bench(
        [call(("fail", {}), ("nothing", {}), ("add", {"a": "x"}), ("add", '{"a": 1, "b": ')), say("all failed")],
        registry=registry(),
    )
    record = await bench.ask("try")
    assert record.state is RunState.FINISHED
    assert [s.error for s in record.steps if s.kind == "tool"] == [
        "crashed",
        "unknown_tool",
        "invalid_arguments",
        "invalid_arguments",
    ]


async def test_the_step_limit_ends_the_run_with_what_is_known_so_far() -> None:
    turns = [call(("add", {"a": n, "b": n})) for n in range(5)]
    bench = Bench(turns, registry=registry(), limits=Limits(max_steps=3))
    record = await bench.ask("count")
    assert isinstance(record.error, StepLimit)
    assert "3 steps" in record.answer
    assert "`4`" in record.answer  # the last sum that is known
    assert len(bench.script.requests) == 3


async def test_the_same_call_three_times_in_a_row_ends_the_run_before_it_runs_again() -> None:
    log: list[str] = []
    turns = [call(("add", text)) for text in ('{"a":1,"b":2}', '{"b": 2, "a": 1}', '{"a":1,  "b":2}', "{}")]
    record = await Bench(turns, registry=registry(log)).ask("again")
    assert isinstance(record.error, Repetition)
    assert log == ["1+2", "1+2"]


async def test_other_calls_in_between_are_no_repetition() -> None:
    turns = [call(("add", {"a": n % 2, "b": 0})) for n in range(8)]
    record = await Bench([*turns, say("done")], registry=registry()).ask("alternate")
    assert record.state is RunState.FINISHED


@pytest.mark.parametrize(("limits", "error"), [(Limits(tool_calls=1), ToolCallLimit), (Limits(tokens=5), TokenLimit)])
async def test_other_limits_end_the_run_too(limits: Limits, error: type[Exception]) -> None:
    turns = [call(("add", {"a": n, "b": n}), ("add", {"a": n, "b": 0})) for n in range(3)]
    record = await Bench(turns, registry=registry(), limits=limits).ask("a question with some words in it")
    assert isinstance(record.error, error)


async def test_the_deadline_ends_a_run_whose_model_hangs() -> None:
    class Hanging:
        name = model = "hanging"

        async def complete(self, request: ModelRequest) -> ModelResponse:
            await asyncio.Event().wait()
            raise AssertionError

        async def aclose(self) -> None: ...

    bench = Bench(Hanging(), limits=Limits(run_deadline_s=0.05), agent=Agent(stream=False))  # type: ignore[arg-type]
    record = await bench.ask("are you there?")
    assert isinstance(record.error, Deadline)
    assert "0.05 s" in record.answer


async def test_a_passed_deadline_is_noticed_before_the_next_model_call() -> None:
    tools = ToolRegistry()
    bench = Bench([call(("slow", {}))], registry=tools, limits=Limits(run_deadline_s=10))

    async def slow() -> str:
        """Take long."""
        bench.clock.seconds += 11
        return "done"

    tools.register(slow)
    record = await bench.ask("go")
    assert isinstance(record.error, Deadline)
    assert "done" in record.answer


async def test_a_failed_model_ends_the_run_with_a_typed_error() -> None:
    record = await Bench([ProviderUnavailable("HTTP 500", provider="primary")]).ask("hi")
    assert record.state is RunState.ERROR
    assert isinstance(record.error, ModelFailed)
    assert "HTTP 500" in str(record.error)


async def test_an_empty_answer_is_asked_for_once_more() -> None:
    assert (await Bench([say(" "), say("now")]).ask("hi")).answer == "now"
    assert isinstance((await Bench([say(""), say("")]).ask("hi")).error, ModelFailed)


async def test_bug_27_a_truncated_tool_call_is_not_run_and_gets_more_room_once() -> None:
    log: list[str] = []
    cut = ModelResponse(
        message=ModelMessage(role="assistant", tool_calls=(ToolCall(id="x", name="add", arguments='{"a":1,"b":2}'),)),
        finish=Finish.LENGTH,
        model="scripted",
        provider="scripted",
    )
    bench = Bench(
        [cut, call(("add", {"a": 5, "b": 5})), say("10")], registry=registry(log), agent=Agent(max_tokens=100)
    )
    record = await bench.ask("add")
    assert record.answer == "10"
    assert log == ["5+5"]
    assert [r.max_tokens for r in bench.script.requests] == [100, 200, 200]
    assert "truncated_call" in bench.script.requests[1].messages[-1].content


async def test_call_ids_are_unique_in_the_thread_even_if_the_provider_repeats_its_own() -> None:
    bench = Bench([call(("add", {"a": 1, "b": 1})), call(("add", {"a": 2, "b": 2})), say("ok")], registry=registry())
    await bench.ask("x")
    ids = [c.id for m in bench.conversation.messages for c in m.tool_calls]
    assert len(set(ids)) == 2


async def test_bug_5_a_cancelled_run_leaves_a_history_that_can_be_sent() -> None:
    tools = ToolRegistry()
    begun = asyncio.Event()

    async def hang() -> str:
        """Never return."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    tools.register(hang)
    bench = Bench([call(("hang", {}))], registry=tools)
    task = asyncio.create_task(bench.ask("go"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    history = [*bench.conversation.messages, ModelMessage(role="user", content="next")]
    assert is_sendable(make_sendable(history))


async def test_a_resumed_run_takes_recorded_steps_from_the_journal() -> None:
    log: list[str] = []
    journal = MemoryJournal()
    turns: list[Turn] = [call(("add", {"a": 1, "b": 2})), ProviderUnavailable("down")]
    first = await Bench(turns, registry=registry(log), journal=journal).ask("sum?")
    assert first.state is RunState.ERROR
    again = Bench([say("three")], registry=registry(log), journal=journal)
    record = await again.ask("sum?")
    assert record.answer == "three"
    assert log == ["1+2"]
    assert len(again.script.requests) == 1
    assert [s.replayed for s in record.steps if s.kind == "model"] == [True, False]


async def test_a_model_call_that_was_never_answered_is_made_again() -> None:
    journal = MemoryJournal()
    with pytest.raises(AssertionError):
        await Bench([], journal=journal).ask("hi")
    assert journal.entries["model:1"].state is StepState.INTENT
    assert (await Bench([say("hello")], journal=journal).ask("hi")).answer == "hello"


async def test_a_journal_of_another_question_is_not_continued() -> None:
    journal = MemoryJournal()
    await Bench([say("one")], journal=journal).ask("first question")
    record = await Bench([say("two")], journal=journal).ask("second question")
    assert isinstance(record.error, ReplayMismatch)


async def test_usage_is_counted_here_where_the_provider_reports_none() -> None:
    record = await Bench([say("two words")]).ask("three little words")
    assert not record.usage.exact
    assert record.usage.input_tokens > 0
    reported = await Bench([say("x", usage=Usage(input_tokens=7, output_tokens=3, requests=1))]).ask("q")
    assert (reported.usage.total_tokens, reported.usage.exact, reported.cost_usd) == (10, True, 0.0)


async def test_secrets_reach_neither_model_nor_trace() -> None:
    class Redactor:
        def redact(self, text: str) -> str:
            return text.replace("hunter2", "[redacted]")

    tools = ToolRegistry()

    async def leak() -> str:
        """Return a secret."""
        return "the password is hunter2"

    tools.register(leak)
    bench = Bench([call(("leak", {})), say("it is hunter2")], registry=tools)
    record = await bench.ask("is it hunter2?", redactor=Redactor())
    sent = json.dumps([m.content for r in bench.script.requests for m in r.messages])
    assert "hunter2" not in sent + json.dumps(trace_as_data(record)) + record.answer


async def test_the_trace_tells_each_step_in_text_and_data() -> None:
    record = await Bench([call(("add", {"a": 1, "b": 2})), say("3")], registry=registry()).ask("sum?")
    data = json.loads(json.dumps(trace_as_data(record)))
    assert [s["kind"] for s in data["steps"]] == ["model", "tool", "model"]
    text = trace_as_text(data)
    assert 'add({"a": 1, "b": 2})' in text
    assert "2 requests" in text


def test_every_state_that_is_not_final_has_a_way_out_and_final_ones_have_none() -> None:
    for state in RunState:
        assert bool(TRANSITIONS[state]) is not state.final
    record = RunRecord(run_id="r", agent="a", query="q", started_at=HandClock().now())
    with pytest.raises(ValueError, match="may not go from init to finished"):
        record.move(RunState.FINISHED)


async def test_journal_entries_tell_what_is_about_to_run_before_it_runs() -> None:
    class Watching(MemoryJournal):
        async def begin(self, entry: JournalEntry) -> JournalEntry | None:
            order.append(f"begin {entry.key.split(':')[0]}")
            return await super().begin(entry)

        async def finish(self, key: str, state: StepState, result: str) -> None:
            order.append(f"{state} {key.split(':', maxsplit=1)[0]}")
            await super().finish(key, state, result)

    order: list[str] = []
    await Bench([call(("add", {"a": 1, "b": 2})), say("3")], registry=registry(), journal=Watching()).ask("sum?")
    assert order == ["begin model", "done model", "begin tool", "done tool", "begin model", "done model"]


class Hides:
    """Knows one secret."""

    def redact(self, text: str) -> str:
        return text.replace("hunter2", "[redacted]")


async def test_a_secret_that_a_model_says_beside_its_calls_reaches_no_plan_no_journal_and_no_history() -> None:
    tools = ToolRegistry()
    got: list[str] = []

    async def look(thing: str) -> str:
        """Look."""
        got.append(thing)
        return "seen"

    tools.register(look)
    journal = MemoryJournal()
    bench = Bench([call(("look", {"thing": "hunter2"}), text="I try hunter2"), say("ok")], registry=tools)
    record = await bench.ask("go", redactor=Hides(), journal=journal)
    assert got == ["hunter2"]  # a redacted call would be another call
    assert record.plan == ("I try [redacted]",)
    kept = [m.content + "".join(c.arguments for c in m.tool_calls) for m in bench.conversation.messages]
    assert "hunter2" not in json.dumps([kept, trace_as_data(record)])
    assert "I try hunter2" not in journal.entries["model:1"].result


@pytest.mark.parametrize("arguments", ["", "[1]", '{"a": 1, "b": ', "nonsense", "{" * 5000])
async def test_a_history_holds_only_json_objects_as_arguments_whatever_the_model_wrote(arguments: str) -> None:
    bench = Bench([call(("add", arguments)), say("sorry")], registry=registry())
    record = await bench.ask("add")
    assert record.state is RunState.FINISHED
    sent = [c.arguments for m in bench.script.requests[1].messages for c in m.tool_calls]
    assert [type(json.loads(text)) for text in sent] == [dict]
    assert len(sent[0]) < 1000


async def test_a_failed_request_is_a_failed_step_in_journal_and_trace() -> None:
    journal = MemoryJournal()
    record = await Bench([ProviderUnavailable("HTTP 500", provider="primary")], journal=journal).ask("hi")
    assert journal.entries["model:1"].state is StepState.FAILED
    assert [(s.kind, s.ok, s.error) for s in record.steps] == [("model", False, "HTTP 500")]
    assert "failed: HTTP 500" in trace_as_text(trace_as_data(record))


async def test_half_an_emoji_in_arguments_is_refused_and_not_repaired() -> None:
    tools = ToolRegistry()
    got: list[str] = []

    async def look(thing: str) -> str:
        """Look."""
        got.append(thing)
        return thing

    tools.register(look)
    journal = MemoryJournal()
    bench = Bench([call(("look", '{"thing": "\ud83d"}')), say("I \ud83d see")], registry=tools, journal=journal)
    record = await bench.ask("look")
    assert got == []
    assert [s.error for s in record.steps if s.kind == "tool"] == ["invalid_arguments"]
    assert record.answer == "I \ufffd see"
    "".join(entry.result for entry in journal.entries.values()).encode()


async def test_an_answer_of_another_version_in_the_journal_ends_the_run_with_a_word() -> None:
    journal = MemoryJournal()
    await Bench([say("one")], journal=journal).ask("a question")
    entry = journal.entries["model:1"]
    await journal.finish("model:1", entry.state, '{"shape": "of another version"}')
    record = await Bench([say("two")], journal=journal).ask("a question")
    assert isinstance(record.error, ReplayMismatch)
    assert "ask again" in str(record.error)


async def test_the_trace_tells_the_attempts_of_a_tool_and_who_answered() -> None:
    tools = ToolRegistry()
    tried: list[int] = []

    async def flaky() -> str:
        """Fail once."""
        tried.append(1)
        if len(tried) == 1:
            raise ToolFailed("not now", code="busy", retryable=True)
        return "ok"

    tools.register(flaky)
    record = await Bench([call(("flaky", {})), say("done")], registry=tools).ask("go")
    steps = trace_as_data(record)["steps"]
    assert isinstance(steps, list)
    assert [step.get("attempts") for step in steps] == [1, 2, 1]
    assert [step.get("provider") for step in steps] == ["scripted", None, "scripted"]
