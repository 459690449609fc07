"""Files: out in two steps, in with the token shown to Slack's own hosts only."""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Awaitable, Callable, Collection
from urllib.parse import urlsplit

import aiohttp
import structlog

from adapters.chat import Attachment, FileRef, Rejected
from adapters.slack.client import SlackClient, find_proxy
from adapters.slack.outcome import CALL_ERRORS, Failed, build_failed
from adapters.slack.wire import text_of

log = structlog.get_logger("hermod.slack")

FILE_HOSTS = frozenset({"files.slack.com", "files.slack-gov.com"})
"""Where Slack keeps files; beside them only the host of ``api_url`` itself is asked."""

UPLOAD_TIMEOUT_S = 60.0
PATIENCE_S = 5.0
CHUNK = 64 * 1024
NAME_MAX = 200
_HTML = (b"<!doctype html", b"<html")


class SlackFiles:
    """Uploads and downloads. Safe to call concurrently.

    Args:
        client: whose session and token are used.
        hosts: of files that may be fetched, besides the host of the Web API.
    """

    def __init__(self, client: SlackClient, hosts: Collection[str] = FILE_HOSTS) -> None:
        self._client = client
        self._hosts = frozenset(hosts)

    async def upload(
        self,
        attachment: Attachment,
        *,
        channel: str,
        thread_ts: str | None,
        caption: str = "",
        unless: Callable[[], Awaitable[bool]] | None = None,
    ) -> Failed | None:
        """Upload one file into a thread; None when it is there.

        The caption is plain text: Slack answers ``internal_error`` to blocks beside an upload. What Slack tells
        about the finished file is not needed, so an answer without it is fine. ``unless`` is asked when only the last
        step is left: true when the file need not be posted any more.
        """
        try:
            content = read_content(attachment)
        except ValueError as error:
            return _refused(f"its content cannot be read: {error}")
        if not content:
            return _refused("it is empty")
        name = file_name(attachment.name)
        place = await self._client.call(
            "files.getUploadURLExternal",
            lambda web: web.files_getUploadURLExternal(filename=name, length=len(content)),
            patience_s=PATIENCE_S,
        )
        if isinstance(place, Failed):
            return place
        failed = await self._send(text_of(place, "upload_url"), content)
        if failed is not None or (unless is not None and await unless()):
            return failed
        done = await self._client.call(
            "files.completeUploadExternal",
            lambda web: web.files_completeUploadExternal(
                files=[{"id": text_of(place, "file_id"), "title": attachment.title or name}],
                channel_id=channel,
                thread_ts=thread_ts,
                initial_comment=caption or None,
            ),
            patience_s=PATIENCE_S,
        )
        return done if isinstance(done, Failed) else None

    async def _send(self, url: str, content: bytes) -> Failed | None:
        timeout = aiohttp.ClientTimeout(total=UPLOAD_TIMEOUT_S)
        try:
            async with self._client.session.post(
                url, data=io.BytesIO(content), timeout=timeout, allow_redirects=False, proxy=find_proxy(url)
            ) as answer:
                if answer.status != 200:
                    return _refused(f"Slack did not take the bytes (HTTP {answer.status})")
        except (*CALL_ERRORS, ValueError) as error:
            return build_failed(error)
        return None

    async def fetch(self, file: FileRef, *, max_bytes: int) -> bytes | None:
        """Fetch a file, never more than ``max_bytes``; None when it cannot or must not be fetched.

        The token goes to Slack's hosts only, and no redirect is followed with it. Without the scope ``files:read``
        Slack answers 200 and its login page: that is no file either.
        """
        if not self._may_ask(file.address):
            content: bytes | str = "it is not on one of Slack's hosts"
        elif file.size > max_bytes:
            content = f"it has {file.size} bytes"
        else:
            content = await self._read(file, max_bytes)
        if isinstance(content, str):
            log.warning("slack_file_not_fetched", file=file.id, reason=content)
            return None
        return content

    async def _read(self, file: FileRef, max_bytes: int) -> bytes | str:
        """The file, or why there is none."""
        try:
            async with self._client.session.get(
                file.address,
                headers={"Authorization": self._client.authorization},
                allow_redirects=False,
                proxy=find_proxy(file.address),
            ) as answer:
                if answer.status != 200:
                    return f"HTTP {answer.status}"
                content = bytearray()
                async for chunk in answer.content.iter_chunked(CHUNK):
                    content += chunk
                    if len(content) > max_bytes:
                        return f"it has more than {max_bytes} bytes"
        except CALL_ERRORS as error:
            return f"the connection broke ({type(error).__name__})"
        if _is_login(file, answer.content_type, bytes(content)):
            return "Slack sent its login page; add the scope files:read to the app and reinstall it"
        return bytes(content)

    def _may_ask(self, url: str) -> bool:
        try:
            parts, api = urlsplit(url), urlsplit(self._client.api_url)
            own = (parts.scheme, parts.hostname, parts.port) == (api.scheme, api.hostname, api.port)
        except ValueError:
            return False
        if parts.username is not None or parts.password is not None:
            return False
        return own or (parts.scheme == "https" and parts.port in (None, 443) and parts.hostname in self._hosts)


def read_content(attachment: Attachment) -> bytes:
    """Return the bytes of an attachment. What is no text (a tool's result object) is written as JSON.

    Raises:
        ValueError: the content is not the base64 that it is said to be.
    """
    content: object = attachment.content
    if not isinstance(content, str):
        return json.dumps(content, ensure_ascii=False, indent=2, default=str).encode()
    if attachment.encoding == "base64":
        try:
            return base64.b64decode(content, validate=True)
        except binascii.Error as error:
            raise ValueError(str(error)) from None
    return content.encode("utf-8", "replace")


def file_name(name: str) -> str:
    """Return a name that is one path component without control characters."""
    shown = "".join(c for c in name.replace("\\", "/").rpartition("/")[2] if c.isprintable()).strip(". ")
    return shown[-NAME_MAX:] or "file"


def _is_login(file: FileRef, media_type: str, content: bytes) -> bool:
    if media_type != "text/html" and not content[:200].lstrip().lower().startswith(_HTML):
        return False
    is_html = file.media_type == "text/html" or file.name.lower().endswith((".html", ".htm"))
    return not (is_html and file.size == len(content))


def _refused(reason: str) -> Failed:
    return Failed(code="", said=reason, outcome=Rejected(reason=reason))
