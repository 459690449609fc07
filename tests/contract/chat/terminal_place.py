"""The terminal: one person at one keyboard."""

from __future__ import annotations

import io
from collections.abc import Mapping

from adapters.chat import ChatAdapter, Reply, ThreadRef
from adapters.terminal.app import TerminalAdapter
from tests.contract.chat.features import Way
from tests.contract.chat.place import NotHereError, Place, Post, Who
from tests.integration.slack.conftest import Inbox


class Screen(io.StringIO):
    """A terminal that draws."""

    def isatty(self) -> bool:
        return True


class TerminalPlace(Place):
    """See ``Place``. What was written stays on the screen over restarts."""

    way: Way = "terminal"

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.written: list[Reply] = []
        self.screen = Screen()
        self._build()

    def _build(self) -> None:
        self.terminal = TerminalAdapter(output=self.screen, on_post=self.written.append)
        self.adapter: ChatAdapter = self.terminal

    async def start(self) -> None:
        await self.adapter.start(self.inbox.accept)

    async def restart(self) -> None:
        await self.adapter.stop()
        self._build()
        await self.start()

    async def take_over(self) -> None:
        self._build()
        await self.start()

    def person(self, who: Who) -> str:
        return {"alice": "local", "bob": "nobody"}[who]

    def channel(self) -> tuple[str, str, str]:
        return "terminal", "local", "console"

    async def say(
        self,
        text: str,
        *,
        thread: ThreadRef | None = None,
        mention: bool = True,
        who: Who = "alice",
        files: Mapping[str, bytes] | None = None,
    ) -> str:
        if who != "alice" or files:
            raise NotHereError
        return (await self.terminal.submit(text, thread)).id

    async def say_direct(self, text: str, *, who: Who = "alice") -> str:
        return await self.say(text, who=who)

    def posts(self, thread: ThreadRef) -> list[Post]:
        return [Post(id=str(n), text=r.text) for n, r in enumerate(self.written) if r.thread == thread]

    def works(self, thread: ThreadRef) -> bool:
        """A status is a dim line; it is over when something is written below it."""
        return self.screen.getvalue().rstrip("\n").rpartition("\n")[2].startswith("\x1b[2m")

    def pinged(self) -> set[str]:
        return set()
