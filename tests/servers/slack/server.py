"""The Slack server: one loopback port for the Web API, Socket Mode, uploads, OAuth and the control port."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import secrets
import time
from typing import Any

from aiohttp import ClientSession, web

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
    Workspace,
)
from tests.servers.slack.oauth import OAuth

KNOBS = {
    "ack_timeout", "retry_delays", "strict_rate_limits", "lose_acks", "scopes", "subscriptions", "agent", "max_page",
    "max_sockets", "request_url", "skew_s", "status_ttl", "stream_ttl",
}  # fmt: skip


class SlackServer(OAuth):
    """An in-memory workspace with one installed app."""

    # ------------------------------------------------------------------ lifecycle
    async def start(self) -> SlackServer:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/api/{method}", self._web_api)
        app.router.add_get("/link", self._socket_mode)
        app.router.add_get("/oauth/v2/authorize", self._authorize)
        app.router.add_post("/respond/{key}", self._respond)
        app.router.add_route("*", "/upload/{file}", self._upload)
        app.router.add_get("/files/{file}", self._download)
        app.router.add_get("/files/{file}/download", self._download)
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
        for ws in list(self._sockets.values()):
            with contextlib.suppress(Exception):
                await asyncio.wait_for(ws.close(), 1)
        if self._http:
            await self._http.close()
        if self._runner:
            await self._runner.cleanup()

    async def __aenter__(self) -> SlackServer:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def set_knobs(self, **knobs: Any) -> None:
        """Turn knobs while it runs: ``ack_timeout``, ``copies``, ``lose_acks``, ``scopes`` and so on."""
        for name, value in knobs.items():
            if name == "copies":
                self.copies = Copies(**value)
            elif name in KNOBS:
                setattr(self, name, set(value) if name == "subscriptions" else value)
            else:
                raise TypeError(f"no such knob: {name}")

    # ------------------------------------------------------------------ Web API
    async def _web_api(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        args = await self._read_arguments(request)
        header = request.headers.get("Authorization", "")
        if header.startswith("Basic "):
            args |= self._basic(header)
        token = header.removeprefix("Bearer ").strip() if header.startswith("Bearer ") else str(args.pop("token", ""))
        self.calls.append(call := ApiCall(method, args, token, time.time()))
        owner = self._token_owner(token) or self.home
        place = str(args.get("channel") or args.get("channel_id") or "")
        self.ledger.record(method, team=owner.id, channel=place, at=time.monotonic())
        headers = {"X-Slack-Req-Id": secrets.token_hex(8)}
        headers["Date"] = email.utils.formatdate(self.clock.wall() + self.skew_s, usegmt=True)
        if owner.scopes is not None and token == owner.bot_token:
            headers["X-OAuth-Scopes"] = ",".join(sorted(owner.scopes))
        fault = next((f for f in self.faults if f.strikes(method, args)), None)
        try:
            body = await self._answer(method, args, token, owner, fault)
        except SlackError as e:
            body = {"ok": False, "error": e.code, **e.extra}
            call.status = int(body.pop("_http", 200))
            if call.status == 429:
                headers["Retry-After"] = str(body.pop("_retry_after", 1))
        except ConnectionAbortedError:
            call.status = 0
            if request.transport:
                request.transport.abort()
            return web.Response(status=500)
        call.response = body
        await self._notify()
        if call.status >= 500:
            return web.Response(status=call.status, text="upstream failure", headers=headers)
        return web.json_response(body, status=call.status, headers=headers)

    async def _answer(self, method: str, args: Json, token: str, owner: Workspace, fault: Fault | None) -> Json:
        if fault:
            await asyncio.sleep(fault.delay)
            if not fault.after:
                await self._strike(fault)
        for value in args.values():
            if isinstance(value, SlackError):
                raise value
        self._limit(method, f"{owner.id}/{args.get('channel', '')}", owner)
        handler = getattr(self, "api_" + METHOD_WORDS.sub("_", method).lower(), None)
        if handler is None:
            raise SlackError("unknown_method", req_method=method)
        self._authorise(method, token)
        self._check_scope(method, args, owner)
        self.acting = owner  # handlers never wait, so this holds until they are done
        body = {"ok": True, **handler(args)}
        if fault and fault.after:
            await self._strike(fault)
        return body

    @staticmethod
    async def _read_arguments(request: web.Request) -> Json:
        args: Json = dict(request.query)
        if request.content_type == "application/json":
            with contextlib.suppress(ValueError):
                args |= await request.json()
        elif request.can_read_body:
            args |= dict(await request.post())
        for key in ("blocks", "attachments", "chunks", "metadata", "view", "files", "loading_messages", "prompts"):
            if isinstance(args.get(key), str):
                try:
                    args[key] = json.loads(args[key])
                except ValueError:
                    known = key in ("blocks", "metadata")
                    args[key] = SlackError(f"invalid_{key}_format" if known else f"invalid_{key}")
        return args

    @staticmethod
    async def _strike(fault: Fault) -> None:
        if fault.hold is not None:
            fault.reached = True
            await fault.hold.wait()
        if fault.drop:
            raise ConnectionAbortedError
        if fault.http:
            raise SlackError(
                fault.error or ("ratelimited" if fault.http == 429 else "internal_error"),
                _http=fault.http,
                _retry_after=fault.retry_after,
            )
        if fault.error:
            raise SlackError(fault.error)

    def _limit(self, method: str, place: str, owner: Workspace) -> None:
        if not self.strict_rate_limits:
            return
        posting = method == "chat.postMessage"
        key, span = (f"post:{place}", 1.0) if posting else (f"{owner.id}:{method}", 60.0)
        limit = 1 if posting else TIERS.get(METHOD_TIER.get(method, 4), 100)
        window, now = self._windows[key], self.clock.now()
        while window and now - window[0] >= span:
            window.popleft()
        if len(window) >= limit:
            wait = max(1, int(span - (now - window[0]) + 0.999))
            raise SlackError("ratelimited", _http=429, _retry_after=wait)
        window.append(now)

    def _authorise(self, method: str, token: str) -> None:
        if method in ("api.test", "oauth.v2.access"):
            return
        if not token:
            raise SlackError("not_authed")
        owner = self._token_owner(token)
        if owner is None and token != self.app_token:
            raise SlackError("invalid_auth")
        if (token == self.app_token) != (method == "apps.connections.open"):
            raise SlackError("not_allowed_token_type")
        if owner is not None and not owner.installed:
            raise SlackError("account_inactive")

    def _check_scope(self, method: str, args: Json, owner: Workspace) -> None:
        """Refuse what the granted scopes do not cover, where scopes are enforced."""
        needed = METHOD_SCOPE.get(method)
        if method in ("conversations.replies", "conversations.history"):
            channel = self.channels.get(str(args.get("channel")))
            needed = f"{KIND_SCOPE[channel.kind]}:history" if channel else None
        if method == "conversations.info":
            channel = self.channels.get(str(args.get("channel")))
            needed = f"{KIND_SCOPE[channel.kind]}:read" if channel else None
        if owner.scopes is not None and needed is not None and needed not in owner.scopes:
            raise SlackError("missing_scope", needed=needed, provided=",".join(owner.scopes))

    async def _control(self, request: web.Request) -> web.Response:
        from tests.servers.slack.control import answer

        return await answer(self, request)
