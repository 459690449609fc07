"""Request bodies and uploaded files: docs.discord.com/developers/reference#uploading-files."""

from __future__ import annotations

import json
import mimetypes
import re
from dataclasses import dataclass

from aiohttp import web

from tests.servers.discord.model import MIB, ApiError, Json, invalid

REQUEST_MAX = 25 * MIB
_FIELD = re.compile(r"files\[(\d+)\]")


@dataclass(frozen=True)
class Upload:
    """A file of a form: its placeholder in ``attachments``, its name and what it holds."""

    placeholder: str
    name: str
    blob: bytes


async def read_body(request: web.Request) -> tuple[Json, list[Upload]]:
    """The JSON of a request, a top-level list under "_", and its files.

    Raises:
        ApiError: 413/40005 for a request over 25 MiB, 50109 for broken JSON, 50035 for another content type.
    """
    if (request.content_length or 0) > REQUEST_MAX:
        await request.content.read()  # else the client sees a broken pipe instead of the answer
        raise ApiError(413, 40005, "Request entity too large")
    if not request.can_read_body:
        return {}, []
    if request.content_type == "application/json":
        return _parse(await request.text()), []
    if request.content_type == "multipart/form-data":
        return await _read_form(request)
    if await request.read():
        raise invalid("", "CONTENT_TYPE_INVALID", 'Expected "Content-Type" header to be one of {"application/json"}.')
    return {}, []


def _parse(text: str) -> Json:
    try:
        raw = json.loads(text) if text else {}
    except ValueError:
        raise ApiError(400, 50109, "The request body contains invalid JSON.") from None
    return raw if isinstance(raw, dict) else {"_": raw}


async def _read_form(request: web.Request) -> tuple[Json, list[Upload]]:
    body: Json = {}
    files: list[Upload] = []
    for key, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            if key == "payload_json":
                body |= _parse(value.file.read().decode())
            elif (found := _FIELD.fullmatch(key)) is None:
                raise invalid(key, "FILE_FIELD_INVALID", "Each file must be named files[n].")  # UNDOCUMENTED: the code
            else:
                files.append(Upload(found[1], value.filename, value.file.read()))
            continue
        text = bytes(value).decode() if isinstance(value, bytes | bytearray) else str(value)
        body |= _parse(text) if key == "payload_json" else {key: text}
    placeholders = [each.placeholder for each in files]
    if len(placeholders) != len(set(placeholders)):
        raise invalid("files", "FILE_FIELD_INVALID", "Each file must be uniquely named.")
    return body, files


def describe(upload: Upload, given: list[Json], attachment: str) -> Json:
    """The attachment that an upload becomes, with what ``attachments`` says about its placeholder."""
    mine = next((each for each in given if str(each.get("id")) == upload.placeholder), {})
    name = str(mine.get("filename") or upload.name)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    text = {"content_type": kind, **({"description": mine["description"]} if mine.get("description") else {})}
    return {"id": attachment, "filename": name, "size": len(upload.blob), **text}
