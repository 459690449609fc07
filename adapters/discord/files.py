"""Files: out beside a message within what the server takes, in from Discord's own hosts only."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
import structlog

from adapters.chat import Attachment, FileRef
from adapters.discord.content import snapshots_of
from adapters.discord.http import DiscordHttp, Upload, find_proxy
from adapters.discord.outcome import CALL_ERRORS, Failed
from adapters.discord.wire import Wire, id_of, parts_of, text_of

log = structlog.get_logger("hermod.discord")

MiB = 1024 * 1024

FILE_MAX = 10 * MiB
"""Of one file, in a server without boosts (docs.discord.com/developers/reference#uploading-files)."""

REQUEST_MAX = 24 * MiB
"""Of one request; Discord takes 25 MiB."""

MOST_FILES = 10
"""Of one message."""

CDN_HOSTS = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
"""Where Discord keeps attachments."""

FETCH_S = 60.0
CHUNK = 64 * 1024
NAME_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Files that go out with one message, and the bytes of each."""

    files: tuple[Attachment, ...] = ()
    uploads: tuple[Upload, ...] = ()


def pack_files(files: Sequence[Attachment], file_max: int = FILE_MAX) -> tuple[tuple[Packed, ...], tuple[str, ...]]:
    """Divide files among messages; the second value says of each file that cannot go out why."""
    packs: list[Packed] = []
    notes: list[str] = []
    open_pack, size = Packed(), 0
    for file in files:
        try:
            content = read_content(file)
        except ValueError as error:
            notes.append(build_note(file.name, f"its content cannot be read ({error})"))
            continue
        if not content or len(content) > file_max:
            reason = f"it has {_mib(len(content))} and this place takes {_mib(file_max)}" if content else "it is empty"
            notes.append(build_note(file.name, reason))
            continue
        if open_pack.files and (len(open_pack.files) == MOST_FILES or size + len(content) > REQUEST_MAX):
            packs.append(open_pack)
            open_pack, size = Packed(), 0
        upload = Upload(name=file_name(file.name), content=content)
        open_pack = Packed(files=(*open_pack.files, file), uploads=(*open_pack.uploads, upload))
        size += len(content)
    if open_pack.files:
        packs.append(open_pack)
    return tuple(packs), tuple(notes)


def build_note(name: str, reason: str) -> str:
    """Build the line that tells people of a file that they do not get."""
    shown = file_name(name).replace("`", "'")
    return f"-# I could not attach `{shown}`: {reason}."


def read_content(attachment: Attachment) -> bytes:
    """Return the bytes of an attachment. What is no text (a tool's result object) is written as JSON.

    Raises:
        ValueError: the content is not the base64 that it is said to be.
    """
    content: object = attachment.content
    if not isinstance(content, str):
        return json.dumps(content, ensure_ascii=False, indent=2, default=str).encode("utf-8", "replace")
    if attachment.encoding == "base64":
        try:
            return base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(str(error)) from None
    return content.encode("utf-8", "replace")


def file_name(name: str) -> str:
    """Return a name that is one path component without control characters."""
    shown = "".join(c for c in name.replace("\\", "/").rpartition("/")[2] if c.isprintable()).strip(". ")
    return shown[-NAME_MAX:] or "file"


async def fetch_bytes(
    http: DiscordHttp, url: str, *, max_bytes: int, hosts: Collection[str] = CDN_HOSTS
) -> bytes | str:
    """Fetch a file by its signed address, without our token and without following redirects.

    Returns:
        Its bytes, or why there are none; never more than ``max_bytes``.
    """
    if not may_ask(url, api_url=http.api_url, hosts=hosts):
        return "it is not on one of Discord's hosts"
    timeout = aiohttp.ClientTimeout(total=FETCH_S)
    try:
        async with http.session.get(url, timeout=timeout, allow_redirects=False, proxy=find_proxy(url)) as answer:
            if answer.status != 200:
                return f"HTTP {answer.status}"
            content = bytearray()
            async for chunk in answer.content.iter_chunked(CHUNK):
                content += chunk
                if len(content) > max_bytes:
                    return f"it has more than {max_bytes} bytes"
    except (*CALL_ERRORS, ValueError) as error:
        return f"the connection broke ({type(error).__name__})"
    return bytes(content)


def find_address(message: Wire | Failed, attachment_id: str) -> tuple[str, str]:
    """Return an attachment's signed address as a message that was just fetched holds it, else why there is none."""
    if isinstance(message, Failed):
        return "", message.said
    for holder in (message, *snapshots_of(message)):
        for attachment in parts_of(holder, "attachments"):
            if id_of(attachment, "id") == attachment_id:
                return text_of(attachment, "url"), ""
    return "", "the message does not hold it any more"


def parse_address(file: FileRef) -> tuple[str, str, str] | None:
    """Read ``channel/message/attachment``; None when it is no such address."""
    parts = file.address.split("/")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return parts[0], parts[1], parts[2]


def may_ask(url: str, *, api_url: str, hosts: Collection[str]) -> bool:
    """True for an address on a host of Discord's files, or on the host of the API itself."""
    try:
        parts, api = urlsplit(url), urlsplit(api_url)
        own = (parts.scheme, parts.hostname, parts.port) == (api.scheme, api.hostname, api.port)
    except ValueError:
        return False
    if parts.username is not None or parts.password is not None:
        return False
    return own or (parts.scheme == "https" and parts.port in (None, 443) and parts.hostname in hosts)


def _mib(size: int) -> str:
    return f"{size / MiB:.1f} MiB"
