"""What Hermod asks of Discord: one method for each kind of call, every failure a value, nobody pinged by accident.

This is the only door: posts, edits, answers to interactions and follow-ups all build their JSON in ``body.py``.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable

import structlog
from discord.http import Route

from adapters.chat import Delivered, Delivery, InDoubt
from adapters.discord.body import Body, build_body, build_edit, build_nonce
from adapters.discord.calls import PATIENCE_S, UNPACED, DiscordCalls
from adapters.discord.files import FILE_MAX, Packed
from adapters.discord.http import Answer, DiscordHttp
from adapters.discord.outcome import ARCHIVED, NO_ACCESS, UNKNOWN_CHANNEL, Failed
from adapters.discord.parcel import send_parcel
from adapters.discord.payload import Payload
from adapters.discord.wire import Wire, id_of, wire_of

log = structlog.get_logger("hermod.discord")

MESSAGE, DELETE, READ, PROBE, THREAD, TYPING, REACTION, WEBHOOK, USER, LOOK = (
    "message", "delete", "read", "probe", "thread", "typing", "reaction", "webhook", "user", "look",
)  # fmt: skip
"""Kinds of calls; each has a lane of its own in every channel."""

FILES = " with files"

PAGE = 100


class DiscordClient:
    """The bot's REST API. Safe to call concurrently; only cancellation is raised.

    Args:
        http: where the requests go; whoever owns it closes it.
        monotonic, sleep: the clock of the scheduler, which gives every call its turn.
    """

    def __init__(
        self,
        http: DiscordHttp,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.http = http
        self.calls = DiscordCalls(http, monotonic=monotonic, sleep=sleep)
        self.monotonic = monotonic
        self._own_id = ""

    # -- messages
    async def create_message(
        self,
        channel_id: str,
        payload: Payload,
        *,
        nonce: str = "",
        priority: int = 0,
        patience_s: float = PATIENCE_S,
        file_max: int = FILE_MAX,
    ) -> Delivery:
        """Post a message; see ``send_parcel`` for what happens to files and buttons that Discord does not take.

        Args:
            channel_id: of a channel, thread or direct conversation.
            payload: what to post.
            nonce: see ``build_nonce``; a second post with the same one within a few minutes is the first one. Empty:
                one that serves for this call only.
            priority: see ``Reply.priority``; 2 never waits, for a turn or after a refusal.
            patience_s: how long to wait for a turn, and for refusals that are over soon.
            file_max: bytes of one file, as the server takes them.
        """
        nonce = nonce or secrets.token_hex(12)

        async def send(part: Payload, pack: Packed, n: int) -> Answer | Failed:
            return await self._create(
                channel_id,
                part,
                pack,
                nonce=build_nonce(f"{nonce}/{n}") if n else nonce,
                priority=priority,
                patience_s=patience_s,
            )

        return _delivery(await send_parcel(send, payload, file_max=file_max))

    async def edit_message(
        self,
        channel_id: str,
        message_id: str,
        payload: Payload,
        *,
        priority: int = 0,
        patience_s: float = PATIENCE_S,
        file_max: int = FILE_MAX,
    ) -> Delivery:
        """Make a message of ours another one; its buttons are those of ``payload``. See ``create_message``."""
        route = _message_route("PATCH", channel_id, message_id)

        async def send(part: Payload, pack: Packed, n: int) -> Answer | Failed:
            if n:
                nonce = build_nonce(f"{message_id}/{n}")
                return await self._create(channel_id, part, pack, nonce=nonce, priority=priority, patience_s=patience_s)
            return await self.calls.call(
                route,
                MESSAGE,
                channel_id,
                body=build_edit(part, files=pack.files),
                files=pack.uploads,
                part=FILES if pack.files else "",
                priority=priority,
                patience_s=patience_s,
            )

        answer = await send_parcel(send, payload, file_max=file_max)
        if isinstance(answer, Failed) and answer.code == ARCHIVED and priority < 2:
            revived = await self.revive_thread(channel_id)  # a post does that by itself, an edit does not
            if not isinstance(revived, Failed):
                answer = await send_parcel(send, payload, file_max=file_max)
        return _delivery(answer, message_id)

    async def _create(
        self, channel_id: str, payload: Payload, pack: Packed, *, nonce: str, priority: int, patience_s: float
    ) -> Answer | Failed:
        return await self.calls.call(
            Route("POST", "/channels/{channel_id}/messages", channel_id=channel_id),
            MESSAGE,
            channel_id,
            body=build_body(payload, nonce=nonce, files=pack.files),
            files=pack.uploads,
            part=FILES if pack.files else "",
            priority=priority,
            patience_s=patience_s,
        )

    async def delete_message(self, channel_id: str, message_id: str) -> None:
        """Remove a message of ours. Best effort: one that is gone already is no failure."""
        answer = await self.calls.call(_message_route("DELETE", channel_id, message_id), DELETE, channel_id)
        if isinstance(answer, Failed) and not answer.is_missing:
            log.warning("discord_message_not_deleted", channel=channel_id, reason=answer.said)

    async def fetch_message(self, channel_id: str, message_id: str) -> Wire | Failed:
        """Fetch one message."""
        return _object(await self.calls.call(_message_route("GET", channel_id, message_id), READ, channel_id))

    async def fetch_messages(
        self, channel_id: str, *, limit: int = PAGE, before: str = ""
    ) -> tuple[Wire, ...] | Failed:
        """Fetch the newest messages of a channel (of those older than ``before``), the newest first, at most 100."""
        path = f"/channels/{{channel_id}}/messages?limit={max(1, min(limit, PAGE))}"
        route = Route("GET", path + (f"&before={int(before)}" if before else ""), channel_id=channel_id)
        answer = await self.calls.call(route, READ, channel_id)
        if isinstance(answer, Failed):
            return answer
        return tuple(wire_of(message) for message in answer.data) if isinstance(answer.data, list) else ()

    # -- channels and threads
    async def fetch_channel(self, channel_id: str) -> Wire | Failed:
        """Fetch a channel or thread. One that does not exist is not remembered as gone: it may be opened yet."""
        route = Route("GET", "/channels/{channel_id}", channel_id=channel_id)
        return _object(await self.calls.call(route, PROBE, channel_id, passing=UNKNOWN_CHANNEL))

    async def create_thread(self, channel_id: str, message_id: str, *, name: str) -> Wire | Failed:
        """Open the thread of a message. Nothing optional is said: even a slow mode of 0 takes a permission."""
        route = Route(
            "POST",
            "/channels/{channel_id}/messages/{message_id}/threads",
            channel_id=channel_id,
            message_id=message_id,
        )
        return _object(await self.calls.call(route, THREAD, channel_id, body={"name": name}))

    async def revive_thread(self, thread_id: str) -> Wire | Failed:
        """Take a thread out of the archive; a locked one needs the permission Manage Threads."""
        route = Route("PATCH", "/channels/{channel_id}", channel_id=thread_id)
        return _object(await self.calls.call(route, THREAD, thread_id, body={"archived": False}))

    async def open_direct(self, user_id: str) -> str | Failed:
        """Return the id of the direct conversation with a person."""
        route = Route("POST", "/users/@me/channels")
        answer = await self.calls.call(route, USER, user_id, body={"recipient_id": user_id})
        return answer if isinstance(answer, Failed) else id_of(wire_of(answer.data), "id")

    async def fetch_own_id(self) -> str:
        """Return the bot's own user id, empty when Discord does not tell now."""
        if not self._own_id:
            answer = await self.calls.call(Route("GET", "/users/@me"), USER, "@me")
            self._own_id = "" if isinstance(answer, Failed) else id_of(wire_of(answer.data), "id")
        return self._own_id

    # -- looks, for ``DiscordPlaces``: what they are refused says nothing of posts, and may be mended any moment
    async def look_at_channel(self, channel_id: str) -> Wire | Failed:
        """Fetch a channel, whatever other calls were told about it."""
        return await self._look(Route("GET", "/channels/{channel_id}", channel_id=channel_id), channel_id)

    async def fetch_guild(self, guild_id: str) -> Wire | Failed:
        """Fetch a server, with its roles."""
        return await self._look(Route("GET", "/guilds/{guild_id}", guild_id=guild_id), guild_id)

    async def fetch_member(self, guild_id: str, user_id: str) -> Wire | Failed:
        """Fetch somebody as a member of a server; 10007 for one who left, or never was there."""
        route = Route("GET", "/guilds/{guild_id}/members/{user_id}", guild_id=guild_id, user_id=user_id)
        return await self._look(route, f"{guild_id}/members")

    async def fetch_user(self, user_id: str) -> Wire | Failed:
        """Fetch somebody, wherever they are; 10013 for an id of nobody."""
        return await self._look(Route("GET", "/users/{user_id}", user_id=user_id), "users")

    async def _look(self, route: Route, place: str) -> Wire | Failed:
        answer = await self.calls.call(
            route, LOOK, f"{LOOK}/{place}", priority=1, patience_s=3.0, timeout_s=5.0, passing=NO_ACCESS
        )
        return _object(answer)

    # -- signs
    async def send_typing(self, channel_id: str) -> Failed | None:
        """Show the bot as typing, for ten seconds or until it posts. Never waits for a turn."""
        route = Route("POST", "/channels/{channel_id}/typing", channel_id=channel_id)
        answer = await self.calls.call(route, TYPING, channel_id, priority=2, timeout_s=3.0)
        return answer if isinstance(answer, Failed) else None

    async def set_reaction(self, channel_id: str, message_id: str, emoji: str, *, on: bool) -> Failed | None:
        """Put an emoji on a message, or take ours off."""
        route = Route(
            "PUT" if on else "DELETE",
            "/channels/{channel_id}/messages/{message_id}/reactions/{emoji}/@me",
            channel_id=channel_id,
            message_id=message_id,
            emoji=emoji,
        )
        answer = await self.calls.call(
            route, REACTION, channel_id, priority=1, patience_s=3.0, timeout_s=5.0, passing=UNKNOWN_CHANNEL
        )
        return answer if isinstance(answer, Failed) else None

    # -- interactions
    async def respond(
        self, interaction_id: str, token: str, *, kind: int, payload: Payload | None = None, data: Body | None = None
    ) -> Failed | None:
        """Answer an interaction for the first time, which has to happen within three seconds.

        Args:
            interaction_id, token: as the interaction brought them.
            kind: 4 a message, 5 a message later, 6 an edit later, 7 an edit, 8 choices, 9 a form.
            payload: of kinds 4 and 7.
            data: of other kinds, for example ``{"choices": [...]}`` or ``{"flags": 64}``.
        """
        body: Body = {"type": kind}
        if payload is not None:
            body["data"] = build_body(payload)
        elif data:
            body["data"] = data
        route = Route("POST", "/interactions/{id}/{webhook_token}/callback", id=interaction_id, webhook_token=token)
        answer = await self.calls.call(route, UNPACED, interaction_id, body=body, again=False, timeout_s=5.0)
        return answer if isinstance(answer, Failed) else None

    async def follow_up(
        self, application_id: str, token: str, payload: Payload, *, file_max: int = FILE_MAX
    ) -> Delivery:
        """Post one more message by an interaction's token, which lives for fifteen minutes.

        Discord has no nonce here, so nothing is made twice: a failure whose outcome is unknown is ``InDoubt``.
        """

        async def send(part: Payload, pack: Packed, _: int) -> Answer | Failed:
            return await self._create_follow_up(application_id, token, part, pack)

        return _delivery(await send_parcel(send, payload, file_max=file_max))

    async def edit_original(
        self,
        application_id: str,
        token: str,
        payload: Payload,
        *,
        message_id: str = "@original",
        file_max: int = FILE_MAX,
    ) -> Delivery:
        """Make the first answer to an interaction (or the follow-up ``message_id``) another one."""
        # "@original" as it stands, as discord.py itself sends it; as a parameter it would become "%40original"
        place = "@original" if message_id == "@original" else "{message_id}"
        route = Route(
            "PATCH",
            f"/webhooks/{{webhook_id}}/{{webhook_token}}/messages/{place}",
            webhook_id=application_id,
            webhook_token=token,
            message_id=message_id,
        )

        async def send(part: Payload, pack: Packed, n: int) -> Answer | Failed:
            if n:
                return await self._create_follow_up(application_id, token, part, pack)
            body = build_edit(part, files=pack.files)
            return await self.calls.call(route, WEBHOOK, token, body=body, files=pack.uploads)

        return _delivery(await send_parcel(send, payload, file_max=file_max))

    async def _create_follow_up(
        self, application_id: str, token: str, payload: Payload, pack: Packed
    ) -> Answer | Failed:
        route = Route("POST", "/webhooks/{webhook_id}/{webhook_token}", webhook_id=application_id, webhook_token=token)
        body = build_body(payload, files=pack.files)
        return await self.calls.call(route, WEBHOOK, token, body=body, files=pack.uploads, again=False)


def _message_route(method: str, channel_id: str, message_id: str) -> Route:
    return Route(method, "/channels/{channel_id}/messages/{message_id}", channel_id=channel_id, message_id=message_id)


def _object(answer: Answer | Failed) -> Wire | Failed:
    return answer if isinstance(answer, Failed) else wire_of(answer.data)


def _delivery(answer: Answer | Failed, message_id: str = "") -> Delivery:
    if isinstance(answer, Failed):
        return answer.outcome
    found = id_of(wire_of(answer.data), "id") or message_id
    return Delivered(remote_id=found) if found else InDoubt(reason="Discord's answer could not be read")
