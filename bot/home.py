"""What people see of Hermod beside threads: a page with its state and their own, and questions to begin with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from adapters.chat import ChatAdapter, Opened, ThreadRef
from adapters.surfaces import HomeLine, HomePage, HomeSection, Suggestion
from agent_core.context import Clock
from agent_core.llm.breaker import BreakerState
from agent_core.llm.router import ProviderState
from agent_core.llm.types import ToolExample
from agent_core.tools.base import Tool
from bot.access import AccessPolicy, Caller, Speak, UseTarget, UseTool, decide
from bot.arguments import fields_of
from bot.jobs.telling import tell_instant, tell_state, tell_when
from bot.models import count
from bot.storage.base import SessionRow, Store
from bot.storage.jobs import JobRow, JobState
from bot.usage import USUAL_DAYS, begin_of_day, sum_up

MOST_SESSIONS = 8
MOST_JOBS = 8
MOST_SUGGESTIONS = 4
LOOKED_AT = 50
"""Threads of a person that are looked at, to find as many as are shown and may be seen."""

TITLE_MAX = 60

_MODEL_SAYS = {
    BreakerState.CLOSED: "answers",
    BreakerState.HALF_OPEN: "failed, and is being tried again",
    BreakerState.OPEN: "does not answer; I ask it again in a while",
}


class HomeBuilder:
    """Fills the places that a platform shows beside its threads (``adapters.surfaces.Surfaces``).

    Args:
        platform: whose people open them.
        store: sessions and usage.
        policy: what a person may see.
        adapters: the platforms, by name.
        states: how the models are doing.
        tools: the registered tools, whose examples are suggested.
        clock: time.
    """

    def __init__(
        self,
        platform: str,
        *,
        store: Store,
        policy: AccessPolicy,
        adapters: Mapping[str, ChatAdapter],
        states: Callable[[], Sequence[ProviderState]],
        tools: Sequence[Tool],
        clock: Clock,
    ) -> None:
        self._platform = platform
        self._store = store
        self._policy = policy
        # the page is in no channel, so a list of channels says nothing about it
        self._anywhere = replace(policy, channels=())
        self._adapters = adapters
        self._states = states
        self._tools = tuple(tools)
        self._clock = clock

    async def build_home(self, opened: Opened) -> HomePage:
        """Build a person's page: state, their threads, jobs, their usage. Who may not ask sees why, and no more."""
        decision = decide(self._anywhere, self._caller(opened, ""), action=Speak())
        if not decision.allowed:
            line = HomeLine(text=f"{decision.reason[:1].upper()}{decision.reason[1:]}.")
            return HomePage(title="Hermod", sections=(HomeSection(title="Not open to you", lines=(line,)),))
        author = f"{self._platform}:{opened.author.id}"
        return HomePage(
            title="Hermod",
            sections=(
                HomeSection(title="State", lines=tuple(self._state_lines())),
                HomeSection(title="Your last threads", lines=await self._session_lines(opened, author)),
                HomeSection(title="Your scheduled reports", lines=await self._job_lines(opened, author)),
                HomeSection(title="Your usage", lines=await self._usage_lines(author)),
            ),
        )

    async def suggest(self, opened: Opened) -> tuple[Suggestion, ...]:
        """Return questions that this person may ask, from the examples of the tools."""
        caller = self._caller(opened, opened.channel)
        policy = self._policy if opened.channel else self._anywhere
        if not decide(policy, caller, action=Speak()).allowed:
            return ()

        def allowed(tool: Tool, example: ToolExample) -> bool:
            if not decide(policy, caller, action=UseTool(name=tool.name, effect=tool.effect)).allowed:
                return False
            target = example.arguments.get("target")
            named = UseTarget(name=target if isinstance(target, str) else None)
            return not _looks_at_targets(tool) or decide(policy, caller, action=named).allowed

        return choose_suggestions(self._tools, allowed)

    def _caller(self, opened: Opened, channel: str) -> Caller:
        place = ThreadRef(platform=self._platform, workspace=opened.workspace, channel=channel or "home", thread="home")
        return Caller.of(place, opened.author)

    def _state_lines(self) -> list[HomeLine]:
        lines = [
            HomeLine(text=f"{name.capitalize()}: {'connected' if adapter.connected else 'not connected at the moment'}")
            for name, adapter in self._adapters.items()
        ]
        # names and states only: what a provider failed with is for the operator
        return lines + [HomeLine(text=f"Model `{s.name}`: {_MODEL_SAYS[s.state]}") for s in self._states()]

    async def _session_lines(self, opened: Opened, author: str) -> tuple[HomeLine, ...]:
        found = await self._store.list_sessions(limit=LOOKED_AT, author=author)
        shown = [row for row in found if self._may_see(opened, row)][:MOST_SESSIONS]
        if not shown:
            return (HomeLine(text="None yet. Mention me in a channel, and the thread becomes one."),)
        return tuple(HomeLine(text=_describe(row), thread=ThreadRef.parse_key(row.thread_key)) for row in shown)

    def _may_see(self, opened: Opened, row: SessionRow) -> bool:
        thread = ThreadRef.parse_key(row.thread_key)
        here = (thread.platform, thread.workspace) == (self._platform, opened.workspace)
        return here and decide(self._policy, Caller.of(thread, opened.author), action=Speak()).allowed

    async def _job_lines(self, opened: Opened, author: str) -> tuple[HomeLine, ...]:
        # their own only: no platform is asked here in which channels a person is
        here = f"{self._platform}:{opened.workspace}/"
        mine = [row for row in await self._store.list_jobs() if row.owner == author and row.place.startswith(here)]
        if not mine:
            return (HomeLine(text="None. In a channel, `jobs` said to me lists those that are posted there."),)
        lines = [HomeLine(text=_describe_job(row)) for row in mine[:MOST_JOBS]]
        more = len(mine) - len(lines)
        return (*lines, HomeLine(text=f"… {more} more")) if more else tuple(lines)

    async def _usage_lines(self, author: str) -> tuple[HomeLine, ...]:
        now = self._clock.now()
        rows = await self._store.load_usage(since=now - timedelta(days=USUAL_DAYS), author=author)
        today = sum_up(row for row in rows if row.at >= begin_of_day(now))
        return (
            HomeLine(text=f"Today (UTC): {today.text}"),
            HomeLine(text=f"Last {USUAL_DAYS} days: {sum_up(rows).text}"),
        )


def choose_suggestions(
    tools: Sequence[Tool], allowed: Callable[[Tool, ToolExample], bool] = lambda tool, example: True
) -> tuple[Suggestion, ...]:
    """Choose questions from the tools' examples: of tools that look at targets first, each tool's in turn.

    Left out are examples that are about something which need not exist here: a statement, or a target by another name.

    Args:
        tools: in order of preference.
        allowed: leaves out what somebody may not use.
    """
    ranked = sorted(tools, key=lambda tool: not _looks_at_targets(tool))
    chosen: list[Suggestion] = []
    for tool in ranked:
        most = MOST_SUGGESTIONS - 1 if _looks_at_targets(tool) else MOST_SUGGESTIONS
        for example in tool.examples:
            if len(chosen) < most and _fits_anywhere(tool, example) and allowed(tool, example):
                question = f"{example.question[:1].upper()}{example.question[1:]}"
                chosen.append(Suggestion(title=_shorten(question), message=question))
    return tuple(chosen)


def _fits_anywhere(tool: Tool, example: ToolExample) -> bool:
    fields = fields_of(tool.spec)
    if not example.question.isascii() or any(fields.get(name, {}).get("format") == "sql" for name in example.arguments):
        return False
    names = fields.get("target", {}).get("enum")
    target = example.arguments.get("target")
    return target is None or (isinstance(names, list | tuple) and target in names)


def _looks_at_targets(tool: Tool) -> bool:
    return "target" in tool.arguments.model_fields


def _describe(row: SessionRow) -> str:
    busy = ", working now" if row.busy else ""
    return f"{row.last_at:%Y-%m-%d %H:%M} UTC: {count(row.messages, 'message')}, {count(row.runs, 'run')}{busy}"


def _describe_job(row: JobRow) -> str:
    coming = f", next {tell_instant(row.next_at, row)}" if row.next_at and row.state is JobState.ACTIVE else ""
    return f"`{row.name}` in {row.place}: {tell_when(row)}, {tell_state(row)}{coming}"


def _shorten(text: str) -> str:
    return text if len(text) <= TITLE_MAX else f"{text[: TITLE_MAX - 1].rstrip()}…"
