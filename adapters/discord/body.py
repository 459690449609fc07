"""A message as Discord's JSON. Whom it may ping, and that it shows no previews, is said in every one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from adapters.chat import Attachment
from adapters.discord.payload import Payload, Wire
from adapters.discord.wire import number_of, parts_of

SUPPRESS_EMBEDS = 1 << 2
EPHEMERAL = 1 << 6

NONCE_MAX = 25
"""docs.discord.com/developers/resources/message#create-message"""

MOST_MENTIONS = 100
ALT_MAX = 1_024

_MARK_MIN = 2**24

Body = dict[str, object]


def build_nonce(key: str) -> str:
    """Build the nonce of an idempotency key: the same one in every process, and never longer than Discord takes."""
    return hashlib.sha256(key.encode()).hexdigest()[:NONCE_MAX]


def build_mark(nonce: str) -> int:
    """Build the number that a message's first row of buttons bears, so that the message is known again by it.

    Discord does not tell nonces of earlier messages, but the optional ids of components, 32 bits
    (docs.discord.com/developers/components/reference#anatomy-of-a-component). Small numbers are those that it gives.
    """
    return _MARK_MIN + int.from_bytes(hashlib.sha256(f"mark/{nonce}".encode()).digest()[:8]) % (2**31 - _MARK_MIN)


def read_mark(message: Wire) -> int:
    """Return the mark of a message's buttons, zero when it bears none."""
    rows = parts_of(message, "components")
    mark = number_of(rows[0], "id") if rows else 0
    return mark if mark >= _MARK_MIN else 0


def build_body(payload: Payload, *, nonce: str = "", files: Sequence[Attachment] = ()) -> Body:
    """Build a message to create. ``files`` are those of ``payload.files`` that are uploaded beside this body.

    With a ``nonce`` a second message with the same one is not made: Discord answers with the first
    (``enforce_nonce``, for "the past few minutes").
    """
    body = _build_common(payload, files)
    body["flags"] = SUPPRESS_EMBEDS | (EPHEMERAL if payload.private else 0)
    if nonce:
        body |= {"nonce": nonce, "enforce_nonce": True}
        if payload.components:
            first, *others = payload.components
            body["components"] = [{**first, "id": build_mark(nonce)}, *map(dict, others)]
    if payload.reply_to:
        body["message_reference"] = {"message_id": payload.reply_to, "fail_if_not_exists": False}
    return body


def build_edit(payload: Payload, *, files: Sequence[Attachment] = ()) -> Body:
    """Build what a message becomes; without files those that it has stay."""
    body = _build_common(payload, files)
    body["flags"] = SUPPRESS_EMBEDS
    return body


def build_allowed_mentions(payload: Payload) -> Body:
    """Build the list of who may be pinged: nobody but the named users, whatever the text says."""
    users = sorted(user for user in payload.mentions if user.isascii() and user.isdigit())[:MOST_MENTIONS]
    return {"parse": [], "users": users, "roles": [], "replied_user": False}


def _build_common(payload: Payload, files: Sequence[Attachment]) -> Body:
    body: Body = {
        "content": payload.content,
        "components": [dict(row) for row in payload.components],
        "allowed_mentions": build_allowed_mentions(payload),
    }
    if files:
        body["attachments"] = [
            {"id": n, **({"description": file.title[:ALT_MAX]} if file.title else {})} for n, file in enumerate(files)
        ]
    return body
