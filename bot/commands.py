"""Commands: ``/slowq limit=5`` and its twin ``@hermod slowq limit=5``, read the same way, answered without a model.

They come from the registered tools (``TOOL_COMMANDS`` has the short names) and from words of Hermod's own; what Discord
has people fill in comes as the same text (``bot.offers``). Slack has no commands in threads, so each one has a twin
that is a mention; but a mention is a command only when its first word is one and all the rest can be read as its
arguments. Everything else is a question.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from adapters.chat import Author, Command, Message, ThreadRef
from agent_core.context import RunContext
from agent_core.llm.types import ToolCall, ToolSpec
from agent_core.tools.base import ToolResult
from agent_core.tools.executor import READ_OUTPUT, ToolExecutor
from agent_core.tools.registry import ToolRegistry
from bot.arguments import (
    BadArguments,
    describe_arguments,
    describe_usage,
    join_words,
    read_arguments,
    split_words,
    write_arguments,
)
from bot.fenced import find_code, read_code
from bot.tools.python_sandbox.made import RUN_PYTHON
from reading.layout import render_result

HERMOD, ASK, HELP = "hermod", "ask", "help"

TOOL_COMMANDS: Mapping[str, str] = {"get_slow_queries": "slowq", "explain_query": "explain", "run_python": "py"}
"""Short names of tools. Each registered one is a command of its own; every tool can be run by ``/hermod TOOL``."""

USAGE_HINT_MAX = 200

UNPREFIXED = frozenset({"discord"})
"""Platforms on which ``/ask`` is a command, and commands have no prefix: they belong to an app by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandInfo:
    """A command as people and a platform's settings name it: without a slash, with a short ``usage``."""

    name: str
    summary: str
    usage: str = ""


USAGE = CommandInfo(name="usage", summary="Show what you used today and in the last days.", usage="[DAYS]")
FORGET = CommandInfo(name="forget", summary="Drop all that I keep of a thread, with a receipt.", usage="[LINK]")
MEMORY = CommandInfo(name="memory", summary="Show what I keep of a thread.", usage="[LINK]")
PROVIDERS = CommandInfo(name="providers", summary="Show how the models are doing.")
JOBS = CommandInfo(
    name="jobs",
    summary="List the scheduled reports, or change them.",
    usage="[show|pause|resume|run|stop|edit|delete NAME | add WHEN TASK | confirm]",
)
REPORT = CommandInfo(name="report", summary="Have a scheduled report made now.", usage="NAME")
OWN_SLASH = (USAGE, FORGET, JOBS, REPORT)
"""Those of Hermod's own commands that are slash commands too; all of them are behind ``/hermod``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A command of Hermod's own: what stands behind its name, who gave it, and where. ``slash``: not as a mention."""

    text: str
    thread: ThreadRef
    author: Author
    slash: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCommand:
    """A command that is no tool.

    Args:
        info: its name and what it does.
        run: answers it with Markdown; raises ``BadArguments`` with what is wrong.
        accepts: tells whether it can be given as a mention with this text behind it.
        private: only the one who gave it sees the answer, also in a thread; as a slash command that is so anyway.
    """

    info: CommandInfo
    run: Callable[[Invocation], Awaitable[str]]
    accepts: Callable[[str], bool] = lambda text: not text
    private: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The command asks the agent."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTool:
    """The command runs a tool; ``word`` is what the tool was called."""

    spec: ToolSpec
    arguments: Mapping[str, object]
    word: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOwn:
    """The command is one of Hermod's own."""

    command: OwnCommand
    invocation: Invocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """The command is answered by this text: help, or what is wrong with it."""

    text: str
    ok: bool = True


Reading = Question | RunTool | RunOwn | Tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The answer of a command. ``private``: for the one who gave it only."""

    text: str
    ok: bool
    private: bool


def parse_pairs(spec: ToolSpec, words: Sequence[str]) -> dict[str, object]:
    """Read words that a shell has split as a tool's arguments.

    Raises:
        BadArguments: they cannot be read; the message says how they are written.
    """
    text, split = join_words(words)
    try:
        return read_arguments(spec, text, split)
    except BadArguments as e:
        raise BadArguments(f"{e}; {describe_usage(spec)}") from None


def summarise(spec: ToolSpec) -> str:
    """Return the first sentence of a tool's description, on one line."""
    text = " ".join(spec.description.split())
    first = re.split(r"(?<=[.!?:])\s", text, maxsplit=1)[0]
    return f"{first[:-1]}." if first.endswith(":") else first


def list_slash_commands(specs: Sequence[ToolSpec], prefix: str = "") -> tuple[CommandInfo, ...]:
    """List the slash commands that a platform has to know, given the registered tools."""
    listed = [CommandInfo(name=HERMOD, summary="Ask me, run a tool, or see what I can do", usage="help | ask QUESTION")]
    for spec in specs:
        if short := TOOL_COMMANDS.get(spec.name):
            usage = describe_usage(spec).removeprefix(f"write: {spec.name}").strip()
            listed.append(CommandInfo(name=short, summary=summarise(spec), usage=_shorten(usage)))
    return tuple(replace(c, name=f"{prefix}{c.name}", summary=c.summary.rstrip(".:")) for c in (*listed, *OWN_SLASH))


def _shorten(text: str) -> str:
    if len(text) <= USAGE_HINT_MAX:
        return text
    return f"{text[: USAGE_HINT_MAX - 2].rpartition(' ')[0]} …"


class CommandRunner:
    """Reads commands and runs them; tools through the same executor as the agent, with the same checks.

    Args:
        executor: runs tools.
        registry: of all tools, to tell what is a command whoever gives it; None: only Hermod's own ones are.
        own: Hermod's own commands.
        prefix: put before the names of slash commands (``[slack] command_prefix``); Discord's have none.
    """

    def __init__(
        self,
        executor: ToolExecutor,
        *,
        registry: ToolRegistry | None = None,
        own: Sequence[OwnCommand] = (),
        prefix: str = "",
    ) -> None:
        self._executor = executor
        self._registry = registry
        self._own = {command.info.name: command for command in own}
        self._prefix = prefix

    @property
    def own(self) -> tuple[CommandInfo, ...]:
        """Hermod's own commands."""
        return tuple(command.info for command in self._own.values())

    def find(self, ctx: RunContext, name: str) -> ToolSpec | None:
        """Return the tool of that name, or short name, if this run may know of it."""
        return _find(self._executor.specs(ctx), name)

    async def call(self, ctx: RunContext, spec: ToolSpec, arguments: Mapping[str, object]) -> ToolResult:
        """Run a tool with arguments."""
        return await self._executor.run_one(
            ctx, ToolCall(id=f"{ctx.run_id}_command", name=spec.name, arguments=json.dumps(arguments))
        )

    # -- reading -------------------------------------------------------------------------------------

    def is_command(self, message: Message) -> bool:
        """Tell whether a message is a command: it is answered alone, and no model reads it."""
        specs = () if self._registry is None else self._registry.specs()
        return self._read_twin(specs, message) is not None

    def read(self, ctx: RunContext, given: Command | Message) -> Reading:
        """Read a slash command, or a message that may be its twin; what is no command is a question."""
        specs = self._executor.specs(ctx)
        if isinstance(given, Message):
            return self._read_twin(specs, given) or Question(text=given.text)
        name, text = given.name.lstrip("/").removeprefix(self._prefix).lower(), given.text.strip()
        if name == ASK:
            return self._read_question(text, given.thread)
        if name != HERMOD:
            return self._read_named(specs, name, text, given)
        word, rest = _split_first(text)
        if word.lower() in ("", HELP):
            return self._read_help(specs, rest, given.thread)
        if word.lower() == ASK:
            return self._read_question(rest, given.thread)
        return self._read_named(specs, word, rest, given)

    def _read_question(self, text: str, place: ThreadRef) -> Reading:
        if text:
            return Question(text=text)
        wish = f"`{self._write_ask(place)} which queries are slow?`"
        return Tell(text=f"Write your question behind it: {wish}", ok=False)

    def _read_twin(self, specs: Sequence[ToolSpec], message: Message) -> Reading | None:
        python = _find(specs, RUN_PYTHON)
        if python is not None and (code := find_code(message)) is not None:
            return RunTool(spec=python, arguments={"code": code}, word=TOOL_COMMANDS[RUN_PYTHON])
        if message.files or not (message.mentioned or message.direct):
            return None
        return self._read_words(specs, message)

    def _read_words(self, specs: Sequence[ToolSpec], message: Message) -> Reading | None:
        word, rest = _split_first(message.text)
        name = word.lower().removeprefix(self._prefix)
        if name == HELP and (not rest or _find(specs, rest) or rest in self._own):
            return self._read_help(specs, rest, message.thread)
        if own := self._own.get(name):
            return _own(own, rest, message) if own.accepts(rest) else None
        spec = _find(specs, name)
        if spec is None or not (rest or "_" in name or name in TOOL_COMMANDS.values()):
            return None  # a tool may be called by an ordinary word, such as "look": alone that is no command
        try:
            return RunTool(spec=spec, arguments=read_arguments(spec, rest, split_words(rest), strict=True), word=name)
        except BadArguments:
            return None

    def _read_named(self, specs: Sequence[ToolSpec], name: str, text: str, given: Command) -> Reading:
        if own := self._own.get(name.lower()):
            return _own(own, text, given)
        spec = _find(specs, name)
        if spec is None:
            return Tell(text=self._say_unknown(specs, name, text, given.thread), ok=False)
        if text.lower() == HELP:
            return Tell(text=self._describe_tool(spec, given.thread))
        if spec.name == RUN_PYTHON and (code := read_code(text)) is not None:
            return RunTool(spec=spec, arguments={"code": code}, word=name)
        try:
            return RunTool(spec=spec, arguments=read_arguments(spec, text, split_words(text)), word=name)
        except BadArguments as e:
            named = rf"(\A|no argument of ){re.escape(spec.name)}\b"
            wrong = re.sub(named, lambda found: f"{found[1]}`{self._written(spec, given.thread)}`", str(e))
            return Tell(text=f"{_sentence(wrong)}\n\n{self._describe_tool(spec, given.thread)}", ok=False)

    def _read_help(self, specs: Sequence[ToolSpec], about: str, place: ThreadRef) -> Reading:
        if not about:
            return Tell(text=self._describe_all(specs, place))
        if own := self._own.get(about.lower()):
            return Tell(text=self._describe_own(own.info, place))
        spec = _find(specs, about)
        if spec is None:
            return Tell(text=self._say_unknown(specs, about, "", place), ok=False)
        return Tell(text=self._describe_tool(spec, place))

    # -- running -------------------------------------------------------------------------------------

    async def run(self, ctx: RunContext, reading: RunTool | RunOwn | Tell) -> Told:
        """Do what was read, and answer with Markdown."""
        match reading:
            case Tell():
                return Told(text=reading.text, ok=reading.ok, private=True)
            case RunOwn():
                return await self._run_own(reading)
            case RunTool():
                result = await self.call(ctx, reading.spec, reading.arguments)
                text = render_result(result.content, {})
                if result.error_code == "invalid_arguments":
                    place = ThreadRef.parse_key(ctx.thread_id)
                    text = f"{text}\n\n{self._describe_tool(reading.spec, place)}"
                return Told(text=text, ok=result.ok, private=not result.ok)

    async def _run_own(self, reading: RunOwn) -> Told:
        command = reading.command
        try:
            text = await command.run(reading.invocation)
            return Told(text=text, ok=True, private=command.private or reading.invocation.slash)
        except BadArguments as e:
            return Told(
                text=f"{_sentence(str(e))}\n\n{self._describe_own(command.info, reading.invocation.thread)}",
                ok=False,
                private=True,
            )

    # -- help ----------------------------------------------------------------------------------------

    def _slash(self, name: str, place: ThreadRef) -> str:
        return f"/{'' if place.platform in UNPREFIXED else self._prefix}{name}"

    def _write_ask(self, place: ThreadRef) -> str:
        return f"/{ASK}" if place.platform in UNPREFIXED else f"{self._slash(HERMOD, place)} {ASK}"

    def _say_unknown(self, specs: Sequence[ToolSpec], name: str, text: str, place: ThreadRef) -> str:
        known = [*(s.name for s in specs), *(TOOL_COMMANDS.get(s.name, "") for s in specs), *self._own]
        near = difflib.get_close_matches(name.lower(), [k for k in known if k], n=1)
        shown = " ".join(f"{name} {text}".replace("`", "'").split())[:200]
        wish = f" Did you mean `{near[0]}`?" if near else ""
        return (
            f"There is no command `{name.replace('`', chr(39))[:60]}` here.{wish} "
            f"For a question write `{self._write_ask(place)} {shown}`, or mention me.\n\n"
            f"{self._describe_all(specs, place)}"
        )

    def _describe_all(self, specs: Sequence[ToolSpec], place: ThreadRef) -> str:
        return "\n".join(["What can be run directly, here or as a mention in a thread:", *self._lines(specs, place)])

    def _lines(self, specs: Sequence[ToolSpec], place: ThreadRef) -> Iterator[str]:
        for spec in specs:
            if spec.name != READ_OUTPUT:
                usage = describe_usage(spec, self._written(spec, place)).removeprefix("write: ")
                yield f"- `{usage}`: {summarise(spec)}"
        yield from (f"- {self._describe_own(own.info, place)}" for own in self._own.values())
        yield f"- `{self._write_ask(place)} QUESTION`: Ask me anything; in a channel a mention does the same."
        yield f"- `{self._slash(HERMOD, place)} help COMMAND`: Say how one of them is written."

    def _written(self, spec: ToolSpec, place: ThreadRef) -> str:
        short = TOOL_COMMANDS.get(spec.name)
        return self._slash(short, place) if short else f"{self._slash(HERMOD, place)} {spec.name}"

    def _describe_own(self, info: CommandInfo, place: ThreadRef) -> str:
        slash = self._slash(HERMOD, place)
        written = self._slash(info.name, place) if info in OWN_SLASH else f"{slash} {info.name}"
        return f"`{f'{written} {info.usage}'.strip()}`: {info.summary}"

    def _describe_tool(self, spec: ToolSpec, place: ThreadRef) -> str:
        written = self._written(spec, place)
        lines = [f"`{describe_usage(spec, written).removeprefix('write: ')}`: {summarise(spec)}", ""]
        lines += describe_arguments(spec)
        examples = [e for e in spec.examples if e.arguments][:2]
        lines += ["", "For example:"] if examples else []
        lines += [f"- `{written} {write_arguments(e.arguments)}`" for e in examples]
        called = TOOL_COMMANDS.get(spec.name, spec.name)
        return "\n".join([*lines, "", f"In a thread: mention me with `{called}` and the same words."])


def _own(command: OwnCommand, text: str, given: Command | Message) -> RunOwn:
    slash = isinstance(given, Command)
    asked = Invocation(text=text, thread=given.thread, author=given.author, slash=slash)
    return RunOwn(command=command, invocation=asked)


def _find(specs: Sequence[ToolSpec], name: str) -> ToolSpec | None:
    return next((s for s in specs if name.lower() in (s.name.lower(), TOOL_COMMANDS.get(s.name))), None)


def _split_first(text: str) -> tuple[str, str]:
    parts = text.strip().split(maxsplit=1)
    return (parts[0] if parts else "", parts[1] if len(parts) > 1 else "")


def _sentence(text: str) -> str:
    shown = text[:1].upper() + text[1:]
    return shown if shown.endswith(("?", ".", "!")) else f"{shown}."
