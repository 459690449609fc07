"""How events, commands and interactions reach the app: over Socket Mode or as signed HTTP requests."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import time
import urllib.parse
from typing import Any

from aiohttp import ClientError, ClientTimeout

from tests.servers.slack.model import Copies, Delivery, Json, Workspace
from tests.servers.slack.rules import Rules


class Deliveries(Rules):
    """The half of Slack that calls the app."""

    # ------------------------------------------------------------------ events
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
        """Send an event about a channel that the bot is in."""
        space = self._space(channel)
        if space.installed and space.bot_user in self.channels[channel].members and times > 0:
            body = self._event_body(event, space, shared_with=self.channels[channel].shared_with)
            self._spawn(self._deliver_copies(body, times, same_envelope=same_envelope))

    def _event_body(self, event: Json, space: Workspace, *, shared_with: str = "") -> Json:
        """docs.slack.dev/apis/events-api: in a shared channel the outer team may be the other side's."""
        org = bool(space.enterprise_id)
        return {
            "token": "fake-verification",
            "team_id": shared_with or space.id,
            **({"enterprise_id": space.enterprise_id} if org else {}),
            "context_team_id": space.id,
            "api_app_id": self.app_id,
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev{next(self._seq):09d}",
            "event_time": int(time.time()),
            "authorizations": [
                {
                    "enterprise_id": space.enterprise_id or None,
                    "team_id": space.id,
                    "user_id": space.bot_user,
                    "is_bot": True,
                    "is_enterprise_install": False,
                }
            ],
            "is_ext_shared_channel": bool(shared_with),
            "event_context": secrets.token_hex(8),
        }

    async def emit(self, event: Json, *, channel: str = "C1OPS", times: int = 1, body: Json | None = None) -> str:
        """Send an event exactly as given, subscribed or not (shapes that no verb makes); ``body`` changes the outside.

        Returns its ``event_id``.
        """
        whole = self._event_body(event, self._space(channel), shared_with=self.channels[channel].shared_with)
        whole |= body or {}
        self._spawn(self._deliver_copies(whole, times, same_envelope=False))
        return str(whole["event_id"])

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
            acked = [(await self._deliver("events_api", body, envelope_id=envelope_id)).acked for _ in range(times)]
            if not any(acked):
                await self._deliver_with_retries(body)
            return
        for n in range(1, times):
            self._spawn(self._deliver("events_api", body, n, "timeout"))
        await self._deliver_with_retries(body)

    async def _deliver_with_retries(self, body: Json) -> None:
        """First attempt plus retries at once, after 1 min and after 5 min (``retry_delays``, ``fast_forward``).

        docs.slack.dev/apis/events-api#retries
        """
        reason = ""
        for attempt in range(len(self.retry_delays) + 1):
            if attempt:
                await self.clock.sleep(self.retry_delays[attempt - 1])
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
            if d.acked and self._loses_ack(str(body.get("event", {}).get("type"))):
                d.acked = False
                raise TimeoutError
        except TimeoutError:
            d.error = "http_timeout" if self.request_url else "timeout"
        except (ClientError, OSError):
            d.error = "connection_failed"
        await self._notify()
        return d

    def _loses_ack(self, event_type: str) -> bool:
        for name in (event_type, "*"):
            if self.lose_acks.get(name, 0) > 0:
                self.lose_acks[name] -= 1
                return True
        return False

    async def _deliver_socket(self, d: Delivery) -> Json | None:
        if not self.open_sockets:
            raise ConnectionError("no socket")
        d.socket = self.open_sockets[next(self._rr) % len(self.open_sockets)]
        envelope: Json = {
            "envelope_id": d.envelope_id,
            "type": d.kind,
            "payload": d.body,
            "accepts_response_payload": d.kind != "events_api",
        }
        if d.kind == "events_api":
            envelope |= {"retry_attempt": d.attempt, "retry_reason": d.reason}
        future = self._acks[envelope["envelope_id"]] = asyncio.get_running_loop().create_future()
        if d.socket not in self._silent:
            await self._sockets[d.socket].send_json(envelope)
        ack: Json | None = await asyncio.wait_for(future, self.ack_timeout)
        if ack and d.kind == "events_api":
            self.violations.append("acknowledged an event with a payload, which events do not accept")
        return ack

    # ------------------------------------------------------------------ HTTP
    async def _deliver_http(self, d: Delivery) -> Json | None:
        if d.kind == "events_api":
            raw, ctype = json.dumps(d.body), "application/json"
        else:
            form = d.body if d.kind == "slash_commands" else {"payload": json.dumps(d.body)}
            raw, ctype = urllib.parse.urlencode(form), "application/x-www-form-urlencoded"
        headers = {"Content-Type": ctype, **self.sign(raw)}
        if d.attempt:
            headers |= {"X-Slack-Retry-Num": str(d.attempt), "X-Slack-Retry-Reason": d.reason}
        d.status, text, no_retry = await self._send_http(raw, headers)
        if not 200 <= d.status < 300:
            d.error = "no_retry" if no_retry else "http_error" if d.kind == "events_api" else f"http_{d.status}"
        if not text.strip():
            return None
        try:
            parsed = json.loads(text)
        except ValueError:
            return {"text": text}
        return parsed if isinstance(parsed, dict) else {"text": text}

    async def _send_http(self, raw: str | bytes, headers: dict[str, str]) -> tuple[int, str, bool]:
        assert self._http
        assert self.request_url
        data = raw.encode() if isinstance(raw, str) else raw
        timeout = ClientTimeout(self.ack_timeout)
        async with self._http.post(self.request_url, data=data, headers=headers, timeout=timeout) as resp:
            return resp.status, await resp.text(), resp.headers.get("X-Slack-No-Retry") == "1"

    def sign(self, raw: str | bytes, *, age_s: float = 0.0, secret: str | None = None) -> dict[str, str]:
        """The headers of a signed request: docs.slack.dev/authentication/verifying-requests-from-slack.

        ``age_s`` dates it back (Slack says to refuse more than five minutes), ``secret`` signs with another key.
        """
        stamp = str(int(time.time() - age_s))
        data = raw.encode() if isinstance(raw, str) else raw
        signed = b":".join((b"v0", stamp.encode(), data))
        digest = hmac.new((secret or self.signing_secret).encode(), signed, hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={digest}"}

    async def forge(
        self,
        event: Json,
        *,
        age_s: float = 0.0,
        secret: str | None = None,
        tamper: bool = False,
        without: tuple[str, ...] = (),
        **headers: str,
    ) -> int:
        """Send an event request that is not as Slack makes it; returns the status of the answer.

        ``tamper`` changes a byte after signing, ``without`` leaves headers out, ``headers`` (with underscores)
        replaces some.
        """
        raw = json.dumps(self._event_body(event, self.home))
        sent: dict[str, Any] = {"Content-Type": "application/json", **self.sign(raw, age_s=age_s, secret=secret)}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in sent.items() if name not in without}
        status, _, _ = await self._send_http(raw.replace("event_callback", "event_callbacK") if tamper else raw, sent)
        return status

    async def verify_url(self) -> bool:
        """The ``url_verification`` handshake Slack makes when a request URL is saved.

        docs.slack.dev/reference/events/url_verification
        """
        challenge = secrets.token_hex(12)
        d = await self._deliver(
            "events_api", {"token": "fake-verification", "type": "url_verification", "challenge": challenge}
        )
        return bool(d.ack) and challenge in json.dumps(d.ack)
