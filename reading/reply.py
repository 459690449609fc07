"""The whole reply to a conversation without a language model: tools to call, or a text.

It knows nothing of any tool but its spec (name, description, examples, JSON schema), asks for what it cannot read, lays
results out as Markdown, and says in every text that no language model was used. There is no randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from reading.cells import write_code
from reading.layout import render_result
from reading.match import ToolIndex
from reading.past import PastCall, read_past, rows_of
from reading.phrases import CHINESE, ENGLISH, Phrases, list_tools, small_talk
from reading.plan import Ask, Call, Plan, Planner
from reading.rows import show_row
from reading.spec import PastMessage, Spec
from reading.words import first_sentence, has_chinese

_MAX_TEXT = 16_000
"""Characters of a message that are read; the rest of a longer one (a pasted log) is not looked at."""

_KEPT_INDEXES = 8
_EMPTY = ("", "(empty message)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """The request cut into what was before the newest user messages, these, and what the run did since."""

    before: tuple[PastMessage, ...]
    text: str
    since: tuple[PastMessage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What to do next: call tools, or (without calls) say ``text``."""

    text: str = ""
    calls: tuple[Call, ...] = ()


class Reader:
    """Replies to conversations. Safe to use concurrently.

    Args:
        now: the present instant, aware UTC; anchors "this week", "since 9:00" and the like.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._indexes: list[tuple[Sequence[Spec], ToolIndex]] = []

    def reply(self, messages: Sequence[PastMessage], tools: Sequence[Spec], *, may_call: bool = True) -> Reply:
        """Say what the newest message asks for.

        Args:
            messages: the conversation, oldest first.
            tools: what can be called.
            may_call: false where only a text is wanted.
        """
        turn = _read_turn(messages)
        words = CHINESE if has_chinese(turn.text) else ENGLISH
        past = read_past(turn.before)
        since = read_past(turn.since)
        rounds = sum(1 for m in turn.since if m.tool_calls)
        if not may_call or not tools:
            return Reply(text=_render_answer(turn, since, Plan(), words) if since else _refuse(tools, turn, words))
        planner = Planner(self._index(tools), self._now())
        plan = self._plan(planner, turn, past)
        if rounds == 0:
            if (shown := show_row(turn.text, past, words)) and not _uses_row(plan, past):
                return Reply(text=_close([shown], words))
            if plan.calls:
                return Reply(calls=tuple(plan.calls))
            return Reply(text=_answer_without_calls(tools, turn, plan, words))
        if rounds == 1 and plan.later:
            second = planner.plan(turn.text, past, fresh=since)
            if second.calls:
                return Reply(calls=tuple(second.calls))
            plan = Plan(asks=plan.asks + second.asks)
        return Reply(text=_render_answer(turn, since, plan, words))

    def _index(self, tools: Sequence[Spec]) -> ToolIndex:
        for known, index in self._indexes:
            if known is tools or known == tools:
                return index
        made = ToolIndex(tools)
        self._indexes = [(tools, made), *self._indexes[: _KEPT_INDEXES - 1]]
        return made

    def _plan(self, planner: Planner, turn: _Turn, past: Sequence[PastCall]) -> Plan:
        if not turn.text or small_talk(turn.text):
            return Plan()
        questions = [m.content[:_MAX_TEXT] for m in turn.before if m.role == "user"][-3:]
        if not past:
            past = _guess_past(planner, questions)
        plan = planner.plan(turn.text, past)
        if not plan.calls and questions and _was_asked(turn.before):
            # the last answer asked for something; this may be it
            asked = planner.plan(questions[-1], past)
            if asked.asks and not asked.calls:
                joined = planner.plan(f"{questions[-1].rstrip(' ?!.？！。')} {turn.text}", past)
                return joined if joined.calls else plan
        return plan


def _uses_row(plan: Plan, past: Sequence[PastCall]) -> bool:
    """Tell whether a tool is to be called with a value of an earlier row, as "explain row 3" asks for a plan."""
    values = {value for call in plan.calls for value in call.arguments.values() if isinstance(value, str)}
    known = {v for one in past for row in rows_of(one.result) for k, v in row.items() if k != "target" and _is_text(v)}
    return not values.isdisjoint(known)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _read_turn(messages: Sequence[PastMessage]) -> _Turn:
    last = next((n for n in range(len(messages) - 1, -1, -1) if messages[n].role == "user"), None)
    if last is None:
        return _Turn(before=tuple(messages), text="", since=())
    first = last
    while first > 0 and messages[first - 1].role == "user":
        first -= 1
    text = "\n".join(m.content.strip() for m in messages[first : last + 1])[:_MAX_TEXT]
    text = "" if text in _EMPTY else text
    return _Turn(before=tuple(messages[:first]), text=text, since=tuple(messages[last + 1 :]))


def _was_asked(before: Sequence[PastMessage]) -> bool:
    spoken = [m for m in before if m.role != "system"]
    return len(spoken) >= 2 and spoken[-1].role == "assistant" and spoken[-2].role == "user"


def _guess_past(planner: Planner, questions: Sequence[str]) -> list[PastCall]:
    """Work out the calls of earlier questions where a trimmed history has lost them; their results stay unknown."""
    past: list[PastCall] = []
    for question in questions:
        calls = planner.plan(question, past).calls if not small_talk(question) else ()
        past += [PastCall(name=c.name, arguments=c.arguments) for c in calls]
    return past


def _refuse(tools: Sequence[Spec], turn: _Turn, words: Phrases) -> str:
    if not tools:
        return _close([words.no_tools], words)
    return _answer_without_calls(tools, turn, Plan(), words)


def _answer_without_calls(tools: Sequence[Spec], turn: _Turn, plan: Plan, words: Phrases) -> str:
    if plan.asks:
        return _close([_render_ask(ask, words) for ask in plan.asks], words)
    talk = small_talk(turn.text) if turn.text else "overview"
    if talk == "thanks":
        return _close([words.thanks], words)
    lead = {"greeting": words.greeting, "overview": words.overview}.get(talk or "", words.no_match)
    return _close([f"{lead}\n{list_tools(tools, chinese=words is CHINESE)}"], words)


def _render_ask(ask: Ask, words: Phrases) -> str:
    if ask.unclear:
        said = ", ".join(f"“{w}”" for w in ask.unclear) if words is ENGLISH else "、".join(ask.unclear)
        return words.unclear.format(words=said)
    slots = ", ".join(
        f"`{s.name}`" + (f" ({first_sentence(s.description)})" if s.description else "") for s in ask.missing
    )
    lines = [words.no_rows] if ask.no_rows else []
    lines.append(words.missing.format(tool=ask.spec.name, slots=slots))
    if ask.spec.examples:
        lines.append(words.example.format(question=f"“{' '.join(ask.spec.examples[0].question.split())}”"))
    return "\n".join(lines)


def _render_answer(turn: _Turn, since: Sequence[PastCall], plan: Plan, words: Phrases) -> str:
    contents = {m.tool_call_id: m.content for m in turn.since if m.role == "tool"}
    made = [(call, contents.get(call.id, "")) for m in turn.since for call in m.tool_calls]
    parts: list[str] = []
    for call, content in made:
        body = render_result(content, words.labels)
        parts.append(f"**{call.name}**\n{body}" if len(made) > 1 else body)
    if plan.asks:
        parts += [words.reworded, *(_render_ask(ask, words) for ask in plan.asks)]
    named = ", ".join(_signature(c.name, c.arguments) for c in since[:3]) + (", …" if len(since) > 3 else "")
    return _close(parts, words, named)


def _signature(name: str, arguments: Mapping[str, object]) -> str:
    told = ", ".join(f"{k}={_short(v)}" for k, v in arguments.items())
    return write_code(f"{name}({told})", 160)


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 48 else text[:47] + "…"


def _close(parts: Sequence[str], words: Phrases, calls: str = "") -> str:
    line = words.no_model_calls.format(calls=calls) if calls else words.no_model
    return "\n\n".join([*(p.strip() for p in parts if p.strip()), line])
