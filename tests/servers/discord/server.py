"""The Discord server: one loopback port for REST, the gateway, the files and the control port."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from tests.servers.discord.model import ApiError, Call, Fault, Interaction, invalid
from tests.servers.discord.people import People
from tests.servers.discord.routing import ROUTES, Handler, Request
from tests.servers.discord.uploads import read_body

IDS = frozenset("cgimu")
OPEN = ("interactions", "webhooks")  # authorised by the token in the path, and outside of the global limit
KNOBS = frozenset(
    {
        "cdn_ttl", "copies", "heartbeat_ms", "identify_limit", "identify_window", "interaction_deadline",
        "interactions_endpoint_url", "max_guilds_per_shard", "nonce_in_history", "nonce_window", "privileged",
        "resume_window", "shards", "strict_rate_limits", "token_ttl",
    }
)  # fmt: skip


class DiscordServer(People):
    """An in-memory Discord with one bot application."""

    def __init__(self, **knobs: Any) -> None:
        super().__init__(**knobs)
        self.late_answers: list[str] = []  # interactions that were answered after the deadline
        self._runner: web.AppRunner | None = None

    # ------------------------------------------------------------------ lifecycle
    async def start(self) -> DiscordServer:
        app = web.Application(client_max_size=64 * 2**20)
        for method, path, handler in ROUTES:
            app.router.add_route(method, f"/api/v10{path}", self._serve(path, handler))
        app.router.add_get("/gateway", self._gateway)
        app.router.add_get("/gateway/", self._gateway)
        app.router.add_get("/attachments/{channel}/{id}/{name}", self._attachment)
        app.router.add_post("/_control/{verb}", self._control)
        app.router.add_route("*", "/api/{tail:.*}", self._serve("", _unknown))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        sockets = [s.ws for s in self.sessions.values() if s.ws is not None]
        for ws in sockets:
            with contextlib.suppress(TimeoutError, ConnectionError):
                await asyncio.wait_for(ws.close(), 1)
        if self._runner:
            await self._runner.cleanup()

    async def __aenter__(self) -> DiscordServer:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def set_knobs(self, **knobs: Any) -> None:
        """Turn knobs while it runs; the names are those of the constructor."""
        for name, value in knobs.items():
            if name not in KNOBS:
                raise TypeError(f"no such knob: {name}")
            if name == "strict_rate_limits":
                self.rates.strict = bool(value)
            else:
                setattr(self, name, value)

    def inject(self, pattern: str, **how: Any) -> Fault:
        """Make REST calls fail: the fields of `Fault`."""
        self.faults.append(fault := Fault(pattern, **how))
        return fault

    def interaction(self, token_or_id: str) -> Interaction:
        """An interaction as it stands now; raises LookupError."""
        for each in self.interactions.values():
            if token_or_id in (each.id, each.token):
                return each
        raise LookupError(f"no interaction {token_or_id}")

    # ------------------------------------------------------------------ REST
    def _serve(self, path: str, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            call = Call(request.method, request.path.removeprefix("/api/v10"), {}, self.clock.wall())
            # discord.py takes a 429 without Via for Cloudflare's
            headers = {"Via": "1.1 fake"}
            out: Any = None
            try:
                out = await self._run(request, path, handler, call, headers)
                call.status = 204 if out is None else 200
            except ApiError as error:
                out, call.status, call.code = error.body, error.status, error.code
                headers |= error.headers
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                # a body of another shape than its page says; noted, since the mistake may be this server's own
                self.violations.append(f"{call.method} {call.path}: cannot be read: {error!r}")
                out, call.status, call.code = invalid("", "BASE_TYPE_BAD_TYPE", "Bad type").body, 400, 50035
            except ConnectionAbortedError:
                if request.transport:
                    request.transport.abort()
                self._notify()
                return web.Response(status=500)
            self.rates.note_answer(call.status, headers.get("X-RateLimit-Scope", ""))
            self._notify()
            return await self._send(request, path, call, out, headers)

        return handle

    async def _run(self, request: web.Request, path: str, handler: Handler, call: Call, headers: dict[str, str]) -> Any:
        self.calls.append(call)
        self.rates.check_ban()
        fault = next((f for f in self.faults if f.strikes(f"{call.method} {call.path}")), None)
        call.body, files = await read_body(request)
        call.files = tuple(each.name for each in files)
        if fault:
            await asyncio.sleep(fault.delay)
            if fault.hold is not None:
                await fault.hold.wait()
            if not fault.after:
                _apply(fault)
        open_path = call.path.split("/")[1] in OPEN
        if not open_path and request.headers.get("Authorization") != f"Bot {self.token}":
            raise ApiError(401, 0, "401: Unauthorized")
        if not open_path and not request.headers.get("User-Agent", "").startswith("DiscordBot ("):
            self.violations.append(f"{call.method} {call.path}: no valid User-Agent")  # reference#user-agent
        parts = dict(request.match_info)
        place = parts.get("t") or parts.get("c") or parts.get("g") or ""
        if not call.path.startswith("/interactions/"):
            headers |= self.rates.spend(call.method, path, call.path, place, exempt=open_path)
        _check_ids(parts)
        out = handler(self, Request(call.method, parts, dict(request.query), call.body, files))
        out = await out if inspect.isawaitable(out) else out
        if fault and fault.after:
            _apply(fault)
        return out

    async def _send(
        self, request: web.Request, path: str, call: Call, out: Any, headers: dict[str, str]
    ) -> web.StreamResponse:
        parts = request.match_info
        if call.code == -1:  # Cloudflare's refusal is no JSON
            return web.Response(status=call.status, text=str(out["message"]))
        # discord.py parses JSON only when the header is exactly this, with no charset
        kind = {} if out is None else {"Content-Type": "application/json"}
        body = None if out is None else json.dumps(out).encode()
        response = web.Response(status=call.status, body=body, headers=headers | kind)
        await response.prepare(request)
        await response.write_eof()
        self.rates.told(call.method, path, parts.get("t") or parts.get("c") or parts.get("g") or "")
        return response

    async def _attachment(self, request: web.Request) -> web.Response:
        """A file, while its signed address lives: docs.discord.com/developers/reference#signed-attachment-cdn-urls."""
        aid, query = request.match_info["id"], request.query
        blob = self.blobs.get(aid)
        until, issued = query.get("ex", ""), query.get("is", "")
        good = query.get("hm") == self.sign_attachment(aid, until, issued)
        if blob is None or not good or int(until, 16) < self.clock.wall():
            return web.Response(status=404, text="This content is no longer available.")
        return web.Response(body=blob)

    async def _control(self, request: web.Request) -> web.Response:
        from tests.servers.discord.control import answer

        return await answer(self, request)


def _apply(fault: Fault) -> None:
    if fault.drop:
        raise ConnectionAbortedError
    if not fault.only_delay:
        raise fault.error()


def _check_ids(parts: dict[str, str]) -> None:
    for key, value in parts.items():
        if key in IDS and not value.isdigit() and not value.startswith("@"):
            where = {"c": "channel_id", "g": "guild_id", "m": "message_id", "u": "user_id", "i": "interaction_id"}[key]
            raise invalid(where, "NUMBER_TYPE_COERCE", f'Value "{value}" is not snowflake.')


def _unknown(server: DiscordServer, request: Request) -> None:
    """docs.discord.com/developers/topics/opcodes-and-status-codes#http."""
    server.violations.append(f"route not served: {request.method} {request.path.get('tail', '')}")
    raise ApiError(404, 0, "404: Not Found")
