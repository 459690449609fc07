"""Slack: a local workspace, reached through Slack's own clients, by Socket Mode or over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from adapters.chat import ChatAdapter, ThreadRef
from adapters.commands import CommandOffer, Complete, write_text
from adapters.slack.app import SlackAdapter
from adapters.slack.install import Installing, OAuthApp
from adapters.slack.installation import NewInstallation
from adapters.slack.manifest import BOT_SCOPES
from bot.installations import StoredInstallations, TokenSeal
from bot.storage import open_store
from tests.contract.chat.features import Way
from tests.contract.chat.place import PATIENCE_S, Place, Post, Who
from tests.integration.slack.conftest import Inbox, build_adapter, reachable, wait_connected
from tests.servers.slack import Copies, SlackServer

CHANNEL = "C1OPS"
SIGNS = {"hourglass_flowing_sand": "queued", "eyes": "seen", "octagonal_sign": "stopped"}


class SystemClock:
    """The machine's clock, for what stores installations."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SlackPlace(Place):
    """See ``Place``. A mention comes as the twins that Slack makes of it."""

    def __init__(self, server: SlackServer, way: Way, folder: Path) -> None:
        self.server = server
        self.way = way
        self.inbox = Inbox()
        self.adapter: ChatAdapter = self._build()
        self._folder = folder
        self._running = AsyncExitStack()
        self._offers: dict[str, CommandOffer] = {}
        self._sockets = 0

    @property
    def _mode(self) -> str:
        return "http" if self.way == "slack-http" else "socket"

    def _build(self, **options: Any) -> SlackAdapter:
        return build_adapter(self.server, mode=self._mode, **options)

    # ------------------------------------------------------------------ life
    async def start(self) -> None:
        adapter = self.adapter
        assert isinstance(adapter, SlackAdapter)
        await self._running.enter_async_context(reachable(adapter, self.server))
        if self._mode == "socket":
            self.server.request_url = None  # what is reachable then is for installing only
            self._sockets += 2
        self._running.push_async_callback(adapter.stop)
        await adapter.start(self.inbox.accept)
        await wait_connected(adapter, PATIENCE_S)
        if self._mode == "socket":
            await self.server.wait_until(lambda: len(self.server.open_sockets) >= self._sockets, PATIENCE_S)

    async def close(self) -> None:
        await self._running.aclose()  # stops every adapter that was started
        self._sockets = 0

    async def restart(self) -> None:
        await self.close()
        self.adapter = self._build()
        await self.start()

    async def take_over(self) -> None:
        self.adapter = self._build()
        await self.start()

    def build_other(self) -> ChatAdapter:
        secret = self.server.signing_secret
        return SlackAdapter(
            "xoxb-wrong",
            self.server.app_token,
            self.server.base_url,
            mode="http" if self._mode == "http" else "socket",
            signing_secret=secret if self._mode == "http" else "",
        )

    async def settle(self) -> None:
        for _ in range(3):  # what was just said has to be on its way
            await asyncio.sleep(0)
        await self.server.wait_until(lambda: all(d.acked or d.error for d in self.server.deliveries), PATIENCE_S)

    async def open_second(self) -> None:
        await self.close()
        space = self.server.add_workspace("T2OTHER", scopes=tuple(BOT_SCOPES))
        self.server.add_channel("C2OTHER", "ops", team="T2OTHER")
        store = open_store(f"sqlite:///{self._folder}/hermod.db")
        await store.open()
        self._running.push_async_callback(store.close)
        seal = TokenSeal(("a-key-of-the-tests-that-is-long-enough",))
        installations = StoredInstallations(store, seal, SystemClock())
        await installations.save(
            NewInstallation(
                workspace=space.id,
                name=space.name,
                token=space.bot_token,
                bot_user=space.bot_user,
                bot=space.bot_id,
                scopes=frozenset(BOT_SCOPES),
                installed_at=datetime.now(UTC),
            )
        )
        app = OAuthApp(
            client_id=self.server.client_id,
            client_secret=self.server.client_secret,
            public_url="http://localhost:9",
        )
        self.adapter = self._build(installing=Installing(app=app, installations=installations))
        await self.start()

    def offer(self, offers: Sequence[CommandOffer], complete: Complete) -> None:
        self._offers = {offer.name: offer for offer in offers}

    # ------------------------------------------------------------------ people
    def person(self, who: Who) -> str:
        return {"alice": "U1ALICE", "bob": "U2BOB"}[who]

    def channel(self) -> tuple[str, str, str]:
        return "slack", self.server.team_id, CHANNEL

    async def say(
        self,
        text: str,
        *,
        thread: ThreadRef | None = None,
        mention: bool = True,
        who: Who = "alice",
        files: Mapping[str, bytes] | None = None,
    ) -> str:
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return await self.server.say(
            f"<@{self.server.bot_user}> {escaped}" if mention else escaped,
            channel=thread.channel if thread else CHANNEL,
            user=self.person(who),
            thread_ts=thread.thread if thread else None,
            files=dict(files) if files else None,
        )

    async def say_direct(self, text: str, *, who: Who = "alice") -> str:
        channel = {"alice": "D1ALICE", "bob": "D2BOB"}[who]
        if channel not in self.server.channels:
            self.server.add_channel(channel, "bob-dm", kind="im", members={self.person(who)})
        return await self.server.say(text, channel=channel, user=self.person(who))

    async def say_in_second(self, text: str) -> str:
        return await self.server.mention(text, channel="C2OTHER")

    async def say_twice(self, text: str) -> str:
        return await self.server.mention(text, copies=Copies(mention=2, message=3, mention_first=True))

    async def say_as_bot(self, text: str, *, thread: ThreadRef | None = None) -> str:
        said = f"<@{self.server.bot_user}> {text}"
        return await self.server.other_bot_says(said, thread_ts=thread.thread if thread else None)

    async def say_as_us(self, text: str) -> str:
        return await self.server.bot_say(None, f"<@{self.server.bot_user}> {text}")

    async def call_everyone(self, text: str) -> str:
        return await self.server.say(f"<!channel> <!here> <!everyone> {text}")

    async def call_group(self, text: str) -> str:
        return await self.server.say(f"<!subteam^S1|@dbas> {text}")

    async def quote(self, text: str, quoted: str) -> str:
        shared = {"is_share": True, "author_name": "Carol", "text": quoted}
        return await self.server.mention(text, extra={"attachments": [shared]})

    async def answer_to(self, message: str, text: str, *, mention: bool, thread: ThreadRef | None = None) -> str:
        """Slack's replies are messages in the thread of what they answer."""
        root = thread.thread if thread else message
        return await self.server.say(f"<@{self.server.bot_user}> {text}" if mention else text, thread_ts=root)

    async def edit(self, message: str, text: str, *, mention: bool = False) -> None:
        said = f"<@{self.server.bot_user}> {text}" if mention else text
        await self.server.edit(message, said, mention=mention)

    async def preview(self, message: str) -> None:
        await self.server.unfurl(message, [{"title": "Example", "title_link": "http://example.com/"}])

    async def delete(self, message: str) -> None:
        await self.server.delete(message)

    async def press(self, thread: ThreadRef, label: str, *, who: Who = "alice") -> None:
        for message in reversed(self._written(thread)):
            for element in _elements(message):
                if element.get("text", {}).get("text") == label and "action_id" in element:
                    outcome = await self.server.click(
                        message["ts"], element["action_id"], channel=thread.channel, user=self.person(who)
                    )
                    assert outcome.error == ""
                    return
        raise LookupError(f"no button {label!r}")

    async def rate(self, thread: ThreadRef, *, up: bool) -> None:
        for message in reversed(self._written(thread)):
            if any(element["type"] == "feedback_buttons" for element in _elements(message)):
                await self.server.click(message["ts"], "feedback", channel=thread.channel, positive=up)
                return
        raise LookupError("no thumbs")

    async def press_stop(self, thread: ThreadRef) -> None:
        assert await self.server.press_stop(thread.thread, channel=thread.channel)

    async def give(
        self, name: str, values: Mapping[str, object], *, thread: ThreadRef | None = None, who: Who = "alice"
    ) -> str:
        text = write_text(self._offers[name], values)
        outcome = await self.server.slash(f"/{name}", text, user=self.person(who))
        assert outcome.error == ""
        return outcome.trigger_id

    # ------------------------------------------------------------------ what people see
    def _written(self, thread: ThreadRef) -> list[dict[str, Any]]:
        if thread.channel not in self.server.channels:
            return []
        if thread.thread.startswith("command-"):
            return [m for m in self.server.bot_messages(thread.channel) if m.get("thread_ts", m["ts"]) == m["ts"]]
        return [m for m in self.server.bot_messages(thread.channel, thread.thread) if m["ts"] != thread.thread]

    def _visible(self, message: dict[str, Any]) -> str:
        """Slack shows blocks in place of the text, and below it where the text was streamed."""
        if not message.get("blocks") or message["ts"] in self.server.streams:
            return str(message["text"])
        return "\n".join(text for block in message["blocks"] for text in _words(block))

    def posts(self, thread: ThreadRef) -> list[Post]:
        calls = {c.response.get("ts"): c.args for c in self.server.calls_to("chat.postMessage")}
        return [
            Post(
                id=m["ts"],
                text=self._visible(m),
                buttons=tuple(e["text"]["text"] for e in _elements(m) if e["type"] == "button"),
                files={f["name"]: self.server.blobs[f["id"]] for f in m.get("files", [])},
                previews=any(calls.get(m["ts"], {}).get(key) is not False for key in ("unfurl_links", "unfurl_media")),
            )
            for m in self._written(thread)
        ]

    def shown_to(self, who: Who) -> list[str]:
        return [
            str(e["text"]) for e in self.server.ephemerals if e.get("user", self.person("alice")) == self.person(who)
        ]

    def pinged(self) -> set[str]:
        return self.server.pinged()

    def works(self, thread: ThreadRef) -> bool:
        return bool(self.server.shown_status(thread.thread, channel=thread.channel))

    def signs(self, message: str) -> set[str]:
        return {SIGNS[name] for name in self.server.signs(message)}

    def violations(self) -> list[str]:
        return [*self.server.violations, *self.server.rate_violations]

    # ------------------------------------------------------------------ what goes wrong
    async def cut(self) -> None:
        before = set(self.server.open_sockets)
        await self.server.kill_sockets()
        await self.server.wait_until(lambda: not before & set(self.server.open_sockets), PATIENCE_S)

    def limit_posts(self, wait_s: float) -> None:
        self.server.inject("chat.postMessage", http=429, retry_after=max(1, round(wait_s)))

    def break_post(self, *, arrives: bool) -> None:
        self.server.inject("chat.postMessage", drop=True, after=arrives)

    def forbid_posting(self) -> None:
        self.server.kick_bot(CHANNEL)

    def forbid_seeing(self) -> None:
        self.server.kick_bot(CHANNEL)

    def forbid_files(self) -> None:
        self.server.inject("files.getUploadURLExternal", error="missing_scope", times=99)

    async def remove(self, thread: ThreadRef) -> None:
        self.server.remove_channel(thread.channel)

    def take_permission(self) -> str:
        self.server.scopes = tuple(scope for scope in self.server.scopes or () if scope != "reactions:write")
        return "reactions:write"


def _words(part: dict[str, Any]) -> Iterator[str]:
    """What people read of a block or of a part of one; a section of rich text is one line."""
    if part.get("type") in ("actions", "context_actions", "button"):
        return
    inner = [*part.get("elements", []), *(cell for row in part.get("rows", []) for cell in row)]
    if part.get("type") in ("rich_text_section", "rich_text_preformatted", "rich_text_quote"):
        yield "".join(f"{e.get('text', '')} {e['url']}" if e["type"] == "link" else _span(e) for e in inner)
        return
    if isinstance(text := part.get("text"), dict):
        text = text["text"]
    if text:
        yield str(text)
    for each in inner:
        yield from _words(each)


def _span(element: dict[str, Any]) -> str:
    return f"<@{element['user_id']}>" if element["type"] == "user" else str(element.get("text", ""))


def _elements(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        element for block in message.get("blocks", []) for element in block.get("elements", []) if "type" in element
    ]
