"""An answer that people see while it is written.

Three ways, each the fallback of the one before: Slack's own stream (append-only), a message that is edited, nothing
at all. ``show`` never waits for Slack: a task of the draft writes the newest text as often as the method's rate
allows, and drops what would come late. ``finish`` delivers exactly what is missing. The answer may take several
messages, each a run of the text: a stream that Slack ended is not written again, its rest follows in a new message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from adapters.chat import Attachment, Delivered, Delivery, InDoubt, PlanStep, Rejected, Reply, RetryLater
from adapters.slack.live import EDIT_MAX, ENDED, Kind, LiveMessage, Spot, fits_edit
from adapters.slack.outcome import Failed
from adapters.slack.piece import cut_at, open_fence, open_table, settle
from adapters.slack.surface import build_controls, build_surface

if TYPE_CHECKING:
    from adapters.slack.drafts import Drafts

log = structlog.get_logger("hermod.slack")

FIRST_S = 0.25
"""How long the first words wait for more."""

CROWD = 8
CROWDED_FIRST_S = 1.0
"""The same where more than ``CROWD`` drafts share the rate."""

QUICK_S = {"stream": 0.8, "edit": 1.2}
"""How often a lone draft is written."""

SLOW_S = {"stream": 2.7, "edit": 4.2}
"""How seldom one of many is written while the rate has turns left; with a call's time, 3 s and 5 s."""

FINISH_S = 5.0
"""An end that has to wait longer is not waited for: the answer is posted in place of the draft."""

HALT_S = 10.0
PAUSE_MAX_S = 30.0


class SlackDraft:
    """See ``adapters.chat.Draft``. ``remote_id`` names every visible message, parted by commas.

    Args:
        desk: the workspace.
        spot: where it is written and for whom.
        name: marks its messages until they are a reply.
        stream: whether Slack's own stream may be tried.
        monotonic, sleep: the clock.
    """

    def __init__(
        self,
        desk: Drafts,
        spot: Spot,
        *,
        name: str,
        stream: bool,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._desk = desk
        self._spot = spot
        self._name = name
        self._stream = stream
        self._monotonic = monotonic
        self._sleep = sleep
        self._text = ""
        self._plan: tuple[PlanStep, ...] = ()
        self._messages: list[LiveMessage] = []
        self._shown = ""  # how much of the text is visible, over all messages
        self._planned: dict[str, PlanStep] = {}  # as they are visible
        self._broken = False  # what is visible is not known, or cannot be continued
        self._lost: str | None = None  # the text of a message of which Slack did not tell whether it was made
        self._files: tuple[Attachment, ...] = ()  # of tables that the messages cannot show
        self._closed = False
        self._calling = False
        self._changed = asyncio.Event()
        self._next_at = 0.0
        self._writer: asyncio.Task[None] | None = None

    @property
    def remote_id(self) -> str:
        """The platform's ids of what is visible."""
        return ",".join(message.ts for message in self._messages)

    async def show(self, text: str, plan: Sequence[PlanStep] = ()) -> None:
        """Show the whole text so far, soon; returns at once."""
        if self._closed or self._broken:
            return
        self._text, self._plan = text.lstrip(), tuple(plan)
        if self._writer is None:
            self._next_at = self._monotonic() + (FIRST_S if self._desk.writers <= CROWD else CROWDED_FIRST_S)
            self._writer = asyncio.create_task(self._write(), name=f"slack-draft-{self._name}")
        self._changed.set()

    async def finish(self, reply: Reply) -> Delivery | None:
        """Make the draft the reply; see ``adapters.chat.Draft``.

        ``RetryLater`` leaves what is visible, and a later ``post`` of the same key goes on from there. The reply may be
        longer than one message.
        """
        since = self._monotonic()
        await self.halt()
        if not self._messages:
            await self._remove()
            return self._over(None)
        text = reply.text.strip()
        outcome: Delivery | None = None
        if self._can_become(reply, text):
            outcome = await self._complete(reply, text, since)
        match outcome:
            case Delivered():
                self._over(outcome)
                await self._desk.attach(replace(reply, files=(*self._files, *reply.files)))
            case RetryLater(after_s=after_s) if after_s > FINISH_S and await self._remove():
                return self._over(None)
            case RetryLater() | InDoubt():
                self._broken |= isinstance(outcome, InDoubt)  # if it is not found, it is written anew
                self._desk.keep(reply.key, self)
            case _:
                await self._remove()
                return self._over(None)
        return outcome

    async def abandon(self) -> None:
        """Remove what is visible."""
        await self.halt()
        await self._remove()
        self._over(None)

    async def halt(self) -> None:
        """Write nothing more; a call that is under way is waited for."""
        self._closed = True
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if self._calling:
            await asyncio.wait([writer], timeout=HALT_S)
        if not writer.done():
            self._broken |= self._calling
            writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)

    def _over(self, outcome: Delivery | None) -> Delivery | None:
        self._desk.drop(self)
        return outcome

    # -- while it is written
    async def _write(self) -> None:
        while not (self._closed or self._broken):
            await self._changed.wait()
            asked = self._monotonic()
            wait_s = self._next_at - asked
            if wait_s > 0:
                await self._sleep(wait_s)
            self._changed.clear()
            begun = self._monotonic()
            with self._call_under_way():
                pause_s = await self._progress(since=max(self._next_at, asked))
            self._next_at = begun + min(pause_s, PAUSE_MAX_S)

    @contextmanager
    def _call_under_way(self) -> Iterator[None]:
        self._calling = True
        yield
        self._calling = False

    async def _progress(self, *, since: float) -> float:
        """Write the newest text once; returns how long to wait before the next time."""
        begun_anew = not self._text.startswith(self._shown)
        if begun_anew and not await self._remove():
            self._broken = True
            return 0.0
        text = settle(self._text)
        if len(text) < len(self._shown):
            text = self._shown
        message = self._open_message()
        edited = message is not None and message.kind == "edit" and text
        plan = () if edited else tuple(step for step in self._plan if self._planned.get(step.id) != step)
        if text == self._shown and not plan:
            return 0.0
        if message is None:
            return await self._begin(text, plan, since)
        return await self._grow(message, text, plan, since)

    async def _begin(self, text: str, plan: tuple[PlanStep, ...], since: float) -> float:
        kind: Kind = "stream" if self._stream and self._desk.may_stream else "edit"
        start = len(text) - len(text[len(self._shown) :].lstrip())
        head = _reopened(self._shown, text)
        if text == self._shown and self._messages:
            return 0.0  # a plan alone begins no second message
        message = LiveMessage(self._desk.client, self._spot, kind=kind, start=start, head=head)
        end = (
            start + cut_at(text[start:], lambda piece: message.fits(head + piece), message.most)
            if text[start:]
            else start
        )
        shown_plan = plan if kind == "stream" else self._plan
        failed = await message.begin(head + text[start:end] if text[start:] else "", shown_plan, self._name, since)
        if failed is None:
            self._messages.append(message)
            return self._showed(message, text[:end], plan)
        if isinstance(failed.outcome, RetryLater) and (kind == "edit" or failed.outcome.after_s <= SLOW_S["stream"]):
            return self._later(failed.outcome.after_s)
        if isinstance(failed.outcome, InDoubt):
            self._broken, self._lost = True, head + text[start:end]
        elif kind == "stream":
            self._stream = False
            self._desk.stream_refused(failed)
            return self._later(0.0)
        else:
            self._broken = True
            log.info("slack_draft_not_shown", reason=failed.said)
        return 0.0

    async def _grow(self, message: LiveMessage, text: str, plan: tuple[PlanStep, ...], since: float) -> float:
        whole = message.head + text[message.start :]
        if message.fits(whole):
            failed = await message.grow(whole, plan, since=since)
            return self._showed(message, text, plan) if failed is None else self._not_grown(message, failed)
        failed = await self._fill(message, text, priority=1, since=since)
        if failed is None:
            return self._later(0.0)
        return self._not_grown(message, failed)

    async def _fill(self, message: LiveMessage, text: str, *, priority: int, since: float) -> Failed | None:
        """Leave a message in which ``text`` does not fit: full to a good place, or as it is when that is near."""
        body = text[message.start :]
        shown = len(self._shown) - message.start if message.kind == "stream" else 0
        end = message.start + cut_at(body, lambda piece: message.fits(message.head + piece), message.most, shown)
        near = len(self._shown) - message.start >= (end - message.start) // 2
        if message.kind == "stream" or not near:
            piece = message.head + text[message.start : end]
            failed = await message.grow(piece, (), priority=priority, since=since)
            if failed is not None:
                return failed
            self._shown = text[:end]
        return await message.close()

    def _showed(self, message: LiveMessage, shown: str, plan: tuple[PlanStep, ...]) -> float:
        self._shown = shown
        self._planned |= {step.id: step for step in plan}
        if settle(self._text) != shown:
            self._changed.set()
        method = "chat.appendStream" if message.kind == "stream" else "chat.update"
        return self._desk.client.pace.interval(
            method, writers=self._desk.writers, quick_s=QUICK_S[message.kind], slow_s=SLOW_S[message.kind]
        )

    def _not_grown(self, message: LiveMessage, failed: Failed) -> float:
        if isinstance(failed.outcome, RetryLater):
            return self._later(failed.outcome.after_s)
        if failed.code == "stopped_by_user":
            self._end(message)
            self._closed = True  # who pressed stop wants to see no more of it; ``finish`` says the rest
        elif failed.code in ENDED:
            self._end(message)
            return self._later(0.0)
        elif message.kind == "stream" or isinstance(failed.outcome, Rejected):
            self._broken = True
            log.info("slack_draft_not_continued", reason=failed.said)
        return self._later(QUICK_S[message.kind])

    def _end(self, message: LiveMessage) -> None:
        """Slack takes nothing more for this message: what it does not show follows in another one."""
        message.open = False
        self._shown = self._shown[: message.start + max(0, message.delivered() - len(message.head))].rstrip()

    def _later(self, after_s: float) -> float:
        self._changed.set()
        return after_s

    def _open_message(self) -> LiveMessage | None:
        return self._messages[-1] if self._messages and self._messages[-1].open else None

    # -- its end
    def _can_become(self, reply: Reply, text: str) -> bool:
        """A reply that pings somebody is a new message: nobody is told of an edit (B017)."""
        pings = any(f"<@{user}>" in text for user in reply.mentions)
        return bool(text) and text.startswith(self._shown) and not (self._broken or pings or reply.private_to)

    async def _complete(self, reply: Reply, text: str, since: float) -> Delivery | None:
        """Deliver the rest of ``text``; None when what is visible cannot become the reply."""
        while True:
            message = self._open_message()
            if message is None:
                outcome, more = await self._post_rest(reply, text, since)
            else:
                outcome, more = await self._complete_message(message, reply, text, since)
            if not more:
                return outcome

    async def _complete_message(
        self, message: LiveMessage, reply: Reply, text: str, since: float
    ) -> tuple[Delivery | None, bool]:
        """Finish the open message; true when more has to follow in another one."""
        whole = message.head + text[message.start :]
        failed: Failed | None
        if message.fits(whole):
            failed = await self._complete_whole(message, reply, whole, since)
            if failed is None:
                self._shown = text
                return Delivered(remote_id=message.ts), False
        else:
            failed = await self._fill(message, text, priority=0, since=since)
            if failed is None:
                return None, True
        if failed.code in ENDED or failed.code == "msg_too_long":
            self._end(message)
            return None, True
        return (None if isinstance(failed.outcome, Rejected) else failed.outcome), False

    async def _complete_whole(self, message: LiveMessage, reply: Reply, whole: str, since: float) -> Failed | None:
        if message.kind == "edit":
            surface = build_surface(replace(reply, text=whole))
            self._files += surface.rendered.files
            return await message.complete(
                whole, key=reply.key, forms=surface.forms(), tasks=(), since=since, body=surface.text
            )
        controls = build_controls(reply)  # a stream keeps its own text and takes only what stands under it
        unended = (step for step in self._planned.values() if step.state in ("running", "pending"))
        tasks = [replace(step, state="done") for step in unended]
        forms = (controls, ()) if controls else ((),)
        return await message.complete(whole, key=reply.key, forms=forms, tasks=tasks, since=since)

    async def _post_rest(self, reply: Reply, text: str, since: float) -> tuple[Delivery | None, bool]:
        """Post what follows behind messages that are complete; with the key on the last one."""
        start = len(text) - len(text[len(self._shown) :].lstrip())
        last = self._messages[-1]
        if start == len(text):
            failed = await last.mark(reply.key, since)
            if failed is None:
                return Delivered(remote_id=last.ts), False
            return (None if isinstance(failed.outcome, Rejected) else failed.outcome), False
        head = _reopened(self._shown, text)
        end = start + cut_at(text[start:], lambda piece: fits_edit(head + piece), EDIT_MAX)
        final = end == len(text)
        message = LiveMessage(self._desk.client, self._spot, kind="edit", start=start, head=head)
        surface = build_surface(replace(reply, text=head + text[start:end]))
        forms = surface.forms() if final else iter([()])
        failed = await message.post(surface.text, key=reply.key, forms=forms, final=final, since=since)
        if failed is not None:
            return (None if isinstance(failed.outcome, Rejected) else failed.outcome), False
        self._messages.append(message)
        self._shown = text[:end]
        self._files += surface.rendered.files
        return Delivered(remote_id=message.ts), not final

    async def _remove(self) -> bool:
        """Take every message away; false when one is left."""
        left = [message for message in self._messages if not await message.remove()]
        if left:
            log.warning("slack_draft_left", ids=",".join(message.ts for message in left))
            self._broken |= len(left) < len(self._messages)
            self._messages = left
            return False
        self._messages, self._shown, self._planned = [], "", {}
        if self._lost is not None:
            lost, self._lost = self._lost, None
            await self._desk.remove_lost(self._spot, self._name, lost)
        return True


def _reopened(shown: str, text: str) -> str:
    """The lines that go on with a code block or a table in another message."""
    head = open_fence(shown) or open_table(shown, text[len(shown) :])
    return f"{head}\n" if head else ""
