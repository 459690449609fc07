"""A local model server that costs next to nothing: canned answers, chosen by the model's name and the history.

``tools-3x4`` plays three rounds of four tool calls, and then the final answer, if every result in the history is right
(it says what is wrong otherwise); ``stream-200`` streams 200 chunks; ``now`` answers at once and ``hang`` never does.
``GET /counts`` tells the requests so far by model. Run as ``python -m benchmarks.model_server``; it prints its port and
ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import sys
from collections import Counter

from benchmarks.cells import BASE, DONE, WORD

USAGE = {"prompt_tokens": 120, "completion_tokens": 20, "total_tokens": 140}
CHUNKS_A_WRITE = 10
_MODEL = re.compile(rb'"model":\s*"([^"]+)"')
_RESULT = re.compile(rb'"role":\s*"tool"')
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)


def _http(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _answer(model: str, message: dict[str, object], finish: str) -> bytes:
    full = {"role": "assistant", "content": None, "refusal": None} | message
    choice = {"index": 0, "message": full, "logprobs": None, "finish_reason": finish}
    body = {"id": "c1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice], "usage": USAGE}
    return _http(json.dumps(body).encode())


@functools.cache
def _calls(model: str, first: int, count: int) -> bytes:
    calls = [
        {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": "add", "arguments": json.dumps({"a": n, "b": BASE})},
        }
        for n in range(first, first + count)
    ]
    return _answer(model, {"tool_calls": calls}, "tool_calls")


def _check(body: bytes, total: int) -> str:
    """Return the final answer when the history has all results, in order, else what is wrong."""
    results = [m for m in json.loads(body)["messages"] if m["role"] == "tool"]
    wrong = [n for n, m in enumerate(results) if str(BASE + n) not in json.dumps(m["content"])]
    return DONE if len(results) == total and not wrong else f"{len(results)} results, wrong: {wrong}"


@functools.cache
def _stream(model: str, chunks: int) -> tuple[bytes, ...]:
    def event(data: object) -> bytes:
        line = b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"
        return b"%x\r\n%b\r\n" % (len(line), line)

    def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model, "usage": None}
        return event(body | {"choices": [choice]})

    usage = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [], "usage": USAGE}
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    events = [chunk({"role": "assistant", "content": WORD}), *[chunk({"content": WORD})] * (chunks - 1)]
    parts = [b"".join(events[n : n + CHUNKS_A_WRITE]) for n in range(0, chunks, CHUNKS_A_WRITE)]
    return (head, *parts, chunk({}, "stop") + event(usage) + event(b"[DONE]") + b"0\r\n\r\n")


async def _reply(body: bytes, model: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    kind, _, size = model.partition("-")
    if kind == "hang":
        await reader.read()  # until the client gives up
    elif kind == "now":
        writer.write(_answer(model, {"content": DONE}, "stop"))
    elif kind == "stream":
        for part in _stream(model, int(size)):
            writer.write(part)
            await writer.drain()
    else:
        rounds, calls = (int(n) for n in size.split("x"))
        done = len(_RESULT.findall(body))
        if done < rounds * calls:
            writer.write(_calls(model, done, calls))
        else:
            writer.write(_answer(model, {"content": _check(body, rounds * calls)}, "stop"))
    await writer.drain()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counts: Counter[str]) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /counts"):
                writer.write(_http(json.dumps(counts).encode()))
                continue
            found = _LENGTH.search(head)
            body = await reader.readexactly(int(found[1]) if found else 0)
            named = _MODEL.search(body)
            model = named[1].decode() if named else "now"
            counts[model] += 1
            await _reply(body, model, reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    """Serve on a free port until standard input closes."""
    counts: Counter[str] = Counter()
    serve = functools.partial(_serve, counts=counts)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**20, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
