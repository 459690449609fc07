"""What the wire formats of all vendors have in common: reading JSON with care, names, and the end of an answer."""

from __future__ import annotations

import functools
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from agent_core.llm.types import Finish, ModelMessage, ModelResponse, ToolCall, ToolSpec, Usage
from agent_core.llm.wire import escape_halves

Json = dict[str, object]

_FINISH = {
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), Finish.TOOL_CALLS),
    # a paused turn is not whole, and nothing of ours asks for its rest
    **dict.fromkeys(("length", "max_tokens", "model_context_window_exceeded", "pause_turn"), Finish.LENGTH),
    **dict.fromkeys(("content_filter", "refusal"), Finish.CONTENT_FILTER),
}
_BROKEN_OFF = {"error", "abort", "insufficient_system_resource"}  # OpenRouter, vLLM, DeepSeek
_NOT_IN_A_SPEAKER = re.compile(r"[^\w .@'-]+")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")


class WireError(ValueError):
    """The server's JSON is not an answer; the message says where."""


class Assembler(ABC):
    """Puts the pieces of one streamed answer together. Both methods raise ``WireError`` when there is no answer."""

    def __init__(self, *, provider: str, model: str) -> None:
        self._provider, self._model, self._id = provider, model, ""
        self._text: list[str] = []
        self._finish: object = None

    @abstractmethod
    def add(self, data: object) -> str:
        """Take one piece and return the text in it (often empty)."""

    @abstractmethod
    def finish(self) -> ModelResponse:
        """Return the whole answer."""

    def _respond(self, calls: Iterable[tuple[str, str, str]], usage: Usage | None) -> ModelResponse:
        """Build the response; calls are id, name and arguments."""
        if not isinstance(self._finish, str) or self._finish in _BROKEN_OFF:
            raise WireError("the server broke off before the answer was complete")
        made = tuple(ToolCall(id=i or f"call_{n}", name=name, arguments=a) for n, (i, name, a) in enumerate(calls))
        finish = _FINISH.get(self._finish, Finish.STOP)
        return ModelResponse(
            message=ModelMessage(role="assistant", content="".join(self._text), tool_calls=made),
            finish=Finish.TOOL_CALLS if made and finish is Finish.STOP else finish,  # some say "stop" beside calls
            model=self._model,
            provider=self._provider,
            usage=usage,
            response_id=self._id,
        )


def read_object(value: object, what: str) -> Mapping[str, object]:
    """Return a JSON object; raises ``WireError``, also when it holds an error (that came with status 200)."""
    if not isinstance(value, Mapping):
        raise WireError(f"{what} is not an object")
    if error := value.get("error"):
        said = error.get("message") if isinstance(error, Mapping) else error
        raise WireError(f"the server says: {said or 'an error, without a message'}")
    return value


def read_list(value: object) -> Sequence[object]:
    """Return ``value`` when it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def read_number(value: object) -> int:
    """Return a count of tokens, 0 for whatever is none."""
    return int(value) if isinstance(value, int | float) and 0 <= value < 1e12 else 0


def read_text(content: object) -> str:
    """Return the text of a string, or of a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(str(p.get("text") or "") for p in read_list(content) if isinstance(p, Mapping))


def read_arguments(value: object) -> str:
    """Return a call's arguments as JSON text; some servers send the object itself."""
    if isinstance(value, Mapping):
        return escape_halves(json.dumps(value, ensure_ascii=False))
    return value if isinstance(value, str) else ""


def build_text(message: ModelMessage) -> str:
    """Build the text of a message: before it who said it and when, since no server keeps both."""
    parts = []
    if message.speaker:
        parts.append(f"[{' '.join(_NOT_IN_A_SPEAKER.sub(' ', message.speaker).split()) or 'somebody'}]")
    if message.at is not None:
        parts.append(f"({message.at:%a %Y-%m-%d %H:%M %Z})")
    return " ".join((*parts, message.content))


@functools.lru_cache(maxsize=1024)
def safe_name(name: str) -> str:
    """Return ``name`` in letters that vendors allow: an invented one would have every later request refused."""
    return _NOT_IN_A_NAME.sub("_", name)[:64] or "unnamed"


def convert_once(convert: Callable[[ToolSpec], Json]) -> Callable[[tuple[ToolSpec, ...]], list[Json]]:
    """Make a function that converts specs, each tuple of them once. Nobody changes what it returns."""
    kept: dict[int, tuple[tuple[ToolSpec, ...], list[Json]]] = {}

    def convert_all(specs: tuple[ToolSpec, ...]) -> list[Json]:
        known = kept.get(id(specs))
        if known is None:
            if len(kept) >= 64:
                kept.clear()
            known = kept[id(specs)] = (specs, [convert(spec) for spec in specs])  # kept alive, so the id stays its own
        return known[1]

    return convert_all
