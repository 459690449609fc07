"""The Web API's methods, one ``api_`` function each. A method's page is docs.slack.dev/reference/methods/<name>."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

from tests.servers.slack.agents import Agents
from tests.servers.slack.blocks import VIEW_BLOCKS, check_blocks
from tests.servers.slack.model import Json, SlackError, Workspace

UPDATE_BYTES = 4000
"""Of the ``text`` of chat.update. Its page says characters; apps that measured it met UTF-8 bytes."""


class Methods(Agents):
    """The half of Slack that the app calls."""

    def api_api_test(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/api.test"""
        if a.get("error"):
            raise SlackError(str(a["error"]))
        return {"args": a}

    def api_auth_test(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/auth.test"""
        space = self.acting
        answer: Json = {
            "url": f"{self.origin}/",
            "team": space.name,
            "user": "hermod",
            "team_id": space.id,
            "user_id": space.bot_user,
            "bot_id": space.bot_id,
            "is_enterprise_install": False,
        }
        return answer | ({"enterprise_id": space.enterprise_id} if space.enterprise_id else {})

    def api_auth_revoke(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/auth.revoke"""
        if str(a.get("test", "")).lower() in ("1", "true"):
            return {"revoked": False}
        self.acting.installed = False
        return {"revoked": True}

    def api_apps_connections_open(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/apps.connections.open"""
        self._tickets.add(ticket := secrets.token_hex(16))
        return {"url": f"ws://{self.host}:{self.port}/link?ticket={ticket}&app_id={self.app_id}"}

    # ------------------------------------------------------------------ chat
    def api_chat_post_message(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/chat.postMessage"""
        channel = self._writable(a)
        msg = self._post(channel.id, self._content(a), a.get("thread_ts"), bool(a.get("reply_broadcast")))
        return {"channel": channel.id, "ts": msg["ts"], "message": msg}

    def api_chat_post_ephemeral(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/chat.postEphemeral"""
        channel = self._writable(a)
        if str(a.get("user")) not in channel.members:
            raise SlackError("user_not_in_channel")
        shown = {
            "channel": channel.id,
            "user": a["user"],
            "ts": self._ts(),
            "thread_ts": a.get("thread_ts"),
            **self._content(a),
        }
        self.ephemerals.append(shown)
        return {"message_ts": shown["ts"]}

    def api_chat_update(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/chat.update: a text without blocks removes the old blocks."""
        channel, msg = self._own(a, "cant_update_message")
        if self._live_stream(msg["ts"]):
            raise SlackError("streaming_state_conflict")
        if len(str(a.get("text") or "").encode()) > UPDATE_BYTES:
            raise SlackError("msg_too_long")
        content = self._content(a)
        self._edit(channel.id, msg, content | ({} if "blocks" in content else {"blocks": []}))
        return {"channel": channel.id, "ts": msg["ts"], "text": msg.get("text", ""), "message": msg}

    def api_chat_delete(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/chat.delete"""
        channel, msg = self._own(a, "cant_delete_message")
        self._delete(channel.id, msg)
        return {"channel": channel.id, "ts": msg["ts"]}

    def api_chat_get_permalink(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/chat.getPermalink"""
        msg = self._find(self._channel(a).id, str(a.get("message_ts")))
        return {
            "channel": a["channel"],
            "permalink": f"{self.origin}/archives/{a['channel']}/p{msg['ts'].replace('.', '')}",
        }

    # ------------------------------------------------------------------ conversations and users
    def api_conversations_info(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/conversations.info: what is private is shown to its members only."""
        channel = self._channel(a)
        if channel.kind != "channel" and self.acting.bot_user not in channel.members:
            raise SlackError("channel_not_found")
        return {"channel": self._describe(channel)}

    def api_conversations_list(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/conversations.list"""
        kinds = {"public_channel": "channel", "private_channel": "group", "im": "im", "mpim": "mpim"}
        wanted = {kinds.get(t.strip()) for t in str(a.get("types") or "public_channel").split(",")}
        if None in wanted:
            raise SlackError("invalid_types")
        ours = [c for c in self.channels.values() if c.team == self.acting.id and c.kind in wanted]
        return self._page("channels", [self._describe(c) for c in ours], a)

    def api_conversations_members(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/conversations.members"""
        return self._page("members", sorted(self._channel(a).members), a)

    def api_conversations_join(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/conversations.join"""
        channel = self._channel(a)
        if channel.kind != "channel":
            raise SlackError("method_not_supported_for_channel_type")
        channel.members.add(self.acting.bot_user)
        return {"channel": self._describe(channel)}

    def api_conversations_open(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/conversations.open"""
        user = str(a.get("users") or "").split(",")[0]
        if user not in self.users:
            raise SlackError("user_not_found")
        for channel in self.channels.values():
            if channel.kind == "im" and channel.team == self.acting.id and user in channel.members:
                return {"channel": {"id": channel.id}}
        self.add_channel(cid := f"D{next(self._seq)}NEW", user, kind="im", members={user}, team=self.acting.id)
        return {"channel": {"id": cid}}

    def api_conversations_history(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/conversations.history: newest first."""
        top = [m for m in self.messages(self._readable(a)) if m.get("thread_ts", m["ts"]) == m["ts"]]
        return self._page("messages", self._between(self._with_metadata(top, a), a)[::-1], a, self.max_page)

    def api_conversations_replies(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/conversations.replies: oldest first, the root before all."""
        channel, ts = self._readable(a), str(a.get("ts", ""))
        if ts not in self.channels[channel].messages:
            raise SlackError("thread_not_found")
        root = self.channels[channel].messages[ts].get("thread_ts", ts)
        thread = self._with_metadata(self.messages(channel, root), a)
        return self._page("messages", [thread[0], *self._between(thread[1:], a)], a, self.max_page)

    def _readable(self, a: Json) -> str:
        channel = self._channel(a)
        if self.acting.bot_user not in channel.members:
            raise SlackError("not_in_channel")
        return channel.id

    @staticmethod
    def _with_metadata(messages: list[Json], a: Json) -> list[Json]:
        if str(a.get("include_all_metadata", "")).lower() in ("1", "true"):
            return messages
        return [{k: v for k, v in m.items() if k != "metadata"} for m in messages]

    def api_users_info(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/users.info"""
        if str(a.get("user")) not in self.users:
            raise SlackError("user_not_found")
        return {"user": self.users[str(a["user"])]}

    def api_users_list(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/users.list"""
        return self._page("members", list(self.users.values()), a)

    # ------------------------------------------------------------------ reactions
    def api_reactions_add(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/reactions.add"""
        item = self._reaction(a)
        if item in self.reactions:
            raise SlackError("already_reacted")
        self.reactions.add(item)
        return {}

    def api_reactions_remove(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/reactions.remove"""
        item = self._reaction(a)
        if item not in self.reactions:
            raise SlackError("no_reaction")
        self.reactions.discard(item)
        return {}

    def _reaction(self, a: Json) -> tuple[str, str, str, str]:
        name = str(a.get("name") or "")
        if not re.fullmatch(r"[a-z0-9_+'-]+(::[a-z0-9-]+)?", name):
            raise SlackError("invalid_name")
        message = self._find(self._readable(a), str(a.get("timestamp")))
        return self._channel(a).id, str(message["ts"]), name, self.acting.bot_user

    # ------------------------------------------------------------------ views
    def api_views_open(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/views.open"""
        self._use_trigger(str(a.get("trigger_id", "")))
        return {"view": self._save_view(a.get("view"), None)}

    api_views_push = api_views_open

    def api_views_update(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/views.update"""
        vid = a.get("view_id") or next(
            (v["id"] for v in self.views.values() if v.get("external_id") == a.get("external_id")), ""
        )
        if vid not in self.views:
            raise SlackError("not_found")
        if a.get("hash") and a["hash"] != self.views[vid]["hash"]:
            raise SlackError("hash_conflict")
        return {"view": self._save_view(a.get("view"), vid)}

    def api_views_publish(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/views.publish"""
        user = str(a.get("user_id") or "")
        if user not in self.users:
            raise SlackError("user_not_found")
        if not isinstance(a.get("view"), dict) or a["view"].get("type") != "home":
            raise SlackError("invalid_arguments", response_metadata={"messages": ["[ERROR] view must be of type home"]})
        if a.get("hash") and a["hash"] != self.views.get(f"VHOME{user}", {}).get("hash"):
            raise SlackError("hash_conflict")
        return {"view": self._save_view(a["view"], f"VHOME{user}")}

    def _save_view(self, view: Any, view_id: str | None) -> Json:
        if not isinstance(view, dict) or view.get("type") not in ("modal", "home"):
            raise SlackError("invalid_arguments", response_metadata={"messages": ["[ERROR] view"]})
        if len(json.dumps(view)) > 250_000:
            raise SlackError("view_too_large")
        check_blocks(view.get("blocks", []), most=VIEW_BLOCKS)
        vid = view_id or f"V{next(self._seq):08d}"
        self.views[vid] = {
            "private_metadata": "",
            "callback_id": "",
            "external_id": "",
            **view,
            "id": vid,
            "root_view_id": vid,
            "team_id": self.acting.id,
            "app_id": self.app_id,
            "bot_id": self.acting.bot_id,
            "hash": secrets.token_hex(6),
            "state": {"values": {}},
        }
        return self.views[vid]

    def _token_owner(self, token: str) -> Workspace | None:
        return next((space for space in self.workspaces.values() if space.bot_token == token), None)
