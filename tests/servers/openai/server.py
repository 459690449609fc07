"""The model server itself: chat completions (plain and streamed), embeddings, models, and the control port."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import math
import re
import struct
import time
from collections.abc import Callable, Iterator

from aiohttp import web

from tests.servers.openai.chaos import Chaos
from tests.servers.openai.failures import abort, build_error, retry_headers
from tests.servers.openai.protocol import OVERFLOW, count_prompt, embed, find_refusal
from tests.servers.openai.script import Answer, Call, Failure, Json, Reply, Request, Rule, count_tokens
from tests.servers.openai.stream import build_chunks, encode_events, finish_of


class OpenAIServer:
    """The server.

    ``models`` lists what is served (empty: any name); ``reasoning`` names those that refuse ``max_tokens`` and a
    temperature; ``max_context`` refuses prompts that ``count`` finds longer; ``api_keys`` refuses other keys;
    ``fallback`` answers what no rule matches (None: that is a violation and a 500); ``chaos`` makes a share of all
    requests fail.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        models: tuple[str, ...] = ("fake-large", "fake-small"),
        api_keys: tuple[str, ...] = (),
        reasoning: tuple[str, ...] = (),
        max_context: int | None = None,
        count: Callable[[str], int] = count_tokens,
        dimensions: int = 256,
        chaos: Chaos | None = None,
    ) -> None:
        self.host, self.port, self.models, self.api_keys = host, port, models, api_keys
        self.reasoning, self.chaos = reasoning, chaos
        self.max_context, self.count, self.dimensions = max_context, count, dimensions
        self.fallback: Answer | None = None
        self.rules: list[Rule] = []
        self.requests: list[Request] = []
        self.embedded: list[str] = []
        self.violations: list[str] = []
        self.cancelled = 0  # streams or calls the client gave up on
        self.in_flight = self.peak = 0
        self._ids = itertools.count(1)
        self._runner: web.AppRunner | None = None

    # ------------------------------------------------------------------ scripting
    def on(
        self,
        *,
        user: str | None = None,
        system: str | None = None,
        step: int | None = None,
        model: str | None = None,
        tool: str | None = None,
        result: str | None = None,
        stream: bool | None = None,
        where: Callable[[Request], bool] | None = None,
    ) -> Rule:
        """Match requests by regular expressions and facts; no argument matches all. Earlier rules win."""
        when: list[Callable[[Request], bool]] = []
        if user is not None:
            when.append(lambda r: re.search(user, r.last_said, re.I | re.S) is not None)
        if system is not None:
            when.append(lambda r: re.search(system, r.system, re.I | re.S) is not None)
        if step is not None:
            when.append(lambda r: r.step == step)
        if model is not None:
            when.append(lambda r: r.body.get("model") == model)
        if tool is not None:
            when.append(lambda r: tool in r.tools)
        if result is not None:
            when.append(lambda r: any(re.search(result, v, re.I | re.S) for v in r.tool_results.values()))
        if stream is not None:
            when.append(lambda r: bool(r.body.get("stream")) is stream)
        if where is not None:
            when.append(where)
        self.rules.append(rule := Rule(when))
        return rule

    def load(self, script: list[Json]) -> int:
        """Append rules given as data and return how many there are now.

        ``{"on": {...}, "text"|"json"|"tools"|"fail"|"hang"|"drop"|"context_overflow": ..., "times": n, "delay": s}``,
        and with a text or tools also ``quirk``, ``at``, ``usage``, ``pace`` and ``finish``.
        """
        for item in script:
            rule = self.on(**item.get("on", {}))
            how = {k: item[k] for k in ("quirk", "at", "usage", "pace", "finish") if k in item}
            if "tools" in item:
                calls = [(c["name"], c.get("arguments", {})) for c in item["tools"]]
                rule.tools(*calls, text=item.get("text"), **how)
            elif "json" in item:
                rule.json(item["json"], **how)
            elif "fail" in item:
                rule.fail(**item["fail"])
            elif item.get("hang"):
                rule.hang()
            elif item.get("drop"):
                rule.drop()
            elif "context_overflow" in item:
                rule.context_overflow(int(item["context_overflow"]))
            else:
                rule.text(item.get("text", "ok"), **how)
            rule.times(item.get("times", math.inf)).after(item.get("delay", 0.0))
        return len(self.rules)

    # ------------------------------------------------------------------ lifecycle
    async def start(self) -> OpenAIServer:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/embeddings", self._embeddings)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/_control/{verb}", self._control)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        if self._runner:
            await self._runner.cleanup()

    async def __aenter__(self) -> OpenAIServer:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}/v1"

    # ------------------------------------------------------------------ chat completions
    async def _chat(self, http: web.Request) -> web.StreamResponse:
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            return await self._answer(http)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        except ConnectionResetError:  # the client has gone; whatever is returned now goes nowhere
            self.cancelled += 1
            return web.Response()
        finally:
            self.in_flight -= 1

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        try:
            body = await http.json()
        except ValueError:
            return build_error(400, "invalid_json", "We could not parse the JSON body of your request.")
        request = Request(body, {k.lower(): v for k, v in http.headers.items()}, time.time())
        self.requests.append(request)
        prompt = count_prompt(body, self.count)
        if (refused := self._refuse(http, request, prompt)) is not None:
            request.outcome = "refused"
            return refused
        rule = next((r for r in self.rules if r.left > 0 and all(w(request) for w in r.when)), None)
        if rule is None and self.fallback is not None:
            rule = self._fallback_rule()
        if rule is None:
            self.violations.append(f"no rule for: {request.last_user[:120]!r} at step {request.step}")
            return build_error(500, "server_error", "no scripted answer matches this request")
        rule.left -= 1
        rule.used += 1
        await asyncio.sleep(rule.delay)
        if rule.wait is not None:
            await rule.wait.wait()
        answer = rule.answer(request) if callable(rule.answer) else rule.answer
        if self.chaos is not None:
            answer = self.chaos.apply(request, answer)
        if isinstance(answer, Failure):
            request.outcome = "hang" if answer.hang else "drop" if answer.drop else f"failed {answer.status}"
            return await self._fail(http, answer)
        request.outcome = answer.quirk or "answered"
        if unknown := [c.name for c in answer.calls if c.name not in request.tools]:
            self.violations.append(f"script calls tools that were not offered: {unknown}")
        usage = self._usage(answer, prompt)
        head = {
            "id": f"chatcmpl-{next(self._ids)}",
            "created": int(time.time()),
            "model": body["model"],
            "system_fingerprint": "fp_fake",
        }
        calls = [self._call(c) for c in answer.calls]
        if body.get("stream"):
            asked = bool((body.get("stream_options") or {}).get("include_usage"))
            return await self._stream(http, answer, build_chunks(head, answer, calls, usage, asked=asked))
        message: Json = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
        if calls:
            message["tool_calls"] = calls
        full: Json = {
            **head,
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_of(answer)}],
        }
        if answer.usage != "missing":
            full["usage"] = usage
        return await self._send_whole(http, answer, full)

    def _refuse(self, http: web.Request, request: Request, prompt: int) -> web.Response | None:
        """Everything that is refused before any rule is asked; a breach of the protocol is noted as a violation."""
        body, model = request.body, request.body.get("model")
        key = http.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if self.api_keys and key not in self.api_keys:
            return build_error(401, "invalid_api_key", "Incorrect API key provided.")
        if self.models and model not in self.models:
            said = f"The model `{model}` does not exist or you do not have access to it."
            return build_error(404, "model_not_found", said)
        if refusal := find_refusal(body, reasoning=model in self.reasoning):
            self.violations.append(refusal.message)
            return build_error(400, refusal.code, refusal.message, param=refusal.param)
        if self.max_context and prompt > self.max_context:
            said = OVERFLOW.format(limit=self.max_context, used=prompt)
            return build_error(400, "context_length_exceeded", said, param="messages")
        return None

    def _usage(self, answer: Reply, prompt: int) -> Json | None:
        if answer.usage in ("missing", "null"):
            return None
        said = (answer.text or "") + (answer.refusal or "")
        out = self.count(said) + sum(self.count(c.arguments) + 4 for c in answer.calls)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": out,
            "total_tokens": prompt + out,
            "prompt_tokens_details": {"cached_tokens": min(answer.cached, prompt)},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }

    async def _send_whole(self, http: web.Request, answer: Reply, full: Json) -> web.StreamResponse:
        headers = {"x-request-id": f"req_{next(self._ids)}"}
        text = json.dumps(full)
        match answer.quirk:
            case "stall":
                await asyncio.sleep(3600)
            case "garbage" | "bare_error":
                return web.Response(text=text[: len(text) // 2], content_type="application/json", headers=headers)
            case "cut":
                headers = {**headers, "Content-Length": str(len(text.encode())), "Content-Type": "application/json"}
                half = web.StreamResponse(headers=headers)
                await half.prepare(http)
                await half.write(text.encode()[: len(text) // 2])
                abort(http)
                return half
            case _:
                pass
        return web.Response(text=text, content_type="application/json", headers=headers)

    async def _stream(self, http: web.Request, answer: Reply, chunks: Iterator[Json]) -> web.StreamResponse:
        resp = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await resp.prepare(http)
        for event in encode_events(chunks, answer):
            await resp.write(event)
            await asyncio.sleep(answer.pace)
        if answer.quirk == "stall":
            await asyncio.sleep(3600)
        if answer.quirk == "cut":
            abort(http)
            return resp
        await resp.write_eof()
        return resp

    def _call(self, call: Call) -> Json:
        return {
            "id": f"call_{next(self._ids)}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }

    async def _fail(self, http: web.Request, f: Failure) -> web.StreamResponse:
        if f.hang:
            await asyncio.sleep(3600)
        if f.drop:
            abort(http, reset=True)
        headers = {} if f.retry_after is None else retry_headers(f.retry_after, f.retry_form)
        if f.raw is not None:
            return web.Response(status=f.status, text=f.raw, content_type=f.content_type, headers=headers)
        return build_error(f.status, f.code, f.message, headers, param=f.param)

    def _fallback_rule(self) -> Rule:
        rule = Rule([])
        if self.fallback is not None:
            rule.answer = self.fallback
        return rule

    # ------------------------------------------------------------------ embeddings, models
    async def _embeddings(self, http: web.Request) -> web.Response:
        """https://platform.openai.com/docs/api-reference/embeddings/create."""
        body = await http.json()
        texts = [body["input"]] if isinstance(body["input"], str) else list(body["input"])
        if not texts or any(t == "" for t in texts):
            return build_error(400, None, "'$.input' is invalid. Please check the API reference.")
        if len(texts) > 2048:
            return build_error(400, None, "'$.input' is invalid: at most 2048 texts.")
        size = int(body.get("dimensions") or self.dimensions)
        data: list[Json] = []
        for i, text in enumerate(texts):
            self.embedded.append(str(text))
            vector = embed(str(text), size)
            packed = base64.b64encode(struct.pack(f"<{size}f", *vector)).decode()
            data.append(
                {
                    "object": "embedding",
                    "index": i,
                    "embedding": packed if body.get("encoding_format") == "base64" else vector,
                }
            )
        used = sum(count_tokens(str(t)) for t in texts)
        return web.json_response(
            {
                "object": "list",
                "data": data,
                "model": body.get("model"),
                "usage": {"prompt_tokens": used, "total_tokens": used},
            }
        )

    async def _models(self, http: web.Request) -> web.Response:
        return web.json_response(
            {
                "object": "list",
                "data": [{"id": m, "object": "model", "created": 0, "owned_by": "fake"} for m in self.models],
            }
        )

    # ------------------------------------------------------------------ control over HTTP
    async def _control(self, http: web.Request) -> web.Response:
        """Script and watch a standalone server: ``rule``, ``journal``, ``violations``, ``stats``, ``reset``."""
        data = await http.json() if http.can_read_body else {}
        verb = http.match_info["verb"]
        try:
            match verb:
                case "rule":
                    result: object = self.load(data if isinstance(data, list) else [data])
                case "journal":
                    result = [r.journal_entry() for r in self.requests[int(data.get("since", 0)) :]]
                case "violations":
                    result = self.violations
                case "stats":
                    result = {
                        "requests": len(self.requests),
                        "embedded": len(self.embedded),
                        "cancelled": self.cancelled,
                        "in_flight": self.in_flight,
                        "peak": self.peak,
                        "rules": [{"used": r.used, "left": None if math.isinf(r.left) else r.left} for r in self.rules],
                    }
                case "reset":
                    self.rules, self.requests, self.embedded, self.violations = [], [], [], []
                    self.cancelled, self.peak, result = 0, self.in_flight, None
                case _:
                    return web.json_response({"error": f"unknown verb {verb}"}, status=404)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)
        return web.json_response({"result": result})
