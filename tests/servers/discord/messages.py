"""Messages: created, edited and deleted, by the bot and by people. docs.discord.com/developers/resources/message."""

from __future__ import annotations

from typing import Any

from tests.servers.discord import components, permissions, pings, rules
from tests.servers.discord.gateway import Gateway
from tests.servers.discord.model import (
    DEFAULT,
    DIRECT_MESSAGES,
    DM,
    EPHEMERAL,
    GUILD_MESSAGES,
    GUILDS,
    MIB,
    REPLY,
    SUPPRESS_EMBEDS,
    THREADS,
    WRITTEN,
    ApiError,
    Json,
    Ping,
    Session,
    invalid,
)
from tests.servers.discord.uploads import Upload, describe

HOUR_MS = 3_600_000


class Messages(Gateway):
    """What is written, and who hears of it."""

    # ------------------------------------------------------------------ telling the bot
    def _tell(self, event: str, msg: Json) -> None:
        """Send a message event; private answers and channels that the bot cannot see send none."""
        if msg["flags"] & EPHEMERAL:
            self._notify()
            return
        self._tell_of(msg["channel_id"], event, lambda s: self._event_json(msg, s.intents))

    def _tell_of(
        self, cid: str, event: str, build: Any, intents: tuple[int, int] = (GUILD_MESSAGES, DIRECT_MESSAGES)
    ) -> None:
        """Send an event of a channel, with the intent that it needs in guilds and in direct messages."""
        channel = self.channels.get(cid, {})
        guild = channel.get("guild_id")
        if guild is None or self.allows(cid, "VIEW_CHANNEL"):
            self._dispatch(event, build, intents[guild is None], guild=guild)
        self._notify()

    def _tell_thread(self, event: str, channel: Json, **extra: Any) -> None:
        """Send a thread or channel event to those who can see it."""

        def build(s: Session) -> Json:
            return self._channel_json(channel) | extra

        if self.allows(channel["id"], "VIEW_CHANNEL"):
            self._dispatch(event, build, GUILDS, guild=channel["guild_id"])
        self._notify()

    # ------------------------------------------------------------------ creating
    def _store(
        self,
        cid: str,
        author: str,
        body: Json,
        uploads: list[Upload],
        *,
        via: str,
        webhook: bool = False,
        flags: int = 0,
        kind: int = DEFAULT,
        private_to: str | None = None,
        **extra: Any,
    ) -> Json:
        """Make a message of a body that has been checked, keep it and note whom it pings. Tells nobody."""
        channel = self._channel(cid)
        msg: Json = {
            "id": str(extra.pop("id", None) or self.snowflake()), "channel_id": cid, "author": self.users[author],
            "content": pings.clean(str(body.get("content") or "")), "timestamp": self.now(), "edited_timestamp": None,
            "tts": bool(body.get("tts")), "mention_everyone": False, "mentions": [], "mention_roles": [],
            "attachments": [], "embeds": body.get("embeds") or [], "pinned": False, "type": kind, "flags": flags,
            "components": body.get("components") or [], **extra,
        }  # fmt: skip
        if body.get("nonce") is not None and not webhook:
            msg["nonce"] = body["nonce"]
        self._attach(msg, body, uploads)
        if reference := body.get("message_reference"):
            self._refer(msg, reference)
        rules.check_content(msg)
        self._mention(msg, body.get("allowed_mentions"), via=via, webhook=webhook)
        if private_to is not None and flags & EPHEMERAL:
            self._private[msg["id"]] = private_to
        self._messages[cid][msg["id"]] = msg
        channel["last_message_id"] = msg["id"]
        if "message_count" in channel:
            channel["message_count"] += 1
            channel["total_message_sent"] += 1
        return msg

    def _attach(self, msg: Json, body: Json, uploads: list[Upload]) -> None:
        for upload in uploads:
            aid = self.snowflake()
            self.blobs[aid] = upload.blob
            msg["attachments"].append(describe(upload, body.get("attachments") or [], aid))

    def _refer(self, msg: Json, reference: Json) -> None:
        """docs.discord.com/developers/resources/message#message-reference-structure."""
        if reference.get("type"):
            self.violations.append("message_reference: forwards are not served")
        if str(reference.get("channel_id") or msg["channel_id"]) != msg["channel_id"]:
            raise invalid("message_reference", "REPLIES_CANNOT_REPLY_TO_OTHER_CHANNEL", "Cannot reply across channels")
        mid = str(reference.get("message_id"))
        target = self._messages[msg["channel_id"]].get(mid)
        if target is not None and target["flags"] & EPHEMERAL:
            target = None
        if target is None:
            if reference.get("fail_if_not_exists", True):
                raise invalid("message_reference", "MESSAGE_REFERENCE_UNKNOWN_MESSAGE", "Unknown message")
            return
        if target["type"] not in WRITTEN:
            raise invalid("message_reference", "REPLIES_CANNOT_REPLY_TO_SYSTEM_MESSAGE", "Cannot reply to that")
        made = {"type": 0, "channel_id": msg["channel_id"], "message_id": mid}
        if "guild_id" in self.channels[msg["channel_id"]]:
            made["guild_id"] = self.channels[msg["channel_id"]]["guild_id"]
        msg |= {"type": REPLY, "message_reference": made, "referenced_message": target}

    def _mention(self, msg: Json, allowed: Json | None, *, via: str, webhook: bool) -> None:
        """Fill in the mentions of a message, and note in the ledger whom a message of the bot pings."""
        channel, author = self.channels[msg["channel_id"]], msg["author"]["id"]
        guild = self.guilds.get(channel.get("guild_id", ""))
        loud = permissions.has(self.permissions_of(author, channel["id"]), "MENTION_EVERYONE")
        loud_roles = {rid for rid, role in guild.roles.items() if role["mentionable"]} if guild else set()
        texts = (pings.clean(text) for text in (msg["content"], *components.texts_of(msg["components"])))
        found = pings.find(texts, allowed, webhook=webhook, loud=loud, loud_roles=loud_roles)
        users = list(found.users)
        target = msg.get("referenced_message")
        if target and (allowed is None or allowed.get("replied_user", False)) and target["author"]["id"] not in users:
            users.append(target["author"]["id"])
        known = guild.members if guild else self.users
        msg["mentions"] = [self.users[uid] for uid in users if uid in known]
        msg["mention_roles"] = [rid for rid in found.roles if guild and rid in guild.roles]
        msg["mention_everyone"] = bool(found.everyone)
        if author == self.bot_id:
            others = frozenset(users) - {self.bot_id}
            self.ledger.append(
                Ping(msg["id"], channel["id"], via, others, frozenset(found.roles), frozenset(found.everyone))
            )

    # ------------------------------------------------------------------ as the bot, through the channel
    def _check_uploads(self, channel: Json, uploads: list[Upload], kept: int = 0) -> None:
        """Refuse too many files, and any above the guild's limit: the text is refused with them."""
        if len(uploads) + kept > rules.ATTACHMENTS_MAX:
            raise ApiError(400, 30015, "Maximum number of attachments in a message reached (10)")
        limit = self.guilds[channel["guild_id"]].file_limit if "guild_id" in channel else 10 * MIB
        if any(len(each.blob) > limit for each in uploads):
            raise ApiError(413, 40005, "Request entity too large")

    def _check_open(self, channel: Json, *, writing: bool) -> None:
        """Refuse what locked and archived threads refuse: docs.discord.com/developers/topics/threads#locked-threads.

        Writing opens an archived thread. The HTTP status of 160005 and 50083 is UNDOCUMENTED.
        """
        meta = channel.get("thread_metadata")
        if meta is None or (not writing and not meta["archived"] and not meta["locked"]):
            return
        if meta["locked"] and not self.allows(channel["id"], "MANAGE_THREADS"):
            raise ApiError(400, 160005 if writing or not meta["archived"] else 50083, "Thread is locked")
        if meta["archived"] and not writing:
            raise ApiError(400, 50083, "Thread is archived")

    def _check_writer(self, channel: Json, body: Json, uploads: list[Upload]) -> None:
        """The permissions that a message needs: docs.discord.com/developers/resources/message#create-message."""
        self._need(channel)
        if channel["type"] in (15, 16):
            raise ApiError(400, 40058, "Cannot send a message in a forum channel")
        if not self.is_place_for_people(channel):
            raise ApiError(400, 50008, "Cannot send messages in a non-text channel")
        self._need(channel, "SEND_MESSAGES_IN_THREADS" if channel["type"] in THREADS else "SEND_MESSAGES")
        if uploads:
            self._need(channel, "ATTACH_FILES")
        if body.get("embeds"):
            self._need(channel, "EMBED_LINKS")  # UNDOCUMENTED whether it is refused or the embed dropped
        if body.get("tts"):
            self._need(channel, "SEND_TTS_MESSAGES")
        if (
            body.get("message_reference")
            and channel["type"] != DM
            and not self.allows(channel["id"], "READ_MESSAGE_HISTORY")
        ):
            raise ApiError(403, 160002, "Cannot reply without permission to read message history")

    def _create(self, cid: str, body: Json, uploads: list[Upload]) -> Json:
        """Create a message as the bot, once for each enforced nonce."""
        channel = self._channel(cid)
        self._check_writer(channel, body, uploads)
        self._check_open(channel, writing=True)
        rules.check_message(body)
        nonce = rules.check_nonce(body)
        self._check_uploads(channel, uploads)
        if nonce and body.get("enforce_nonce") and (old := self._known_nonce(cid, nonce)) is not None:
            return old
        flags = int(body.get("flags") or 0)
        if flags & EPHEMERAL:
            self.violations.append("a message was to be private, but channels know no private messages")
        msg = self._store(cid, self.bot_id, body, uploads, via="create", flags=flags & rules.CREATE_FLAGS)
        if nonce:
            self._nonces[self.bot_id, nonce] = (cid, msg["id"], self.clock.now())
        self._unarchive(channel)
        self._tell("MESSAGE_CREATE", msg)
        return msg

    def _known_nonce(self, cid: str, nonce: str) -> Json | None:
        """The message that was created with it "in the past few minutes", also if it was deleted since.

        Then 404: github.com/discord/discord-api-docs/pull/6647. How many minutes is UNDOCUMENTED (``nonce_window``).
        """
        place, mid, at = self._nonces.get((self.bot_id, nonce), ("", "", float("-inf")))
        if self.clock.now() - at >= self.nonce_window:
            return None
        if place != cid:
            self.violations.append(f"nonce {nonce} was used in two channels; the second message was not created")
        return self._find(place, mid)

    def _unarchive(self, channel: Json) -> None:
        meta = channel.get("thread_metadata")
        if meta is not None and meta["archived"]:
            meta |= {"archived": False, "archive_timestamp": self.now()}
            self._tell_thread("THREAD_UPDATE", channel)

    # ------------------------------------------------------------------ editing and deleting
    def _edit(self, msg: Json, body: Json, uploads: list[Upload], *, via: str, webhook: bool = False) -> Json:
        """Change a message by a body in which every field is optional and may be null."""
        merged = {"flags": msg["flags"]} | {k: v for k, v in body.items() if k != "flags"}
        rules.check_message(merged | ({"content": msg["content"]} if "content" not in body else {}))
        draft = dict(msg)
        if "content" in body:
            draft["content"] = pings.clean(str(body["content"] or ""))
        for key in ("embeds", "components"):
            if key in body:
                draft[key] = body[key] or []
        if "attachments" in body:
            kept = {str(each.get("id")) for each in body["attachments"] or []}
            draft["attachments"] = [each for each in msg["attachments"] if each["id"] in kept]
        else:
            draft["attachments"] = list(msg["attachments"])
        self._check_uploads(self.channels[msg["channel_id"]], uploads, kept=len(draft["attachments"]))
        self._attach(draft, body, uploads)
        if body.get("flags") is not None:
            draft["flags"] = draft["flags"] & ~SUPPRESS_EMBEDS | int(body["flags"]) & rules.EDIT_FLAGS
        rules.check_content(draft)
        if "content" in body or "components" in body:
            self._mention(draft, body.get("allowed_mentions"), via=via, webhook=webhook)
        draft["edited_timestamp"] = self.now()
        msg.clear()
        msg.update(draft)
        self._tell("MESSAGE_UPDATE", msg)
        return msg

    def _edit_as_bot(self, cid: str, mid: str, body: Json, uploads: list[Upload]) -> Json:
        """docs.discord.com/developers/resources/message#edit-message."""
        channel = self._channel(cid)
        self._need(channel)
        msg = self._public(cid, mid)
        if msg["author"]["id"] != self.bot_id:
            if set(body) != {"flags"}:
                raise ApiError(403, 50005, "Cannot edit a message authored by another user")
            self._need(channel, "MANAGE_MESSAGES")
        if msg["type"] not in WRITTEN:
            raise ApiError(403, 50021, "Cannot execute action on a system message")
        self._check_open(channel, writing=False)
        if int(self.clock.wall() * 1000) - (int(mid) >> 22) - 1_420_070_400_000 > HOUR_MS:
            self.rates.spend_old_edit(cid)
        return self._edit(msg, body, uploads, via="edit")

    def _remove(self, msg: Json) -> None:
        """Take a message away, and tell."""
        cid = msg["channel_id"]
        channel = self.channels[cid]
        del self._messages[cid][msg["id"]]
        if "message_count" in channel:
            channel["message_count"] -= 1
        gone = {"id": msg["id"], "channel_id": cid}
        if "guild_id" in channel:
            gone["guild_id"] = channel["guild_id"]
        if not msg["flags"] & EPHEMERAL:
            self._tell_of(cid, "MESSAGE_DELETE", lambda s: gone)
        self._notify()
