"""Chat Completions on the wire: requests out, responses in, streamed pieces put together.

Pure functions over JSON, without the vendor's SDK. Sources: OpenAI API reference, "Create chat completion" and
"The chat completion chunk object"; the tolerant rules are for servers that keep to it less strictly (vLLM, Ollama,
Qwen, proxies).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import cast

from agent_core.llm.types import Finish, ModelMessage, ModelRequest, ModelResponse, ToolCall, ToolSpec, Usage

Json = dict[str, object]

_FINISH = {
    "stop": Finish.STOP,
    "tool_calls": Finish.TOOL_CALLS,
    "function_call": Finish.TOOL_CALLS,
    "length": Finish.LENGTH,
    "content_filter": Finish.CONTENT_FILTER,
}
_NOT_IN_A_SPEAKER = re.compile(r"[^\w .@'-]+")


class WireError(ValueError):
    """The server's JSON is not a chat completion; the message says where."""


def build_request(model: str, request: ModelRequest, *, stream: bool) -> Json:
    """Build the JSON body of a request."""
    body: Json = {"model": model, "messages": [build_message(m) for m in request.messages]}
    if request.tools:
        body["tools"] = build_tools(request.tools)
        if request.tool_choice != "auto":
            body["tool_choice"] = request.tool_choice
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return body


def build_message(message: ModelMessage) -> Json:
    """Build one message. A speaker's name stands before the text, since not every server keeps ``name``."""
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if message.tool_calls:
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.tool_calls
        ]
        return {"role": "assistant", "content": message.content or None, "tool_calls": calls}
    if message.speaker:
        speaker = " ".join(_NOT_IN_A_SPEAKER.sub(" ", message.speaker).split()) or "somebody"
        return {"role": message.role, "content": f"[{speaker}] {message.content}"}
    return {"role": message.role, "content": message.content}


def build_tools(specs: tuple[ToolSpec, ...]) -> list[Json]:
    """Build the tool list; the same tuple of specs is converted once."""
    return _build_tools(_Identity(specs))


class _Identity:
    """Hashes by identity and keeps its value alive, so that a cache may be keyed by it."""

    __slots__ = ("specs",)

    def __init__(self, specs: tuple[ToolSpec, ...]) -> None:
        self.specs = specs

    def __hash__(self) -> int:
        return id(self.specs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.specs is self.specs


@functools.lru_cache(maxsize=64)
def _build_tools(key: _Identity) -> list[Json]:
    return [
        {
            "type": "function",
            "function": {"name": s.name, "description": s.description, "parameters": dict(s.parameters)},
        }
        for s in key.specs
    ]


def parse_response(data: object, *, provider: str, model: str) -> ModelResponse:
    """Read a whole (not streamed) answer.

    Raises:
        WireError: it is no chat completion.
    """
    body = _object(data, "the answer")
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise WireError("the answer has no choices")
    choice = _object(choices[0], "choices[0]")
    message = _object(choice.get("message"), "choices[0].message")
    calls = tuple(
        _parse_call(_object(c, f"tool_calls[{n}]"), n) for n, c in enumerate(_list(message.get("tool_calls")))
    )
    text = message.get("content") or message.get("refusal") or ""
    return ModelResponse(
        message=ModelMessage(role="assistant", content=_text_of(text), tool_calls=calls),
        finish=_finish(choice.get("finish_reason"), calls),
        model=str(body.get("model") or model),
        provider=provider,
        usage=parse_usage(body.get("usage")),
    )


def _parse_call(call: Mapping[str, object], n: int) -> ToolCall:
    function = _object(call.get("function"), f"tool_calls[{n}].function")
    arguments = function.get("arguments")
    return ToolCall(
        id=str(call.get("id") or f"call_{n}"),
        name=str(function.get("name") or ""),
        arguments=arguments if isinstance(arguments, str) else "",
    )


def parse_usage(data: object) -> Usage | None:
    """Read a usage object, or None when there is none."""
    if not isinstance(data, Mapping):
        return None
    return Usage(
        input_tokens=_number(data.get("prompt_tokens")),
        output_tokens=_number(data.get("completion_tokens")),
        cached_input_tokens=_number(_part(data, "prompt_tokens_details", "cached_tokens")),
        reasoning_tokens=_number(_part(data, "completion_tokens_details", "reasoning_tokens")),
        requests=1,
    )


class StreamAssembler:
    """Puts the pieces of one streamed answer together.

    Tolerates a missing ``index``, several calls under one index, ids that come late or as ``"null"``, usage on any
    chunk (cumulative: the last one counts), and chunks without choices.
    """

    def __init__(self, *, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        self._text: list[str] = []
        self._calls: list[_PartialCall] = []
        self._finish: object = None
        self._usage: Usage | None = None
        self.complete = False

    def add(self, data: object) -> str:
        """Take one chunk and return the text in it (often empty).

        Raises:
            WireError: it is no chunk of a chat completion.
        """
        body = _object(data, "a chunk")
        if "choices" not in body and "usage" not in body:
            raise WireError("a chunk has neither choices nor usage")
        if usage := parse_usage(body.get("usage")):
            self._usage = usage
        if body.get("model"):
            self._model = str(body["model"])
        choices = _list(body.get("choices"))
        if not choices:
            return ""
        choice = _object(choices[0], "choices[0]")
        if choice.get("finish_reason"):
            self._finish = choice["finish_reason"]
            self.complete = True
        delta = choice.get("delta")
        if not isinstance(delta, Mapping):
            return ""
        for piece in _list(delta.get("tool_calls")):
            self._add_call(_object(piece, "a tool call"))
        text = _text_of(delta.get("content") or delta.get("refusal") or "")
        if text:
            self._text.append(text)
        return text

    def _add_call(self, piece: Mapping[str, object]) -> None:
        raw_id = piece.get("id")
        call_id = raw_id if isinstance(raw_id, str) and raw_id not in ("", "null") else None
        index = piece.get("index") if isinstance(piece.get("index"), int) else None
        function = piece.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
        target = self._find_call(call_id, cast(int | None, index), named=bool(name))
        if call_id and target.id is None:
            target.id = call_id
        if name and not target.name:
            target.name = str(name)
        arguments = function.get("arguments") if isinstance(function, Mapping) else None
        if isinstance(arguments, str):
            target.arguments.append(arguments)

    def _find_call(self, call_id: str | None, index: int | None, *, named: bool) -> _PartialCall:
        if call_id is not None:
            for call in self._calls:
                if call.id == call_id:
                    return call
        candidates = [c for c in self._calls if c.index == index] if index is not None else self._calls[-1:]
        if candidates:
            last = candidates[-1]
            # another id, or another name after the arguments began, is another call under the same index
            if (call_id is None or last.id is None) and not (named and last.name and last.arguments):
                return last
        call = _PartialCall(index=index)
        self._calls.append(call)
        return call

    def finish(self) -> ModelResponse:
        """Return the whole answer.

        Raises:
            WireError: the stream ended before the model said that it was finished.
        """
        if not self.complete:
            raise WireError("the stream broke off before the answer was complete")
        calls = tuple(
            ToolCall(id=c.id or f"call_{n}", name=c.name, arguments="".join(c.arguments))
            for n, c in enumerate(self._calls)
        )
        return ModelResponse(
            message=ModelMessage(role="assistant", content="".join(self._text), tool_calls=calls),
            finish=_finish(self._finish, calls),
            model=self._model,
            provider=self._provider,
            usage=self._usage,
        )


class _PartialCall:
    __slots__ = ("arguments", "id", "index", "name")

    def __init__(self, *, index: int | None) -> None:
        self.index = index
        self.id: str | None = None
        self.name = ""
        self.arguments: list[str] = []


def _finish(reason: object, calls: tuple[ToolCall, ...]) -> Finish:
    known = _FINISH.get(reason if isinstance(reason, str) else "", Finish.STOP)
    # some servers say "stop" beside tool calls
    return Finish.TOOL_CALLS if calls and known is Finish.STOP else known


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else []
    return "".join(str(p.get("text") or "") for p in parts if isinstance(p, Mapping))


def _object(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise WireError(f"{what} is not an object")
    return value


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _part(data: Mapping[str, object], name: str, field: str) -> object:
    inner = data.get(name)
    return inner.get(field) if isinstance(inner, Mapping) else None
