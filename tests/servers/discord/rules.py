"""What a message must be like to be taken.

docs.discord.com/developers/resources/message#create-message. Lengths are counted in code points: a maintainer's word
(github.com/discord/discord-api-docs/issues/1315), the pages say "characters" only.
"""

from __future__ import annotations

from tests.servers.discord import components, pings
from tests.servers.discord.model import (
    COMPONENTS_V2,
    EPHEMERAL,
    LOADING,
    SUPPRESS_EMBEDS,
    SUPPRESS_NOTIFICATIONS,
    ApiError,
    Json,
    invalid,
    too_long,
)

CONTENT_MAX, NITRO_MAX, NONCE_MAX, ATTACHMENTS_MAX = 2000, 4000, 25, 10

#: the flags that each kind of call may set; others are ignored without an error (edit-message says so, for the
#: other calls it is UNDOCUMENTED)
CREATE_FLAGS = SUPPRESS_EMBEDS | SUPPRESS_NOTIFICATIONS | COMPONENTS_V2
CALLBACK_FLAGS = CREATE_FLAGS | EPHEMERAL
EDIT_FLAGS = SUPPRESS_EMBEDS | COMPONENTS_V2


def check_message(body: Json, *, limit: int = CONTENT_MAX) -> None:
    """Refuse what is wrong in any message, new or edited; emptiness is `check_content`'s."""
    content = body.get("content")
    if content is not None and not isinstance(content, str):
        raise invalid("content", "BASE_TYPE_BAD_TYPE", "Only strings are accepted.")
    if content is not None and len(content) > limit:
        raise too_long("content", limit)
    flags = body.get("flags")
    if flags is not None and (not isinstance(flags, int) or isinstance(flags, bool)):
        raise invalid("flags", "NUMBER_TYPE_COERCE", "Value is not int.")
    if body.get("embeds") is not None:
        components.check_embeds(body["embeds"])
    v2 = bool((flags or 0) & COMPONENTS_V2)
    if body.get("components") is not None:
        components.check_components(body["components"], v2=v2)
    if v2 and (content or body.get("embeds") or body.get("poll")):
        raise invalid(
            "content", "MESSAGE_CANNOT_USE_LEGACY_FIELDS_WITH_COMPONENTS_V2", "The 'content' field cannot be used"
        )
    allowed = body.get("allowed_mentions")
    if allowed is not None and not isinstance(allowed, dict):
        raise invalid("allowed_mentions", "DICT_TYPE_CONVERT", "Only dictionaries may be used in a DictType")
    pings.check(allowed)
    if len(body.get("attachments") or []) > ATTACHMENTS_MAX:
        raise ApiError(400, 30015, "Maximum number of attachments in a message reached (10)")


def check_nonce(body: Json) -> str:
    """The nonce as text, '' for none: "integer or string", "up to 25 characters"."""
    nonce = body.get("nonce")
    if nonce is None:
        return ""
    if isinstance(nonce, bool) or not isinstance(nonce, int | str):
        raise invalid("nonce", "BASE_TYPE_BAD_TYPE", "Only integers and strings are accepted.")
    if len(str(nonce)) > NONCE_MAX:
        raise too_long("nonce", NONCE_MAX)
    return str(nonce)


def check_content(message: Json) -> None:
    """Refuse a message in which there is nothing to see; a loading answer may be empty."""
    held = ("content", "embeds", "components", "attachments", "sticker_items", "poll")
    if not message["flags"] & LOADING and not any(message.get(key) for key in held):
        raise ApiError(400, 50006, "Cannot send an empty message")


def check_thread(body: Json) -> None:
    """docs.discord.com/developers/resources/channel#start-thread-from-message, its JSON parameters.

    That a name of white space only counts as empty is UNDOCUMENTED.
    """
    name = body.get("name")
    if not isinstance(name, str):
        raise invalid("name", "BASE_TYPE_REQUIRED", "This field is required")
    check_thread_fields(body)


def check_thread_fields(body: Json) -> None:
    """The same fields where each may be missing, as when a thread is edited."""
    if "name" in body and not 1 <= len(str(body["name"]).strip()) <= 100:
        raise invalid("name", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")
    duration = body.get("auto_archive_duration")
    if duration is not None and duration not in (60, 1440, 4320, 10080):
        raise invalid("auto_archive_duration", "BASE_TYPE_CHOICES", "Value must be one of {60, 1440, 4320, 10080}.")
    slow = body.get("rate_limit_per_user")
    if slow is not None and not (isinstance(slow, int) and 0 <= slow <= 21_600):
        raise invalid("rate_limit_per_user", "NUMBER_TYPE_MAX", "int value should be less than or equal to 21600.")
