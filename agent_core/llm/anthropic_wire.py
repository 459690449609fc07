"""Anthropic's Messages on the wire: requests out, responses in, streamed events put together.

Pure functions over JSON, without the vendor's SDK. Sources: Anthropic API reference, "Create a Message" and "Streaming
Messages"; guides "Handle tool calls", "Prompt caching" and "Structured outputs".
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_core import from_json

from agent_core.llm import vendor_wire as vw
from agent_core.llm.types import ModelMessage, ModelRequest, ModelResponse, ToolCall, ToolSpec, Usage
from agent_core.llm.vendor_wire import Assembler, Json, WireError
from agent_core.llm.wire import clean_text

MAX_TOKENS = 4096
"""Sent where a request leaves it open: the API has no default of its own."""

_CHOICES = {"none": "none", "auto": "auto", "required": "any"}
_CACHED: Json = {"cache_control": {"type": "ephemeral"}}


def build_request(model: str, request: ModelRequest, *, stream: bool) -> Json:
    """Build the JSON body of a request.

    The system messages at its beginning become ``system``; later ones are marked text of the user. A schema for the
    answer is always enforced strictly here, so it has to meet the rules of structured outputs. Prefixes that stay the
    same are marked for the prompt cache: tools and system, what stands before the newest question, the last results.
    """
    split = next((n for n, m in enumerate(request.messages) if m.role != "system"), len(request.messages))
    body: Json = {"model": model, "max_tokens": request.max_tokens or MAX_TOKENS}
    if system := [_text(m.content) for m in request.messages[:split] if m.content.strip()]:
        system[-1] |= _CACHED
        body["system"] = system
    turns = _build_turns(request.messages[split:])
    newest = max(n for n, (role, blocks) in enumerate(turns) if role == "user" and blocks[-1]["type"] == "text")
    if newest:
        turns[newest - 1][1][-1] |= _CACHED
    if turns[-1][1][-1]["type"] == "tool_result":  # the next step of the run reads it again
        turns[-1][1][-1] |= _CACHED
    body["messages"] = [{"role": role, "content": blocks} for role, blocks in turns]
    _add_tools(body, request, turns)
    if request.temperature is not None:
        body["temperature"] = min(max(request.temperature, 0.0), 1.0)
    if request.output is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": dict(request.output.schema)}}
    if stream:
        body["stream"] = True
    return body


_Turns = list[tuple[str, list[Json]]]


def _build_turns(messages: tuple[ModelMessage, ...]) -> _Turns:
    """Build turns that alternate, and begin and end with the user's."""
    turns: _Turns = []
    sent: set[str] = set()
    ids: dict[str | None, str] = {}  # of the newest calls
    for message in messages:
        if message.role == "tool":
            result: Json = {"type": "tool_result", "tool_use_id": ids.get(message.tool_call_id, "")}
            blocks = [result | {"content": message.content} if message.content.strip() else result]
        else:
            text = vw.build_text(message)
            if message.role == "system":
                text = f"<system_note>\n{text}\n</system_note>"
            blocks = [_text(text)] if text.strip() else []
        if message.tool_calls:
            ids = {call.id: _fresh_id(call.id, sent) for call in message.tool_calls}
            blocks += [_build_call(call, ids[call.id]) for call in message.tool_calls]
        role = "assistant" if message.role == "assistant" else "user"
        if not turns and role == "assistant":
            turns.append(("user", [_text("(earlier messages are left out)")]))
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        elif blocks:
            turns.append((role, blocks))
    if not turns or turns[-1][0] == "assistant":  # newer models take no half answer to go on with
        turns.append(("user", [_text("(go on)")]))
    return turns


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _fresh_id(call_id: str, sent: set[str]) -> str:
    """Return an id that is unique in the whole request, as the API wants it; other vendors repeat theirs."""
    fresh = vw.safe_name(call_id)
    while fresh in sent:
        fresh = f"{fresh}_{len(sent)}"
    sent.add(fresh)
    return fresh


def _build_call(call: ToolCall, call_id: str) -> Json:
    """Build a ``tool_use`` block; its input has to be an object, whatever the model wrote."""
    try:
        value = from_json(call.arguments or "{}", allow_inf_nan=False)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        value = {"malformed_arguments": clean_text(call.arguments)}
    return {"type": "tool_use", "id": call_id, "name": vw.safe_name(call.name), "input": value}


@vw.convert_once
def build_tools(spec: ToolSpec) -> Json:
    """Build the tool list; the same tuple of specs is converted once."""
    return {"name": spec.name, "description": spec.description, "input_schema": dict(spec.parameters)}


def _add_tools(body: Json, request: ModelRequest, turns: _Turns) -> None:
    if not request.tools:
        # a history with calls is refused when no tools are declared
        if used := dict.fromkeys(str(b["name"]) for _, blocks in turns for b in blocks if b["type"] == "tool_use"):
            body["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in used]
            body["tool_choice"] = {"type": "none"}
        return
    tools = build_tools(request.tools)
    body["tools"] = tools if "system" in body else [*tools[:-1], tools[-1] | _CACHED]
    choice: Json = {"type": _CHOICES[request.tool_choice]}
    if request.parallel_tool_calls is False and request.tool_choice != "none":
        choice["disable_parallel_tool_use"] = True
    if choice != {"type": "auto"}:
        body["tool_choice"] = choice


def parse_response(data: object, *, provider: str, model: str) -> ModelResponse:
    """Read a whole (not streamed) answer: it is read as the events that would have made it.

    Raises:
        WireError: it is no message.
    """
    body = vw.read_object(data, "the answer")
    if not isinstance(body.get("content"), list):
        raise WireError("the answer has no content")
    assembler = StreamAssembler(provider=provider, model=model)
    assembler.add({"type": "message_start", "message": body})
    for n, block in enumerate(vw.read_list(body["content"])):
        assembler.add({"type": "content_block_start", "index": n, "content_block": block})
    assembler.add({"type": "message_delta", "delta": body})
    return assembler.finish()


class StreamAssembler(Assembler):
    """Puts the events of one streamed answer together; thinking, and kinds that are not known, are passed over."""

    def __init__(self, *, provider: str, model: str) -> None:
        super().__init__(provider=provider, model=model)
        self._calls: dict[str, tuple[Mapping[str, object], list[str]]] = {}
        self._usage: dict[str, object] = {}

    def add(self, data: object) -> str:
        """Take one event and return the text in it."""
        event = vw.read_object(data, "an event")
        index = str(event.get("index"))
        match event.get("type"):
            case "message_start":
                message = vw.read_object(event.get("message"), "message")
                self._id = str(message.get("id") or "")
                self._model = str(message.get("model") or self._model)
                self._count(message.get("usage"))
            case "content_block_start":
                block = vw.read_object(event.get("content_block"), "content_block")
                if block.get("type") == "tool_use":
                    self._calls[index] = (block, [])
                return self._say(block)
            case "content_block_delta":
                delta = vw.read_object(event.get("delta"), "delta")
                if index in self._calls:
                    self._calls[index][1].append(vw.read_text(delta.get("partial_json")))
                return self._say(delta)
            case "message_delta":
                delta = vw.read_object(event.get("delta"), "delta")
                self._finish = delta.get("stop_reason") or self._finish
                details = delta.get("stop_details")
                if isinstance(details, Mapping) and not any(self._text):
                    self._text.append(vw.read_text(details.get("explanation")))
                self._count(event.get("usage"))
        return ""

    def _say(self, part: Mapping[str, object]) -> str:
        text = vw.read_text(part.get("text")) if part.get("type") in ("text", "text_delta") else ""
        self._text.append(text)
        return text

    def _count(self, usage: object) -> None:
        if isinstance(usage, Mapping):  # counts are cumulative, and not every event has all of them
            self._usage.update({k: v for k, v in usage.items() if v is not None})

    def finish(self) -> ModelResponse:
        """Return the whole answer."""
        calls = (
            (str(b.get("id") or ""), str(b.get("name") or ""), "".join(pieces) or vw.read_arguments(b.get("input")))
            for b, pieces in self._calls.values()
        )
        return self._respond(calls, parse_usage(self._usage))


def parse_usage(data: Mapping[str, object]) -> Usage | None:
    """Read a usage object, or None when it is empty. Cached tokens join the input: the API counts them apart."""
    if not data:
        return None
    read, written = (vw.read_number(data.get(f"cache_{kind}_input_tokens")) for kind in ("read", "creation"))
    details = data.get("output_tokens_details")
    return Usage(
        input_tokens=vw.read_number(data.get("input_tokens")) + read + written,
        output_tokens=vw.read_number(data.get("output_tokens")),
        cached_input_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=vw.read_number(details.get("thinking_tokens") if isinstance(details, Mapping) else 0),
        requests=1,
    )
