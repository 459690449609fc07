"""What holds for messages whichever method or person makes them: places, content, threads, edits, files."""

from __future__ import annotations

import json
from typing import Any

from tests.servers.slack.blocks import check_blocks
from tests.servers.slack.model import Channel, Json, SlackError
from tests.servers.slack.world import World

TEXT_CUT, MARKDOWN_MAX, METADATA_MAX = 40_000, 12_000, 4096


class Rules(World):
    """The rules of messages."""

    def _emit_message(self, channel: str, msg: Json, extra: Json | None = None, copies: Any = None) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------------ places
    def _channel(self, a: Json, key: str = "channel") -> Channel:
        name = str(a.get(key) or "")
        for channel in self.channels.values():
            if channel.team == self.acting.id and name in (channel.id, f"#{channel.name}", channel.name):
                return channel
        raise SlackError("channel_not_found")

    def _writable(self, a: Json) -> Channel:
        channel = self._channel(a)
        if channel.archived:
            raise SlackError("is_archived")
        if self.acting.bot_user not in channel.members:
            raise SlackError("not_in_channel")
        return channel

    def _find(self, channel: str, ts: str) -> Json:
        try:
            return self.channels[channel].messages[ts]
        except KeyError:
            raise SlackError("message_not_found") from None

    def _own(self, a: Json, denied: str) -> tuple[Channel, Json]:
        channel = self._channel(a)
        msg = self._find(channel.id, str(a.get("ts")))
        if msg.get("user") != self.acting.bot_user:
            raise SlackError(denied)
        return channel, msg

    # ------------------------------------------------------------------ content
    def _content(self, a: Json) -> Json:
        """What a message may hold: docs.slack.dev/reference/methods/chat.postMessage."""
        names = ("text", "blocks", "attachments", "metadata", "username", "icon_emoji", "link_names", "parse")
        out = {k: a[k] for k in names if a.get(k)}
        if a.get("markdown_text"):
            if a.get("text") or a.get("blocks"):
                raise SlackError("markdown_text_conflict")
            if len(str(a["markdown_text"])) > MARKDOWN_MAX:
                raise SlackError("msg_too_long")
            out["text"] = a["markdown_text"]
        if not any(k in out for k in ("text", "blocks", "attachments")):
            raise SlackError("no_text")
        check_blocks(out.get("blocks", []))
        self._check_metadata(out)
        if len(str(out.get("text", ""))) > TEXT_CUT:
            out["text"] = out["text"][:TEXT_CUT]
        return out

    @staticmethod
    def _check_metadata(content: Json) -> None:
        metadata = content.get("metadata")
        if metadata is None:
            return
        if not isinstance(metadata, dict) or not metadata.get("event_type") or "event_payload" not in metadata:
            raise SlackError("invalid_metadata_schema")
        if len(json.dumps(metadata)) > METADATA_MAX:
            raise SlackError("metadata_too_large")

    # ------------------------------------------------------------------ writing
    def _store(self, channel: str, content: Json, thread_ts: Any) -> Json:
        msg: Json = {"type": "message", "ts": self._ts(), "team": self.channels[channel].team, **content}
        if thread_ts == "":
            raise SlackError("invalid_thread_ts")  # UNDOCUMENTED, met by vercel/chat issue 292
        if thread_ts:
            root = self.channels[channel].messages.get(str(thread_ts))
            if root is None:
                raise SlackError("cannot_reply_to_message")  # UNDOCUMENTED for an unknown thread_ts
            if root.get("thread_ts", root["ts"]) != root["ts"]:
                self.violations.append(f"thread_ts {thread_ts} is a reply; use its parent")
                root = self.channels[channel].messages[root["thread_ts"]]
            root["thread_ts"] = msg["thread_ts"] = root["ts"]
            msg["parent_user_id"] = root.get("user")
            root["reply_count"] = root.get("reply_count", 0) + 1
            root["latest_reply"] = msg["ts"]
            root["reply_users"] = sorted({*root.get("reply_users", []), str(msg.get("user"))})
        self.channels[channel].messages[msg["ts"]] = msg
        return msg

    def _post(self, channel: str, content: Json, thread_ts: Any, broadcast: bool = False) -> Json:
        for i, block in enumerate(content.get("blocks", [])):
            block.setdefault("block_id", f"b{next(self._seq)}{i}")
        extra = {"subtype": "thread_broadcast"} if broadcast and thread_ts else {}
        space = self._space(channel)
        author: Json = {"user": space.bot_user, "bot_id": space.bot_id, "app_id": self.app_id}
        author["bot_profile"] = {"id": space.bot_id, "app_id": self.app_id, "name": "hermod", "team_id": space.id}
        msg = self._store(channel, {**author, "text": "", **extra, **content}, thread_ts)
        if content != {"text": ""}:
            self._emit_bot_echo(channel, msg)
        return msg

    def _emit_bot_echo(self, channel: str, msg: Json) -> None:
        if self.echo_bot_messages:
            self._emit_message(channel, msg)

    def _edit(self, channel: str, msg: Json, content: Json, *, mark: bool = True) -> None:
        """docs.slack.dev/reference/events/message/message_changed; unfurls change a message without the mark."""
        before = dict(msg)
        msg.update(content)
        if mark:
            msg["edited"] = {"user": msg.get("user"), "ts": self._ts()}
        self._emit_message(
            channel,
            msg,
            {
                "type": "message",
                "subtype": "message_changed",
                "hidden": True,
                "message": dict(msg),
                "previous_message": before,
                "ts": (stamp := self._ts()),
                "event_ts": stamp,
            },
        )

    def _delete(self, channel: str, msg: Json) -> None:
        """docs.slack.dev/reference/events/message/message_deleted"""
        del self.channels[channel].messages[msg["ts"]]
        self._emit_message(
            channel,
            msg,
            {
                "type": "message",
                "subtype": "message_deleted",
                "hidden": True,
                "deleted_ts": msg["ts"],
                "previous_message": dict(msg),
                "ts": (stamp := self._ts()),
                "event_ts": stamp,
            },
        )

    def _new_file(self, name: str, blob: bytes, user: str, mimetype: str = "") -> Json:
        fid = f"F{next(self._seq):08d}"
        self.blobs[fid] = blob
        info = self.files[fid] = {
            "id": fid,
            "name": name,
            "title": name,
            "size": len(blob),
            "user": user,
            "mode": "hosted",
            "mimetype": mimetype or ("text/plain" if name.endswith((".txt", ".csv", ".log")) else "application/binary"),
            "filetype": name.rpartition(".")[2],
            "url_private": f"{self.origin}/files/{fid}",
            "url_private_download": f"{self.origin}/files/{fid}/download",
        }
        return info
