"""Who would be pinged by a message: the mentions that Slack would find in its text, blocks and attachments.

docs.slack.dev/messaging/formatting-message-text: ``<@U…>`` and ``<!subteam^S…>`` notify, ``<!here>``, ``<!channel>``
and ``<!everyone>`` too; with ``link_names`` or ``parse: full`` bare ``@channel`` does as well. Whether Slack looks into
code spans is UNDOCUMENTED; here it does, so that a mention has to be escaped everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.servers.slack.blocks import texts_of
from tests.servers.slack.model import Json

_LIVE = re.compile(r"<(?:@([UW][A-Z0-9]+)|!subteam\^(S[A-Z0-9]+)|!(here|channel|everyone))(?:\|[^<>]*)?>")
_BARE = re.compile(r"(?<![\w&])@(here|channel|everyone)\b")


def find_pings(message: Json) -> set[str]:
    """Ids of people and groups, and the words here, channel and everyone."""
    found: set[str] = set()
    for text in _live_texts(message):
        found |= {next(filter(None, hit.groups())) for hit in _LIVE.finditer(text)}
        if message.get("link_names") or message.get("parse") == "full":
            found |= set(_BARE.findall(text))
    for block in message.get("blocks") or []:
        found |= _rich_pings(block)
    return found


def _live_texts(message: Json) -> Iterator[str]:
    yield str(message.get("text") or "")
    for block in message.get("blocks") or []:
        yield from (text for kind, text in texts_of(block) if kind in ("mrkdwn", "markdown"))
    for attachment in message.get("attachments") or []:
        yield from (str(attachment.get(key) or "") for key in ("pretext", "text", "fallback", "title"))


def _rich_pings(part: Json) -> set[str]:
    found: set[str] = set()
    for inner in [*part.get("elements", []), *(cell for row in part.get("rows", []) for cell in row)]:
        if not isinstance(inner, dict):
            continue
        match inner.get("type"):
            case "user":
                found.add(str(inner.get("user_id")))
            case "usergroup":
                found.add(str(inner.get("usergroup_id")))
            case "broadcast":
                found.add(str(inner.get("range")))
        found |= _rich_pings(inner)
    return found
