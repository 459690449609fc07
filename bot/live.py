"""What people see while a run works: a status, and the answer as it is written."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable

import structlog

from adapters.chat import ChatAdapter, Draft, PlanStep, ThreadRef
from agent_core.context import Redactor
from agent_core.llm.types import ToolCall
from agent_core.runtime.events import (
    AnswerRestarted,
    ModelStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    StateChanged,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from agent_core.runtime.state import RunRecord, RunState
from agent_core.tools.base import ToolResult
from bot.storage.base import Fenced, StoreError

log = structlog.get_logger("hermod.live")

FIRST_AFTER = 7
"""Times ``every_s`` before anything is shown: an answer that is written by then is posted whole, without a flicker."""

SHOW_EVERY_S = 0.1
"""The shortest time between two texts that a draft is given; how often the platform is told is the draft's part."""

ID_LOOK_S = {False: 0.02, True: 0.25}
"""How often to look for the platform's id of what is shown: the first one, and further ones."""

LAST_SHOW_S = 3.0
"""How long the end of a run waits for a platform that is just showing something."""

PLAN_STEPS = 20
TITLE_CHARS = 60

THINKING = "is thinking…"
READING = "is reading the thread…"
SUMMARISING = "is summarising…"

_UNFINISHED_WORD = re.compile(r"[!-~]+\Z")
_OPEN_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]{0,60}\Z")
_BEFORE_A_SECRET = re.compile(r"(?:[Bb]earer|[Bb]asic)\s*\Z")


class Status:
    """Keeps a platform's "is working" sign alive while a run goes on.

    Used as an async context manager around a run; ``on_event`` may be handed to the engine as its event sink.
    """

    def __init__(self, adapter: ChatAdapter, thread: ThreadRef) -> None:
        self._adapter = adapter
        self._thread = thread
        self._text = THINKING
        self._beginning = ""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Status:
        if self._adapter.capabilities.status:
            self._task = asyncio.create_task(self._keep_alive())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_event(self, event: RunEvent) -> None:
        """Follow the run."""
        match event:
            case RunStarted(run_id=run_id):
                self._beginning = self._beginning or run_id
            case ModelStarted(run_id=run_id) if run_id == self._beginning:
                self.show(SUMMARISING)  # before a run thinks, a model is asked for a summary only
            case ToolStarted(call=call):
                self.show(f"is running {call.name}…")
            case StateChanged(state=RunState.THINKING):
                self._beginning = "-"
                self.show(THINKING)
            case _:
                pass

    def show(self, text: str) -> None:
        """Show another text from now on."""
        if text != self._text:
            self._text = text
            self._changed.set()

    async def _keep_alive(self) -> None:
        ttl_s = self._adapter.capabilities.status_ttl_s
        while True:
            self._changed.clear()
            await self._adapter.set_status(self._thread, self._text)
            try:
                async with asyncio.timeout(ttl_s * 0.75 if ttl_s else None):
                    await self._changed.wait()
            except TimeoutError:
                continue


class Live:
    """Shows an answer while it is written, through one task; what it cannot show in time is left out.

    Used as an async context manager around a run. Afterwards the answer may become of ``draft``, unless it was
    ``cut_off``; ``record`` is the run's last one, None while it has not ended.

    Args:
        draft: where it is shown; None where the platform has no drafts.
        run_id: the run whose text is shown. Tool calls of its workers are steps too.
        redactor: nothing is shown that may be, or become, a secret.
        keep: records the platform's id of what became visible.
        every_s: see ``SHOW_EVERY_S``.
    """

    def __init__(
        self,
        draft: Draft | None,
        run_id: str,
        *,
        redactor: Redactor,
        keep: Callable[[str], Awaitable[None]],
        every_s: float = SHOW_EVERY_S,
    ) -> None:
        self.draft = draft
        self.cut_off = False
        self.record: RunRecord | None = None
        self._run_id = run_id
        self._redactor = redactor
        self._keep = keep
        self._every_s = every_s
        self._text = ""
        self._anew = False
        self._plan: dict[str, PlanStep] = {}
        self._showed = False
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        """The text so far that may be seen: without secrets, and without an end that may become one."""
        return show_safely(self._text, self._redactor)

    async def __aenter__(self) -> Live:
        if self.draft is not None:
            self._task = asyncio.create_task(self._keep_showing(self.draft), name=f"draft of {self._run_id}")
        return self

    async def __aexit__(self, *exc: object) -> None:
        """End the showing: a call under way is waited for, since a draft that was cut off cannot become the answer."""
        if self._task is None:
            return
        self._ended.set()
        self._changed.set()
        _, late = await asyncio.wait({self._task}, timeout=LAST_SHOW_S)
        if late:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=LAST_SHOW_S)
            self.cut_off = True
            log.warning("draft_cut_off", run_id=self._run_id)

    def on_event(self, event: RunEvent) -> None:
        """Follow the run."""
        if isinstance(event, ToolStarted):
            self._step(event.call.id, _title(event.call, self._redactor))
        elif isinstance(event, ToolFinished):
            self._finish_step(event.result)
        elif event.run_id == self._run_id:
            self._follow(event)

    def _follow(self, event: RunEvent) -> None:
        match event:
            case TextDelta(text=text):
                self._text = text if self._anew else self._text + text
                self._anew = False
            case AnswerRestarted():
                self._text = ""
            case ModelStarted():
                self._anew = True  # what was said beside tool calls stays until the answer begins
                return
            case RunEnded(record=record):
                self.record = record
            case _:
                return
        self._changed.set()

    def _step(self, call_id: str, title: str) -> None:
        self._plan[call_id] = PlanStep(id=call_id, title=title, state="running")
        self._changed.set()

    def _finish_step(self, result: ToolResult) -> None:
        known = self._plan.get(result.call_id)
        self._plan[result.call_id] = PlanStep(
            id=result.call_id,
            title=result.name if known is None else known.title,
            state="done" if result.ok else "failed",
            detail=f"{result.duration_s:.1f} s",
        )
        self._changed.set()

    async def _keep_showing(self, draft: Draft) -> None:
        """Show what is new until the end, and record what became visible, which may be a while later."""
        shown: tuple[str, tuple[PlanStep, ...]] = ("", ())
        kept: str | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_AFTER * self._every_s):
                await self._ended.wait()
        while not self._ended.is_set():
            await self._wait(None if kept is None else ID_LOOK_S[bool(kept)])
            self._changed.clear()
            now = (self.text, tuple(self._plan.values())[-PLAN_STEPS:])
            if now != shown and not self._ended.is_set():
                # first the row: should the process die in between, whoever takes over looks for what is visible
                kept = await self._keep_id("") if kept is None else kept
                if kept is not None:
                    await draft.show(*now)
                    shown, self._showed = now, True
            if draft.remote_id and draft.remote_id != kept:
                kept = await self._keep_id(draft.remote_id) or kept

    async def _wait(self, look_s: float | None) -> None:
        """Wait for something new, and then a moment for more; or until it is time to look for an id."""
        try:
            async with asyncio.timeout(look_s):
                await self._changed.wait()
        except TimeoutError:
            return
        if self._showed and not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._ended.wait()

    async def _keep_id(self, remote_id: str) -> str | None:
        """Record what is visible; None when that failed, so that it is tried again."""
        try:
            await self._keep(remote_id)
        except Fenced:
            self._ended.set()  # whoever holds the thread now removes what is visible
            return None
        except StoreError as e:
            log.error("draft_not_recorded", run_id=self._run_id, error=str(e))
            return None
        return remote_id


def show_safely(text: str, redactor: Redactor) -> str:
    """Return what of an unfinished text may be seen: redacted, without an end that may be the beginning of a secret.

    Secrets are made of ASCII characters without blanks, so the last such word waits until it is whole; so do the
    words that announce one.
    """
    safe = redactor.redact(text)
    safe = _UNFINISHED_WORD.sub("", safe)
    safe = _OPEN_KEY.sub("", safe)
    return _BEFORE_A_SECRET.sub("", safe)


def _title(call: ToolCall, redactor: Redactor) -> str:
    """Name a tool call for people: the tool and its first argument that says something."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    values = arguments.values() if isinstance(arguments, dict) else ()
    main = next((str(v) for v in values if isinstance(v, str | int | float) and str(v).strip()), "")
    main = " ".join(redactor.redact(main).split())
    main = main if len(main) <= TITLE_CHARS else f"{main[: TITLE_CHARS - 1]}…"
    return f"{call.name}: {main}" if main else call.name
