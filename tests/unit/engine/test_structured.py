"""Answers of one form: asked for, read, repaired within bounds, or sent back with what is wrong."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable

import pytest
from pydantic import BaseModel, Field

from agent_core.agent import Agent
from agent_core.errors import ConfigError, ModelFailed, ModelRetry, ProviderTimeout
from agent_core.llm.scripted import ScriptedProvider, call, say
from agent_core.llm.structured import FINAL_ANSWER, OutputContract, OutputInvalid, OutputMode, ask_structured
from agent_core.llm.types import Finish, ModelMessage, ModelRequest, ModelResponse, ToolSpec, Usage
from agent_core.memory.validity import is_sendable
from tests.unit.engine.running import Bench, HandClock


class Finding(BaseModel):
    """What was found."""

    title: str
    hosts: list[str] = Field(description="host names")
    severity: int = Field(ge=1, le=5)


class Loose(BaseModel):
    note: str = ""


GOOD = {"title": "slow", "hosts": ["db-1"], "severity": 3}
ADD = ToolSpec(name="add", description="Add.", parameters={"type": "object", "properties": {}})
ASKED = ModelRequest(messages=(ModelMessage(role="user", content="what is wrong?"),), timeout_s=30)


def cut(response: ModelResponse) -> ModelResponse:
    return ModelResponse(message=response.message, finish=Finish.LENGTH, model="m", provider="p")


async def read(text: str) -> Finding | None:
    return await OutputContract(Finding).read(say(text))


# -- asking ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "tool"])
def test_the_form_is_a_tool_that_must_be_called_where_there_is_no_other(mode: OutputMode) -> None:
    request = OutputContract(Finding, mode).prepare(ASKED)
    assert [tool.name for tool in request.tools] == [FINAL_ANSWER]
    assert request.tool_choice == "required"
    assert "What was found." in request.tools[0].description
    assert request.tools[0].parameters["required"] == ["title", "hosts", "severity"]


def test_beside_other_tools_the_model_may_choose() -> None:
    request = OutputContract(Finding).prepare(ModelRequest(messages=ASKED.messages, tools=(ADD,)))
    assert [tool.name for tool in request.tools] == ["add", FINAL_ANSWER]
    assert request.tool_choice == "auto"


def test_tools_that_may_not_be_called_are_left_out() -> None:
    request = OutputContract(Finding).prepare(ModelRequest(messages=ASKED.messages, tools=(ADD,), tool_choice="none"))
    assert ([tool.name for tool in request.tools], request.tool_choice) == ([FINAL_ANSWER], "required")


def test_a_tool_of_the_answers_name_is_refused() -> None:
    taken = ToolSpec(name=FINAL_ANSWER, description="", parameters={})
    with pytest.raises(ConfigError, match=FINAL_ANSWER):
        OutputContract(Finding).prepare(ModelRequest(messages=ASKED.messages, tools=(taken,)))


def test_native_mode_hands_the_schema_to_the_provider() -> None:
    output = OutputContract(Finding, "native").prepare(ASKED).output
    assert output is not None
    assert (output.name, output.strict) == (FINAL_ANSWER, True)
    assert output.schema["additionalProperties"] is False


def test_bug_42_only_a_schema_that_a_provider_can_guarantee_is_called_strict() -> None:
    class Inner(BaseModel):
        size: int | None = None

    class Nested(BaseModel):
        inner: list[Inner]

    class Free(BaseModel):
        labels: dict[str, str]

    class Bounded(BaseModel):
        name: str = Field(max_length=3)

    class Whole(BaseModel):
        inner: list[Finding] | None
        default: str

    def strict(model: type[BaseModel]) -> bool:
        output = OutputContract(model, "native").prepare(ASKED).output
        return output is not None and output.strict

    assert [strict(m) for m in (Loose, Nested, Free, Bounded, Whole)] == [False, False, False, False, False]
    assert strict(Finding)


@pytest.mark.parametrize("system", [(), (ModelMessage(role="system", content="be brief"),)])
def test_prompted_mode_puts_the_schema_at_the_end_of_the_system_message(system: tuple[ModelMessage, ...]) -> None:
    request = OutputContract(Finding, "prompted").prepare(ModelRequest(messages=(*system, *ASKED.messages)))
    assert [m.role for m in request.messages] == ["system", "user"]
    assert request.messages[0].content.startswith("be brief\n\n" if system else "Give")
    assert '"severity"' in request.messages[0].content


def test_a_form_that_is_no_object_is_refused() -> None:
    from pydantic import RootModel

    with pytest.raises(ConfigError):
        OutputContract(RootModel[list[int]])


# -- reading ---------------------------------------------------------------------------------------


async def test_the_answer_is_read_from_the_call_and_from_text() -> None:
    contract = OutputContract(Finding)
    assert await contract.read(call((FINAL_ANSWER, GOOD))) == Finding(**GOOD)
    assert await read(f"Here it is:\n```json\n{json.dumps(GOOD)}\n```") == Finding(**GOOD)


async def test_a_call_of_another_tool_is_no_answer() -> None:
    assert await OutputContract(Finding).read(call(("add", {}))) is None


async def test_an_answer_beside_other_calls_is_sent_back() -> None:
    for response in (call(("add", {}), (FINAL_ANSWER, GOOD)), call((FINAL_ANSWER, GOOD), (FINAL_ANSWER, GOOD))):
        with pytest.raises(ModelRetry, match="alone"):
            await OutputContract(Finding).read(response)


async def test_a_misfit_is_told_by_field() -> None:
    with pytest.raises(ModelRetry) as told:
        await read('{"hosts": ["a", 1], "severity": 9}')
    assert "title: Field required" in str(told.value)
    assert "hosts.1: " in str(told.value)
    assert "severity: Input should be less than or equal to 5 (got 9)" in str(told.value)


async def test_broken_json_is_repaired_and_validated() -> None:
    found = await read('{"title": "he said "hi" there", "hosts": ["a" "b"], "severity": 2}')
    assert found == Finding(title='he said "hi" there', hosts=["a", "b"], severity=2)
    with pytest.raises(ModelRetry, match="severity"):
        await read('{"title": "he said "hi" there", "hosts": ["a" "b"], "severity": 22}')


@pytest.mark.parametrize("response", [say(json.dumps(GOOD)), call((FINAL_ANSWER, GOOD)), say('{"title": "x')])
async def test_bug_27_an_answer_that_was_cut_off_is_never_taken(response: ModelResponse) -> None:
    with pytest.raises(ModelRetry, match="cut off"):
        await OutputContract(Finding).read(cut(response))


async def test_an_answer_that_ends_early_is_not_closed_for_the_model() -> None:
    with pytest.raises(ModelRetry, match="breaks off"):
        await OutputContract(Loose).read(say('{"note": "restart the primary and th'))


async def test_several_answers_are_not_chosen_from() -> None:
    for text in ('{"note": "a"} {"note": "b"}', '[{"note": "a"}]', '{"note": "a", "note": "b"}'):
        with pytest.raises(ModelRetry):
            await OutputContract(Loose).read(say(text))


async def test_more_than_64_kb_are_not_repaired() -> None:
    broken = '{"note": "he said "hi" ' + "x" * 66_000 + '"}'
    with pytest.raises(ModelRetry, match="64 kB"):
        await OutputContract(Loose).read(say(broken))
    whole = json.dumps({"note": "x" * 66_000})
    assert await OutputContract(Loose).read(say(whole)) == Loose(note="x" * 66_000)


async def test_deep_nesting_is_sent_back() -> None:
    for opened, closed in (("{" * 3_000, "}"), ('{"a":' * 5_000, "}" * 5_000), ('{"a": ' + "[" * 5_000, "}")):
        with pytest.raises(ModelRetry):
            await OutputContract(Loose).read(say(opened + closed))


async def test_a_repair_runs_in_a_thread_and_valid_json_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    start = threading.Thread.start

    def note(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note)
    await read(json.dumps(GOOD))
    await read("Sure: {'title': 'it', 'hosts': [], 'severity': 1,}")
    assert started == []
    await read('{"title": "a" "hosts": [], "severity": 2}')
    assert started == ["tool json repair"]


async def test_a_repair_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_core.llm.structured.REPAIR_TIMEOUT_S", 0.0)
    with pytest.raises(ModelRetry):
        await read('{"title": "a" "hosts": [], "severity": 2}')


async def test_a_content_filter_is_no_mistake_of_the_model() -> None:
    withheld = ModelResponse(message=say("").message, finish=Finish.CONTENT_FILTER, model="m", provider="p")
    with pytest.raises(ModelFailed, match="content filter"):
        await OutputContract(Finding).read(withheld)


# -- asking until it fits --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "tool", "native", "prompted"])
async def test_a_wrong_answer_goes_back_with_what_is_wrong(mode: OutputMode) -> None:
    wrong = call((FINAL_ANSWER, {"title": "x"})) if mode in ("auto", "tool") else say('{"title": "x"}')
    provider = ScriptedProvider(
        [wrong, say(json.dumps(GOOD), usage=Usage(input_tokens=5, output_tokens=2, requests=1))]
    )
    got = await ask_structured(provider, ASKED, Finding, mode=mode)
    assert got.value.severity == 3
    assert len(got.responses) == 2
    assert (got.usage.total_tokens, got.usage.requests, got.usage.exact) == (7, 2, False)
    second = provider.requests[1].messages
    assert is_sendable(second)
    assert [m.role for m in second[-2:]] == ["assistant", "user"]
    assert "severity: Field required" in second[-1].content
    assert '"title"' in second[-2].content


async def test_bug_45_retries_are_counted_over_the_whole_question() -> None:
    provider = ScriptedProvider([say("{}"), call(("other", {})), cut(say("x")), say(json.dumps(GOOD))])
    with pytest.raises(OutputInvalid, match="cut off") as failed:
        await ask_structured(provider, ASKED, Finding, max_retries=2)
    assert len(failed.value.responses) == len(provider.requests) == 3
    assert failed.value.kind == "model_failed"


async def test_all_attempts_share_one_timeout() -> None:
    clock = HandClock()

    def slow(text: str) -> Callable[[ModelRequest], ModelResponse]:
        def answer(request: ModelRequest) -> ModelResponse:
            clock.seconds += 20
            return say(text)

        return answer

    provider = ScriptedProvider([slow("{}"), slow("{}"), slow(json.dumps(GOOD))])
    with pytest.raises(OutputInvalid):
        await ask_structured(provider, ASKED, Finding, clock=clock)
    assert [request.timeout_s for request in provider.requests] == [30, 10]


async def test_a_failed_provider_is_not_asked_again_here() -> None:
    provider = ScriptedProvider([ProviderTimeout("late"), say(json.dumps(GOOD))])
    with pytest.raises(ProviderTimeout):
        await ask_structured(provider, ASKED, Finding)


async def test_an_empty_answer_leaves_a_history_that_can_be_sent() -> None:
    provider = ScriptedProvider([say(""), say(json.dumps(GOOD))])
    await ask_structured(provider, ASKED, Finding, mode="prompted")
    assert is_sendable(provider.requests[1].messages)


async def test_many_can_ask_at_once() -> None:
    async def ask(n: int) -> int:
        made = {"title": "x", "hosts": [], "severity": n}
        return (
            await ask_structured(ScriptedProvider([say("{}"), say(json.dumps(made))]), ASKED, Finding)
        ).value.severity

    assert await asyncio.gather(*(ask(n) for n in range(1, 6))) == [1, 2, 3, 4, 5]


async def test_a_run_ends_with_an_answer_of_the_form() -> None:
    bench = Bench([call((FINAL_ANSWER, {"title": "x"})), call((FINAL_ANSWER, GOOD))], agent=Agent(output=Finding))
    record = await bench.ask("what is wrong?")
    assert record.error is None
    assert record.output == Finding(**GOOD)
