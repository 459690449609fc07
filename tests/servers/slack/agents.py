"""Slack's surface for agents: streams, sessions, statuses, suggested prompts."""

from __future__ import annotations

from typing import Any

from tests.servers.slack.blocks import check_blocks
from tests.servers.slack.model import Channel, Json, SlackError
from tests.servers.slack.people import People

SESSION_STATES = ("active", "processing", "suspended", "closed")
TASK_STATES = ("pending", "in_progress", "complete", "error")


class Agents(People):
    """Streams and sessions."""

    # ------------------------------------------------------------------ streams
    def api_chat_start_stream(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/chat.startStream"""
        channel = self._writable(a)
        if channel.kind != "im":
            for key in ("recipient_user_id", "recipient_team_id"):
                if not a.get(key):
                    raise SlackError(f"missing_{key}")
        if channel.kind == "im" and not a.get("thread_ts"):
            raise SlackError("invalid_arguments")  # UNDOCUMENTED code: unthreaded streams are channels-only
        if a.get("task_display_mode", "timeline") not in ("timeline", "plan"):
            raise SlackError("invalid_arguments", response_metadata={"messages": ["[ERROR] task_display_mode"]})
        added = self._read_chunks(a)
        msg = self._post(channel.id, {"text": ""}, a.get("thread_ts"))
        self.streams[msg["ts"]] = {
            "channel": channel.id,
            "born": self.clock.now(),
            "state": "in_progress",
            "mode": a.get("task_display_mode", "timeline"),
            "chunks": [],
            "tasks": {},
            "plan": "",
        }
        self._append(msg, added)
        return {"channel": channel.id, "ts": msg["ts"]}

    def api_chat_append_stream(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/chat.appendStream"""
        channel, msg = self._streaming(a)
        if not a.get("markdown_text") and not a.get("chunks"):
            raise SlackError("no_text")
        self._append(msg, self._read_chunks(a))
        return {"channel": channel.id, "ts": msg["ts"]}

    def api_chat_stop_stream(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/chat.stopStream"""
        channel, msg = self._streaming(a)
        added = self._read_chunks(a)
        self._check_metadata(a)
        status = a.get("session_status", "active")
        if status not in SESSION_STATES:
            raise SlackError("invalid_arguments", response_metadata={"messages": ["[ERROR] session_status"]})
        if a.get("blocks"):
            check_blocks(a["blocks"])
        self._append(msg, added)
        if a.get("blocks"):
            msg["blocks"] = a["blocks"]
            for n, block in enumerate(msg["blocks"]):
                block.setdefault("block_id", f"b{next(self._seq)}{n}")
        if a.get("metadata"):
            msg["metadata"] = a["metadata"]
        self.streams[msg["ts"]]["state"] = "completed"
        if session := self.sessions.get((channel.id, str(msg.get("thread_ts")))):
            session["status"] = status
        self._emit_bot_echo(channel.id, msg)
        return {"channel": channel.id, "ts": msg["ts"], "message": msg}

    def _live_stream(self, ts: str) -> bool:
        stream = self.streams.get(ts)
        if stream and stream["state"] == "in_progress" and self.clock.now() - stream["born"] > self.stream_ttl:
            stream["state"] = "expired"  # UNDOCUMENTED: apps report that streams end about 5 minutes in
        return bool(stream) and stream["state"] == "in_progress"  # type: ignore[index]

    def _streaming(self, a: Json) -> tuple[Channel, Json]:
        channel, msg = self._own(a, "message_not_owned_by_app")
        if not self._live_stream(msg["ts"]):
            stopped = self.streams.get(msg["ts"], {}).get("state") == "stopped_by_user"
            raise SlackError("stopped_by_user" if stopped else "message_not_in_streaming_state")  # UNDOCUMENTED
        return channel, msg

    @staticmethod
    def _read_chunks(a: Json) -> list[Json]:
        """Chunk kinds: docs.slack.dev/reference/methods/chat.appendStream ("Using the chunks parameter")."""
        chunks = a.get("chunks") or []
        if not isinstance(chunks, list):
            raise SlackError("invalid_chunks")
        for chunk in chunks:
            if not isinstance(chunk, dict):
                raise SlackError("invalid_chunks")
            match chunk.get("type"):
                case "markdown_text":
                    good = isinstance(chunk.get("text"), str)
                case "task_update":
                    good = bool(chunk.get("id")) and bool(chunk.get("title")) and chunk.get("status") in TASK_STATES
                case "plan_update":
                    good = bool(chunk.get("title"))
                case "blocks":
                    good = isinstance(chunk.get("blocks"), list)
                    check_blocks(chunk.get("blocks"))
                case _:
                    good = False
            if not good:
                raise SlackError("invalid_chunks", response_metadata={"messages": [f"[ERROR] {chunk}"]})
        if a.get("markdown_text"):
            chunks = [{"type": "markdown_text", "text": str(a["markdown_text"])}, *chunks]
        if sum(len(c["text"]) for c in chunks if c["type"] == "markdown_text") > 12_000:
            raise SlackError("msg_too_long")
        return chunks

    def _append(self, msg: Json, chunks: list[Json]) -> None:
        stream = self.streams[msg["ts"]]
        stream["chunks"] += chunks
        for chunk in chunks:
            match chunk["type"]:
                case "markdown_text":
                    msg["text"] += chunk["text"]
                case "task_update":
                    stream["tasks"][chunk["id"]] = stream["tasks"].get(chunk["id"], {}) | chunk
                case "plan_update":
                    stream["plan"] = chunk["title"]
                case _:
                    msg["blocks"] = [*msg.get("blocks", []), *chunk["blocks"]]

    # ------------------------------------------------------------------ sessions
    def api_agents_sessions_set_status(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/agents.sessions.setStatus and docs.slack.dev/ai/agent-sessions"""
        channel, thread = self._session_place(a)
        if a.get("status") not in SESSION_STATES:
            raise SlackError("invalid_arguments", response_metadata={"messages": ["[ERROR] status"]})
        if len(str(a.get("title", ""))) > 200:
            raise SlackError("invalid_arguments", response_metadata={"messages": ["[ERROR] title"]})
        starter = a.get("initiator_user_id")
        if starter and starter not in self.channels[channel].members:
            raise SlackError("user_not_in_channel")  # UNDOCUMENTED code: "must be a member of the channel"
        new = {"title": a.get("title", ""), "initiator": starter or ""}
        session = self.sessions.setdefault((channel, thread), new)  # the title counts on creation only
        session["status"] = a["status"]
        answer: Json = {"status": "ok", "agent_status": session["status"], "title": session["title"]}
        if "agent_session_stopped" not in self.subscriptions:
            warning = "missing_agent_session_stopped_event_subscription"
            answer |= {"warning": warning, "response_metadata": {"warnings": [warning]}}
        return answer

    def api_agents_sessions_rename(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/agents.sessions.rename"""
        place = self._session_place(a)
        if not 1 <= len(str(a.get("title", ""))) <= 200:
            raise SlackError("invalid_arguments", response_metadata={"messages": ["[ERROR] title"]})
        if place not in self.sessions:
            raise SlackError("session_not_found")  # UNDOCUMENTED code
        self.sessions[place]["title"] = a["title"]
        return {"title": a["title"]}

    def _session_place(self, a: Json) -> tuple[str, str]:
        if not self.agent:
            raise SlackError("app_not_agent")  # UNDOCUMENTED code: "only apps declared as agents"
        return self._thread_place(a)

    def _thread_place(self, a: Json) -> tuple[str, str]:
        channel = self._channel(a, "channel_id")
        thread = str(a.get("thread_ts") or "")
        if thread not in channel.messages:
            raise SlackError("invalid_thread_ts")
        return channel.id, thread

    # ------------------------------------------------------------------ assistant threads
    def api_assistant_threads_set_status(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/assistant.threads.setStatus: gone after two minutes, or with a message."""
        channel, thread = self._thread_place(a)
        if "status" not in a:
            raise SlackError("invalid_arguments", response_metadata={"messages": ["[ERROR] missing status"]})
        self._check_list(a.get("loading_messages"), "loading_messages", 10)
        self.statuses.append(
            {**a, "channel_id": channel, "thread_ts": thread, "ts": self._ts(), "at": self.clock.now()}
        )
        return {}

    def api_assistant_threads_set_title(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/assistant.threads.setTitle"""
        self._thread_place(a)
        if not a.get("title"):
            raise SlackError("invalid_arguments", response_metadata={"messages": ["[ERROR] missing title"]})
        return {}

    def api_assistant_threads_set_suggested_prompts(self, a: Json) -> Json:
        """docs.slack.dev/reference/methods/assistant.threads.setSuggestedPrompts: at most four; no thread needed."""
        channel = self._channel(a, "channel_id")
        prompts = a.get("prompts")
        self._check_list(prompts, "prompts", 4)
        if not prompts or not all(isinstance(p, dict) and p.get("title") and p.get("message") for p in prompts):
            raise SlackError("invalid_arguments", response_metadata={"messages": ["[ERROR] prompts"]})
        if a.get("thread_ts") and str(a["thread_ts"]) not in channel.messages:
            raise SlackError("invalid_thread_ts")
        self.prompts.append(a)
        return {}

    @staticmethod
    def _check_list(items: Any, name: str, most: int) -> None:
        if items is not None and (not isinstance(items, list) or len(items) > most):
            raise SlackError("invalid_arguments", response_metadata={"messages": [f"[ERROR] {name}"]})
