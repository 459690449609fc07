"""``hermod chat``: the interactive console."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from adapters.chat import Author, ThreadRef
from agent_core.console import Command, StreamPrinter, describe
from agent_core.console import converse as talk
from agent_core.llm.tokens import load_counter
from agent_core.observe import trace_as_text
from bot.cli.local import LocalThread, open_thread
from bot.cli.setup import print_error, print_text, set_up
from bot.commands import summarise
from bot.memory import correct_summary
from bot.models import describe_state
from bot.settings import Settings

AUTHOR = "terminal:local"
LOCAL = Author(id="local", name="local")


async def run_chat(thread: str, *, config: Path | None, verbose: bool) -> int:
    """Talk in a thread that outlives the console."""
    settings = set_up(config, verbose=verbose)
    try:
        ThreadRef(platform="terminal", workspace="local", channel="chat", thread=thread)
    except ValueError:
        print_error(f"hermod: {thread!r} cannot be the name of a thread; use letters, digits, - and _")
        return 2
    return await converse(settings, channel="chat", thread=thread)


async def converse(settings: Settings, *, channel: str, thread: str, greeting: str = "") -> int:
    """Read lines and answer them until the person leaves. Ctrl-C stops a run; between runs it ends the console.

    Args:
        settings: loaded settings.
        channel, thread: name the thread.
        greeting: what is shown first; the commands by default.
    """
    printer = StreamPrinter()
    async with open_thread(settings, channel=channel, thread=thread, tap=printer) as local:
        commands = ChatCommands(local).by_name

        async def ask(text: str) -> str:
            return (await local.ask(text)).text

        print_text(greeting or describe(commands))
        await talk(ask, commands, printer, stop=local.stop)
    return 0


class ChatCommands:
    """What a person may ask of a thread beside questions; the docstrings are the console's help."""

    def __init__(self, local: LocalThread) -> None:
        self._app = local.app
        self._thread, self._key = local.thread, local.thread.key
        self.by_name: Mapping[str, Command] = {
            "/tools": self.tools,
            "/trace": self.trace,
            "/usage": self.usage,
            "/summary": self.summary,
            "/memory": self.memory,
            "/forget": self.forget,
            "/providers": self.providers,
        }

    async def tools(self, rest: str) -> str:
        """what can be called"""
        return "\n".join(f"  {tool.name}: {summarise(tool.spec)}" for tool in self._app.tools.registry.tools())

    async def trace(self, rest: str) -> str:
        """the steps of the last run"""
        runs = await self._app.store.list_runs(thread_key=self._key, limit=20)
        record = next((run.record for run in runs if run.record), "")  # a word such as !summary is a run without one
        return trace_as_text(json.loads(record)) if record else "no run yet"

    async def usage(self, rest: str) -> str:
        """tokens and cost of this thread"""
        runs = await self._app.store.list_runs(thread_key=self._key, limit=1000)
        rows = await self._app.store.load_usage(since=datetime.min.replace(tzinfo=UTC))
        mine = [row for row in rows if row.thread_key == self._key]
        costs = [row.cost_usd for row in mine if row.cost_usd is not None]
        price = f"${sum(costs):.4f}" if len(costs) == len(mine) else "cost unknown"
        tokens = sum(row.input_tokens + row.output_tokens for row in mine)
        return f"{len(runs)} runs in this thread, {tokens} tokens, {price}"

    async def summary(self, rest: str) -> str:
        """what stands for the oldest messages; /summary TEXT corrects it, /summary forget drops it"""
        found = await self._app.store.load_summary(self._key)
        if found is None or not found.text:
            return "there is no summary; every message that is remembered is sent as it is"
        if not rest:
            by = "" if found.author == AUTHOR else f" (written by: {found.author})"
            return f"{found.text}{by}"
        text = "" if rest == "forget" else self._app.redactor.redact(rest)
        counter = await asyncio.to_thread(load_counter, self._app.router.model)
        now = self._app.clock.now()
        await correct_summary(self._app.store, self._key, text, author=AUTHOR, counter=counter, now=now)
        return "corrected" if text else "forgotten"

    async def memory(self, rest: str) -> str:
        """what is kept of this thread"""
        return await self._app.memory.show(self._key)

    async def forget(self, rest: str) -> str:
        """drop what was said and found in this thread"""
        return await self._app.memory.forget(self._thread, LOCAL)

    async def providers(self, rest: str) -> str:
        """how each model is doing"""
        return "\n".join(f"  {describe_state(state)}" for state in self._app.router.states())
