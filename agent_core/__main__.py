"""``python -m agent_core``: talk with an agent that has the engine's own tools."""

from __future__ import annotations

import argparse
import asyncio
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from pydantic import TypeAdapter

from agent_core.agent import Agent
from agent_core.console import StreamPrinter, converse, describe, show
from agent_core.context import MemoryOutputs, RunContext
from agent_core.llm.pricing import PriceList
from agent_core.llm.provider import OFFLINE, Provider
from agent_core.llm.router import Route, Router
from agent_core.llm.types import ModelMessage, Usage
from agent_core.memory.conversation import Conversation, Summary
from agent_core.memory.summarize import Summarizer, summary_message
from agent_core.observe import trace_as_data, trace_as_text
from agent_core.prompts import ANSWERING, describe_time, describe_tools, load_prompt
from agent_core.runtime.events import RunEnded, RunEvent
from agent_core.runtime.loop import AgentLoop
from agent_core.runtime.state import RunRecord
from agent_core.tools.builtin import register_builtin
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry

HISTORY_LINES = 2_000
NO_MODEL = "no language model, since neither OPENAI_API_KEY nor ANTHROPIC_API_KEY is set: words are matched to tools"


def build_router(environ: Mapping[str, str]) -> Router:
    """Return a router over a provider for each key, OpenAI's first; without any, over the offline one."""
    found: list[Provider] = []
    if environ.get("OPENAI_API_KEY") or environ.get("OPENAI_BASE_URL"):
        from agent_core.llm.openai_compat import OpenAICompatible

        key, url = environ.get("OPENAI_API_KEY") or "none", environ.get("OPENAI_BASE_URL") or None
        model = environ.get("OPENAI_MODEL") or "gpt-4o-mini"
        found.append(OpenAICompatible(name="openai", model=model, api_key=key, base_url=url))
    if key := environ.get("ANTHROPIC_API_KEY", ""):
        from agent_core.llm.anthropic import Anthropic

        model, url = environ.get("ANTHROPIC_MODEL") or "claude-haiku-5-5", environ.get("ANTHROPIC_BASE_URL") or None
        found.append(Anthropic(name="anthropic", model=model, api_key=key, base_url=url))
    if found:
        return Router(found)
    from agent_core.llm.offline import OfflineProvider

    return Router([Route(OfflineProvider(), free=True)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _SummaryLine:
    """Stands for all messages before it but the newest ``keeps``; without text these are only left out."""

    summary: str
    keeps: int


_LINE: TypeAdapter[ModelMessage | _SummaryLine] = TypeAdapter(ModelMessage | _SummaryLine)


class History:
    """A conversation that outlives the process, in a file that only its owner may read; None keeps none."""

    def __init__(self, path: Path | None) -> None:
        self._path, self.conversation, self.damaged = path, Conversation(), 0
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b", buffering=0) as file:
                self._load(file)
        self._saved, self._summary = len(self.conversation), self.conversation.summary

    def _load(self, file: FileIO) -> None:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{self._path} is no file")
        os.fchmod(file.fileno(), 0o600)
        messages, text, lines = list[ModelMessage](), "", file.readall().split(b"\n")
        if lines[-1]:  # it was cut off; what is added must not become a part of it
            file.write(b"\n")
        for line in filter(None, lines[-HISTORY_LINES:]):
            try:
                entry = _LINE.validate_json(line)
            except ValueError:
                self.damaged += 1
                continue
            if isinstance(entry, ModelMessage):
                messages.append(entry)
            else:
                messages, text = messages[max(0, len(messages) - entry.keeps) :], entry.summary
        self._begin(messages, text)

    def _begin(self, messages: list[ModelMessage], text: str, covers: int = 0) -> None:
        self.conversation = Conversation()
        self.conversation.extend(messages)
        if text:
            after = self.conversation.count(summary_message(Summary(text=text, covers=0)))
            self.conversation.summary = Summary(text=text, covers=covers, tokens_after=after)

    def save(self) -> None:
        """Add what is new to the file; where that fails it is said, and the conversation goes on."""
        said, summary = self.conversation, self.conversation.summary
        new: list[ModelMessage | _SummaryLine] = [*said.messages[self._saved :]]
        if summary is not self._summary:
            new.append(_SummaryLine(summary=summary.text if summary else "", keeps=len(said) - said.covers))
        self._saved, self._summary = len(said), summary
        if self._path is not None and new:
            try:
                with self._path.open("ab") as file:
                    file.write(b"".join(_LINE.dump_json(entry) + b"\n" for entry in new))
            except OSError as e:
                show(f"the history was not saved: {e}")

    def correct_summary(self, text: str) -> None:
        """Replace the summary; without text it is dropped, and with it what it stood for."""
        said = self.conversation
        self._begin(said.messages if text else said.messages[said.covers :], text, said.covers)
        self._saved = len(self.conversation)
        self.save()

    def forget(self) -> None:
        """Drop everything."""
        if self._path is not None:
            os.truncate(self._path, 0)
        self.conversation, self._saved, self._summary = Conversation(), 0, None


class Chat:
    """An agent in one conversation; ``commands`` are what a person may ask of it beside questions."""

    def __init__(self, router: Router, history: History, printer: StreamPrinter) -> None:
        registry = ToolRegistry()
        register_builtin(registry)
        self._executor = ToolExecutor(registry)
        prices = PriceList()
        self._loop = AgentLoop(provider=router, executor=self._executor, prices=prices, summarizer=Summarizer())
        self._router, self._history, self._printer, self._outputs = router, history, printer, MemoryOutputs()
        self._records: list[RunRecord] = []
        told = (self.tools, self.trace, self.usage, self.summary, self.forget, self.providers)
        self.commands = {f"/{command.__name__}": command for command in told}

    def _take(self, event: RunEvent) -> None:
        self._printer(event)
        if isinstance(event, RunEnded):
            self._records.append(event.record)

    async def ask(self, text: str) -> str:
        """Answer, or say why there is no answer."""
        await asyncio.to_thread(self._router.prepare)
        ctx = RunContext.create("console", emit=self._take, outputs=self._outputs)
        tools, now = describe_tools(self._executor.specs(ctx)), describe_time(ctx.clock.now())
        template = load_prompt("react", allowed=ANSWERING)
        agent = Agent(instructions=template.fill(name="an agent", now=now, tools=tools), template=template.label)
        try:
            record = await self._loop.run(agent, ctx, self._history.conversation, text)
        finally:
            self._history.save()
        return record.answer or f"failed: {record.error}"

    async def tools(self, rest: str) -> str:
        """what can be called"""
        return describe_tools(self._executor.specs(RunContext.create()))

    async def trace(self, rest: str) -> str:
        """the steps of the last run"""
        return trace_as_text(trace_as_data(self._records[-1])) if self._records else "no run yet"

    async def usage(self, rest: str) -> str:
        """tokens and cost since the start"""
        usage = sum((record.usage for record in self._records), Usage())
        costs = [record.cost_usd for record in self._records]
        known = [cost for cost in costs if cost is not None]
        price = f"${sum(known):.4f}" if len(known) == len(costs) else "cost unknown"
        return f"{len(costs)} runs, {'' if usage.exact else 'about '}{usage.total_tokens} tokens, {price}"

    async def summary(self, rest: str) -> str:
        """what stands for the oldest messages; /summary TEXT corrects it, /summary forget drops it"""
        found = self._history.conversation.summary
        if found is None or not rest:
            return found.text if found else "there is no summary; every message that is remembered is sent as it is"
        self._history.correct_summary("" if rest == "forget" else rest)
        return "forgotten" if rest == "forget" else "corrected"

    async def forget(self, rest: str) -> str:
        """drop this conversation"""
        self._history.forget()
        self._outputs = MemoryOutputs()
        return "forgotten"

    async def providers(self, rest: str) -> str:
        """how each model is doing"""
        return "\n".join(
            f"  {s.name} ({s.model}): breaker {s.state}, {s.requests} requests, {s.errors} errors {s.last_error}"
            for s in self._router.states()
        )


async def run(history: History) -> int:
    """Converse until the person leaves."""
    router, printer = build_router(os.environ), StreamPrinter()
    chat = Chat(router, history, printer)
    found = len(history.conversation)
    damaged = f", {history.damaged} damaged lines left out" if history.damaged else ""
    show(f"Model: {NO_MODEL if router.model == OFFLINE else router.model}. Remembered messages: {found}{damaged}.")
    show(describe(chat.commands))
    try:
        await converse(chat.ask, chat.commands, printer)
    finally:
        await router.aclose()
    return 0


def main() -> int:
    """Run the console; a history that cannot be used is exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m agent_core", description="Talk with an agent.")
    parser.add_argument("--history", type=Path, metavar="FILE", help="default: below XDG_STATE_HOME or ~/.local/state")
    parser.add_argument("--no-history", action="store_true", help="remember nothing across restarts")
    options = parser.parse_args()
    state = Path(os.environ.get("XDG_STATE_HOME", ""))  # it counts where it is absolute (XDG Base Directory, 0.8)
    state = state if state.is_absolute() else Path("~/.local/state").expanduser()
    path = options.history or state / "agent_core" / "history.jsonl"
    try:
        return asyncio.run(run(History(None if options.no_history else path)))
    except OSError as e:
        if isinstance(e, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the interpreter's last flush finds a reader
        else:
            sys.stderr.write(f"agent_core: {e}; --history FILE names another place, --no-history keeps none\n")
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
