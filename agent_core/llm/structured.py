"""Final answers that fit a pydantic model: how the model is asked for one, and how its answer is read.

Only here broken JSON is repaired (a repair may guess): within bounds, off the event loop, never where the answer looks
cut off, and validated like any other. Tool arguments are never repaired.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from agent_core.context import Clock, SystemClock
from agent_core.errors import ConfigError, ModelFailed, ModelRetry
from agent_core.llm.fenced import Ambiguous, NotOneObject, parse_object
from agent_core.llm.provider import Provider
from agent_core.llm.types import Finish, ModelMessage, ModelRequest, ModelResponse, OutputSchema, ToolSpec, Usage
from agent_core.tools.bounded import run_in_thread
from agent_core.tools.schema import build_parameters

OutputMode = Literal["auto", "tool", "native", "prompted"]
"""``tool``: the model calls ``final_answer``. ``native``: its provider enforces the schema. ``prompted``: the system
message holds it. ``auto`` is ``tool``, which works wherever tools do, in prompted-action mode too."""

FINAL_ANSWER = "final_answer"
MAX_REPAIR_BYTES = 64 * 1024
REPAIR_TIMEOUT_S = 1.0
_ECHO_CHARS = 4_000  # how much of a wrong answer the model is shown again

_NOT_STRICT = frozenset(("default", "allOf", "oneOf", "not", "minLength", "maxLength", "uniqueItems"))
_build_schema = functools.lru_cache(maxsize=64)(build_parameters)

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class OutputContract(Generic[M]):
    """Asks for answers that fit ``output`` (an object with named fields, else ``ConfigError``), and reads them."""

    def __init__(self, output: type[M], mode: OutputMode = "auto") -> None:
        self._output, self._mode, self._schema = output, mode, _build_schema(output)

    def prepare(self, request: ModelRequest) -> ModelRequest:
        """Return ``request`` asking for the form; its other tools stay callable.

        Raises:
            ConfigError: it has a tool of the name ``final_answer``.
        """
        if self._mode == "prompted":
            return replace(request, messages=instruct(request.messages, describe_schema(self._schema)))
        if self._mode == "native":
            wanted = OutputSchema(name=FINAL_ANSWER, schema=self._schema, strict=_is_strict(self._schema))
            return replace(request, output=wanted)
        others = () if request.tool_choice == "none" else request.tools
        if any(tool.name == FINAL_ANSWER for tool in others):
            raise ConfigError(f"the answer is given under the name {FINAL_ANSWER}; rename that tool")
        about = inspect.cleandoc(self._output.__doc__ or "")
        about = f"Give the final answer, once and alone, when all is known. {about}".strip()
        spec = ToolSpec(name=FINAL_ANSWER, description=about, parameters=self._schema)
        return replace(request, tools=(*others, spec), tool_choice=request.tool_choice if others else "required")

    async def read(self, response: ModelResponse) -> M | None:
        """Return the answer (the ``final_answer`` call, else the text), or None when other tools are called.

        Raises:
            ModelRetry: it does not fit; the message tells the model what is wrong, by field.
            ModelFailed: the content filter withheld it.
        """
        calls = response.message.tool_calls
        finals = [call.arguments for call in calls if call.name == FINAL_ANSWER]
        if calls and not finals:
            return None
        if response.finish is Finish.CONTENT_FILTER:
            raise ModelFailed("the model's content filter refused to answer")
        if response.finish is Finish.LENGTH:
            raise ModelRetry("the answer was cut off at the output limit and is not used; answer again, shorter")
        if len(calls) > 1:
            raise ModelRetry(f"call {FINAL_ANSWER} once and alone, after the results of the other tools are known")
        value = await _read_object(finals[0] if finals else response.message.content)
        try:
            return self._output.model_validate(value)
        except ValidationError as error:
            raise ModelRetry(f"the answer does not fit: {describe_misfit(error)}. Answer again, all of it") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredAnswer(Generic[T]):
    """An answer that fits; ``usage`` is that of all ``responses`` together, the wrong ones included."""

    value: T
    usage: Usage
    responses: tuple[ModelResponse, ...]


class OutputInvalid(ModelFailed):
    """No answer of the model fitted; ``responses`` are what it said, to be charged."""

    def __init__(self, message: str, responses: Sequence[ModelResponse]) -> None:
        super().__init__(message)
        self.responses = tuple(responses)


async def ask_structured(
    provider: Provider,
    request: ModelRequest,
    output: type[M],
    *,
    mode: OutputMode = "auto",
    max_retries: int = 2,
    clock: Clock | None = None,
) -> StructuredAnswer[M]:
    """Ask until the answer fits ``output``; tools of the request are not run. Arguments and errors as ``ask_until``."""
    contract = OutputContract(output, mode)

    async def read(response: ModelResponse) -> M:
        value = await contract.read(response)
        if value is None:
            raise ModelRetry("no other tool can be called now; give the final answer")
        return value

    return await ask_until(read, provider, contract.prepare(request), max_retries=max_retries, clock=clock)


async def ask_until(
    read: Callable[[ModelResponse], Awaitable[T]],
    provider: Provider,
    request: ModelRequest,
    *,
    max_retries: int,
    clock: Clock | None = None,
) -> StructuredAnswer[T]:
    """Ask until ``read`` takes the answer; where it raises ``ModelRetry``, answer and mistake go back to the model.

    ``request.timeout_s`` bounds all attempts together; there are ``max_retries`` after the first.

    Raises:
        OutputInvalid: no attempt fitted, or the time was up after one that did not.
        ModelFailed: the content filter withheld the answer.
        ProviderError: the provider did not answer.
    """
    clock, responses = clock or SystemClock(), list[ModelResponse]()
    deadline = clock.monotonic() + request.timeout_s
    while True:
        left_s = max(0.001, deadline - clock.monotonic())
        response = await provider.complete(replace(request, timeout_s=left_s))
        responses.append(response)
        try:
            value = await read(response)
        except ModelRetry as mistake:
            if len(responses) > max_retries or clock.monotonic() >= deadline:
                raise OutputInvalid(f"the model gave no usable answer: {mistake}", responses) from mistake
            # told as text also where it was a call: servers refuse a history with arguments that are no JSON
            said = response.message.content or " ".join(call.arguments for call in response.message.tool_calls)
            wrong = ModelMessage(role="assistant", content=said.strip()[:_ECHO_CHARS] or "(nothing)")
            told = ModelMessage(role="user", content=str(mistake))
            request = replace(request, messages=(*request.messages, wrong, told))
        else:
            usage = sum((r.usage or Usage(requests=r.attempts, exact=False) for r in responses), Usage())
            return StructuredAnswer(value=value, usage=usage, responses=tuple(responses))


def instruct(messages: Sequence[ModelMessage], text: str) -> tuple[ModelMessage, ...]:
    """Return ``messages`` with ``text`` at the end of the system message, which is made where there is none."""
    if messages and messages[0].role == "system":
        return (replace(messages[0], content=f"{messages[0].content}\n\n{text}"), *messages[1:])
    return (ModelMessage(role="system", content=text), *messages)


def describe_schema(schema: object) -> str:
    """Tell a model to answer in JSON that fits ``schema``."""
    dumped = json.dumps(schema, ensure_ascii=False)
    return f"Give the final answer as one JSON object, without other text, that fits this JSON schema:\n{dumped}"


def describe_misfit(error: ValidationError) -> str:
    """Say for the first eight fields what is wrong, in one line."""
    return "; ".join(
        f"{'.'.join(map(str, e['loc'])) or 'the object'}: {e['msg']}"
        + ("" if e["type"] == "missing" else f" (got {repr(e['input'])[:80]})")
        for e in error.errors(include_url=False, include_context=False)[:8]
    )


async def _read_object(text: str) -> dict[str, object]:
    try:
        return parse_object(text)
    except NotOneObject as error:
        mistake = ModelRetry(f"{error}. Answer again with one whole JSON object of less than 64 kB and nothing else")
        if isinstance(error, Ambiguous):
            raise mistake from error
    # what does not end in a bracket looks cut off, and closing it would be inventing
    if text.rstrip("` \t\r\n").endswith("}") and len(text.encode(errors="replace")) <= MAX_REPAIR_BYTES:
        try:
            async with asyncio.timeout(REPAIR_TIMEOUT_S):
                value = await run_in_thread(lambda: _repair(text), label="json repair")
        except (TimeoutError, ValueError, RecursionError) as error:
            raise mistake from error
        if isinstance(value, dict):
            return value
    raise mistake


def _repair(text: str) -> object:
    from json_repair import repair_json

    return repair_json(text, return_objects=True, skip_json_loads=True)


def _is_strict(part: object) -> bool:
    """Tell whether a provider can guarantee this schema; it may say no where yes would do, never the other way."""
    if isinstance(part, dict) and part.get("type") == "object":
        named = part.get("properties")
        if named is None or set(part.get("required", ())) != set(named):  # free names, or an optional one
            return False
    if isinstance(part, dict) and part.keys() & _NOT_STRICT:
        return False
    return all(map(_is_strict, part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()))
