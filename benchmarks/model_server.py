"""A local model server that costs next to nothing: canned answers, chosen by how far the conversation is.

It plays a number of tool rounds and then a final answer. Run as ``python -m benchmarks.model_server``; it prints its
port and ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import sys

ROUNDS = 3
USAGE = {"prompt_tokens": 120, "completion_tokens": 20, "total_tokens": 140}


def _answer(message: dict[str, object], finish: str) -> bytes:
    body = json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "bench",
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
            "usage": USAGE,
        }
    ).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _call(n: int) -> bytes:
    function = {"name": "add", "arguments": json.dumps({"a": n, "b": 1})}
    call = {"id": f"call_{n}", "type": "function", "function": function}
    return _answer({"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}, "tool_calls")


CALLS = [_call(n) for n in range(ROUNDS)]
FINAL = _answer({"role": "assistant", "content": "The sums are 1, 2 and 3.", "refusal": None}, "stop")


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = [line.lower() for line in head.split(b"\r\n")]
            length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
            body = await reader.readexactly(length)
            done = body.count(b'"role":"tool"') + body.count(b'"role": "tool"')
            writer.write(CALLS[done] if done < ROUNDS else FINAL)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    """Serve on a free port until standard input closes."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, limit=2**20, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
