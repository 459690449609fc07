"""Hermod as it is shipped, inside this process, between a local Slack workspace and a local model server."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_core.context import Clock
from bot.app import App, open_app
from bot.cli.serve import serve
from bot.platforms import build_adapters
from bot.settings import load_settings
from bot.storage.base import OutboxState
from tests.servers.openai import OpenAIServer
from tests.servers.slack import SlackServer

Wire = dict[str, Any]

SETTINGS = """
[storage]
url = "sqlite:///{folder}/hermod.db"
[[models]]
name = "main"
model = "fake-large"
base_url = "{model}"
api_key = "sk-local-key"
[slack]
bot_token = "{bot_token}"
app_token = "{app_token}"
api_url = "{slack}"
[http]
port = 0
[sandbox]
enabled = false
"""


@dataclass
class Office:
    """A workspace, a model, and Hermod between them."""

    slack: SlackServer
    model: OpenAIServer
    app: App
    threads: set[str] = field(default_factory=set)

    async def ask(self, text: str, *, thread_ts: str | None = None, timeout_s: float = 30.0, **more: Any) -> str:
        """Mention Hermod and wait until it has answered and rests; returns the thread's root."""
        channel = str(more.get("channel", "C1OPS"))
        before = len(self.slack.bot_messages(channel))
        ts = await self.slack.mention(text, thread_ts=thread_ts, **more)
        self.threads.add(f"slack:{self.slack.team_id}/{channel}/{thread_ts or ts}")
        await self.slack.wait_until(lambda: len(self.slack.bot_messages(channel)) > before, timeout_s)
        await self.rest(timeout_s)
        return thread_ts or ts

    async def rest(self, timeout_s: float = 30.0) -> None:
        """Wait until no work is under way: every run has ended, and every reply is delivered or given up.

        That is looked at again and again: properties tell, nothing calls.
        """
        async with asyncio.timeout(timeout_s):
            while self.app.dispatcher.active or self.live_streams or await self._owes():  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)

    async def _owes(self) -> bool:
        """Whether a reply of a thread that was asked in still waits."""
        rows = [row for key in self.threads for row in await self.app.store.load_outbox(key)]
        return any(row.state in (OutboxState.PENDING, OutboxState.SENDING) for row in rows)

    @property
    def live_streams(self) -> list[str]:
        return [ts for ts, stream in self.slack.streams.items() if stream["state"] == "in_progress"]

    def answers(self, root: str, channel: str = "C1OPS") -> list[Wire]:
        """Hermod's messages in a thread."""
        return self.slack.bot_messages(channel, root)

    def said(self, root: str, channel: str = "C1OPS") -> str:
        """All that people read of Hermod in a thread: messages, one after another, and the files beside them."""
        parts = [shown(message) for message in self.answers(root, channel)]
        for message in self.answers(root, channel):
            parts += [self.slack.blobs[f["id"]].decode() for f in message.get("files", [])]
        return "\n".join(parts)

    @property
    def refusals(self) -> list[str]:
        """What Slack refused of Hermod's messages, streams apart."""
        failed = [c for c in self.slack.calls if not c.response.get("ok", True) and "Stream" not in c.method]
        return [f"{c.method}: {c.response['error']}" for c in failed]


@asynccontextmanager
async def open_office(
    folder: Path,
    *,
    extra: str = "",
    slack: SlackServer | None = None,
    model: OpenAIServer | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Office]:
    """Start all three, and end them; ``extra`` are further settings, and ``clock`` is Hermod's."""
    async with slack or SlackServer() as workspace, model or OpenAIServer() as llm:
        tokens = {"bot_token": workspace.bot_token, "app_token": workspace.app_token}
        config = folder / "hermod.toml"
        text = SETTINGS.format(folder=folder, model=llm.base_url, slack=workspace.base_url, **tokens)
        config.write_text(text + extra)
        settings = load_settings(config, {})
        adapters = build_adapters(settings)
        stop = asyncio.Event()
        async with open_app(settings, {}, adapters=adapters, prefixes=["slack:"], clock=clock) as app:
            serving = asyncio.create_task(serve(app, settings, stop))
            await workspace.wait_connected()
            async with asyncio.timeout(60):
                while not adapters["slack"].connected:  # noqa: ASYNC110 - a property tells, nothing calls
                    await asyncio.sleep(0.005)
            yield Office(workspace, llm, app)
            stop.set()
            await serving


def shown(message: Wire) -> str:
    """What people see of a message: its blocks, or its text where they hold none (with the marks of its formatting).

    An answer that was watched while it was written is such a text, with the buttons of its end as blocks below it.
    """
    texts = list(_block_texts(message.get("blocks") or []))
    return "\n".join(texts) if texts else html.unescape(str(message.get("text", "")))


def links(message: Wire) -> list[tuple[str, str]]:
    """The addresses of a message that can be followed, each with its words: of its blocks, or of its text."""
    if any(_block_texts(message.get("blocks") or [])):
        return [(part["url"], str(part.get("text") or part["url"])) for part in elements(message, "link")]
    text = str(message.get("text", ""))
    marked = [(url, label or url) for url, label in re.findall(r"<(https?://[^|>]+)(?:\|([^>]*))?>", text)]
    written = [(url, label) for label, url in re.findall(r"\[([^\]]*)\]\((https?://[^)\s]+)\)", text)]
    return [(html.unescape(url), html.unescape(label)) for url, label in marked + written]


def elements(message: Wire, kind: str = "") -> list[Wire]:
    """All elements of a message's blocks at any depth, or those of one type."""
    return [part for part in _parts(message.get("blocks") or []) if not kind or part.get("type") == kind]


def _parts(value: object) -> Iterator[Wire]:
    if isinstance(value, list):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, dict):
        yield value
        for key in ("elements", "rows", "text", "fields", "blocks"):
            yield from _parts(value.get(key))


def _block_texts(blocks: list[Wire]) -> Iterator[str]:
    for block in blocks:
        match block.get("type"):
            case "rich_text":
                yield from ("".join(_spans(part)) for part in block["elements"])
            case "table":
                for row in block["rows"]:
                    yield " | ".join("".join(_spans(cell)) for cell in row)
            case "markdown":
                yield str(block["text"])
            case "section" | "header":
                yield html.unescape(str(block["text"]["text"]))


def _spans(part: Wire) -> Iterator[str]:
    if part.get("type") == "rich_text_list":
        for item in part["elements"]:
            yield "".join(_spans(item)) + "\n"
    elif "elements" in part:
        for inner in part["elements"]:
            yield from _spans(inner)
    elif part.get("type") == "link":
        yield str(part.get("text") or part["url"])
    elif part.get("type") == "user":
        yield f"<@{part['user_id']}>"
    elif part.get("type") == "emoji":
        yield f":{part['name']}:"
    else:
        yield str(part.get("text", ""))
