"""How events, commands and interactions reach the app: over Socket Mode or as signed HTTP requests."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import time
import urllib.parse

from aiohttp import ClientError, ClientTimeout, WSMsgType, web

from tests.servers.slack.model import Copies, Delivery, Json, Outcome, SlackError
from tests.servers.slack.world import World


class Deliveries(World):
    """The half of Slack that calls the app."""

    # ------------------------------------------------------------------ delivery to the app
    def _emit_message(self, channel: str, msg: Json, extra: Json | None = None, copies: Copies | None = None) -> None:
        kind = self.channels[channel].kind
        subscription = {"channel": "message.channels", "group": "message.groups"}.get(kind, f"message.{kind}")
        if subscription in self.subscriptions:
            event = extra or {"type": "message", **msg}
            self._emit(
                {**event, "channel": channel, "channel_type": kind, "event_ts": event.get("event_ts", msg["ts"])},
                channel,
                (copies or self.copies).message if extra is None else 1,
                same_envelope=(copies or self.copies).same_envelope,
            )

    def _emit(self, event: Json, channel: str, times: int = 1, *, same_envelope: bool = False) -> None:
        if self.bot_user not in self.channels[channel].members or times < 1:
            return
        body = {
            "token": "fake-verification",
            "team_id": self.team_id,
            "api_app_id": self.app_id,
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev{next(self._seq):09d}",
            "event_time": int(time.time()),
            "authorizations": [
                {
                    "enterprise_id": None,
                    "team_id": self.team_id,
                    "user_id": self.bot_user,
                    "is_bot": True,
                    "is_enterprise_install": False,
                }
            ],
            "is_ext_shared_channel": False,
            "event_context": secrets.token_hex(8),
        }
        self._spawn(self._deliver_copies(body, times, same_envelope=same_envelope))

    async def emit(self, event: Json, *, channel: str = "C1OPS", times: int = 1) -> None:
        """Send an event exactly as given, subscribed or not (shapes that no verb here makes)."""
        self._emit(event, channel, times)

    async def redeliver(self, event_id: str, *, same_envelope: bool = False) -> Delivery:
        """Deliver an earlier event once more, as Slack does after a lost acknowledgement."""
        first = next(d for d in self.deliveries if d.body.get("event_id") == event_id)
        if same_envelope:
            return await self._deliver("events_api", first.body, envelope_id=first.envelope_id)
        return await self._deliver("events_api", first.body, 1, "timeout")

    async def _deliver_copies(self, body: Json, times: int, *, same_envelope: bool) -> None:
        """Deliver until acknowledged; further copies run beside it, or after it in the same envelope."""
        if same_envelope:
            envelope_id = secrets.token_hex(16)
            for _ in range(times):
                await self._deliver("events_api", body, envelope_id=envelope_id)
            return
        for n in range(1, times):
            self._spawn(self._deliver("events_api", body, n, "timeout"))
        await self._deliver_with_retries(body)

    async def _deliver_with_retries(self, body: Json) -> None:
        """First attempt plus retries at once, after 1 min and after 5 min (``retry_delays``)."""
        reason = ""
        for attempt in range(len(self.retry_delays) + 1):
            if attempt:
                await asyncio.sleep(self.retry_delays[attempt - 1])
            done = await self._deliver("events_api", body, attempt, reason)
            if done.acked or done.error == "no_retry":
                return
            reason = done.error

    async def _deliver(
        self, kind: str, body: Json, attempt: int = 0, reason: str = "", *, envelope_id: str = ""
    ) -> Delivery:
        via = "http" if self.request_url else "socket"
        d = Delivery(kind, body, attempt, reason, via, envelope_id or secrets.token_hex(16), time.monotonic())
        self.deliveries.append(d)
        try:
            d.ack = await (self._deliver_http(d) if self.request_url else self._deliver_socket(d))
            d.acked, d.acked_at = not d.error, time.monotonic()
            if d.acked and self.lose_acks.get(event_type := str(body.get("event", {}).get("type")), 0) > 0:
                self.lose_acks[event_type] -= 1
                d.acked = False
                raise TimeoutError
        except TimeoutError:
            d.error = "http_timeout" if self.request_url else "timeout"
        except (ClientError, OSError):
            d.error = "connection_failed"
        await self._notify()
        return d

    async def _deliver_socket(self, d: Delivery) -> Json | None:
        open_sockets = [ws for ws in self._sockets if not ws.closed]
        if not open_sockets:
            raise ConnectionError("no socket")
        envelope: Json = {
            "envelope_id": d.envelope_id,
            "type": d.kind,
            "payload": d.body,
            "accepts_response_payload": d.kind != "events_api",
        }
        if d.kind == "events_api":
            envelope |= {"retry_attempt": d.attempt, "retry_reason": d.reason}
        future = self._acks[envelope["envelope_id"]] = asyncio.get_running_loop().create_future()
        await open_sockets[next(self._rr) % len(open_sockets)].send_json(envelope)
        ack: Json | None = await asyncio.wait_for(future, self.ack_timeout)
        if ack and d.kind == "events_api":
            self.violations.append("acknowledged an event with a payload, which events do not accept")
        return ack

    async def _deliver_http(self, d: Delivery) -> Json | None:
        assert self._http
        assert self.request_url
        if d.kind == "events_api":
            raw, ctype = json.dumps(d.body), "application/json"
        else:
            form = d.body if d.kind == "slash_commands" else {"payload": json.dumps(d.body)}
            raw, ctype = urllib.parse.urlencode(form), "application/x-www-form-urlencoded"
        stamp = str(int(time.time()))
        digest = hmac.new(self.signing_secret.encode(), f"v0:{stamp}:{raw}".encode(), hashlib.sha256).hexdigest()
        headers = {"Content-Type": ctype, "X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={digest}"}
        if d.attempt:
            headers |= {"X-Slack-Retry-Num": str(d.attempt), "X-Slack-Retry-Reason": d.reason}
        async with self._http.post(
            self.request_url, data=raw.encode(), headers=headers, timeout=ClientTimeout(self.ack_timeout)
        ) as resp:
            text = await resp.text()
            if not 200 <= resp.status < 300:
                d.error = (
                    "no_retry"
                    if resp.headers.get("X-Slack-No-Retry") == "1"
                    else ("http_error" if d.kind == "events_api" else f"http_{resp.status}")
                )
        if not text.strip():
            return None
        try:
            parsed = json.loads(text)
        except ValueError:
            return {"text": text}
        return parsed if isinstance(parsed, dict) else {"text": text}

    async def verify_url(self) -> bool:
        """The ``url_verification`` handshake Slack makes when a request URL is saved."""
        challenge = secrets.token_hex(12)
        d = await self._deliver(
            "events_api", {"token": "fake-verification", "type": "url_verification", "challenge": challenge}
        )
        return bool(d.ack) and challenge in json.dumps(d.ack)

    async def _interact(self, kind: str, body: Json, out: Outcome, channel: str, thread: str | None) -> Outcome:
        d = await self._deliver(kind, body)
        out.ack = d.ack
        if d.error:
            out.error = {
                "timeout": "operation_timeout",
                "http_timeout": "operation_timeout",
                "connection_failed": "dispatch_failed",
            }.get(d.error, d.error)
        elif kind == "slash_commands" and d.ack:
            self._show(d.ack, channel, thread)
        return out

    def _interaction(self, kind: str, user: str, out: Outcome) -> Json:
        return {
            "type": kind,
            "token": "fake-verification",
            "team": {"id": self.team_id, "domain": "fake"},
            "user": {
                "id": user,
                "username": self.users[user]["name"],
                "name": self.users[user]["name"],
                "team_id": self.team_id,
            },
            "api_app_id": self.app_id,
            "trigger_id": out.trigger_id,
            "enterprise": None,
            "is_enterprise_install": False,
        }

    def _outcome(self, channel: str, ts: str | None) -> Outcome:
        trigger = f"{next(self._seq)}.{next(self._seq)}.{secrets.token_hex(8)}"
        self._triggers[trigger] = time.monotonic()
        key = secrets.token_hex(12)
        out = self._outcomes[trigger] = Outcome(trigger, f"{self.origin}/respond/{key}")
        self._response_urls[key] = (out, time.monotonic(), channel, ts)
        return out

    def _show(self, body: Json, channel: str, thread: str | None) -> None:
        """Render an ack payload or response_url post; ephemeral unless in_channel."""
        if body.get("response_type") == "in_channel":
            self._post(
                channel,
                {k: body[k] for k in ("text", "blocks", "attachments") if k in body},
                body.get("thread_ts") or thread,
            )
        else:
            self.ephemerals.append({"channel": channel, "ts": self._ts(), **body})

    async def _respond(self, request: web.Request) -> web.Response:
        entry = self._response_urls.get(request.match_info["key"])
        if entry is None:
            return web.json_response({"ok": False, "error": "invalid_url"}, status=404)
        out, born, channel, ts = entry
        if time.monotonic() - born > 1800:
            return web.json_response({"ok": False, "error": "expired_url"}, status=404)
        if len(out.responses) >= 5:
            return web.json_response({"ok": False, "error": "used_url"}, status=404)
        body = await request.json()
        out.responses.append(body)
        try:
            if ts and body.get("delete_original"):
                self._delete(channel, self._find(channel, ts))
            elif ts and body.get("replace_original"):
                self._edit(channel, self._find(channel, ts), {k: body[k] for k in ("text", "blocks") if k in body})
            else:
                self._show(body, channel, None)
        except SlackError as e:
            return web.json_response({"ok": False, "error": e.code}, status=404)
        await self._notify()
        return web.Response(text="ok")

    # ------------------------------------------------------------------ Socket Mode server
    async def _socket_mode(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets:
            return web.Response(status=401, text="ticket unknown or already used")
        self._tickets.discard(ticket)
        ws = web.WebSocketResponse(autoping=True)
        await ws.prepare(request)
        if len(self._sockets) >= self.max_sockets:
            await ws.send_json(
                {"type": "disconnect", "reason": "too_many_websockets", "debug_info": {"host": "fake-applink"}}
            )
            await ws.close()
            return ws
        self._sockets.append(ws)
        await ws.send_json(
            {
                "type": "hello",
                "num_connections": len(self._sockets),
                "connection_info": {"app_id": self.app_id},
                "debug_info": {"host": "fake-applink", "build_number": 1, "approximate_connection_time": 18060},
            }
        )
        await self._notify()
        try:
            async for msg in ws:
                if msg.type is not WSMsgType.TEXT:
                    continue
                try:
                    frame = json.loads(msg.data)
                    future = self._acks.pop(frame["envelope_id"])
                except (ValueError, KeyError, TypeError):
                    self.violations.append(f"unexpected or repeated socket frame: {msg.data[:200]}")
                    continue
                if future.done():
                    self.violations.append("acknowledged after the time allowed")
                else:
                    future.set_result(frame.get("payload"))
        finally:
            self._sockets.remove(ws)
            await self._notify()
        return ws
