"""Slash commands, buttons, shortcuts, modals, and the addresses that answer them."""

from __future__ import annotations

import secrets
from typing import Any

from aiohttp import web

from tests.servers.slack.model import Json, Outcome, SlackError
from tests.servers.slack.sockets import SocketMode

RESPONSE_USES, RESPONSE_TTL_S = 5, 1800.0
"""Of a response_url: docs.slack.dev/interactivity/handling-user-interaction#message_responses."""


class Interactions(SocketMode):
    """What people start, and what they are shown at once. Slack never delivers these again."""

    async def slash(self, command: str, text: str = "", *, channel: str = "C1OPS", user: str = "U1ALICE") -> Outcome:
        """Invoke a slash command and wait for its acknowledgement.

        docs.slack.dev/interactivity/implementing-slash-commands
        """
        out = self._outcome(channel, None)
        space = self._space(channel)
        body = {
            "token": "fake-verification",
            "team_id": space.id,
            "team_domain": space.name.lower(),
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
        if space.enterprise_id:
            body |= {"enterprise_id": space.enterprise_id, "enterprise_name": "Fake Org"}
        return await self._interact("slash_commands", body, out, channel, None)

    async def click(
        self, ts: str, action_id: str, *, channel: str = "C1OPS", user: str = "U1ALICE", **over: Any
    ) -> Outcome:
        """Press a button (or other element) of a posted message; ``over`` overrides action fields.

        For feedback buttons ``positive=True`` or ``False`` chooses the thumb.
        docs.slack.dev/reference/interaction-payloads/block_actions-payload
        """
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
        if element["type"] == "feedback_buttons":
            element = element | element["positive_button" if over.pop("positive", True) else "negative_button"]
        out = self._outcome(channel, ts)
        action = {
            **{k: element[k] for k in ("type", "action_id", "text", "value", "style") if k in element},
            "block_id": block.get("block_id", "auto"),
            "action_ts": self._ts(),
            **over,
        }
        body = self._interaction("block_actions", user, out, self._space(channel).id) | {
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
        """docs.slack.dev/reference/interaction-payloads/shortcuts-interaction-payload"""
        out = self._outcome(channel, None)
        body = self._interaction("message_action", user, out, self._space(channel).id) | {
            "callback_id": callback_id,
            "channel": {"id": channel, "name": self.channels[channel].name},
            "message": {"type": "message", **self._find(channel, ts)},
            "message_ts": ts,
            "action_ts": self._ts(),
            "response_url": out.response_url,
        }
        return await self._interact("interactive", body, out, channel, None)

    async def submit_view(self, view_id: str, values: Json, *, user: str = "U1ALICE") -> Outcome:
        """Submit an open modal; ``values`` is ``{block_id: {action_id: {...}}}``.

        docs.slack.dev/reference/interaction-payloads/view-interactions-payload
        """
        out = self._outcome("", None)
        view = self.views[view_id] | {"state": {"values": values}}
        body = self._interaction("view_submission", user, out, self.team_id) | {"view": view, "response_urls": []}
        result = await self._interact("interactive", body, out, "", None)
        action = (result.ack or {}).get("response_action")
        if action in ("update", "push"):
            self._save_view((result.ack or {})["view"], view_id if action == "update" else None)
        elif action != "errors" and not result.error:
            self.views.pop(view_id, None)
        return result

    async def click_home(self, action_id: str, *, user: str = "U1ALICE", **over: Any) -> Outcome:
        """Press a button on the app's Home tab."""
        view = self.home_view(user)
        parts = [(b, e) for b in view.get("blocks", []) for e in [*b.get("elements", []), b.get("accessory")] if e]
        found = [(b, e) for b, e in parts if e.get("action_id") == action_id]
        if not found:
            raise LookupError(f"no element {action_id!r} on the Home tab of {user}")
        block, element = found[0]
        out = self._outcome("", None)
        action = {k: element[k] for k in ("type", "action_id", "text", "value", "style") if k in element}
        action |= {"block_id": block.get("block_id", "auto"), "action_ts": self._ts(), **over}
        body = self._interaction("block_actions", user, out, self.users[user]["team_id"]) | {
            "container": {"type": "view", "view_id": view["id"]},
            "view": view,
            "actions": [action],
        }
        return await self._interact("interactive", body, out, "", None)

    def _save_view(self, view: Any, view_id: str | None) -> Json:
        raise NotImplementedError

    # ------------------------------------------------------------------ the way to the app and back
    async def _interact(self, kind: str, body: Json, out: Outcome, channel: str, thread: str | None) -> Outcome:
        d = await self._deliver(kind, body)
        out.ack = d.ack
        if d.error:
            out.error = {
                "timeout": "operation_timeout",
                "http_timeout": "operation_timeout",
                "connection_failed": "dispatch_failed",
            }.get(d.error, d.error)
        elif kind == "slash_commands" and d.ack:
            self._show(d.ack, channel, thread)
        return out

    def _interaction(self, kind: str, user: str, out: Outcome, team: str) -> Json:
        space = self.workspaces[team]
        org = {"id": space.enterprise_id, "name": "Fake Org"} if space.enterprise_id else None
        return {
            "type": kind,
            "token": "fake-verification",
            "team": {"id": space.id, "domain": space.name.lower()},
            "user": {
                "id": user,
                "username": self.users[user]["name"],
                "name": self.users[user]["name"],
                "team_id": self.users[user]["team_id"],
            },
            "api_app_id": self.app_id,
            "trigger_id": out.trigger_id,
            "enterprise": org,
            "is_enterprise_install": False,
        }

    def _outcome(self, channel: str, ts: str | None) -> Outcome:
        trigger = f"{next(self._seq)}.{next(self._seq)}.{secrets.token_hex(8)}"
        self._triggers[trigger] = self.clock.now()
        key = secrets.token_hex(12)
        out = self._outcomes[trigger] = Outcome(trigger, f"{self.origin}/respond/{key}")
        self._response_urls[key] = (out, self.clock.now(), channel, ts)
        return out

    def _show(self, body: Json, channel: str, thread: str | None) -> None:
        """Render an ack payload or response_url post; ephemeral unless in_channel."""
        if body.get("response_type") == "in_channel":
            self._post(
                channel,
                {k: body[k] for k in ("text", "blocks", "attachments") if k in body},
                body.get("thread_ts") or thread,
            )
        else:
            self.ephemerals.append({"channel": channel, "ts": self._ts(), **body})

    async def _respond(self, request: web.Request) -> web.Response:
        """At most five uses within thirty minutes; it knows no thread of its own."""
        entry = self._response_urls.get(request.match_info["key"])
        if entry is None:
            return web.json_response({"ok": False, "error": "invalid_url"}, status=404)
        out, born, channel, ts = entry
        if self.clock.now() - born > RESPONSE_TTL_S:
            return web.json_response({"ok": False, "error": "expired_url"}, status=404)
        if len(out.responses) >= RESPONSE_USES:
            return web.json_response({"ok": False, "error": "used_url"}, status=404)
        body = await request.json()
        out.responses.append(body)
        try:
            if ts and body.get("delete_original"):
                self._delete(channel, self._find(channel, ts))
            elif ts and body.get("replace_original"):
                self._edit(channel, self._find(channel, ts), {k: body[k] for k in ("text", "blocks") if k in body})
            else:
                self.acting = self._space(channel)
                self._content(body)
                self._show(body, channel, None)
        except SlackError as e:
            return web.json_response({"ok": False, "error": e.code}, status=404)
        await self._notify()
        return web.Response(text="ok")

    def _use_trigger(self, trigger: str) -> None:
        if trigger not in self._outcomes:
            raise SlackError("invalid_trigger_id")
        born = self._triggers.pop(trigger, None)
        if born is None:
            raise SlackError("exchanged_trigger_id")
        if self.clock.now() - born > self.trigger_ttl:
            raise SlackError("expired_trigger_id")
