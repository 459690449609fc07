"""Runs are traced by the conventions for generative AI, without a word of what was said."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from agent_core.agent import Agent
from agent_core.errors import RunCancelled
from agent_core.llm.types import ModelMessage, ModelRequest, OutputSchema, Usage
from agent_core.runtime.events import ModelStarted, TextDelta
from agent_core.telemetry import Telemetry
from agent_core.telemetry.names import Semconv
from tests.unit.engine.telemetry.bench import CANARY, SECRET, Exported, Told, tell_everything

GOLDEN = Path(__file__).parent / "golden"
CONVENTIONS: tuple[Semconv, ...] = ("v1.41", "latest")


def attributes_of(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("semconv", CONVENTIONS)
def test_a_whole_run_is_exported_exactly_as_the_convention_names_it(semconv: Semconv) -> None:
    exported = Exported(semconv=semconv)
    tell_everything(exported.telemetry)
    found = json.dumps({"spans": exported.tree(), "metrics": exported.measured()}, indent=1) + "\n"
    golden = GOLDEN / f"{semconv}.json"
    if os.environ.get("WRITE_GOLDEN"):
        golden.write_text(found)
    assert json.loads(found) == json.loads(golden.read_text())


@pytest.mark.parametrize("semconv", CONVENTIONS)
def test_nothing_that_was_said_is_exported_by_default(semconv: Semconv) -> None:
    exported = Exported(semconv=semconv)
    tell_everything(exported.telemetry)
    everything = exported.everything()
    assert len(everything) > 1_000
    assert CANARY not in everything
    assert SECRET not in everything


def test_content_is_exported_when_asked_for_and_redacted() -> None:
    exported = Exported(content=True)
    tell_everything(exported.telemetry)
    assert SECRET not in exported.everything()
    chat = attributes_of(exported.spans["chat claude-haiku"])
    assert json.loads(str(chat["gen_ai.system_instructions"])) == [
        {"type": "text", "content": f"you know of {CANARY} and [secret]"}
    ]
    asked, called, answered = json.loads(str(chat["gen_ai.input.messages"]))
    assert asked == {"role": "user", "parts": [{"type": "text", "content": f"what of {CANARY}?"}]}
    assert called["parts"] == [
        {"type": "tool_call", "id": "old", "name": "add", "arguments": {"a": f"{CANARY} [secret]"}}
    ]
    assert answered["parts"] == [{"type": "tool_call_response", "id": "old", "response": f"{CANARY}!"}]
    assert json.loads(str(chat["gen_ai.output.messages"])) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": f"{CANARY}, [secret]"}],
            "finish_reason": "tool_calls",
        }
    ]
    assert json.loads(str(chat["gen_ai.tool.definitions"])) == [
        {"type": "function", "name": "add", "description": "Add two numbers.", "parameters": {"type": "object"}}
    ]
    told = [span for span in exported.tree() if span["name"] == "execute_tool add"]
    assert all(CANARY in json.dumps(span) for span in told)


def test_a_cancelled_run_ends_all_its_spans_with_the_reason() -> None:
    exported = Exported()
    told = Told(exported.telemetry)
    told.start()
    told.ask()
    told.call("c1")
    told.end(RunCancelled("stopped"))
    spans = exported.spans
    assert set(spans) == {"invoke_agent dba", "chat", "execute_tool add"}
    assert {attributes_of(span)["error.type"] for span in spans.values()} == {"cancelled"}


def test_a_run_that_is_dropped_without_an_end_leaves_no_span_open() -> None:
    exported = Exported()
    told = Told(exported.telemetry)
    told.start()
    told.call("c1")
    del told
    gc.collect()
    assert {attributes_of(span)["error.type"] for span in exported.spans.values()} == {"abandoned"}
    assert set(exported.spans) == {"invoke_agent dba", "execute_tool add"}


def test_a_span_lasts_as_long_as_what_it_stands_for() -> None:
    exported = Exported(semconv="latest")
    told = Told(exported.telemetry)
    told.start()
    told.call("c1")
    told.clock.seconds += 3.0
    told.result("c1")
    told.end()
    tool, root = exported.spans["execute_tool add"], exported.spans["invoke_agent dba"]
    assert tool.start_time is not None
    assert tool.end_time is not None
    assert (tool.end_time - tool.start_time) / 1e9 == pytest.approx(3.25)
    assert root.start_time is not None
    assert root.end_time is not None
    assert root.start_time < tool.start_time < tool.end_time < root.end_time


def test_no_span_is_the_current_one_while_a_run_works() -> None:
    told = Told(Exported().telemetry)
    told.start()
    told.ask()
    told.call("c1")
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_run_becomes_the_child_of_the_span_that_is_current_when_it_is_followed() -> None:
    exported = Exported()
    with exported.telemetry.tracer.start_as_current_span("message") as above:
        told = Told(exported.telemetry)
    told.start()
    told.end()
    parent = exported.spans["invoke_agent dba"].parent
    assert parent is not None
    assert parent.span_id == above.get_span_context().span_id


def test_an_answer_from_the_cache_is_no_model_call() -> None:
    exported = Exported()
    told = Told(exported.telemetry)
    told.start()
    told.ask()
    told.answer(purpose="cache", attempts=0, provider="cache", usage=Usage())
    told.end()
    assert set(exported.spans) == {"invoke_agent dba"}
    assert [event.name for event in exported.spans["invoke_agent dba"].events] == ["agent_core.cache_hit"]
    assert exported.measured() == {}


def test_a_request_that_carries_a_summary_is_marked_as_compacted() -> None:
    exported = Exported()
    told = Told(exported.telemetry)
    told.start()
    system = (ModelMessage(role="system", content="be brief"), ModelMessage(role="system", content="a summary"))
    asked = ModelRequest(
        messages=(*system, ModelMessage(role="user", content="hi")), output=OutputSchema(name="o", schema={})
    )
    told.tell(ModelStarted(run_id="run1", request=asked))
    told.answer()
    told.end()
    chat = attributes_of(exported.spans["chat gpt-4o-mini"])
    assert chat["gen_ai.conversation.compacted"] is True
    assert chat["gen_ai.output.type"] == "json"


def test_tokens_that_were_only_estimated_are_not_reported_as_used() -> None:
    exported = Exported()
    told = Told(exported.telemetry)
    told.start()
    told.ask()
    told.answer(usage=Usage(input_tokens=7, output_tokens=3, exact=False))
    told.end(usage=Usage(input_tokens=7, output_tokens=3, exact=False))
    assert "gen_ai.client.token.usage" not in exported.measured()
    assert "gen_ai.usage" not in exported.everything()


def test_the_programs_own_listener_hears_every_event_once() -> None:
    told = Told(Exported().telemetry, agent=Agent(name="a"))
    told.start()
    told.tell(TextDelta(run_id="run1", text="a"))
    told.end()
    told.tell(TextDelta(run_id="run1", text="late"))
    assert len(told.events) == 4


def test_without_an_sdk_a_followed_run_goes_on_as_before() -> None:
    told = tell_everything(Telemetry())
    assert [type(event) for event in told.events] == [
        type(event) for event in tell_everything(Exported().telemetry).events
    ]
