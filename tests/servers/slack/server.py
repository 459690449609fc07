"""The Slack server: one loopback port for the Web API, Socket Mode, uploads, and the control port."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import secrets
import time
from dataclasses import asdict
from typing import Any

from aiohttp import ClientSession, web

from tests.servers.slack.methods import Methods
from tests.servers.slack.model import (
    KIND_SCOPE,
    METHOD_SCOPE,
    METHOD_TIER,
    METHOD_WORDS,
    TIERS,
    ApiCall,
    Copies,
    Fault,
    Json,
    SlackError,
)


class SlackServer(Methods):
    """An in-memory workspace with one installed app."""

    # ------------------------------------------------------------------ lifecycle
    async def start(self) -> SlackServer:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/api/{method}", self._web_api)
        app.router.add_get("/link", self._socket_mode)
        app.router.add_post("/respond/{key}", self._respond)
        app.router.add_route("*", "/upload/{file}", self._upload)
        app.router.add_get("/files/{file}", self._download)
        app.router.add_post("/_control/{verb}", self._control)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self._http = ClientSession()
        return self

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        for ws in list(self._sockets):
            with contextlib.suppress(Exception):
                await ws.close()
        if self._http:
            await self._http.close()
        if self._runner:
            await self._runner.cleanup()

    async def __aenter__(self) -> SlackServer:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def disconnect(self, reason: str = "refresh_requested", *, grace: float = 0.2) -> None:
        """Ask every socket to go (warning | refresh_requested | link_disabled), then close it."""
        frame = {"type": "disconnect", "reason": reason, "debug_info": {"host": "fake-applink"}}
        for ws in list(self._sockets):
            await ws.send_json(frame)
        await asyncio.sleep(grace)
        for ws in list(self._sockets):
            await ws.close()

    def set_knobs(self, **knobs: Any) -> None:
        """Turn knobs while it runs: ``ack_timeout``, ``copies``, ``lose_acks``, ``scopes`` and so on."""
        allowed = {"ack_timeout", "retry_delays", "strict_rate_limits", "lose_acks", "scopes", "subscriptions"}
        for name, value in knobs.items():
            if name == "copies":
                self.copies = Copies(**value)
            elif name in allowed:
                setattr(self, name, set(value) if name == "subscriptions" else value)
            else:
                raise TypeError(f"no such knob: {name}")

    async def kill_sockets(self) -> None:
        """Drop the TCP connections with no close frame, as a broken network does."""
        for ws in list(self._sockets):
            if ws._req is not None and ws._req.transport is not None:
                ws._req.transport.abort()

    # ------------------------------------------------------------------ Web API
    async def _web_api(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        args: Json = dict(request.query)
        if request.content_type == "application/json":
            with contextlib.suppress(ValueError):
                args |= await request.json()
        elif request.can_read_body:
            args |= dict(await request.post())
        for key in ("blocks", "attachments", "chunks", "metadata", "view", "files"):
            if isinstance(args.get(key), str):
                try:
                    args[key] = json.loads(args[key])
                except ValueError:
                    args[key] = SlackError(
                        f"invalid_{key}_format" if key in ("blocks", "metadata") else f"invalid_{key}"
                    )
        token = request.headers.get("Authorization", "").removeprefix("Bearer ").strip() or str(args.pop("token", ""))
        self.calls.append(call := ApiCall(method, args, token, time.time()))
        fault = next((f for f in self.faults if f.times > 0 and f.method in ("*", method)), None)
        status, headers = 200, {"X-Slack-Req-Id": secrets.token_hex(8)}
        if self.scopes is not None and token == self.bot_token:
            headers["X-OAuth-Scopes"] = ",".join(sorted(self.scopes))
        try:
            if fault:
                fault.times -= 1
                await asyncio.sleep(fault.delay)
                if not fault.after:
                    self._apply(fault)
            for value in args.values():
                if isinstance(value, SlackError):
                    raise value
            self._limit(method, str(args.get("channel", "")))
            handler = getattr(self, "api_" + METHOD_WORDS.sub("_", method).lower(), None)
            if handler is None:
                raise SlackError("unknown_method", req_method=method)
            self._authorise(method, token)
            self._check_scope(method, args)
            answer = handler(args)
            body = {"ok": True, **(await answer if inspect.isawaitable(answer) else answer)}
            if fault and fault.after:
                self._apply(fault)
        except SlackError as e:
            body = {"ok": False, "error": e.code, **e.extra}
            status = int(body.pop("_http", 200))
            if status == 429:
                headers["Retry-After"] = str(body.pop("_retry_after", 1))
        except ConnectionAbortedError:
            if request.transport:
                request.transport.abort()
            return web.Response(status=500)
        call.response = body
        await self._notify()
        if status >= 500:
            return web.Response(status=status, text="upstream failure", headers=headers)
        return web.json_response(body, status=status, headers=headers)

    def _apply(self, fault: Fault) -> None:
        if fault.drop:
            raise ConnectionAbortedError
        if fault.http:
            raise SlackError(
                "ratelimited" if fault.http == 429 else "internal_error",
                _http=fault.http,
                _retry_after=fault.retry_after,
            )
        if fault.error:
            raise SlackError(fault.error)

    def _limit(self, method: str, channel: str) -> None:
        if not self.strict_rate_limits:
            return
        posting = method == "chat.postMessage"
        key, span = (f"post:{channel}", 1.0) if posting else (method, 60.0)
        limit = 1 if posting else TIERS.get(METHOD_TIER.get(method, 4), 100)
        window, now = self._windows[key], time.monotonic()
        while window and now - window[0] >= span:
            window.popleft()
        if len(window) >= limit:
            wait = max(1, int(span - (now - window[0]) + 0.999))
            raise SlackError("ratelimited", _http=429, _retry_after=wait)
        window.append(now)

    def _authorise(self, method: str, token: str) -> None:
        if method == "api.test":
            return
        if not token:
            raise SlackError("not_authed")
        if token not in (self.bot_token, self.app_token):
            raise SlackError("invalid_auth")
        if (token == self.app_token) != (method == "apps.connections.open"):
            raise SlackError("not_allowed_token_type")

    def _check_scope(self, method: str, args: Json) -> None:
        """Refuse what the granted scopes do not cover, where scopes are enforced."""
        needed = METHOD_SCOPE.get(method)
        if method in ("conversations.replies", "conversations.history"):
            channel = self.channels.get(str(args.get("channel")))
            needed = f"{KIND_SCOPE[channel.kind]}:history" if channel else None
        if self.scopes is not None and needed is not None and needed not in self.scopes:
            raise SlackError("missing_scope", needed=needed, provided=",".join(self.scopes))

    # ------------------------------------------------------------------ control over HTTP
    async def _control(self, request: web.Request) -> web.Response:
        """Drive a standalone server from another process: the verbs are methods named here."""
        verbs = {
            "say",
            "mention",
            "bot_say",
            "edit",
            "react",
            "slash",
            "click",
            "message_shortcut",
            "submit_view",
            "messages",
            "bot_messages",
            "inject",
            "disconnect",
            "kill_sockets",
            "add_user",
            "add_channel",
            "verify_url",
            "emit",
            "redeliver",
            "set_knobs",
        }
        fields = {"ephemerals", "violations", "views", "statuses", "streams", "calls", "deliveries"}
        verb, kw = request.match_info["verb"], await request.json() if request.can_read_body else {}
        try:
            if verb in fields:
                result = getattr(self, verb)
            elif verb in verbs:
                result = getattr(self, verb)(**kw)
                result = await result if inspect.isawaitable(result) else result
            else:
                return web.json_response({"error": f"unknown verb {verb}"}, status=404)
        except (TypeError, LookupError, SlackError) as e:
            return web.json_response({"error": str(e)}, status=400)
        dump = json.dumps(
            {"result": result}, default=lambda o: asdict(o) if hasattr(o, "__dataclass_fields__") else str(o)
        )
        return web.Response(text=dump, content_type="application/json")
