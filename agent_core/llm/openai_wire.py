"""Chat Completions on the wire: requests out, responses in, streamed pieces put together.

Pure functions over JSON, without the vendor's SDK. Sources: OpenAI API reference, "Create chat completion", "The chat
completion chunk object", "Create embeddings"; the tolerant rules are for servers that keep to it less strictly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from agent_core.llm import vendor_wire as vw
from agent_core.llm.types import ModelMessage, ModelRequest, ModelResponse, ToolSpec, Usage
from agent_core.llm.vendor_wire import Assembler, Json, WireError

_VECTORS = TypeAdapter(tuple[tuple[float, ...], ...])


def build_request(model: str, request: ModelRequest, *, stream: bool) -> Json:
    """Build the JSON body of a request, with OpenAI's ordinary names (``profiles`` amends it for a model)."""
    body: Json = {"model": model, "messages": [build_message(m) for m in request.messages]}
    if request.tools:
        # never ``strict``: that would make every optional argument a required one
        body["tools"] = build_tools(request.tools)
        if request.tool_choice != "auto":
            body["tool_choice"] = request.tool_choice
        if request.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.parallel_tool_calls
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if (output := request.output) is not None:
        schema: Json = {"name": output.name, "schema": dict(output.schema)}
        if output.strict:
            schema["strict"] = True
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return body


def build_message(message: ModelMessage) -> Json:
    """Build one message."""
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if message.tool_calls:
        calls = [
            {"id": c.id, "type": "function", "function": {"name": vw.safe_name(c.name), "arguments": c.arguments}}
            for c in message.tool_calls
        ]
        return {"role": "assistant", "content": message.content or None, "tool_calls": calls}
    return {"role": message.role, "content": vw.build_text(message)}


@vw.convert_once
def build_tools(spec: ToolSpec) -> Json:
    """Build the tool list; the same tuple of specs is converted once."""
    function = {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
    return {"type": "function", "function": function}


def parse_response(data: object, *, provider: str, model: str) -> ModelResponse:
    """Read a whole (not streamed) answer: it is read as a stream of one chunk.

    Raises:
        WireError: it is no chat completion.
    """
    body = vw.read_object(data, "the answer")
    choices = vw.read_list(body.get("choices"))
    if not choices:
        raise WireError("the answer has no choices")
    choice = vw.read_object(choices[0], "choices[0]")
    message = vw.read_object(choice.get("message"), "choices[0].message")
    calls = [{**vw.read_object(c, "a call"), "index": n} for n, c in enumerate(vw.read_list(message.get("tool_calls")))]
    delta = {**message, "tool_calls": calls}
    assembler = StreamAssembler(provider=provider, model=model)
    assembler.add({**body, "choices": [{"delta": delta, "finish_reason": choice.get("finish_reason") or "stop"}]})
    return assembler.finish()


def parse_usage(data: object) -> Usage | None:
    """Read a usage object, or None when there is none."""
    if not isinstance(data, Mapping) or not (data.get("prompt_tokens") or data.get("completion_tokens")):
        return None
    prompt, completion = (
        part if isinstance(part := data.get(f"{kind}_tokens_details"), Mapping) else {}
        for kind in ("prompt", "completion")
    )
    # DeepSeek and Moonshot have names of their own for cached tokens
    cached = prompt.get("cached_tokens") or data.get("prompt_cache_hit_tokens") or data.get("cached_tokens")
    return Usage(
        input_tokens=vw.read_number(data.get("prompt_tokens")),
        output_tokens=vw.read_number(data.get("completion_tokens")),
        cached_input_tokens=vw.read_number(cached),
        cache_write_tokens=vw.read_number(prompt.get("cache_write_tokens")),
        reasoning_tokens=vw.read_number(completion.get("reasoning_tokens")),
        requests=1,
    )


def parse_embeddings(data: object, count: int) -> tuple[tuple[float, ...], ...]:
    """Read ``count`` vectors, in the order of their texts.

    Raises:
        ValueError: there are not as many, or they are no numbers.
    """
    entries = [vw.read_object(e, "a vector") for e in vw.read_list(vw.read_object(data, "the answer").get("data"))]
    found = {str(entry.get("index", n)): entry.get("embedding") for n, entry in enumerate(entries)}
    if len(found) != count or not found.keys() >= set(map(str, range(count))):
        raise WireError(f"{count} texts were sent, and vectors for {len(found)} came back")
    return _VECTORS.validate_python([found[str(n)] for n in range(count)])


class StreamAssembler(Assembler):
    """Puts the chunks of one streamed answer together.

    Tolerates a missing ``index``, several calls under one index, ids that come late or as ``"null"``, usage on any
    chunk (cumulative: the last one counts), and chunks without choices.
    """

    def __init__(self, *, provider: str, model: str) -> None:
        super().__init__(provider=provider, model=model)
        self._calls: list[_PartialCall] = []
        self._usage: Usage | None = None

    def add(self, data: object) -> str:
        """Take one chunk and return the text in it."""
        body = vw.read_object(data, "a chunk")
        if "choices" not in body and "usage" not in body:
            raise WireError("a chunk has neither choices nor usage")
        choices = vw.read_list(body.get("choices"))
        choice = vw.read_object(choices[0], "choices[0]") if choices else {}
        self._usage = parse_usage(body.get("usage") or choice.get("usage")) or self._usage  # Moonshot: in the choice
        self._id = self._id or str(body.get("id") or "")
        self._model = str(body.get("model") or self._model)
        self._finish = choice.get("finish_reason") or self._finish
        delta = choice.get("delta")
        if not isinstance(delta, Mapping):
            return ""
        for piece in vw.read_list(delta.get("tool_calls")):
            self._add_call(vw.read_object(piece, "a tool call"))
        text = vw.read_text(delta.get("content") or delta.get("refusal"))
        self._text.append(text)
        return text

    def _add_call(self, piece: Mapping[str, object]) -> None:
        raw_id, index, function = piece.get("id"), piece.get("index"), piece.get("function")
        call_id = raw_id if isinstance(raw_id, str) and raw_id != "null" else ""
        function = function if isinstance(function, Mapping) else {}
        name = str(function.get("name") or "")
        target = self._find_call(call_id, index if isinstance(index, int) else None, name)
        target.id = target.id or call_id
        target.name = target.name or name
        if arguments := vw.read_arguments(function.get("arguments")):
            target.arguments.append(arguments)

    def _find_call(self, call_id: str, index: int | None, name: str) -> _PartialCall:
        if call_id:
            for call in self._calls:
                if call.id == call_id:
                    return call
        if index is None:
            candidates = self._calls[-1:]
        else:
            candidates = [c for c in self._calls if c.index == index]
            if not candidates and 0 <= index < len(self._calls) and self._calls[index].index is None:
                candidates = [self._calls[index]]  # only the first piece came without its index
        if candidates and not (call_id and candidates[-1].id) and not candidates[-1].is_done_before(name):
            return candidates[-1]
        self._calls.append(_PartialCall(index))
        return self._calls[-1]

    def finish(self) -> ModelResponse:
        """Return the whole answer."""
        return self._respond(((c.id, c.name, "".join(c.arguments)) for c in self._calls), self._usage)


@dataclass(slots=True)
class _PartialCall:
    index: int | None
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def is_done_before(self, name: str) -> bool:
        """Tell whether a piece with ``name`` begins another call; some servers repeat the name on every piece."""
        if not name or not self.name or not self.arguments:
            return False
        try:
            json.loads("".join(self.arguments))
        except ValueError:
            return name != self.name
        return True
