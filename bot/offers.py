"""What a platform with typed commands is told: the registered tools and Hermod's own words, as options to fill in.

The offers are made of the same tools and words as Slack's manifest. Suggestions while somebody types are answered from
memory, and name nothing that this person may not use in this place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from adapters.commands import MOST_CHOICES, CommandOffer, CommandOption, Complete, Completing
from agent_core.llm.types import ToolSpec
from agent_core.tools.base import Effect
from agent_core.tools.executor import READ_OUTPUT
from agent_core.tools.registry import ToolRegistry
from bot.access import AccessPolicy, Caller, Speak, UseTarget, UseTool, decide
from bot.arguments import choices_of, fields_of, required_of, types_of
from bot.commands import (
    ASK,
    FORGET,
    HELP,
    HERMOD,
    JOBS,
    OWN_SLASH,
    REPORT,
    TOOL_COMMANDS,
    USAGE,
    CommandInfo,
    summarise,
)
from bot.jobs.desk import CHANGE, LIST, Asking

SUMMARY_MAX = 100
NAME_MAX = 32
MOST_OPTIONS = 25
CHOICE_MAX = 100
TYPED_MAX = 6_000
"""The longest text that a person can fill in (Discord's bound, the smallest that is known)."""

TARGET, WORD, RANGE, JOB, JOB_WORDS = "target", "word", "time-range", "job", "job-words"
"""What suggestions can be of (``CommandOption.completes``)."""

JOB_VERBS = ("show", "run", "pause", "resume", "stop", "edit", "delete")
"""Words behind ``/jobs`` that are followed by the name of a job."""

RANGES = ("last_30min", "last_2h", "last_1d", "last_1w", "today", "yesterday")

_NAME = re.compile(rf"[a-z_][a-z0-9_-]{{0,{NAME_MAX - 1}}}")
_KINDS: Sequence[tuple[str, Literal["integer", "number", "boolean"]]] = (
    ("integer", "integer"),
    ("number", "number"),
    ("boolean", "boolean"),
)

_QUESTION = CommandOption(
    name="question",
    summary="What you want to know, in plain words.",
    required=True,
    minimum=1,
    maximum=TYPED_MAX,
)
_COMMAND = CommandOption(name="command", summary="What to run; help when it is left out.", completes=WORD)
_ARGUMENTS = CommandOption(name="arguments", summary="What stands behind it, for example limit=5 target=shop.")
_OWN_OPTIONS: Mapping[str, tuple[CommandOption, ...]] = {
    USAGE.name: (CommandOption(name="days", summary="How many days to look back.", kind="integer", minimum=1),),
    FORGET.name: (
        CommandOption(name="link", summary="The link of a message of the thread; in the thread itself none is needed."),
    ),
    JOBS.name: (
        CommandOption(
            name="words",
            summary="Such as: pause daily. Or: add every monday at 9 in Berlin: what got slower?",
            completes=JOB_WORDS,
        ),
    ),
    REPORT.name: (
        CommandOption(name="name", summary="The job's name; /jobs lists them.", required=True, completes=JOB),
    ),
}


def build_offers(specs: Sequence[ToolSpec], own: Iterable[CommandInfo]) -> tuple[CommandOffer, ...]:
    """Build the commands of a platform: ``/ask``, ``/hermod``, the tools that have a short name, and Hermod's own.

    Args:
        specs: the registered tools.
        own: Hermod's own words; those of ``OWN_SLASH`` among them are commands of their own.
    """
    known = {info.name for info in own}
    tools = [_offer_tool(spec, TOOL_COMMANDS[spec.name]) for spec in specs if spec.name in TOOL_COMMANDS]
    words = [
        CommandOffer(
            name=info.name,
            summary=shorten(info.summary),
            options=_OWN_OPTIONS.get(info.name, (_ARGUMENTS,)),
            plain=True,
            private=True,
        )
        for info in OWN_SLASH
        if info.name in known
    ]
    return (
        CommandOffer(name=ASK, summary="Ask me anything; I answer here.", options=(_QUESTION,), plain=True),
        CommandOffer(
            name=HERMOD, summary="Run a tool, or see what I can do.", options=(_COMMAND, _ARGUMENTS), plain=True
        ),
        *tools,
        *words,
    )


FindJobs = Callable[[Asking], Sequence[str]]
"""Returns the names of the jobs that somebody may ask about in a place, from memory, at once."""


def build_complete(
    registry: ToolRegistry, own: Iterable[CommandInfo], targets: Sequence[str], policy: AccessPolicy, *, jobs: FindJobs
) -> Complete:
    """Build what suggests values while somebody types; it reads memory only.

    Args:
        registry: the tools of now.
        own: Hermod's own words.
        targets: names of the databases.
        policy: what a person may see in a place.
        jobs: see ``FindJobs``.
    """
    words = [ASK, HELP, *(info.name for info in own)]

    def complete(asked: Completing) -> Sequence[str]:
        caller = Caller.of(asked.thread, asked.author)
        if not decide(policy, caller, action=Speak()).allowed:
            return ()
        match asked.completes:
            case "target":
                found = [t for t in targets if decide(policy, caller, action=UseTarget(name=t)).allowed]
            case "word":
                tools = [
                    TOOL_COMMANDS.get(tool.name, tool.name)
                    for tool in registry.tools()
                    if tool.name != READ_OUTPUT
                    and decide(policy, caller, action=UseTool(name=tool.name, effect=tool.effect)).allowed
                ]
                found = [*tools, *words]
            case "time-range":
                found = list(RANGES)
            case "job" | "job-words" as what:
                found = _list_jobs(policy, caller, jobs(Asking(thread=asked.thread, author=asked.author)), what)
            case name:
                found = _list_choices(registry, name)
        return _narrow(found, asked.typed)

    return complete


def _offer_tool(spec: ToolSpec, name: str) -> CommandOffer:
    """Offer a tool with one option an argument; one that cannot be shown so takes its arguments as one text."""
    fields, needed = fields_of(spec), required_of(spec)
    shown = [field for field in fields if _NAME.fullmatch(field)]
    shown.sort(key=lambda field: field not in needed)
    summary = shorten(summarise(spec))
    if any(field not in shown[:MOST_OPTIONS] for field in needed):
        return CommandOffer(name=name, summary=summary, options=(_ARGUMENTS,), plain=True)
    options = tuple(_build_option(spec, field, fields[field], field in needed) for field in shown[:MOST_OPTIONS])
    return CommandOffer(name=name, summary=summary, options=options)


def _build_option(spec: ToolSpec, name: str, schema: Mapping[str, object], required: bool) -> CommandOption:
    types, choices = types_of(schema), [str(choice) for choice in choices_of(schema) if choice is not None]
    kind: Literal["text", "integer", "number", "boolean"] = "text"
    if not choices and "string" not in types:
        kind = next((kind for json_type, kind in _KINDS if json_type in types), "text")
    if types & {"array", "object"}:
        kind = "text"
    completes = ""
    if name == "target":
        completes, choices = TARGET, []
    elif schema.get("format") == RANGE:
        completes = RANGE
    elif len(choices) > MOST_CHOICES or any(len(choice) > CHOICE_MAX for choice in choices):
        completes, choices = f"{spec.name}/{name}", []
    low, high = ("minLength", "maxLength") if kind == "text" else ("minimum", "maximum")
    bounded = kind != "boolean" and not choices and not types & {"array", "object"}
    return CommandOption(
        name=name,
        summary=_summarise_option(name, schema, required),
        kind=kind,
        required=required,
        choices=tuple(choices),
        completes=completes,
        minimum=_find_bound(schema, low) if bounded else None,
        maximum=_find_bound(schema, high) if bounded else None,
    )


def _summarise_option(name: str, schema: Mapping[str, object], required: bool) -> str:
    meaning = " ".join(str(schema.get("description", "")).split()) or name.replace("_", " ").strip().capitalize()
    default = schema.get("default")
    if required or default is None or isinstance(default, list | dict):
        return shorten(meaning)
    usual = "yes" if default is True else "no" if default is False else str(default)
    ending = f" Usually {usual}."
    return shorten(meaning, SUMMARY_MAX - len(ending)) + ending if len(ending) <= SUMMARY_MAX // 2 else shorten(meaning)


def _find_bound(schema: Mapping[str, object], word: str) -> float | None:
    """Return a bound of a number or of a text's length, also where only one of several forms has it."""
    parts = schema.get("anyOf")
    forms = [schema, *(part for part in parts if isinstance(part, Mapping))] if isinstance(parts, list) else [schema]
    found = next((form[word] for form in forms if word in form), None)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def _list_jobs(
    policy: AccessPolicy, caller: Caller, names: Sequence[str], what: Literal["job", "job-words"]
) -> list[str]:
    """Return names of jobs, or words about them, as far as a person may use these: looking, and changing something."""
    looks, changes = (
        decide(policy, caller, action=UseTool(name=tool, effect=Effect.READ)).allowed for tool in (LIST, CHANGE)
    )
    if what == "job":
        return list(names) if changes else []  # they are for having one run
    verbs = [verb for verb in JOB_VERBS if (looks if verb == "show" else changes)]
    return [*(["list"] if looks else []), *(f"{verb} {name}" for name in names for verb in verbs)]


def _list_choices(registry: ToolRegistry, name: str) -> list[str]:
    """Return the choices of ``TOOL/ARGUMENT`` that are too many, or too long, to be listed with the command."""
    tool, _, field = name.partition("/")
    spec = next((spec for spec in registry.specs() if spec.name == tool), None)
    schema = {} if spec is None else fields_of(spec).get(field, {})
    return [str(choice) for choice in choices_of(schema) if choice is not None]


def _narrow(found: Iterable[str], typed: str) -> list[str]:
    """Return what fits to what was typed so far: first what begins with it, then what holds it."""
    wanted = typed.strip().casefold()
    fitting = [name for name in dict.fromkeys(found) if wanted in name.casefold() and len(name) <= CHOICE_MAX]
    fitting.sort(key=lambda name: not name.casefold().startswith(wanted))
    return fitting[:MOST_CHOICES]


def shorten(text: str, most: int = SUMMARY_MAX) -> str:
    """Return a text on one line, cut between words where it is too long."""
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    return f"{text[: most - 2].rpartition(' ')[0] or text[: most - 2]} …"
