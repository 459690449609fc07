"""Slack's deliveries over HTTP: events, commands and interactions, signed, at one address.

Source of the rules: docs.slack.dev/authentication/verifying-requests-from-slack (the signature covers the raw bytes;
requests older than five minutes are refused) and docs.slack.dev/apis/events-api/using-http-request-urls
(``url_verification``, three seconds, three redeliveries).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from urllib.parse import parse_qsl

import structlog
from aiohttp import web

from adapters.slack.intake import SlackIntake
from adapters.slack.wire import Wire, text_of

log = structlog.get_logger("hermod.slack")

PATH = "/slack/events"
WINDOW_S = 300.0
MAX_BYTES = 1024 * 1024
"""Of one request. The largest that Slack sends are interactions, which repeat a message or a view (250 kB)."""

READ_S = 5.0
MOST_FIELDS = 200


def is_signed(secret: str, body: bytes, timestamp: str, signature: str, now: datetime) -> bool:
    """Tell whether Slack signed these bytes within the last five minutes. Takes the same time for any signature.

    An empty ``secret`` signs nothing.
    """
    if not secret or not (timestamp.isascii() and timestamp.isdigit()) or len(timestamp) > 12:
        return False
    if abs(now.timestamp() - int(timestamp)) > WINDOW_S:
        return False
    digest = hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(f"v0={digest}".encode(), signature.encode("utf-8", "surrogateescape"))


def parse_request(body: bytes, content_type: str) -> Wire | None:
    """Read a delivery: JSON (events), a form with a JSON ``payload`` (interactions), or a plain form (commands)."""
    try:
        text = body.decode()
        if content_type != "application/x-www-form-urlencoded":
            return _object(json.loads(text))
        form = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS))
        return _object(json.loads(form["payload"])) if "payload" in form else dict[str, object](form)
    except (ValueError, RecursionError):
        return None


class SlackHttp:
    """The request URL of the app. Mount ``build_routes`` in a server that Slack reaches over HTTPS.

    Args:
        signing_secret: as the app's page shows it, "Basic Information".
        intake: takes what arrives.
        now: the clock of the five minutes.
        path: the address; the same for events, commands and interactivity.
        max_bytes: a larger request is refused unread.
    """

    def __init__(
        self,
        *,
        signing_secret: str,
        intake: SlackIntake,
        now: Callable[[], datetime],
        path: str = PATH,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._signing_secret = signing_secret.strip()
        self._intake = intake
        self._now = now
        self._path = path
        self._max_bytes = max_bytes
        self._mounted = False

    @property
    def connected(self) -> bool:
        """True while deliveries are taken: the routes are mounted, and our own identity is known."""
        return self._mounted and self._intake.is_open

    def build_routes(self) -> Sequence[web.RouteDef]:
        """Build the routes for aiohttp's server (``application.add_routes``)."""
        self._mounted = True
        return (web.post(self._path, self._serve),)

    async def _serve(self, request: web.Request) -> web.Response:
        body = await self._read(request)
        if body is None:
            return web.Response(status=413, text="too large")
        headers = request.headers
        timestamp, signature = headers.get("X-Slack-Request-Timestamp", ""), headers.get("X-Slack-Signature", "")
        if not is_signed(self._signing_secret, body, timestamp, signature, self._now()):
            log.warning("slack_signature_refused", size=len(body), has_signature=bool(signature))
            return web.Response(status=401, text="invalid signature")
        payload = parse_request(body, request.content_type)
        if payload is None:
            log.warning("slack_delivery_not_understood", content_type=request.content_type, size=len(body))
            return web.Response(text="")  # once more would not help
        if text_of(payload, "type") == "url_verification":
            return web.json_response({"challenge": text_of(payload, "challenge")})
        retry = headers.get("X-Slack-Retry-Num", "0")
        if retry != "0":  # no reason to drop it: the first delivery may never have arrived
            log.info("slack_redelivered", attempt=retry, reason=headers.get("X-Slack-Retry-Reason", ""))
        answer = await self._intake.receive(payload, delivery_id=hashlib.sha256(body).hexdigest()[:32])
        if not answer.ok:
            return web.Response(status=503, text="not taken; deliver it again")
        return web.Response(text="") if answer.body is None else web.json_response(answer.body)

    async def _read(self, request: web.Request) -> bytes | None:
        """Read the raw body, bounded in size and time; None when it is too much."""
        if (request.content_length or 0) > self._max_bytes:
            return None
        body = bytearray()
        try:
            async with asyncio.timeout(READ_S):
                async for chunk in request.content.iter_any():
                    body += chunk
                    if len(body) > self._max_bytes:
                        return None
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        return bytes(body)


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value
