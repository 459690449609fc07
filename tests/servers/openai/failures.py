"""Answers that are no completion: errors, their headers, and connections that are cut."""

from __future__ import annotations

import socket
import struct
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from aiohttp import web

from tests.servers.openai.script import RetryForm


def abort(http: web.Request, *, reset: bool = False) -> None:
    """Close the connection at once; with a reset (RST) instead of an end where ``reset`` says so."""
    if http.transport is None:
        return
    connection = http.transport.get_extra_info("socket")
    if reset and connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    http.transport.abort()


def retry_headers(wait_s: float, form: RetryForm) -> dict[str, str]:
    """RFC 9110, 10.2.3 (seconds or a date); ``retry-after-ms`` is OpenAI's."""
    match form:
        case "seconds":
            return {"Retry-After": f"{wait_s:g}"}
        case "date":
            return {"Retry-After": format_datetime(datetime.now(UTC) + timedelta(seconds=wait_s), usegmt=True)}
        case "ms":
            return {"retry-after-ms": f"{wait_s * 1000:.0f}"}
        case "both":
            return {"Retry-After": f"{wait_s:g}", "retry-after-ms": f"{wait_s * 1000:.0f}"}


def build_error(
    status: int, code: str | None, message: str, headers: dict[str, str] | None = None, *, param: str | None = None
) -> web.Response:
    """https://platform.openai.com/docs/guides/error-codes."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(
        status, "server_error" if status >= 500 else "invalid_request_error"
    )
    return web.json_response(
        {"error": {"message": message, "type": kind, "param": param, "code": code}}, status=status, headers=headers
    )
