"""What the messages of a Postgres log say about durations, and which statement each duration belongs to."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from dataclasses import dataclass, field

from bot.tools.slow_logs.plans import redact_plan, split_logged_plan
from bot.tools.slow_logs.shapes import Shape, ShapeTable, Who
from bot.tools.slow_logs.tally import Tally

DURATION = (
    rb"duration: (?P<duration>\d+(?:\.\d+)?) ms"
    rb"(?:  (?P<step>statement|parse|bind|execute fetch from|execute|plan)(?: [^\n]*?)?:[ \n])?"
)
"""The beginning of a message that tells a duration; the statement or plan follows."""

MESSAGE = re.compile(DURATION)
_STATEMENT = re.compile(rb"(?:statement|execute(?: fetch from)? [^\n]*?): ")
_CANCELLED = re.compile(rb"canceling statement due to")
_SPACES = re.compile(rb"\s+")

_MOST_SESSIONS = 2_000
_MOST_PLANS = 16
_LONGEST_KEPT = 64 * 1024
_CLOCKS_S = 0.005


@dataclass(slots=True)
class _Plan:
    at: float
    duration_s: float
    query: bytes
    who: Who
    text: bytes


@dataclass(slots=True)
class _Session:
    """What one session said that is not settled yet."""

    statement: bytes | None = None
    line: int = 0
    cancelled: bool = False
    plans: list[_Plan] = field(default_factory=list)
    timed: bytes = b""
    shape: Shape | None = None


class Pairing:
    """Brings durations and statements of one log together, by session and by line number where the log has one.

    - A duration with its statement counts as it is; parse and bind steps are no executions of their own.
    - A bare duration belongs to the statement that its session logged last, and to each statement once.
    - An entry of auto_explain only gives its plan when its session has a duration of the same execution: behind it, or
      with bound parameters before it, as the plan is then logged when the portal is closed. Else it counts.
    - What a timeout ended has no duration; it is counted apart.
    """

    def __init__(self, table: ShapeTable, tally: Tally) -> None:
        self._table = table
        self._tally = tally
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._explains = False

    def expect_plans(self) -> None:
        """Take notice that the log has entries of auto_explain, before the first one comes."""
        self._explains = True

    @property
    def waits(self) -> bool:
        """True while something is not settled, so that a timed statement has to be shown to ``timed``."""
        return self._explains or bool(self._sessions)

    def timed(self, at: float, duration_s: float, text: bytes, who: Who, session: bytes) -> None:
        """Take a statement with its own duration."""
        shape = self._table.add(at, duration_s, text, who)
        open_ = self._sessions.pop(session, None)
        if not self._explains:
            return
        name = _name(text)
        open_ = open_ or _Session()
        mine = [plan for plan in open_.plans if _name(plan.query) == name or not plan.query]
        # Several statements in one text have a plan each; a plan from before the beginning is of another execution.
        mine = [plan for plan in mine if plan is mine[-1] or plan.at >= at - duration_s - _CLOCKS_S]
        for plan in open_.plans:
            if plan not in mine:
                self._count_plan(plan)
            elif shape is not None:
                _keep_plan(shape, plan)
        later = self._open(session)
        later.timed, later.shape = (b"", None) if mine else (name, shape)

    def step(self, at: float, duration_s: float, text: bytes) -> None:
        """Take a parse or bind step."""
        self._tally.steps += 1
        self._tally.steps_s += duration_s
        self._table.add_step(at, duration_s, text)

    def plan(self, at: float, duration_s: float, text: bytes, who: Who, session: bytes) -> None:
        """Take an entry of auto_explain, which waits for a duration of the same statement."""
        self._tally.plans += 1
        self._explains = True
        query, body = split_logged_plan(text)
        plan = _Plan(at, duration_s, query[:_LONGEST_KEPT], who, body[:_LONGEST_KEPT])
        open_ = self._open(session)
        if open_.timed and open_.timed == _name(query):
            if open_.shape is not None:
                _keep_plan(open_.shape, plan)
            open_.timed, open_.shape = b"", None
            return
        open_.plans.append(plan)
        while len(open_.plans) > _MOST_PLANS:
            self._count_plan(open_.plans.pop(0))

    def bare_duration(self, at: float, duration_s: float, who: Who, session: bytes, line: int = 0) -> None:
        """Take a duration without a statement."""
        open_ = self._sessions.get(session)
        if open_ is None or open_.statement is None or (line and open_.line and line <= open_.line):
            self._tally.lone_durations += 1
            self._tally.lone_durations_s += duration_s
            return
        text, open_.statement = open_.statement, None
        self.timed(at, duration_s, text, who, session)

    def untimed(self, body: bytes, session: bytes, line: int = 0) -> None:
        """Take a LOG message without a duration: perhaps the statement of a duration that follows."""
        match = _STATEMENT.match(body)
        if match is not None:
            open_ = self._open(session)
            self._settle(open_)
            open_.statement, open_.line = body[match.end() :][:_LONGEST_KEPT], line

    def error(self, body: bytes, session: bytes) -> None:
        """Take an ERROR: the session's statement ended, perhaps by a timeout; its text is in the next entry."""
        open_ = self._open(session)
        self._settle(open_)
        open_.statement, open_.cancelled = None, _CANCELLED.match(body) is not None
        if not open_.cancelled:
            del self._sessions[session]

    def failed_statement(self, at: float, text: bytes, who: Who, session: bytes) -> None:
        """Take the statement that belongs to the error before it."""
        open_ = self._sessions.pop(session, None)
        if open_ is not None and open_.cancelled:
            self._table.add_cancelled(at, text, who)

    def cancelled(self, at: float, body: bytes, text: bytes, who: Who, session: bytes) -> None:
        """Take an error that brings its statement along."""
        self.error(body, session)
        self.failed_statement(at, text, who, session)

    def finish(self) -> None:
        """Settle what still waits; the log ends here."""
        for open_ in self._sessions.values():
            self._settle(open_)
        self._sessions.clear()

    def _open(self, session: bytes) -> _Session:
        open_ = self._sessions.get(session)
        if open_ is None:
            open_ = self._sessions[session] = _Session()
            if len(self._sessions) > _MOST_SESSIONS:
                self._settle(self._sessions.popitem(last=False)[1])
        else:
            self._sessions.move_to_end(session)
        return open_

    def _settle(self, open_: _Session) -> None:
        for plan in open_.plans:
            self._count_plan(plan)
        open_.plans.clear()

    def _count_plan(self, plan: _Plan) -> None:
        if plan.query:
            shape = self._table.add(plan.at, plan.duration_s, plan.query, plan.who)
            if shape is not None:
                _keep_plan(shape, plan)


def _name(text: bytes) -> bytes:
    """A statement as it is compared: auto_explain and the duration line differ in white space and a last ``;``."""
    return _SPACES.sub(b" ", text[:_LONGEST_KEPT]).strip(b" ;")


def _keep_plan(shape: Shape, plan: _Plan) -> None:
    """Keep the plan of one of the slowest executions; redacting each that is a little slower would cost too much."""
    if plan.text and (not shape.plan or plan.duration_s >= 2 * shape.plan_s):
        shape.plan, shape.plan_s = redact_plan(plan.text), plan.duration_s


def unescape_json(raw: bytes) -> bytes:
    """The text of a JSON string without its quotes; unreadable escapes are left as they are."""
    if b"\\" not in raw:
        return raw
    try:
        value = json.loads(b'"' + raw + b'"', strict=False)
    except ValueError:
        return raw
    return value.encode("utf-8", "replace") if isinstance(value, str) else raw
