"""The Discord server: one loopback port for REST and the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import re
import time
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from tests.servers.discord.model import ApiError, Call, Fault, Json, _limited
from tests.servers.discord.people import People
from tests.servers.discord.routing import ROUTES, Handler


class DiscordServer(People):
    """An in-memory guild with one bot application."""

    # ------------------------------------------------------------------ lifecycle
    async def start(self) -> DiscordServer:
        app = web.Application(client_max_size=64 * 2**20)
        for verb, path, fn in ROUTES:
            app.router.add_route(verb, f"/api/v10{path}", self._wrap(fn))
        app.router.add_get("/gateway", self._gateway)
        app.router.add_get("/gateway/", self._gateway)
        app.router.add_get("/attachments/{id}/{name}", self._attachment)
        app.router.add_post("/_control/{verb}", self._control)
        app.router.add_route("*", "/api/{tail:.*}", self._wrap(_unknown_route))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        for s in self.sessions.values():
            if s.ws is not None:
                await s.ws.close()
        if self._runner:
            await self._runner.cleanup()

    async def __aenter__(self) -> DiscordServer:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    # ------------------------------------------------------------------ REST plumbing
    def _wrap(self, fn: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            path = request.path.removeprefix("/api/v10")
            body, files = await _read(request)
            self.calls.append(call := Call(request.method, path, body, time.time()))
            request["files"] = files
            headers = {"Via": "1.1 fake"}  # discord.py takes a 429 without Via for a Cloudflare ban
            fault = next(
                (f for f in self.faults if f.times > 0 and re.search(f.pattern, f"{request.method} {path}")), None
            )
            out: Any = None
            try:
                if fault:
                    fault.times -= 1
                    await asyncio.sleep(fault.delay)
                    if not fault.after:
                        self._fail(fault)
                open_path = re.match(r"/(interactions|webhooks)/", path)
                if not open_path and request.headers.get("Authorization") != f"Bot {self.token}":
                    raise ApiError(401, 0, "401: Unauthorized")
                if not re.match(r"/interactions/", path):
                    headers |= self._spend(request)
                out = fn(self, request, body)
                out = await out if inspect.isawaitable(out) else out
                if fault and fault.after:
                    self._fail(fault)
                status = 204 if out is None else 200
            except ApiError as e:
                out, status = e.body, e.status
                headers |= e.headers
            call.status = status
            await self._notify()
            if out is None:
                return web.Response(status=204, headers=headers)
            # discord.py parses JSON only when the header is exactly this, with no charset
            return web.Response(
                body=json.dumps(out).encode(), status=status, headers=headers | {"Content-Type": "application/json"}
            )

        return handle

    def _fail(self, fault: Fault) -> None:
        if fault.http == 429:
            raise _limited(fault.retry_after, fault.is_global)
        raise ApiError(fault.http, 0, f"{fault.http}: injected")

    def _spend(self, request: web.Request) -> dict[str, str]:
        resource = request.match_info.route.resource
        key = f"{request.method} {resource.canonical if resource else request.path} {request.match_info.get('c', '')}"
        limit, span = self.bucket
        window, now = self._windows[key], time.monotonic()
        while window and now - window[0] >= span:
            window.popleft()
        reset = span - (now - window[0]) if window else span
        if len(window) >= limit:
            raise _limited(reset, False)
        window.append(now)
        return {
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Remaining": str(limit - len(window)),
            "X-RateLimit-Reset": f"{time.time() + reset:.3f}",
            "X-RateLimit-Reset-After": f"{reset:.3f}",
            "X-RateLimit-Bucket": f"{zlib.crc32(key.encode()):08x}",
        }

    async def _attachment(self, request: web.Request) -> web.Response:
        blob = self.blobs.get(request.match_info["id"])
        return web.Response(status=404) if blob is None else web.Response(body=blob)

    async def _control(self, request: web.Request) -> web.Response:
        from tests.servers.discord.control import answer

        return await answer(self, request)


async def _read(request: web.Request) -> tuple[Json, dict[str, bytes]]:
    body: Json = {}
    files: dict[str, bytes] = {}
    if request.content_type == "application/json":
        with contextlib.suppress(ValueError):
            raw = await request.json()
            body = raw if isinstance(raw, dict) else {"_": raw}
    elif request.content_type.startswith("multipart/"):
        form = await request.post()
        for key, value in form.items():
            if key == "payload_json":
                body = json.loads(value.file.read() if isinstance(value, web.FileField) else value)
            elif isinstance(value, web.FileField):
                files[value.filename] = value.file.read()
    return body, files


def _unknown_route(self: DiscordServer, request: web.Request, body: Json) -> None:
    self.violations.append(f"route not served: {request.method} {request.path}")
    raise ApiError(404, 0, "404: Not Found")
