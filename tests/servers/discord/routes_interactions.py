"""REST: answers to interactions and follow-ups.

docs.discord.com/developers/interactions/receiving-and-responding#endpoints. The token is the authorisation, and the bot
needs no permission in the channel; the global rate limit leaves these endpoints out.
"""

from __future__ import annotations

from tests.servers.discord import options, rules
from tests.servers.discord.components import check_modal
from tests.servers.discord.model import (
    AUTOCOMPLETE,
    COMMAND,
    COMMAND_ANSWER,
    COMPONENT,
    DEFAULT,
    EPHEMERAL,
    LOADING,
    MODAL,
    ApiError,
    Interaction,
    Json,
    invalid,
)
from tests.servers.discord.routing import Request, route
from tests.servers.discord.server import DiscordServer
from tests.servers.discord.uploads import Upload

MESSAGE, DEFER, DEFER_UPDATE, UPDATE, CHOICES, FORM = 4, 5, 6, 7, 8, 9

#: which answers each kind of interaction takes: #interaction-response-object-interaction-callback-type
ANSWERS = {
    COMMAND: {MESSAGE, DEFER, FORM},
    COMPONENT: {MESSAGE, DEFER, DEFER_UPDATE, UPDATE, FORM},
    AUTOCOMPLETE: {CHOICES},
    MODAL: {MESSAGE, DEFER, DEFER_UPDATE, UPDATE},
}


@route("POST", "/interactions/{i}/{t}/callback")
def callback(server: DiscordServer, r: Request) -> Json | None:
    """docs.discord.com/developers/interactions/receiving-and-responding#create-interaction-response."""
    used = server.interactions.get(r.path["t"])
    if used is None or used.id != r.path["i"] or server.clock.now() - used.born > server.interaction_deadline:
        if used is not None and used.id == r.path["i"]:
            server.late_answers.append(used.id)
        raise ApiError(404, 10062, "Unknown interaction")
    if used.response is not None:
        raise ApiError(400, 40060, "Interaction has already been acknowledged.")
    kind, data = r.body.get("type"), r.body.get("data") or {}
    if kind not in ANSWERS[used.kind] or (kind in (DEFER_UPDATE, UPDATE) and used.source is None):
        raise invalid("type", "BASE_TYPE_CHOICES", f"Value must be one of {sorted(ANSWERS[used.kind])}.")
    _check_locked(server, used)
    message = _answer(server, used, kind, data, r.files)
    used.response = r.body
    server._notify()
    if r.query.get("with_response", "").lower() not in ("1", "true"):
        return None
    meta = {
        "id": used.id, "type": used.kind, "response_message_id": used.message,
        "response_message_loading": kind == DEFER,
        "response_message_ephemeral": bool(message and message["flags"] & EPHEMERAL),
    }  # fmt: skip
    shown = {"resource": {"type": kind, "message": server._wire(message)}} if message and kind != DEFER else {}
    return {"interaction": meta, **shown}


def _check_locked(server: DiscordServer, used: Interaction) -> None:
    """github.com/discord/discord-api-docs/issues/6884 and 7707: answers in a locked thread are refused."""
    meta = server._channel(used.channel).get("thread_metadata")
    if meta and meta["locked"] and not server.allows(used.channel, "MANAGE_THREADS"):
        raise ApiError(403, 50083, "Thread is archived")


def _answer(server: DiscordServer, used: Interaction, kind: int, data: Json, files: list[Upload]) -> Json | None:
    match kind:
        case 4 | 5:
            return _respond(server, used, data, files, loading=kind == DEFER)
        case 6:
            used.message = used.source
            return None
        case 7:
            used.message = used.source
            return _change(server, used, used.source or "", data, files, via="callback")
        case 8:
            choices = data.get("choices")
            options.check_choices("data.choices", choices, used.option_type)
            used.choices = choices
            return None
        case _:
            check_modal(data)
            used.modal = data
            return None


def _respond(server: DiscordServer, used: Interaction, data: Json, files: list[Upload], *, loading: bool) -> Json:
    rules.check_message(data)
    server._check_uploads(server.channels[used.channel], files)
    flags = int(data.get("flags") or 0)
    flags = flags & EPHEMERAL | LOADING if loading else flags & rules.CALLBACK_FLAGS
    kind = COMMAND_ANSWER if used.kind == COMMAND else DEFAULT
    body = {} if loading else data  # "the only valid message flag is EPHEMERAL", and there is nothing else to show
    message = server._store(
        used.channel, server.bot_id, body, [] if loading else files, via="callback", webhook=True, flags=flags,
        kind=kind, private_to=used.user, **_origin(server, used),
    )  # fmt: skip
    used.message = message["id"]
    server._tell("MESSAGE_CREATE", message)
    return message


def _origin(server: DiscordServer, used: Interaction) -> Json:
    meta: Json = {
        "id": used.id, "type": used.kind, "user": server.users[used.user],
        "authorizing_integration_owners": {"0": server.channels[used.channel].get("guild_id", "0")},
    }  # fmt: skip
    if used.kind == COMMAND:
        meta["name"] = used.command
    return {"application_id": server.app_id, "webhook_id": server.app_id, "interaction_metadata": meta}


def _live(server: DiscordServer, r: Request) -> Interaction:
    """The interaction of a token that still lives: 15 minutes, if it was answered."""
    used = server.interactions.get(r.path["t"])
    if used is None or r.path["a"] != server.app_id or used.response is None:
        raise ApiError(404, 10015, "Unknown Webhook")
    if server.clock.now() - used.born > server.token_ttl:
        raise ApiError(401, 50027, "Invalid Webhook Token")
    server._channel(used.channel)
    return used


def _change(server: DiscordServer, used: Interaction, mid: str, body: Json, files: list[Upload], *, via: str) -> Json:
    message = server._find(used.channel, mid)
    was_loading = message["flags"] & LOADING
    message["flags"] &= ~LOADING
    try:
        return server._edit(message, body, files, via=via, webhook=True)
    except ApiError:
        message["flags"] |= was_loading
        raise


@route("POST", "/webhooks/{a}/{t}")
def followup(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/interactions/receiving-and-responding#create-followup-message.

    Right after a deferred answer it fills that one, and keeps its privacy.
    """
    used = _live(server, r)
    _check_locked(server, used)
    rules.check_message(r.body)
    first = server._messages[used.channel].get(used.message or "")
    if first is not None and first["flags"] & LOADING:
        body = {k: v for k, v in r.body.items() if k != "flags"}
        return server._wire(_change(server, used, first["id"], body, r.files, via="followup"))
    server._check_uploads(server.channels[used.channel], r.files)
    message = server._store(
        used.channel, server.bot_id, r.body, r.files, via="followup", webhook=True, private_to=used.user,
        flags=int(r.body.get("flags") or 0) & rules.CALLBACK_FLAGS, **_origin(server, used),
    )  # fmt: skip
    used.followups.append(message["id"])
    server._tell("MESSAGE_CREATE", message)
    return server._wire(message)


def _own(server: DiscordServer, r: Request, used: Interaction) -> str:
    """The message of a path: the original response, or a follow-up of this token."""
    mid = used.message if r.path["m"] == "@original" else r.path["m"]
    if mid is None or mid not in {used.message, *used.followups}:
        raise ApiError(404, 10008, "Unknown Message")
    return mid


@route("GET", "/webhooks/{a}/{t}/messages/{m}")
def get_answer(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/interactions/receiving-and-responding#get-original-interaction-response."""
    used = _live(server, r)
    return server._wire(server._find(used.channel, _own(server, r, used)), stored=True)


@route("PATCH", "/webhooks/{a}/{t}/messages/{m}")
def edit_answer(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/interactions/receiving-and-responding#edit-original-interaction-response."""
    used = _live(server, r)
    _check_locked(server, used)
    return server._wire(_change(server, used, _own(server, r, used), r.body, r.files, via="callback"))


@route("DELETE", "/webhooks/{a}/{t}/messages/{m}")
def delete_answer(server: DiscordServer, r: Request) -> None:
    """docs.discord.com/developers/interactions/receiving-and-responding#delete-original-interaction-response."""
    used = _live(server, r)
    server._remove(server._find(used.channel, _own(server, r, used)))
