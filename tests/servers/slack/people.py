"""What people in the workspace do: write, edit, delete, react, open pages, press Stop, remove the app."""

from __future__ import annotations

import secrets
from typing import Any

from tests.servers.slack.interactions import Interactions
from tests.servers.slack.model import Copies, Json, SlackError


class People(Interactions):
    """The people of the workspace, as verbs."""

    # ------------------------------------------------------------------ writing
    async def say(
        self,
        text: str,
        *,
        channel: str = "C1OPS",
        user: str = "U1ALICE",
        thread_ts: str | None = None,
        files: dict[str, bytes] | None = None,
        broadcast: bool = False,
        copies: Copies | Json | None = None,
        extra: Json | None = None,
    ) -> str:
        """Post as a human; emits ``message`` and, when the bot is named, ``app_mention`` too.

        ``copies`` multiplies the deliveries; ``extra`` sets raw fields of the message (``subtype``, ``bot_id``);
        ``broadcast`` is "also send to channel" (docs.slack.dev/reference/events/message/thread_broadcast).
        """
        how = Copies(**copies) if isinstance(copies, dict) else copies or self.copies
        content = {"user": user, "text": text, "client_msg_id": secrets.token_hex(8), **(extra or {})}
        msg = self._store(channel, content, thread_ts)
        if broadcast and thread_ts:
            msg |= {"subtype": "thread_broadcast", "root": dict(self.channels[channel].messages[msg["thread_ts"]])}
        for name, blob in (files or {}).items():
            msg.setdefault("files", []).append(self._new_file(name, blob, user))
            msg["subtype"] = "file_share"
        team = self.users.get(user, {}).get("team_id")
        if team not in (None, self.channels[channel].team):
            msg |= {"user_team": team, "source_team": team}
        if how.mention_first:
            self._emit_mention(channel, msg, how)
        self._emit_message(channel, msg, None, how)
        if not how.mention_first:
            self._emit_mention(channel, msg, how)
        await self._notify()
        return str(msg["ts"])

    def _emit_mention(self, channel: str, msg: Json, copies: Copies) -> None:
        named = f"<@{self._space(channel).bot_user}>" in str(msg["text"]) and self.channels[channel].kind != "im"
        if named and "app_mention" in self.subscriptions:
            mention = {k: v for k, v in msg.items() if k != "subtype"} | {"type": "app_mention"}
            event = mention | {"channel": channel, "event_ts": msg["ts"]}
            self._emit(event, channel, copies.mention, same_envelope=copies.same_envelope)

    async def mention(self, text: str, *, channel: str = "C1OPS", **kw: Any) -> str:
        return await self.say(f"<@{self._space(channel).bot_user}> {text}", channel=channel, **kw)

    async def bot_say(self, thread_ts: str | None, text: str, *, channel: str = "C1OPS", **content: Any) -> str:
        """Post as the app itself, beside any running process of it."""
        msg = self._post(channel, {"text": text, **content}, thread_ts)
        await self._notify()
        return str(msg["ts"])

    async def other_bot_says(
        self,
        text: str,
        *,
        channel: str = "C1OPS",
        thread_ts: str | None = None,
        bot_id: str = "B9ALERT",
        bot_user: str = "",
        attachments: list[Json] | None = None,
        blocks: list[Json] | None = None,
    ) -> str:
        """Post as another app: as ``bot_message`` without a user, or with ``bot_user`` as today's apps do.

        docs.slack.dev/reference/events/message/bot_message
        """
        content: Json = {"text": text, "bot_id": bot_id, "bot_profile": {"id": bot_id, "app_id": "A9ALERT"}}
        content |= {"user": bot_user} if bot_user else {"subtype": "bot_message", "username": "alerts"}
        content |= {k: v for k, v in (("attachments", attachments), ("blocks", blocks)) if v}
        msg = self._store(channel, content, thread_ts)
        self._emit_message(channel, msg)
        self._emit_mention(channel, msg, self.copies)
        await self._notify()
        return str(msg["ts"])

    # ------------------------------------------------------------------ changing what was written
    async def edit(self, ts: str, text: str, *, channel: str = "C1OPS", mention: bool = False) -> None:
        """Edit a message; with ``mention`` Slack sends ``app_mention`` again, with ``edited`` (UNDOCUMENTED)."""
        msg = self._find(channel, ts)
        self._edit(channel, msg, {"text": text})
        if mention:
            self._emit_mention(channel, msg, Copies())
        await self._notify()

    async def delete(self, ts: str, *, channel: str = "C1OPS") -> None:
        """Delete a message, one's own or, as an admin, anybody's."""
        self._delete(channel, self._find(channel, ts))
        await self._notify()

    async def unfurl(self, ts: str, attachments: list[Json] | None = None, *, channel: str = "C1OPS") -> None:
        """Slack adds a preview, or recognises the language: ``message_changed`` with the same text, nobody edited."""
        self._edit(channel, self._find(channel, ts), {"attachments": attachments or []}, mark=False)
        await self._notify()

    async def tell_replied(self, thread_ts: str, *, channel: str = "C1OPS") -> None:
        """``message_replied``, which arrives without its subtype.

        docs.slack.dev/reference/events/message/message_replied
        """
        root = self._find(channel, thread_ts)
        stamp = self._ts()
        event = {"type": "message", "message": dict(root), "channel": channel, "ts": stamp, "event_ts": stamp}
        self._emit(event | {"channel_type": self.channels[channel].kind}, channel)

    # ------------------------------------------------------------------ other gestures
    async def react(self, ts: str, name: str, *, channel: str = "C1OPS", user: str = "U1ALICE") -> None:
        self.reactions.add((channel, ts, name, user))
        if "reaction_added" in self.subscriptions:
            item = {"type": "message", "channel": channel, "ts": ts}
            self._emit(
                {
                    "type": "reaction_added",
                    "user": user,
                    "reaction": name,
                    "item": item,
                    "item_user": self._find(channel, ts).get("user"),
                    "event_ts": self._ts(),
                },
                channel,
            )
        await self._notify()

    async def open_home(self, user: str = "U1ALICE", *, tab: str = "home", channel: str = "D1ALICE") -> None:
        """Open the app's Home or Messages tab: docs.slack.dev/reference/events/app_home_opened."""
        if "app_home_opened" in self.subscriptions:
            event: Json = {
                "type": "app_home_opened",
                "user": user,
                "channel": channel,
                "tab": tab,
                "event_ts": self._ts(),
            }
            if view := self.home_view(user):
                event["view"] = view
            self._emit(event, channel)
        await self._notify()

    async def press_stop(self, thread_ts: str, *, channel: str = "C1OPS", user: str = "U1ALICE") -> list[str]:
        """Press Slack's own Stop button of an agent session: docs.slack.dev/reference/events/agent_session_stopped.

        Slack shows the button while the session's status is ``processing`` and the app has subscribed to the event;
        it stops the app's streams of the thread (their ids come back) and leaves the status to the app.
        """
        if self.session(thread_ts, channel=channel).get("status") != "processing":
            raise LookupError("there is no Stop button: the session is not processing")
        if "agent_session_stopped" not in self.subscriptions:
            raise LookupError("there is no Stop button: the app did not subscribe to agent_session_stopped")
        found = self.channels[channel].messages
        stopped = [
            ts for ts, s in self.streams.items() if s["state"] == "in_progress" and found[ts]["thread_ts"] == thread_ts
        ]
        for ts in stopped:
            self.stop_stream_as_user(ts)
        event: Json = {"type": "agent_session_stopped", "channel": channel, "thread_ts": thread_ts, "user": user}
        self._emit(event | {"streaming_message_ts": stopped, "event_ts": self._ts()}, channel)
        await self._notify()
        return stopped

    def stop_stream_as_user(self, ts: str) -> None:
        """The human pressed Stop on a streaming message."""
        self.streams[ts]["state"] = "stopped_by_user"

    def expire_stream(self, ts: str) -> None:
        """Slack ends a stream by itself."""
        self.streams[ts]["state"] = "expired"

    # ------------------------------------------------------------------ removing the app
    async def uninstall(self, team: str = "") -> None:
        """Remove the app from a workspace; the two events come in any order.

        docs.slack.dev/reference/events/app_uninstalled, .../tokens_revoked
        """
        space = self.workspaces[team or self.team_id]
        tokens: Json = {
            "type": "tokens_revoked",
            "tokens": {"oauth": [], "bot": [space.bot_user]},
            "event_ts": self._ts(),
        }
        for event in (tokens, {"type": "app_uninstalled"}):
            if event["type"] in self.subscriptions:
                body = self._event_body({**event, "event_ts": self._ts()}, space)
                self._spawn(self._deliver_copies(body, 1, same_envelope=False))
        space.installed = False
        await self._notify()

    def rotate_token(self, team: str = "") -> str:
        """Give a workspace another bot token, as a reinstallation does; the old one is refused from now on."""
        space = self.workspaces[team or self.team_id]
        space.bot_token = f"xoxb-{secrets.token_hex(8)}"
        return space.bot_token

    def redirect_file(self, fid: str, url: str) -> None:
        """Let the file's address answer with a redirect."""
        if fid not in self.files:
            raise SlackError("file_not_found")
        self.files[fid]["_redirect"] = url
