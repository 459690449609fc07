"""Tools for models without function calling: described in the system message, called by replies of one JSON action.

An action is run as it was written or not at all: only lossless repair (``llm.fenced``), no action below the wanted
confidence, none out of a reply that was cut off.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from pydantic import BaseModel, Field, ValidationError

from agent_core.context import Clock
from agent_core.errors import ModelRetry, ProviderRefused
from agent_core.llm.fenced import NotOneObject, parse_object
from agent_core.llm.provider import Provider
from agent_core.llm.structured import OutputInvalid, ask_until, describe_misfit, describe_schema, instruct
from agent_core.llm.types import Finish, ModelMessage, ModelRequest, ModelResponse, StreamItem, TextChunk, ToolCall
from agent_core.prompts import PromptTemplate, load_prompt

FINISHED = "finished"
PLACEHOLDERS = frozenset(("names", "tools"))

_TOOL_NAME = re.compile(r"""["']tool_name["']\s*:\s*["']([A-Za-z0-9_-]{1,64})["']""")
_dump = json.JSONEncoder(ensure_ascii=False).encode


class Action(BaseModel):
    """One reply: the next tool with its input, or ``finished`` with the answer."""

    thought: str
    tool_name: str
    tool_input: dict[str, object] | None = None
    confidence: float = Field(ge=0, le=1)
    answer: str = ""


class NoAction(ProviderRefused):
    """No reply of the model was an action that may be run; another model may do better, asking again will not."""


class PromptedActions:
    """A provider for models without function calling, around the provider that reaches them.

    A tool call comes with the thought as its text. The answer is only what ``finished`` says: prose goes back to the
    model, as do unreadable actions, unknown tools and low confidence. An action that was cut off comes back as a call
    with ``Finish.LENGTH``, which is never run.

    Args:
        provider: never sees a tool.
        min_confidence: from 0 to 1; an action below it goes back to the model.
        max_retries: how many replies may go back, within the request's timeout.
        template: replaces ``prompts/prompted_actions.md`` (placeholders: ``PLACEHOLDERS``).
        clock: for tests.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        min_confidence: float = 0.3,
        max_retries: int = 2,
        template: PromptTemplate | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._provider, self._clock = provider, clock
        self._min_confidence, self._max_retries = min_confidence, max_retries
        self._template = template or load_prompt("prompted_actions", allowed=PLACEHOLDERS)
        self.name, self.model = provider.name, provider.model
        self.prepare, self.aclose = provider.prepare, provider.aclose

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Ask for the next action, or just for text where neither the request nor its history has tools.

        Raises:
            NoAction: no reply was one that may be run.
            ProviderError: the wrapped provider did not answer.
        """
        tools = () if request.tool_choice == "none" else request.tools
        if not tools and not any(message.tool_calls for message in request.messages):
            return await self._provider.complete(replace(request, tools=()))
        names = [*(tool.name for tool in tools), *([] if tools and request.tool_choice == "required" else [FINISHED])]
        described = [
            f"### {t.name}\n{t.description}\nInput schema: {_dump(t.parameters)}"
            + "".join(f"\nExample: {e.question} -> {_dump(e.arguments)}" for e in t.examples)
            for t in tools
        ]
        text = self._template.fill(names=", ".join(names), tools="\n\n".join(described) or "(none)")
        if request.output is not None:
            text += "\n\nFor `answer`: " + describe_schema(request.output.schema)
        asked = replace(request, tools=(), tool_choice="auto", parallel_tool_calls=None, output=None)
        asked = replace(asked, messages=instruct(_rewrite(request.messages), text))

        async def read(response: ModelResponse) -> ModelResponse:
            return self._read(response, names)

        try:
            got = await ask_until(read, self._provider, asked, max_retries=self._max_retries, clock=self._clock)
        except OutputInvalid as error:
            raise NoAction(str(error), provider=self.name) from error
        usage = got.usage if any(r.usage for r in got.responses) else None
        return replace(got.value, usage=usage, attempts=sum(r.attempts for r in got.responses))

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        """Yield the answer in one piece, since nobody wants to read actions, then the response."""
        response = await self.complete(request)
        if response.message.content and not response.message.tool_calls:
            yield TextChunk(text=response.message.content)
        yield response

    def _read(self, response: ModelResponse, names: Sequence[str]) -> ModelResponse:
        text, named = response.message.content, _TOOL_NAME.search(response.message.content)
        if response.finish is Finish.LENGTH and "{" in text:
            return _call(response, Finish.LENGTH, named[1] if named else FINISHED, text)
        if response.finish is Finish.CONTENT_FILTER:
            return response
        try:
            action = Action.model_validate(parse_object(text))
        except (NotOneObject, ValidationError) as error:
            what = describe_misfit(error) if isinstance(error, ValidationError) else error
            raise ModelRetry(f"No action, nothing was run: {what}. Send one JSON object as described") from error
        if action.tool_name not in names:
            raise ModelRetry(f"tool_name cannot be {action.tool_name!r}; choose one of: {', '.join(names)}")
        if action.confidence < self._min_confidence:
            low = f"A confidence of {action.confidence:g} is too low, nothing was run"
            raise ModelRetry(f"{low}. Choose a step that you are sure of, or say in an answer what is missing")
        if action.tool_name == FINISHED:
            inner = (action.tool_input or {}).get("answer")  # where all other tools have what they are given
            answer = action.answer or (inner if isinstance(inner, str) else "")
            if not answer.strip():
                raise ModelRetry("`answer` is missing; finish with the whole answer in it")
            return replace(response, message=ModelMessage(role="assistant", content=answer), finish=Finish.STOP)
        if action.tool_input is None:
            raise ModelRetry("`tool_input` is missing; it is {} for a tool without arguments")
        return _call(response, Finish.TOOL_CALLS, action.tool_name, json.dumps(action.tool_input), action.thought)


def _call(response: ModelResponse, finish: Finish, name: str, arguments: str, thought: str = "") -> ModelResponse:
    calls = (ToolCall(id="call_0", name=name, arguments=arguments),)
    return replace(response, message=ModelMessage(role="assistant", content=thought, tool_calls=calls), finish=finish)


def _rewrite(messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Tell calls and results as actions and observations, in pairs: many chat templates want the roles to alternate."""
    told: list[ModelMessage] = []
    calls: dict[str | None, tuple[str, ToolCall]] = {}
    for message in messages:
        if message.tool_calls:
            calls |= {call.id: (message.content, call) for call in message.tool_calls}
        elif message.role == "tool":
            thought, call = calls[message.tool_call_id]
            head = f'{{"thought": {_dump(thought)}, "tool_name": {_dump(call.name)}'
            action = f'{head}, "tool_input": {call.arguments}, "confidence": 1.0}}'
            told.append(ModelMessage(role="assistant", content=action))
            told.append(ModelMessage(role="user", content=f"Observation ({call.name}): {message.content}"))
        else:
            told.append(message)
    return tuple(told)
