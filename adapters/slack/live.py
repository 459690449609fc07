"""One message of a draft: begun, grown, completed, removed. Slack's own stream, or a message that is edited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from adapters.chat import InDoubt, PlanStep, Rejected
from adapters.slack.client import Send, SlackClient
from adapters.slack.history import EVENT_TYPE, PART_TYPE, build_metadata
from adapters.slack.outcome import BAD_BLOCKS, Failed
from adapters.slack.pace import PROGRESS
from adapters.slack.piece import neutralise, open_fence
from adapters.slack.streamed import StreamText, render_stream
from adapters.slack.surface import Block, render_text
from adapters.slack.wire import Wire, text_of

STREAM_MAX = 11_500
"""Characters of one streamed message; Slack takes 12,000 in a call and says nothing of the sum."""

EDIT_MAX = 3_900
"""UTF-8 bytes of an edited message; chat.update refuses more than 4,000 (B041)."""

PLAN_MAX = 250
NEAR = 100
POST_PATIENCE_S = 2.5
REMOVE_PATIENCE_S = 5.0
CONTINUED = "_(continued below)_"

ENDED = frozenset({"message_not_in_streaming_state", "stopped_by_user", "streaming_state_conflict"})
"""The stream is over: Slack ended it after some minutes of silence, or a person pressed stop."""

GONE = frozenset({"message_not_found"})

_STATES: Mapping[str, str] = {"pending": "pending", "running": "in_progress", "done": "complete", "failed": "error"}
_SIGNS: Mapping[str, str] = {"pending": "○", "running": "…", "done": "✓", "failed": "✗"}

Kind = Literal["stream", "edit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where a draft is written and, for a stream, for whom (chat.startStream wants both in channels)."""

    channel: str
    thread_ts: str
    recipient_user: str = ""
    recipient_team: str = ""


PLAN_TITLE: Block = {"type": "plan_update", "title": "What I do"}
"""The head of a plan's card (chat.startStream: ``plan_update``)."""


def build_tasks(plan: Sequence[PlanStep]) -> list[Block]:
    """Build the chunks that show steps of a plan (chat.startStream: ``task_update``)."""
    chunks: list[Block] = []
    for step in plan:
        title, details = neutralise(step.title)[:PLAN_MAX], neutralise(step.detail)[:PLAN_MAX]
        chunk: Block = {"type": "task_update", "id": step.id, "title": title, "status": _STATES[step.state]}
        chunks.append(chunk | ({"details": details} if details else {}))
    return chunks


def plan_text(plan: Sequence[PlanStep]) -> str:
    """Return a plan as Markdown, for messages that are edited."""
    return "\n".join(f"- {_SIGNS[step.state]} {step.title}" for step in plan)


def fits_stream(text: str) -> bool:
    """True when the text fits one streamed message."""
    return len(text) <= STREAM_MAX and len(render_stream(text, final=True)) <= STREAM_MAX


def fits_edit(text: str) -> bool:
    """True when the text, rendered, fits an edit. Rendering takes milliseconds, so what is far too long is not."""
    return len(text) <= 2 * EDIT_MAX and len(render_text(text).encode("utf-8", "surrogatepass")) <= EDIT_MAX


class LiveMessage:
    """A message of ours that is being written. One task uses it.

    Args:
        client: makes the calls.
        spot: where.
        kind: how.
        start: where in the answer it begins.
        head: what stands before that: the first line of a code block that another message began.
    """

    def __init__(self, client: SlackClient, spot: Spot, *, kind: Kind, start: int, head: str = "") -> None:
        self._client = client
        self._spot = spot
        self.kind = kind
        self.start = start
        self.head = head
        self.ts = ""
        self.open = True
        self._written = ""  # the source of what it shows
        self._out = ""  # what a stream was sent
        self._stream = StreamText()
        self.most = STREAM_MAX if kind == "stream" else EDIT_MAX

    def fits(self, text: str) -> bool:
        """True when ``text`` (with ``head``) fits into this message."""
        return fits_stream(text) if self.kind == "stream" else fits_edit(text)

    async def begin(self, text: str, plan: Sequence[PlanStep], key: str, since: float) -> Failed | None:
        """Make it visible. ``key`` marks a message that is edited, so that it can be found and removed."""
        if self.kind == "stream":
            send = self._start(text, plan)  # no final call needs a turn of this method
            answer = await self._call("chat.startStream", send, priority=1, since=since, patience_s=0.0)
        else:
            body = render_text(text or plan_text(plan))
            answer = await self._call("chat.postMessage", self._post(body, key), priority=PROGRESS, since=since)
        if isinstance(answer, Failed):
            return answer
        self.ts, self._written, self._out = text_of(answer, "ts"), text, self._stream.show(text)
        return None

    async def grow(
        self, text: str, plan: Sequence[PlanStep], *, since: float, priority: int = PROGRESS
    ) -> Failed | None:
        """Show ``text`` in place of what it shows; a stream only takes what goes on where it is."""
        if self.kind == "stream":
            out = self._stream.show(text)
            if not out.startswith(self._out):
                return _torn()
            if out == self._out and not plan:
                self._written = text
                return None
            body = _said(out[len(self._out) :], plan)
            answer = await self._call(
                "chat.appendStream",
                lambda web: web.chat_appendStream(channel=self._spot.channel, ts=self.ts, **body),
                priority=priority,
                since=since,
            )
        else:
            answer = await self._update(render_text(text or plan_text(plan)), priority=priority, since=since)
        if isinstance(answer, Failed):
            return answer
        self._written, self._out = text, out if self.kind == "stream" else ""
        return None

    def delivered(self) -> int:
        """How many characters of what it was given are visible; a stream holds back what may still change."""
        return delivered(self._written, self._out) if self.kind == "stream" else len(self._written)

    async def post(
        self, body: str, *, key: str, forms: Iterable[Sequence[Block]], final: bool, since: float
    ) -> Failed | None:
        """Post rendered text that nothing will be added to: the end of a reply when it is ``final``, else a part."""
        answer: Wire | Failed = {}
        for blocks in forms:
            send = self._post(body, key, kind=EVENT_TYPE if final else PART_TYPE, blocks=blocks)
            answer = await self._call("chat.postMessage", send, priority=0, since=since)
            if not isinstance(answer, Failed) or answer.code not in BAD_BLOCKS:
                break
        if isinstance(answer, Failed):
            return answer
        self.ts, self.open = text_of(answer, "ts"), False
        return None

    async def complete(
        self,
        text: str,
        *,
        key: str,
        forms: Iterable[Sequence[Block]],
        tasks: Sequence[PlanStep],
        since: float,
        body: str = "",
    ) -> Failed | None:
        """Make it the reply: the whole ``text``, the reply's key and its blocks.

        Args:
            text: of this message, with ``head``.
            key: of the reply.
            forms: blocks to try in turn; the last one is empty.
            tasks: steps whose end was not shown.
            since: see ``SlackClient.call``.
            body: ``text`` rendered, for a message that is edited.
        """
        failed: Failed | None = None
        for blocks in forms:
            if self.kind == "stream":
                failed = await self._stop(text, blocks, key, tasks, since)
            else:
                answer = await self._update(body, blocks=blocks, key=key, priority=0, since=since)
                failed = answer if isinstance(answer, Failed) else None
            if failed is None or failed.code not in BAD_BLOCKS:
                break
        if failed is None:
            self.open = False
        return failed

    async def close(self) -> Failed | None:
        """End a message that is full; one that could not be ended stays open."""
        failed = await self._stop(self._written, (), "", (), None) if self.kind == "stream" else None
        self.open = failed is not None
        return failed

    async def mark(self, key: str, since: float) -> Failed | None:
        """Write the key onto a message that is complete already, by replacing its text with itself."""
        if self.kind == "edit":
            answer = await self._update(render_text(self._written), key=key, priority=0, since=since)
        else:
            text = self._out
            answer = await self._call(
                "chat.update",
                lambda web: web.chat_update(
                    channel=self._spot.channel, ts=self.ts, markdown_text=text, metadata=build_metadata(key)
                ),
                priority=0,
                since=since,
            )
        return answer if isinstance(answer, Failed) else None

    async def remove(self) -> bool:
        """Take it away; where Slack does not delete it, it says that the answer goes on below. True when done."""
        streaming = self.open and self.kind == "stream"
        done = await remove_message(self._client, self._spot.channel, self.ts, streaming=streaming)
        self.open = self.open and not done
        return done

    # -- the wire
    def _start(self, text: str, plan: Sequence[PlanStep]) -> Send:
        body, spot = _said(self._stream.show(text), plan), self._spot
        if plan:
            body["chunks"].insert(0, PLAN_TITLE)
        return lambda web: web.chat_startStream(
            channel=spot.channel,
            thread_ts=spot.thread_ts,
            recipient_user_id=spot.recipient_user or None,
            recipient_team_id=spot.recipient_team or None,
            task_display_mode="plan" if plan else None,
            **body,
        )

    def _post(self, text: str, key: str, *, kind: str = PART_TYPE, blocks: Sequence[Block] = ()) -> Send:
        return lambda web: web.chat_postMessage(
            channel=self._spot.channel,
            thread_ts=self._spot.thread_ts,
            text=text,
            blocks=list(blocks) or None,
            link_names=False,
            unfurl_links=False,
            unfurl_media=False,
            metadata=build_metadata(key, kind),
        )

    async def _stop(
        self, text: str, blocks: Sequence[Block], key: str, tasks: Sequence[PlanStep], since: float | None
    ) -> Failed | None:
        out = self._stream.show(text, final=True)
        if not out.startswith(self._out):
            return _torn()
        body = _said(out[len(self._out) :], tasks)
        answer = await self._call(
            "chat.stopStream",
            lambda web: web.chat_stopStream(
                channel=self._spot.channel,
                ts=self.ts,
                blocks=list(blocks) or None,
                metadata=build_metadata(key) if key else None,
                **body,
            ),
            priority=0,
            since=since,
        )
        if isinstance(answer, Failed):
            return answer
        self._written, self._out = text, out
        return None

    async def _update(
        self, text: str, *, blocks: Sequence[Block] = (), key: str = "", priority: int, since: float | None = None
    ) -> Wire | Failed:
        """Edit; an edit whose outcome is unknown is made once more, since it changes nothing the second time."""
        kind = EVENT_TYPE if key else PART_TYPE
        answer: Wire | Failed = {}
        for _ in range(2):
            answer = await self._call(
                "chat.update",
                lambda web: web.chat_update(
                    channel=self._spot.channel,
                    ts=self.ts,
                    text=text,
                    blocks=list(blocks) or None,
                    link_names=False,
                    metadata=build_metadata(key, kind) if key else None,
                ),
                priority=priority,
                since=since,
            )
            if priority == PROGRESS or not isinstance(answer, Failed) or not isinstance(answer.outcome, InDoubt):
                break
        return answer

    async def _call(
        self,
        method: str,
        send: Send,
        *,
        priority: int,
        since: float | None = None,
        patience_s: float = POST_PATIENCE_S,
    ) -> Wire | Failed:
        return await self._client.call(
            method, send, channel=self._spot.channel, priority=priority, patience_s=patience_s, since=since
        )


async def remove_message(client: SlackClient, channel: str, ts: str, *, streaming: bool) -> bool:
    """Delete a message of ours; if it cannot be deleted it becomes a pointer. True when done.

    A stream is stopped first only where Slack insists: the turns of chat.stopStream are few, and answers need them.
    """
    deleted = await _delete(client, channel, ts)
    if streaming and _is_refused(deleted):
        await client.call(
            "chat.stopStream",
            lambda web: web.chat_stopStream(channel=channel, ts=ts),
            priority=1,
            patience_s=POST_PATIENCE_S,
        )
        deleted = await _delete(client, channel, ts)
    if not _is_refused(deleted):
        return not isinstance(deleted, Failed) or deleted.code in GONE
    edited = await client.call(
        "chat.update",
        lambda web: web.chat_update(channel=channel, ts=ts, text=CONTINUED),
        priority=1,
        patience_s=REMOVE_PATIENCE_S,
    )
    return not isinstance(edited, Failed)


async def _delete(client: SlackClient, channel: str, ts: str) -> Wire | Failed:
    return await client.call(
        "chat.delete",
        lambda web: web.chat_delete(channel=channel, ts=ts),
        priority=1,
        patience_s=REMOVE_PATIENCE_S,
    )


def _is_refused(answer: Wire | Failed) -> bool:
    return isinstance(answer, Failed) and isinstance(answer.outcome, Rejected) and answer.code not in GONE


def delivered(text: str, out: str) -> int:
    """Return how much of ``text`` a stream shows that was sent ``out``, what ``render_stream`` gave for it so far."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if len(render_stream(text[:middle])) < len(out):
            low = middle + 1
        else:
            high = middle
    high = low
    while low > 0:  # the end may have been certain only because of what followed
        shown = render_stream(text[:low], final=True)
        if open_fence(text[:low]):
            shown = shown.rpartition("\n")[0]
        if out.startswith(shown.rstrip()):
            return low
        near = high - low < NEAR
        low = low - 1 if near else max(text.rfind(" ", 0, low), text.rfind("\n", 0, low), 0)
    return 0


def _torn() -> Failed:
    said = "the answer no longer begins with what is shown"
    return Failed(code="", said=said, outcome=Rejected(reason=said), sent=False)


def _said(text: str, plan: Sequence[PlanStep]) -> dict[str, Any]:
    """The arguments that carry a text: alone, or as a chunk behind the steps of a plan."""
    if not plan:
        return {"markdown_text": text} if text else {}
    chunks = build_tasks(plan)
    if text:
        chunks.append({"type": "markdown_text", "text": text})
    return {"chunks": chunks}
