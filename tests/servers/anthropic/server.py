"""The Messages server: answers of a script, whole or streamed, with a prompt cache that counts, and faults.

Sources, under https://platform.claude.com/docs/en/: api/messages/create, build-with-claude/streaming (names and order
of the events), api/errors (status codes, bodies, headers), api/versioning (no temperature since 2026-10-21),
build-with-claude/prompt-caching (a prefix up to a mark is written once, then read; 20 blocks before a mark are tried).
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import web

from tests.servers.anthropic.protocol import Json, blocks_of, refusal

Quirk = Literal["cut", "stall", "error", "bare_json", "no_stop"]
WORD = re.compile(r"\w+|[^\w\s]")


@dataclass
class Reply:
    """An answer. ``calls`` are names with inputs; a ``quirk`` strikes after the second event of text."""

    text: str = ""
    calls: list[tuple[str, Json]] = field(default_factory=list)
    thinking: str = ""
    stop_reason: str | None = None
    quirk: Quirk | None = None
    error_type: str = "overloaded_error"  # of the quirk "error"


@dataclass
class Failure:
    """An error of the API, or a connection that breaks (``drop``) or never answers (``hang``)."""

    status: int = 500
    type: str = "api_error"
    message: str = "injected"
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    drop: bool = False


Answer = Reply | Failure
Script = Callable[[Json], Answer]


class AnthropicServer:
    """The server; ``script`` answers each body that the API would accept.

    ``without_sampling`` lists the models that refuse a temperature, ``max_context`` bounds the prompt in words.
    """

    def __init__(
        self,
        script: Script | Answer | None = None,
        *,
        api_key: str = "sk-ant-test",
        without_sampling: tuple[str, ...] = (),
        max_context: int | None = None,
    ) -> None:
        self.script: Script | Answer = script or Reply("ok")
        self.api_key, self.without_sampling, self.max_context = api_key, without_sampling, max_context
        self.requests: list[Json] = []
        self.violations: list[str] = []
        self.left = asyncio.Event()  # a client gave up
        self._cached: dict[str, int] = {}
        self._ids = itertools.count(1)
        self._runner: web.AppRunner | None = None
        self.base_url = ""

    async def __aenter__(self) -> AnthropicServer:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/messages", self._messages)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _messages(self, http: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(http)
        except (asyncio.CancelledError, ConnectionResetError):
            self.left.set()
            raise

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        key = http.headers.get("x-api-key") or http.headers.get("Authorization", "").removeprefix("Bearer ")
        if key != self.api_key:
            return _error(401, "authentication_error", "invalid x-api-key")
        version = http.headers.get("anthropic-version")
        if version not in ("2023-06-01", "2026-10-21"):
            return _error(400, "invalid_request_error", "anthropic-version: header is required")
        body: Json = await http.json()
        self.requests.append(body)
        model = str(body.get("model", ""))
        if not model.startswith("claude-"):
            return _error(404, "not_found_error", f"model: {model}")
        if said := refusal(body, without_sampling=version == "2026-10-21" or model in self.without_sampling):
            self.violations.append(said)
            return _error(400, "invalid_request_error", said)
        usage = self._count(body)
        prompt = sum(v for k, v in usage.items() if k.endswith("input_tokens"))
        if self.max_context is not None and prompt > self.max_context:
            said = f"prompt is too long: {prompt} tokens > {self.max_context} maximum"
            return _error(400, "invalid_request_error", said)
        answer = self.script(body) if callable(self.script) else self.script
        if isinstance(answer, Failure):
            if answer.hang:
                await asyncio.sleep(3600)
            if answer.drop and http.transport is not None:
                http.transport.abort()
            return _error(answer.status, answer.type, answer.message, answer.headers)
        message = self._message(model, answer, usage)
        return await self._stream(http, answer, message) if body.get("stream") else web.json_response(message)

    def _count(self, body: Json) -> Json:
        """Count a prompt in words, and what of it the cache holds: the longest prefix that was written before."""
        blocks = [*(body.get("tools") or []), *_system_blocks(body)]
        blocks += [block for message in body["messages"] for block in blocks_of(message)]
        seen = hashlib.sha256()
        prefixes: list[tuple[str, int]] = []
        total = marked = read = 0
        written: dict[str, int] = {}
        for block in blocks:
            text = json.dumps({k: v for k, v in block.items() if k != "cache_control"}, sort_keys=True)
            seen.update(text.encode())
            total += len(WORD.findall(text))
            prefixes.append((seen.hexdigest(), total))
            if "cache_control" in block:
                marked = total
                read = max(read, *(self._cached.get(key, 0) for key, _ in prefixes[-20:]))
                written[seen.hexdigest()] = total
        self._cached.update(written)
        return {
            "input_tokens": total - marked,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": marked - read,
        }

    def _message(self, model: str, answer: Reply, usage: Json) -> Json:
        content: list[Json] = []
        if answer.thinking:
            content.append({"type": "thinking", "thinking": answer.thinking, "signature": "c2ln"})
        if answer.text:
            content.append({"type": "text", "text": answer.text})
        for name, given in answer.calls:
            content.append({"type": "tool_use", "id": f"toolu_{next(self._ids)}", "name": name, "input": given})
        spent = len(WORD.findall(json.dumps(content)))
        details = {"output_tokens_details": {"thinking_tokens": len(WORD.findall(answer.thinking))}}
        return {
            "id": f"msg_{next(self._ids)}",
            "type": "message",
            "role": "assistant",
            "model": f"{model}-20260101",
            "content": content,
            "stop_reason": answer.stop_reason or ("tool_use" if answer.calls else "end_turn"),
            "stop_sequence": None,
            "usage": {**usage, "output_tokens": spent, **details},
        }

    async def _stream(self, http: web.Request, answer: Reply, message: Json) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        texts = 0
        async for event in _events(message):
            texts += event.get("delta", {}).get("type") == "text_delta"
            if event["type"] == "message_stop" and answer.quirk == "no_stop":
                break
            await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            if texts == 2 and answer.quirk in ("cut", "stall", "error", "bare_json"):
                failed = {"type": "error", "error": {"type": answer.error_type, "message": "Overloaded"}}
                match answer.quirk:
                    case "error":
                        await response.write(f"event: error\ndata: {json.dumps(failed)}\n\n".encode())
                    case "bare_json":
                        await response.write(json.dumps(failed).encode())
                    case "stall":
                        await asyncio.sleep(3600)
                    case "cut" if http.transport is not None:
                        http.transport.abort()
                return response
        await response.write_eof()
        return response


async def _events(message: Json) -> AsyncIterator[Json]:
    usage = message["usage"]
    begun = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": begun}
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        match block["type"]:
            case "tool_use":
                begun, kind, key = {**block, "input": {}}, "input_json_delta", "partial_json"
                pieces = ["", *re.findall(r".{1,7}", json.dumps(block["input"]), re.DOTALL)]
            case "text":
                begun, kind, key = {**block, "text": ""}, "text_delta", "text"
                pieces = re.findall(r"\s*\S+\s*$|\s*\S+", block["text"])
            case _:
                begun, kind, key = {**block, "thinking": "", "signature": ""}, "thinking_delta", "thinking"
                pieces = [block["thinking"]]
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for piece in pieces:
            yield {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: piece}}
        if block["type"] == "thinking":
            signed = {"type": "signature_delta", "signature": block["signature"]}
            yield {"type": "content_block_delta", "index": index, "delta": signed}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": usage["output_tokens"]}}
    yield {"type": "message_stop"}


def _system_blocks(body: Json) -> list[Json]:
    system = body.get("system") or []
    return [{"type": "text", "text": system}] if isinstance(system, str) else system


def _error(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_local"}
    return web.json_response(body, status=status, headers=headers)
