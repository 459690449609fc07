"""The commands ``jobs`` and ``report``: jobs without a model, as slash commands and as mentions."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping

from bot.access import LOCAL_PLATFORM
from bot.arguments import BadArguments
from bot.commands import JOBS, REPORT, Invocation, OwnCommand
from bot.jobs.desk import Asking, JobDesk
from bot.jobs.keeping import BadJob
from bot.jobs.proposals import Decision, read_decision
from bot.jobs.telling import tell_deletion, tell_instant, tell_job, tell_list, tell_proposal, tell_stopping
from bot.jobs.wishes import JobWish

NO_CHANNEL = "A report is posted to a channel, and here is none; use `hermod jobs` at the command line, or ask in chat"
NOTHING_WAITS = "Nothing waits to be confirmed by you here; a proposal waits for 15 minutes."

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_SET = re.compile(r"\b(task|name|channel|template|targets|timezone)=(\"[^\"]*\"|'[^']*'|\S+)")

_Answer = Callable[[JobDesk, Asking, str], Awaitable[str]]


def build_job_commands(desk: JobDesk) -> tuple[OwnCommand, OwnCommand]:
    """Build ``jobs`` (list, show, pause, resume, run, stop, delete, edit, add, confirm, cancel) and ``report NAME``.

    As a mention ``report`` stays a question: its next word could be anything.
    """

    async def jobs(asked: Invocation) -> str:
        word, rest = _split(asked.text)
        answer = _VERBS.get(word.lower())
        if answer is None:
            known = ", ".join(filter(None, _VERBS))
            raise BadArguments(f"jobs knows no {word[:40]!r}; write jobs alone to list them, or one of: {known}")
        return await _answer(desk, asked, answer, rest)

    async def report(asked: Invocation) -> str:
        return await _answer(desk, asked, _run, asked.text.strip())

    return (
        OwnCommand(info=JOBS, run=jobs, accepts=_accepts),
        OwnCommand(info=REPORT, run=report, accepts=lambda text: False),
    )


async def _answer(desk: JobDesk, asked: Invocation, answer: _Answer, rest: str) -> str:
    if asked.thread.platform == LOCAL_PLATFORM:
        raise BadArguments(NO_CHANNEL)
    try:
        return await answer(desk, Asking(thread=asked.thread, author=asked.author), rest)
    except BadJob as e:
        raise BadArguments(str(e)) from None


def _accepts(text: str) -> bool:
    """Tell whether this behind ``jobs`` is a command as a mention: its first word is one, and a name follows it."""
    word, rest = _split(text)
    match word.lower():
        case "":
            return True
        case "list":
            return not rest
        case "confirm" | "cancel":
            return not rest or _NAME.fullmatch(rest) is not None
        case "add":
            return bool(rest)
        case "edit":
            return _NAME.fullmatch(_split(rest)[0]) is not None
        case verb:
            return verb in _VERBS and _NAME.fullmatch(rest) is not None


# -- the verbs -------------------------------------------------------------------------------------


async def _list(desk: JobDesk, asking: Asking, rest: str) -> str:
    return tell_list(await desk.list(asking), place=asking.place, command=desk.slash_of(asking))


async def _show(desk: JobDesk, asking: Asking, rest: str) -> str:
    return tell_job(await desk.find(asking, _name(rest)), now=desk.now())


async def _pause(desk: JobDesk, asking: Asking, rest: str) -> str:
    row = await desk.pause(asking, _name(rest))
    return f"The job `{row.name}` is paused; `{desk.slash_of(asking)} resume {row.name}` lets it go on."


async def _resume(desk: JobDesk, asking: Asking, rest: str) -> str:
    row = await desk.resume(asking, _name(rest))
    coming = "it has no further time" if row.next_at is None else f"its next time is {tell_instant(row.next_at, row)}"
    return f"The job `{row.name}` goes on; {coming}."


async def _run(desk: JobDesk, asking: Asking, rest: str) -> str:
    firing = await desk.run_now(asking, _name(rest))
    at = firing.thread
    here = (at.workspace, at.channel) == (asking.thread.workspace, asking.thread.channel)
    where = "in this channel" if here else f"in {at.platform}:{at.workspace}/{at.channel}"
    return f"A report of `{firing.job}` is being made; it is posted {where}."


async def _stop(desk: JobDesk, asking: Asking, rest: str) -> str:
    return tell_stopping(await desk.stop(asking, _name(rest)), desk.slash_of(asking))


async def _delete(desk: JobDesk, asking: Asking, rest: str) -> str:
    return tell_deletion(await desk.propose_delete(asking, _name(rest)), desk.slash_of(asking))


async def _add(desk: JobDesk, asking: Asking, rest: str) -> str:
    checked = await desk.propose_new(asking, _read_wish(rest))
    return tell_proposal(checked, owner=asking.author.name, command=desk.slash_of(asking), action="make")


async def _edit(desk: JobDesk, asking: Asking, rest: str) -> str:
    name, rest = _split(rest)
    checked = await desk.propose_change(asking, _name(name), _read_wish(rest))
    return tell_proposal(checked, owner=asking.author.name, command=desk.slash_of(asking), action="change")


async def _decide(desk: JobDesk, asking: Asking, decision: Decision | None) -> str:
    said = None if decision is None else await desk.decide(asking, decision)
    return NOTHING_WAITS if said is None else said


async def _confirm(desk: JobDesk, asking: Asking, rest: str) -> str:
    return await _decide(desk, asking, read_decision(f"confirm {rest}"))


async def _cancel(desk: JobDesk, asking: Asking, rest: str) -> str:
    return await _decide(desk, asking, read_decision(f"cancel {rest}"))


_VERBS: Mapping[str, _Answer] = {
    "list": _list,
    "": _list,
    "show": _show,
    "pause": _pause,
    "resume": _resume,
    "run": _run,
    "stop": _stop,
    "add": _add,
    "edit": _edit,
    "delete": _delete,
    "confirm": _confirm,
    "cancel": _cancel,
}


# -- words -----------------------------------------------------------------------------------------


def _split(text: str) -> tuple[str, str]:
    word, _, rest = text.strip().partition(" ")
    return word, rest.strip()


def _name(text: str) -> str:
    if not text.strip():
        raise BadArguments("say which job by its name; jobs alone lists them")
    return text.strip()


def _read_wish(text: str) -> JobWish:
    """Read ``"0 9 * * MON-FRI" Europe/Berlin TASK``, also in words, with ``task=``, ``name=`` and so on anywhere."""
    named = {m[1]: m[2].rstrip(",:;").strip("\"'") for m in _SET.finditer(text)}
    when = " ".join(_SET.sub(" ", text).split())
    return JobWish(
        when=when,
        task=named.get("task", ""),
        timezone=named.get("timezone", ""),
        template=named.get("template", ""),
        targets=tuple(t for t in named.get("targets", "").split(",") if t),
        name=named.get("name", ""),
        channel=named.get("channel", ""),
    )
