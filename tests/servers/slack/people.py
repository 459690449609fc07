"""What people in the workspace do: write, edit, react, run commands, press buttons."""

from __future__ import annotations

import secrets
from typing import Any

from tests.servers.slack.delivery import Deliveries
from tests.servers.slack.model import Copies, Json, Outcome


class People(Deliveries):
    """The people of the workspace, as verbs."""

    # ------------------------------------------------------------------ what humans do
    async def say(
        self,
        text: str,
        *,
        channel: str = "C1OPS",
        user: str = "U1ALICE",
        thread_ts: str | None = None,
        files: dict[str, bytes] | None = None,
        copies: Copies | Json | None = None,
        extra: Json | None = None,
    ) -> str:
        """Post as a human; emits ``message`` and, when the bot is named, ``app_mention`` too.

        ``copies`` multiplies the deliveries; ``extra`` sets raw fields of the message (``subtype``, ``bot_id``).
        """
        how = Copies(**copies) if isinstance(copies, dict) else copies or self.copies
        content = {"user": user, "text": text, "client_msg_id": secrets.token_hex(8), **(extra or {})}
        msg = self._store(channel, content, thread_ts)
        for name, blob in (files or {}).items():
            msg.setdefault("files", []).append(self._new_file(name, blob, user))
            msg["subtype"] = "file_share"
        if (team := self.users.get(user, {}).get("team_id", self.team_id)) != self.team_id:
            msg |= {"user_team": team, "source_team": team}
        if how.mention_first:
            self._emit_mention(channel, msg, how)
        self._emit_message(channel, msg, None, how)
        if not how.mention_first:
            self._emit_mention(channel, msg, how)
        await self._notify()
        return str(msg["ts"])

    def _emit_mention(self, channel: str, msg: Json, copies: Copies) -> None:
        named = f"<@{self.bot_user}>" in str(msg["text"]) and self.channels[channel].kind != "im"
        if named and "app_mention" in self.subscriptions:
            mention = {k: v for k, v in msg.items() if k != "subtype"} | {"type": "app_mention"}
            event = mention | {"channel": channel, "event_ts": msg["ts"]}
            self._emit(event, channel, copies.mention, same_envelope=copies.same_envelope)

    async def mention(self, text: str, **kw: Any) -> str:
        return await self.say(f"<@{self.bot_user}> {text}", **kw)

    async def bot_say(self, thread_ts: str | None, text: str, *, channel: str = "C1OPS", **content: Any) -> str:
        """Post as the app itself, beside any running process of it."""
        msg = self._post(channel, {"text": text, **content}, thread_ts)
        await self._notify()
        return str(msg["ts"])

    async def edit(self, ts: str, text: str, *, channel: str = "C1OPS") -> None:
        self._edit(channel, self._find(channel, ts), {"text": text})
        await self._notify()

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

    async def slash(self, command: str, text: str = "", *, channel: str = "C1OPS", user: str = "U1ALICE") -> Outcome:
        """Invoke a slash command and wait for its acknowledgement (Slack never retries these)."""
        out = self._outcome(channel, None)
        body = {
            "token": "fake-verification",
            "team_id": self.team_id,
            "team_domain": "fake",
            "channel_id": channel,
            "channel_name": self.channels[channel].name,
            "user_id": user,
            "user_name": self.users[user]["name"],
            "command": command,
            "text": text,
            "api_app_id": self.app_id,
            "is_enterprise_install": "false",
            "response_url": out.response_url,
            "trigger_id": out.trigger_id,
        }
        return await self._interact("slash_commands", body, out, channel, None)

    async def click(
        self, ts: str, action_id: str, *, channel: str = "C1OPS", user: str = "U1ALICE", **over: Any
    ) -> Outcome:
        """Press a button (or other element) of a posted message; ``over`` overrides action fields."""
        msg = self._find(channel, ts)
        found = [
            (b, e)
            for b in msg.get("blocks", [])
            for e in [*b.get("elements", []), b.get("accessory")]
            if isinstance(e, dict) and e.get("action_id") == action_id
        ]
        if not found:
            raise LookupError(f"no element {action_id!r} in message {ts}")
        block, element = found[0]
        out = self._outcome(channel, ts)
        action = {
            **{k: element[k] for k in ("type", "action_id", "text", "value", "style") if k in element},
            "block_id": block.get("block_id", "auto"),
            "action_ts": self._ts(),
            **over,
        }
        body = self._interaction("block_actions", user, out) | {
            "container": {
                "type": "message",
                "message_ts": ts,
                "channel_id": channel,
                "is_ephemeral": False,
                **({"thread_ts": msg["thread_ts"]} if "thread_ts" in msg else {}),
            },
            "channel": {"id": channel, "name": self.channels[channel].name},
            "message": {"type": "message", **msg},
            "state": {"values": {}},
            "response_url": out.response_url,
            "actions": [action],
        }
        return await self._interact("interactive", body, out, channel, msg.get("thread_ts"))

    async def message_shortcut(
        self, ts: str, callback_id: str, *, channel: str = "C1OPS", user: str = "U1ALICE"
    ) -> Outcome:
        out = self._outcome(channel, None)
        body = self._interaction("message_action", user, out) | {
            "callback_id": callback_id,
            "channel": {"id": channel, "name": self.channels[channel].name},
            "message": {"type": "message", **self._find(channel, ts)},
            "message_ts": ts,
            "action_ts": self._ts(),
            "response_url": out.response_url,
        }
        return await self._interact("interactive", body, out, channel, None)

    async def submit_view(self, view_id: str, values: Json, *, user: str = "U1ALICE") -> Outcome:
        """Submit an open modal; ``values`` is ``{block_id: {action_id: {...}}}``."""
        out = self._outcome("", None)
        view = self.views[view_id] | {"state": {"values": values}}
        body = self._interaction("view_submission", user, out) | {"view": view, "response_urls": []}
        result = await self._interact("interactive", body, out, "", None)
        action = (result.ack or {}).get("response_action")
        if action in ("update", "push"):
            self._save_view((result.ack or {})["view"], view_id if action == "update" else None)
        elif action != "errors" and not result.error:
            self.views.pop(view_id, None)
        return result
