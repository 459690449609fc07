"""The workspace's state and the rules that every part of the server shares."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import ClientSession, web

from tests.servers.slack.model import ApiCall, Channel, Copies, Delivery, Fault, Json, Outcome, SlackError


class World:
    """An in-memory workspace with one installed app."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        bot_token: str = "xoxb-fake-bot",
        app_token: str = "xapp-1-fake-app",
        signing_secret: str = "fake-signing-secret",
        request_url: str | None = None,
        subscriptions: tuple[str, ...] = (
            "app_mention",
            "message.channels",
            "message.groups",
            "message.im",
            "message.mpim",
            "reaction_added",
        ),
        ack_timeout: float = 3.0,
        retry_delays: tuple[float, ...] = (0.0, 60.0, 300.0),
        trigger_ttl: float = 3.0,
        stream_ttl: float = 300.0,
        strict_rate_limits: bool = False,
        max_sockets: int = 10,
        echo_bot_messages: bool = True,
        scopes: tuple[str, ...] | None = None,
    ) -> None:
        self.host, self.port = host, port
        self.bot_token, self.app_token, self.signing_secret = bot_token, app_token, signing_secret
        self.request_url = request_url  # HTTP mode when set; Socket Mode otherwise
        self.subscriptions = set(subscriptions)
        self.ack_timeout, self.retry_delays = ack_timeout, retry_delays
        self.trigger_ttl, self.stream_ttl = trigger_ttl, stream_ttl
        self.strict_rate_limits, self.max_sockets = strict_rate_limits, max_sockets
        self.echo_bot_messages = echo_bot_messages
        self.scopes = scopes  # granted to the bot and enforced; None: everything is granted
        self.copies = Copies()  # of every message, unless ``say`` is told otherwise
        self.team_id, self.app_id, self.bot_id, self.bot_user = "T0FAKE", "A0FAKE", "B0FAKE", "U0BOT"
        self.users: dict[str, Json] = {}
        self.channels: dict[str, Channel] = {}
        self.calls: list[ApiCall] = []
        self.deliveries: list[Delivery] = []
        self.ephemerals: list[Json] = []
        self.reactions: set[tuple[str, str, str, str]] = set()
        self.views: dict[str, Json] = {}
        self.files: dict[str, Json] = {}
        self.blobs: dict[str, bytes] = {}
        self.streams: dict[str, Json] = {}
        self.statuses: list[Json] = []
        self.violations: list[str] = []
        self.faults: list[Fault] = []
        self.lose_acks: dict[str, int] = {}  # event type -> acknowledgements to lose, so Slack redelivers
        self._outcomes: dict[str, Outcome] = {}
        self._triggers: dict[str, float] = {}
        self._response_urls: dict[str, tuple[Outcome, float, str, str | None]] = {}
        self._sockets: list[web.WebSocketResponse] = []
        self._tickets: set[str] = set()
        self._acks: dict[str, asyncio.Future[Json | None]] = {}  # by envelope id
        self._windows: dict[str, deque[float]] = defaultdict(deque)
        self._seq = itertools.count(1)
        self._rr = itertools.count()
        self._last_ts = 0.0
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._runner: web.AppRunner | None = None
        self._http: ClientSession | None = None
        self.add_user(self.bot_user, "hermod", is_bot=True)
        self.add_user("U1ALICE", "alice")
        self.add_user("U2BOB", "bob")
        self.add_channel("C1OPS", "ops")
        self.add_channel("D1ALICE", "alice-dm", kind="im", members={"U1ALICE"})

    # ------------------------------------------------------------------ world and observation
    def add_user(self, uid: str, name: str, *, is_bot: bool = False, **extra: Any) -> None:
        """Add a person; ``extra`` sets further fields, e.g. ``team_id`` or ``is_restricted``."""
        self.users[uid] = {
            "id": uid,
            "team_id": self.team_id,
            "name": name,
            "real_name": name.title(),
            "is_bot": is_bot,
            "deleted": False,
            "tz": "Etc/UTC",
            "tz_offset": 0,
            "profile": {"display_name": name, "real_name": name.title(), "email": f"{name}@example.test"},
            **extra,
        }

    def add_channel(
        self, cid: str, name: str, *, kind: str = "channel", members: set[str] | None = None, bot_in: bool = True
    ) -> None:
        who = set(members or {"U1ALICE", "U2BOB"}) | ({self.bot_user} if bot_in else set())
        self.channels[cid] = Channel(cid, name, kind, who)

    def messages(self, channel: str, thread_ts: str | None = None) -> list[Json]:
        """Messages of a channel in order, or of one thread (root first)."""
        found = sorted(self.channels[channel].messages.values(), key=lambda m: float(m["ts"]))
        return found if thread_ts is None else [m for m in found if m.get("thread_ts", m["ts"]) == thread_ts]

    def bot_messages(self, channel: str, thread_ts: str | None = None) -> list[Json]:
        return [m for m in self.messages(channel, thread_ts) if m.get("user") == self.bot_user]

    def calls_to(self, method: str) -> list[ApiCall]:
        return [c for c in self.calls if c.method == method]

    async def wait_until(self, predicate: Callable[[], Any], timeout: float = 5.0) -> Any:
        """Wait for a truthy ``predicate()``; it is checked again after every change."""

        async def poll() -> Any:
            async with self._changed:
                while not (value := predicate()):
                    await self._changed.wait()
                return value

        return await asyncio.wait_for(poll(), timeout)

    async def wait_connected(self, timeout: float = 10.0) -> None:
        await self.wait_until(lambda: self._sockets, timeout)

    def inject(self, method: str = "*", **kw: Any) -> Fault:
        """Queue a fault, e.g. ``inject("chat.postMessage", http=429, retry_after=2, times=3)``."""
        self.faults.append(fault := Fault(method, **kw))
        return fault

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def base_url(self) -> str:
        """Value for ``AsyncWebClient(base_url=...)``."""
        return f"{self.origin}/api/"

    def _emit_message(self, channel: str, msg: Json, extra: Json | None = None, copies: Copies | None = None) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------------ shared rules
    def _channel(self, a: Json) -> Channel:
        key = str(a.get("channel") or "")
        for channel in self.channels.values():
            if key in (channel.id, f"#{channel.name}", channel.name):
                return channel
        raise SlackError("channel_not_found")

    def _writable(self, a: Json) -> Channel:
        channel = self._channel(a)
        if channel.archived:
            raise SlackError("is_archived")
        if self.bot_user not in channel.members:
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
        if msg.get("user") != self.bot_user:
            raise SlackError(denied)
        return channel, msg

    def _live_stream(self, ts: str) -> bool:
        stream = self.streams.get(ts)
        if stream and stream["state"] == "in_progress" and time.monotonic() - stream["born"] > self.stream_ttl:
            stream["state"] = "expired"  # UNDOCUMENTED: apps report that streams end about 5 minutes in
        return bool(stream) and stream["state"] == "in_progress"  # type: ignore[index]

    def _streaming(self, a: Json) -> tuple[Channel, Json]:
        channel, msg = self._own(a, "message_not_owned_by_app")
        if not self._live_stream(msg["ts"]):
            stopped = self.streams.get(msg["ts"], {}).get("state") == "stopped_by_user"
            raise SlackError("stopped_by_user" if stopped else "message_not_in_streaming_state")
        return channel, msg

    def stop_stream_as_user(self, ts: str) -> None:
        """The human pressed Stop on a streaming message."""
        self.streams[ts]["state"] = "stopped_by_user"

    def _append(self, msg: Json, a: Json) -> None:
        chunks = a.get("chunks") or []
        if isinstance(chunks, SlackError) or not all(
            isinstance(c, dict) and c.get("type") in ("markdown_text", "task_update", "plan_update", "blocks")
            for c in chunks
        ):
            raise SlackError("invalid_chunks")
        added = str(a.get("markdown_text") or "") + "".join(
            c.get("text", "") for c in chunks if c["type"] == "markdown_text"
        )
        if len(added) > 12_000:
            raise SlackError("msg_too_long")
        self.streams[msg["ts"]]["chunks"] += chunks
        msg["text"] += added

    def _content(self, a: Json) -> Json:
        out = {k: a[k] for k in ("text", "blocks", "attachments", "metadata", "username", "icon_emoji") if a.get(k)}
        if a.get("markdown_text"):
            if a.get("text") or a.get("blocks"):
                raise SlackError("markdown_text_conflict")
            if len(str(a["markdown_text"])) > 12_000:
                raise SlackError("msg_too_long")
            out["text"] = a["markdown_text"]
        if not any(k in out for k in ("text", "blocks", "attachments")):
            raise SlackError("no_text")
        self._check_blocks(out.get("blocks", []))
        if len(str(out.get("text", ""))) > 40_000:
            out["text"] = out["text"][:40_000]
        return out

    @staticmethod
    def _check_blocks(blocks: Any) -> None:
        def bad(why: str) -> SlackError:
            return SlackError("invalid_blocks", response_metadata={"messages": [f"[ERROR] {why}"]})

        if not isinstance(blocks, list) or not all(isinstance(b, dict) and "type" in b for b in blocks):
            raise SlackError("invalid_blocks_format")
        if len(blocks) > 50:
            raise SlackError("msg_blocks_too_many")
        for i, b in enumerate(blocks):
            text = b.get("text") if isinstance(b.get("text"), dict) else {}
            limit = {"section": 3000, "header": 150}.get(b["type"], 12_000)
            if len(str(text.get("text", "") if text else b.get("text", ""))) > limit:
                raise bad(f"must be less than {limit + 1} characters [json-pointer:/blocks/{i}/text]")
            if b["type"] == "section" and not text and not b.get("fields"):
                raise bad(f"missing required field: text [json-pointer:/blocks/{i}]")
            if b["type"] == "actions" and not 1 <= len(b.get("elements", [])) <= 25:
                raise bad(f"must have 1 to 25 items [json-pointer:/blocks/{i}/elements]")
            ids = [e.get("action_id") for e in b.get("elements", []) if isinstance(e, dict) and e.get("action_id")]
            if len(ids) != len(set(ids)):
                raise bad(f"action_id already exists [json-pointer:/blocks/{i}/elements]")

    def _store(self, channel: str, content: Json, thread_ts: Any) -> Json:
        msg: Json = {"type": "message", "ts": self._ts(), "team": self.team_id, **content}
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
        msg = self._store(
            channel,
            {"user": self.bot_user, "bot_id": self.bot_id, "app_id": self.app_id, "text": "", **extra, **content},
            thread_ts,
        )
        if content != {"text": ""}:
            self._emit_bot_echo(channel, msg)
        return msg

    def _emit_bot_echo(self, channel: str, msg: Json) -> None:
        if self.echo_bot_messages:
            self._emit_message(channel, msg)

    def _edit(self, channel: str, msg: Json, content: Json) -> None:
        before = dict(msg)
        msg.update(content)
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

    def _save_view(self, view: Any, view_id: str | None) -> Json:
        if not isinstance(view, dict) or view.get("type") not in ("modal", "home") or len(view.get("blocks", [])) > 100:
            raise SlackError("invalid_arguments", response_metadata={"messages": ["[ERROR] view"]})
        if len(json.dumps(view)) > 250_000:
            raise SlackError("view_too_large")
        vid = view_id or f"V{next(self._seq):08d}"
        self.views[vid] = {
            "private_metadata": "",
            "callback_id": "",
            "external_id": "",
            **view,
            "id": vid,
            "root_view_id": vid,
            "team_id": self.team_id,
            "app_id": self.app_id,
            "bot_id": self.bot_id,
            "hash": secrets.token_hex(6),
            "state": {"values": {}},
        }
        return self.views[vid]

    def _use_trigger(self, trigger: str) -> None:
        if trigger not in self._outcomes:
            raise SlackError("invalid_trigger_id")
        born = self._triggers.pop(trigger, None)
        if born is None:
            raise SlackError("exchanged_trigger_id")
        if time.monotonic() - born > self.trigger_ttl:
            raise SlackError("expired_trigger_id")

    def _describe(self, c: Channel) -> Json:
        return {
            "id": c.id,
            "name": c.name,
            "is_channel": c.kind == "channel",
            "is_group": c.kind == "group",
            "is_im": c.kind == "im",
            "is_private": c.kind != "channel",
            "is_archived": c.archived,
            "is_member": self.bot_user in c.members,
            "num_members": len(c.members),
        }

    @staticmethod
    def _between(items: list[Json], a: Json) -> list[Json]:
        low, high = float(a.get("oldest") or 0), float(a.get("latest") or "inf")
        whole = str(a.get("inclusive", "")).lower() in ("1", "true")
        return [m for m in items if (low <= float(m["ts"]) <= high if whole else low < float(m["ts"]) < high)]

    @staticmethod
    def _page(key: str, items: list[Any], a: Json) -> Json:
        limit = max(1, min(int(a.get("limit") or 100), 999))
        try:
            start = int(str(a.get("cursor") or "0:").partition(":")[0])
        except ValueError:
            raise SlackError("invalid_cursor") from None
        more = start + limit < len(items)
        return {
            key: items[start : start + limit],
            "has_more": more,
            "response_metadata": {"next_cursor": f"{start + limit}:{key}" if more else ""},
        }

    def _ts(self) -> str:
        self._last_ts = max(time.time(), self._last_ts + 1e-5)
        return f"{self._last_ts:.6f}"

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _spawn(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _new_file(self, name: str, blob: bytes, user: str) -> Json:
        fid = f"F{next(self._seq):08d}"
        self.blobs[fid] = blob
        info = self.files[fid] = {
            "id": fid,
            "name": name,
            "title": name,
            "size": len(blob),
            "user": user,
            "mode": "hosted",
            "filetype": name.rpartition(".")[2],
            "url_private": f"{self.origin}/files/{fid}",
            "url_private_download": f"{self.origin}/files/{fid}",
        }
        return info
