"""Tools for models without function calling: an action is run as it was written, or not at all."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agent_core.agent import Agent
from agent_core.context import Limits
from agent_core.errors import ProviderError, ProviderRefused, ProviderUnavailable
from agent_core.llm.prompted import NoAction, PromptedActions
from agent_core.llm.provider import Provider
from agent_core.llm.router import Router
from agent_core.llm.scripted import ScriptedProvider, Turn, say
from agent_core.llm.structured import OutputContract, ask_structured
from agent_core.llm.types import (
    Finish,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextChunk,
    ToolCall,
    ToolExample,
    ToolSpec,
    Usage,
)
from agent_core.memory.validity import is_sendable, make_sendable
from agent_core.tools.registry import ToolRegistry
from tests.unit.engine.histories import random_history
from tests.unit.engine.running import Bench, HandClock

ADD = ToolSpec(
    name="add",
    description="Add two numbers.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}},
    examples=(ToolExample(question="1 plus 2", arguments={"a": 1}),),
)
ASKED = ModelRequest(
    messages=(ModelMessage(role="system", content="be brief"), ModelMessage(role="user", content="add")),
    tools=(ADD, ToolSpec(name="list_hosts", description="List.", parameters={"type": "object"})),
    timeout_s=30,
)


def act(name: str, arguments: object = None, *, confidence: float = 0.9, **more: object) -> str:
    said = {"thought": "it helps", "tool_name": name, "tool_input": arguments or {}, "confidence": confidence, **more}
    return json.dumps(said)


def finish(answer: str, confidence: float = 0.9) -> str:
    return json.dumps({"thought": "done", "tool_name": "finished", "answer": answer, "confidence": confidence})


def cut(text: str) -> ModelResponse:
    return replace(say(text), finish=Finish.LENGTH)


def wrap(*turns: Turn | str) -> tuple[PromptedActions, ScriptedProvider]:
    script = ScriptedProvider([say(turn) if isinstance(turn, str) else turn for turn in turns])
    return PromptedActions(script), script


# -- out -------------------------------------------------------------------------------------------


async def test_tools_are_described_in_the_system_message() -> None:
    actions, script = wrap(finish("3"))
    await actions.complete(ASKED)
    (sent,) = script.requests
    system = sent.messages[0].content
    assert (sent.tools, sent.tool_choice, sent.parallel_tool_calls) == ((), "auto", None)
    assert system.startswith("be brief\n\n")
    assert "one of: add, list_hosts, finished." in system
    assert "Add two numbers." in system
    assert json.dumps(ADD.parameters) in system
    assert "1 plus 2" in system
    assert sent.messages[1:] == ASKED.messages[1:]


async def test_earlier_calls_and_results_are_told_in_pairs() -> None:
    calls = (ToolCall(id="x", name="add", arguments='{"a": 1}'), ToolCall(id="y", name="list_hosts", arguments="{}"))
    history = (
        *ASKED.messages,
        ModelMessage(role="assistant", content="both", tool_calls=calls),
        ModelMessage(role="tool", content="three", tool_call_id="x"),
        ModelMessage(role="tool", content="db-1", tool_call_id="y"),
        ModelMessage(role="user", content="go on", speaker="ann"),
    )
    actions, script = wrap(finish("3"))
    await actions.complete(replace(ASKED, messages=history))
    sent = script.requests[0].messages
    assert [m.role for m in sent] == ["system", "user", "assistant", "user", "assistant", "user", "user"]
    told = json.loads(sent[2].content)
    assert (told["thought"], told["tool_name"], told["tool_input"]) == ("both", "add", {"a": 1})
    assert sent[3].content == "Observation (add): three"
    assert json.loads(sent[4].content)["tool_name"] == "list_hosts"
    assert sent[5].content == "Observation (list_hosts): db-1"
    assert sent[6] == history[-1]


@settings(max_examples=50, deadline=None)
@given(st.randoms(use_true_random=False))
async def test_any_history_is_told_without_tools(rng: object) -> None:
    history = make_sendable(random_history(rng))  # type: ignore[arg-type]
    actions, script = wrap(finish("3"))
    await actions.complete(replace(ASKED, messages=history))
    sent = script.requests[0].messages
    assert is_sendable(sent)
    assert not any(m.tool_calls or m.role == "tool" for m in sent)
    results = [m.content for m in history if m.role == "tool"]
    assert [m.content.split(": ", 1)[1] for m in sent if m.content.startswith("Observation (")] == results


async def test_without_tools_the_request_goes_through_as_it_is() -> None:
    for request in (replace(ASKED, tools=()), replace(ASKED, tool_choice="none")):
        actions, script = wrap("hello")
        assert (await actions.complete(request)).message.content == "hello"
        assert script.requests[0].messages == ASKED.messages
        assert script.requests[0].tools == ()


async def test_with_tool_choice_none_after_a_call_only_an_answer_is_taken() -> None:
    call = ToolCall(id="x", name="add", arguments="{}")
    messages = (
        *ASKED.messages,
        ModelMessage(role="assistant", tool_calls=(call,)),
        ModelMessage(role="tool", content="3", tool_call_id="x"),
    )
    actions, script = wrap(act("add"), finish("three"))
    response = await actions.complete(replace(ASKED, messages=messages, tool_choice="none"))
    assert response.message.content == "three"
    assert "one of: finished." in script.requests[0].messages[0].content


async def test_with_tool_choice_required_a_tool_comes_first() -> None:
    actions, script = wrap(finish("3"), act("add", {"a": 1}))
    response = await actions.complete(replace(ASKED, tool_choice="required"))
    assert [call.name for call in response.message.tool_calls] == ["add"]
    assert "choose one of: add, list_hosts" in script.requests[1].messages[-1].content


# -- back ------------------------------------------------------------------------------------------


async def test_an_action_becomes_a_call() -> None:
    actions, _ = wrap("I shall add.\n```json\n" + act("add", {"a": 1, "q": "é'\""}) + "\n```")
    response = await actions.complete(ASKED)
    (call,) = response.message.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("add", {"a": 1, "q": "é'\""})
    assert (response.message.content, response.finish) == ("it helps", Finish.TOOL_CALLS)


async def test_a_careless_action_is_mended_without_loss() -> None:
    actions, script = wrap(
        "{'thought': 'x', 'tool_name': 'add', // why not\n 'tool_input': {'a': None, 'b': True,}, 'confidence': 1,}"
    )
    (call,) = (await actions.complete(ASKED)).message.tool_calls
    assert json.loads(call.arguments) == {"a": None, "b": True}
    assert len(script.requests) == 1


async def test_finished_is_the_answer() -> None:
    actions, _ = wrap(finish("It is **three**."))
    response = await actions.complete(ASKED)
    assert (response.message.content, response.message.tool_calls) == ("It is **three**.", ())
    assert response.finish is Finish.STOP


async def test_an_answer_that_stands_where_tools_have_their_input_is_one_too() -> None:
    reply = {"thought": "done", "tool_name": "finished", "tool_input": {"answer": "three"}, "confidence": 0.9}
    actions, script = wrap(json.dumps(reply))
    assert (await actions.complete(ASKED)).message.content == "three"
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("The sum is 3.", "No action"),
        (act("add", {"sql": "x"})[:-1], "breaks off"),
        ('{"thought": "a" "tool_name": "add"}', "No action"),
        (act("add") + act("add"), "exactly one"),
        (act("drop_all"), "choose one of: add, list_hosts, finished"),
        (act("add", confidence=0.29), "0.29 is too low"),
        (finish("perhaps", confidence=0.1), "0.1 is too low"),
        (act("add", confidence=1.5), "confidence: Input should be less than or equal to 1"),
        (act("add", confidence=float("nan")), "NaN"),
        ('{"tool_name": "add", "tool_input": {}}', "confidence: Field required"),
        ('{"thought": "", "tool_name": "add", "confidence": 1}', "`tool_input` is missing"),
        ('{"thought": "", "tool_name": "add", "tool_input": "a=1", "confidence": 1}', "tool_input: "),
        (finish(" "), "`answer` is missing"),
        ("", "No action"),
    ],
)
async def test_what_is_no_sure_action_goes_back_to_the_model(reply: str, said: str) -> None:
    actions, script = wrap(reply, act("add", {"a": 1}))
    response = await actions.complete(ASKED)
    assert len(response.message.tool_calls) == 1
    first, again = script.requests
    assert again.messages[: len(first.messages)] == first.messages
    assert [m.role for m in again.messages[-2:]] == ["assistant", "user"]
    assert said in again.messages[-1].content
    assert is_sendable(again.messages)


async def test_a_confidence_of_the_least_wanted_is_enough() -> None:
    actions, script = wrap(act("add", confidence=0.3))
    await actions.complete(ASKED)
    assert len(script.requests) == 1


@given(st.data())
@settings(max_examples=60, deadline=None)
async def test_bug_27_no_prefix_of_an_action_is_ever_run(data: st.DataObject) -> None:
    whole = act(
        "add", {"sql": "DELETE FROM orders WHERE created_at < now() - interval '90 days'", "n": [1, {"a": None}]}
    )
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(NoAction):
        await wrap(*[part] * 3)[0].complete(ASKED)


async def test_three_replies_without_an_action_are_an_error_of_the_provider() -> None:
    actions, script = wrap("no", "no", act("add", confidence=0.1), act("add"))
    with pytest.raises(NoAction, match="too low") as failed:
        await actions.complete(ASKED)
    assert len(script.requests) == 3
    assert isinstance(failed.value, ProviderRefused)
    assert failed.value.provider == "scripted"


async def test_another_provider_answers_where_no_action_came() -> None:
    actions, _ = wrap("no", "no", "no")
    assert (await Router([actions, ScriptedProvider([say("three")])]).complete(ASKED)).message.content == "three"


async def test_usage_and_requests_are_those_of_all_replies() -> None:
    used = Usage(input_tokens=10, output_tokens=2, requests=1)
    actions, _ = wrap(say("no", usage=used), say(act("add"), usage=used))
    response = await actions.complete(ASKED)
    assert response.usage == Usage(input_tokens=20, output_tokens=4, requests=2)
    assert response.attempts == 2
    assert (await wrap(act("add"))[0].complete(ASKED)).usage is None


async def test_all_replies_share_the_requests_timeout() -> None:
    clock, requests = HandClock(), list[ModelRequest]()

    def slow(request: ModelRequest) -> ModelResponse:
        requests.append(request)
        clock.seconds += 20
        return say("no")

    actions = PromptedActions(ScriptedProvider([slow, slow, slow]), clock=clock)
    with pytest.raises(NoAction):
        await actions.complete(ASKED)
    assert [request.timeout_s for request in requests] == [30, 10]


async def test_errors_of_the_provider_pass() -> None:
    actions, _ = wrap(ProviderUnavailable("down"))
    with pytest.raises(ProviderError, match="down"):
        await actions.complete(ASKED)


async def test_a_content_filter_passes() -> None:
    actions, script = wrap(replace(say("I will not"), finish=Finish.CONTENT_FILTER))
    assert (await actions.complete(ASKED)).finish is Finish.CONTENT_FILTER
    assert len(script.requests) == 1


async def test_actions_are_not_streamed_and_an_answer_is_one_piece() -> None:
    actions, _ = wrap(finish("It is three."))
    items = [item async for item in actions.stream(ASKED)]
    assert items[0] == TextChunk(text="It is three.")
    assert [type(item) for item in items] == [TextChunk, ModelResponse]
    actions, _ = wrap(act("add"))
    assert [type(item) async for item in actions.stream(ASKED)] == [ModelResponse]


def test_it_stands_where_a_provider_stands() -> None:
    provider: Provider = wrap()[0]
    assert (provider.name, provider.model) == ("scripted", "scripted")


# -- with the loop ---------------------------------------------------------------------------------


def bench(*turns: Turn | str, agent: Agent | None = None) -> tuple[Bench, list[int], ScriptedProvider]:
    ran: list[int] = []
    registry = ToolRegistry()

    @registry.register
    def add(a: int) -> int:
        """Add one.

        Args:
            a: a number.
        """
        ran.append(a)
        return a + 1

    actions, script = wrap(*turns)
    made = agent or Agent(instructions="be brief", max_tokens=100)
    return Bench(actions, registry=registry, agent=made, limits=Limits(max_steps=5)), ran, script


async def test_a_run_acts_observes_and_finishes() -> None:
    run, ran, script = bench(act("add", {"a": 1}), finish("two"))
    record = await run.ask("1 and 1?")
    assert (record.answer, record.error, ran) == ("two", None, [1])
    assert "Observation (add): " in script.requests[1].messages[-1].content


async def test_wrong_arguments_are_told_by_the_executor() -> None:
    run, ran, script = bench(act("add", {"a": "x"}), act("add", {"a": 1}), finish("two"))
    assert (await run.ask("1 and 1?")).answer == "two"
    assert ran == [1]
    assert "invalid_arguments" in script.requests[1].messages[-1].content


async def test_bug_27_an_action_that_was_cut_off_is_not_run_and_gets_more_room() -> None:
    run, ran, script = bench(
        cut(act("add", {"a": 1})), cut(act("add", {"a": 2})[:-9]), act("add", {"a": 3}), finish("ok")
    )
    record = await run.ask("1 and 1?")
    assert (record.answer, ran) == ("ok", [3])
    assert script.requests[1].max_tokens == 200
    assert "Observation (add): " in script.requests[1].messages[-1].content


async def test_a_final_answer_that_was_cut_off_is_not_shown_as_raw_json() -> None:
    run, _, _ = bench(cut('{"thought": "done", "tool_name": "finished", "answer": "It is thr'), finish("three"))
    assert (await run.ask("1 and 1?")).answer == "three"


class Sum(BaseModel):
    total: int


async def test_an_answer_of_one_form_works_in_this_mode() -> None:
    actions, _ = wrap(finish("2"), act("final_answer", {"total": "two"}), act("final_answer", {"total": 2}))
    request = replace(ASKED, tools=())
    assert (await ask_structured(actions, request, Sum)).value == Sum(total=2)


async def test_a_schema_for_the_provider_is_told_beside_the_actions() -> None:
    actions, script = wrap(finish('{"total": 2}'))
    contract = OutputContract(Sum, "native")
    assert await contract.read(await actions.complete(contract.prepare(ASKED))) == Sum(total=2)
    assert script.requests[0].output is None
    assert '"total"' in script.requests[0].messages[0].content
