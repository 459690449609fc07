"""A streamed answer: its chunks, and everything that real servers do to them.

The chunk object: https://platform.openai.com/docs/api-reference/chat/streaming. Lines, comments and line ends of an
event stream: https://html.spec.whatwg.org/multipage/server-sent-events.html. What servers do beside that is taken from
public bug reports: openai-python#2806 (no index), smolagents#1958 (one index for all calls), langchainjs#11373 (id
"null"), pydantic-ai#5260 (usage on every chunk), litellm#36168 (usage on the last chunk with a choice).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator

from tests.servers.openai.script import Json, Reply


def build_chunks(head: Json, answer: Reply, calls: list[Json], usage: Json | None, *, asked: bool) -> Iterator[Json]:
    """The chunks of an answer, in order; ``asked``: the client wants usage (``stream_options.include_usage``)."""
    deltas = list(_deltas(answer, calls))
    if answer.quirk == "empty_choices":
        yield {**head, "object": "chat.completion.chunk", "choices": [], "prompt_filter_results": []}  # Azure's first
    for n, (delta, finish) in enumerate(deltas, 1):
        chunk: Json = {
            **head,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        }
        last = n == len(deltas)
        if usage is not None and (answer.usage == "cumulative" or (answer.usage == "in_last" and last)):
            chunk["usage"] = _usage_so_far(usage, n, len(deltas))
        elif asked:
            chunk["usage"] = None
        yield chunk
    if asked and answer.usage in ("full", "null"):
        yield {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}


def _usage_so_far(usage: Json, n: int, total: int) -> Json:
    out = usage["completion_tokens"] * n // total
    return {**usage, "completion_tokens": out, "total_tokens": usage["prompt_tokens"] + out}


def _deltas(answer: Reply, calls: list[Json]) -> Iterator[tuple[Json, str | None]]:
    """Role first, then words, then each call's id and name followed by fragments of its arguments."""
    yield {"role": "assistant", "content": None if calls and not answer.text else "", "refusal": None}, None
    if answer.quirk == "reasoning":
        yield {"reasoning_content": "thinking it over"}, None
    for piece in re.findall(r"\s*\S+\s*$|\s*\S+", answer.text or ""):
        yield {"content": piece}, None
    for piece in re.findall(r"\s*\S+", answer.refusal or ""):
        yield {"refusal": piece}, None
    for fragment in _call_fragments(answer, calls):
        yield {"tool_calls": [fragment]}, None
    yield {}, finish_of(answer)


def _call_fragments(answer: Reply, calls: list[Json]) -> Iterator[Json]:
    pieces = [re.findall(r".{1,7}", call["function"]["arguments"], re.DOTALL) for call in calls]
    if answer.quirk in ("no_index", "some_index", "same_index"):  # only one call after the other can be told apart
        for i, call in enumerate(calls):
            index: Json = {"index": 0} if answer.quirk == "same_index" else {"index": i}
            if answer.quirk == "no_index" or (answer.quirk == "some_index" and i % 2):
                index = {}
            yield {**index, **_opening(call)}
            yield from ({**index, "function": {"arguments": piece}} for piece in pieces[i])
        return
    for i, call in enumerate(calls):
        opening = _opening(call)
        if answer.quirk == "late_id":
            del opening["id"]
        yield {"index": i, **opening}
    for n, row in enumerate(itertools.zip_longest(*pieces)):  # parallel calls arrive interleaved
        for i, piece in enumerate(row):
            if piece is not None:
                fragment: Json = {"index": i, "function": {"arguments": piece}}
                if answer.quirk == "late_id" and n == 0:
                    fragment["id"] = calls[i]["id"]
                if answer.quirk == "null_id":
                    fragment["id"] = ("null", "", None)[n % 3]
                yield fragment


def _opening(call: Json) -> Json:
    return {"id": call["id"], "type": "function", "function": {"name": call["function"]["name"], "arguments": ""}}


def finish_of(answer: Reply) -> str:
    """The finish reason, as scripted or as it follows from the answer."""
    return answer.finish or ("tool_calls" if answer.calls else "stop")


def encode_events(chunks: Iterator[Json], answer: Reply) -> Iterator[bytes]:
    """The bytes of an event stream, one write each. ``stall`` and ``cut`` end it early; the server does the rest."""
    end = b"\r\n" if answer.quirk == "crlf" else b"\n"
    for n, chunk in enumerate(chunks, 1):
        if answer.quirk == "comments":
            yield b": keep-alive" + end + end
        yield b"data: " + json.dumps(chunk).encode() + end + end
        if n == answer.at:
            match answer.quirk:
                case "stall" | "cut":
                    return
                case "garbage":
                    yield b'data: {"id": "chatcmpl-x", "cho' + end + end
                case "error_event":
                    yield b"data: " + _ERROR + end + end
                    return
                case "bare_error":
                    yield _ERROR + end + end
                    return
                case _:
                    pass
    if answer.quirk != "no_done":
        yield b"data: [DONE]" + end + end


_ERROR = json.dumps(
    {"error": {"message": "The server had an error.", "type": "server_error", "param": None, "code": None}}
).encode()
