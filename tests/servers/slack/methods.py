"""The Web API's methods, one ``api_`` function each, and file transfer."""

from __future__ import annotations

import secrets
import time

from aiohttp import web

from tests.servers.slack.model import Json, SlackError
from tests.servers.slack.people import People


class Methods(People):
    """The half of Slack that the app calls."""

    def api_api_test(self, a: Json) -> Json:
        if a.get("error"):
            raise SlackError(str(a["error"]))
        return {"args": a}

    def api_auth_test(self, a: Json) -> Json:
        return {
            "url": f"{self.origin}/",
            "team": "Fake",
            "user": "hermod",
            "team_id": self.team_id,
            "user_id": self.bot_user,
            "bot_id": self.bot_id,
            "is_enterprise_install": False,
        }

    def api_apps_connections_open(self, a: Json) -> Json:
        self._tickets.add(ticket := secrets.token_hex(16))
        return {"url": f"ws://{self.host}:{self.port}/link?ticket={ticket}&app_id={self.app_id}"}

    def api_chat_post_message(self, a: Json) -> Json:
        channel = self._writable(a)
        msg = self._post(channel.id, self._content(a), a.get("thread_ts"), bool(a.get("reply_broadcast")))
        return {"channel": channel.id, "ts": msg["ts"], "message": msg}

    def api_chat_post_ephemeral(self, a: Json) -> Json:
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
        channel, msg = self._own(a, "cant_update_message")
        if self._live_stream(msg["ts"]):
            raise SlackError("streaming_state_conflict")
        if len(str(a.get("text") or "")) > 4000:
            raise SlackError("msg_too_long")
        content = self._content(a)
        self._edit(channel.id, msg, content | ({} if "blocks" in content else {"blocks": []}))
        return {"channel": channel.id, "ts": msg["ts"], "text": msg.get("text", ""), "message": msg}

    def api_chat_delete(self, a: Json) -> Json:
        channel, msg = self._own(a, "cant_delete_message")
        self._delete(channel.id, msg)
        return {"channel": channel.id, "ts": msg["ts"]}

    def api_chat_get_permalink(self, a: Json) -> Json:
        msg = self._find(self._channel(a).id, str(a.get("message_ts")))
        return {
            "channel": a["channel"],
            "permalink": f"{self.origin}/archives/{a['channel']}/p{msg['ts'].replace('.', '')}",
        }

    def api_chat_start_stream(self, a: Json) -> Json:
        channel = self._writable(a)
        if channel.kind != "im":
            for key in ("recipient_user_id", "recipient_team_id"):
                if not a.get(key):
                    raise SlackError(f"missing_{key}")
        if channel.kind == "im" and not a.get("thread_ts"):
            raise SlackError("invalid_arguments")  # UNDOCUMENTED code: unthreaded streams are channels-only
        msg = self._post(channel.id, {"text": ""}, a.get("thread_ts"))
        self.streams[msg["ts"]] = {
            "channel": channel.id,
            "born": time.monotonic(),
            "state": "in_progress",
            "chunks": [],
        }
        self._append(msg, a)
        return {"channel": channel.id, "ts": msg["ts"]}

    def api_chat_append_stream(self, a: Json) -> Json:
        channel, msg = self._streaming(a)
        if not a.get("markdown_text") and not a.get("chunks"):
            raise SlackError("no_text")
        self._append(msg, a)
        return {"channel": channel.id, "ts": msg["ts"]}

    def api_chat_stop_stream(self, a: Json) -> Json:
        channel, msg = self._streaming(a)
        self._append(msg, a)
        if a.get("blocks"):
            self._check_blocks(a["blocks"])
            msg["blocks"] = a["blocks"]
        self.streams[msg["ts"]]["state"] = "completed"
        self._emit_bot_echo(channel.id, msg)
        return {"channel": channel.id, "ts": msg["ts"], "message": msg}

    def api_conversations_info(self, a: Json) -> Json:
        return {"channel": self._describe(self._channel(a))}

    def api_conversations_list(self, a: Json) -> Json:
        kinds = {"public_channel": "channel", "private_channel": "group", "im": "im"}
        wanted = {kinds.get(t.strip()) for t in str(a.get("types") or "public_channel").split(",")}
        return self._page("channels", [self._describe(c) for c in self.channels.values() if c.kind in wanted], a)

    def api_conversations_members(self, a: Json) -> Json:
        return self._page("members", sorted(self._channel(a).members), a)

    def api_conversations_join(self, a: Json) -> Json:
        (channel := self._channel(a)).members.add(self.bot_user)
        return {"channel": self._describe(channel)}

    def api_conversations_open(self, a: Json) -> Json:
        user = str(a.get("users") or "").split(",")[0]
        if user not in self.users:
            raise SlackError("user_not_found")
        for channel in self.channels.values():
            if channel.kind == "im" and user in channel.members:
                return {"channel": {"id": channel.id}}
        self.add_channel(cid := f"D{next(self._seq)}NEW", user, kind="im", members={user})
        return {"channel": {"id": cid}}

    def api_conversations_history(self, a: Json) -> Json:
        top = [m for m in self.messages(self._channel(a).id) if m.get("thread_ts", m["ts"]) == m["ts"]]
        if str(a.get("include_all_metadata", "")).lower() not in ("1", "true"):
            top = [{k: v for k, v in m.items() if k != "metadata"} for m in top]
        return self._page("messages", self._between(top, a)[::-1], a)

    def api_conversations_replies(self, a: Json) -> Json:
        channel, ts = self._channel(a), str(a.get("ts", ""))
        if ts not in channel.messages:
            raise SlackError("thread_not_found")
        root = channel.messages[ts].get("thread_ts", ts)
        thread = self.messages(channel.id, root)
        if str(a.get("include_all_metadata", "")).lower() not in ("1", "true"):
            thread = [{k: v for k, v in m.items() if k != "metadata"} for m in thread]
        return self._page("messages", [thread[0], *self._between(thread[1:], a)], a)

    def api_users_info(self, a: Json) -> Json:
        if str(a.get("user")) not in self.users:
            raise SlackError("user_not_found")
        return {"user": self.users[str(a["user"])]}

    def api_users_list(self, a: Json) -> Json:
        return self._page("members", list(self.users.values()), a)

    def api_reactions_add(self, a: Json) -> Json:
        item = (
            self._channel(a).id,
            str(self._find(str(a["channel"]), str(a.get("timestamp")))["ts"]),
            str(a.get("name")),
            self.bot_user,
        )
        if item in self.reactions:
            raise SlackError("already_reacted")
        self.reactions.add(item)
        return {}

    def api_reactions_remove(self, a: Json) -> Json:
        item = (self._channel(a).id, str(a.get("timestamp")), str(a.get("name")), self.bot_user)
        if item not in self.reactions:
            raise SlackError("no_reaction")
        self.reactions.discard(item)
        return {}

    def api_views_open(self, a: Json) -> Json:
        self._use_trigger(str(a.get("trigger_id", "")))
        return {"view": self._save_view(a.get("view"), None)}

    api_views_push = api_views_open

    def api_views_update(self, a: Json) -> Json:
        vid = a.get("view_id") or next(
            (v["id"] for v in self.views.values() if v.get("external_id") == a.get("external_id")), ""
        )
        if vid not in self.views:
            raise SlackError("not_found")
        if a.get("hash") and a["hash"] != self.views[vid]["hash"]:
            raise SlackError("hash_conflict")
        return {"view": self._save_view(a.get("view"), vid)}

    def api_views_publish(self, a: Json) -> Json:
        return {"view": self._save_view(a.get("view"), f"VHOME{a.get('user_id')}")}

    def api_files_get_upload_url_external(self, a: Json) -> Json:
        if not a.get("filename") or not str(a.get("length", "")).isdigit():
            raise SlackError("invalid_arguments")
        info = self._new_file(str(a["filename"]), b"", self.bot_user)
        info["size"] = int(a["length"])
        self.blobs.pop(info["id"])
        return {"upload_url": f"{self.origin}/upload/{info['id']}", "file_id": info["id"]}

    def api_files_complete_upload_external(self, a: Json) -> Json:
        done = []
        for item in a.get("files") or []:
            if item.get("id") not in self.blobs:
                raise SlackError("file_not_found")
            self.files[item["id"]]["title"] = item.get("title") or self.files[item["id"]]["name"]
            done.append(self.files[item["id"]])
        if not done:
            raise SlackError("invalid_arguments")
        for cid in filter(None, str(a.get("channels") or a.get("channel_id") or "").split(",")):
            self._writable({"channel": cid})
            self._post(cid, {"text": a.get("initial_comment") or "", "files": done}, a.get("thread_ts"))
        return {"files": done}

    def api_files_info(self, a: Json) -> Json:
        if a.get("file") not in self.files:
            raise SlackError("file_not_found")
        return {"file": self.files[a["file"]]}

    def api_assistant_threads_set_status(self, a: Json) -> Json:
        if a.get("channel_id") not in self.channels:
            raise SlackError("channel_not_found")
        if a.get("thread_ts") not in self.channels[a["channel_id"]].messages:
            raise SlackError("invalid_thread_ts")
        self.statuses.append(a)
        return {}

    api_assistant_threads_set_title = api_assistant_threads_set_suggested_prompts = api_assistant_threads_set_status

    # ------------------------------------------------------------------ files
    async def _upload(self, request: web.Request) -> web.Response:
        fid = request.match_info["file"]
        if fid not in self.files:
            return web.Response(status=404)
        if request.content_type.startswith("multipart/"):
            blob = b"".join(
                [
                    v.file.read() if isinstance(v, web.FileField) else str(v).encode()
                    for v in (await request.post()).values()
                ]
            )
        else:
            blob = await request.read()
        if len(blob) != self.files[fid]["size"]:
            self.violations.append(f"file {fid}: declared {self.files[fid]['size']} bytes, sent {len(blob)}")
        self.blobs[fid] = blob
        return web.Response(text=f"OK - {len(blob)}")

    async def _download(self, request: web.Request) -> web.Response:
        """Needs the bot token; without it Slack serves a login page, not an error."""
        if request.headers.get("Authorization") != f"Bearer {self.bot_token}":
            return web.Response(text="<html>sign in</html>", content_type="text/html")
        blob = self.blobs.get(request.match_info["file"])
        return web.Response(status=404) if blob is None else web.Response(body=blob)
