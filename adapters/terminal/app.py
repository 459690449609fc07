"""A local channel in a terminal, as a ``ChatAdapter``: what ``hermod chat``, ``ask`` and ``demo`` talk through.

It reads no input itself: whoever owns the keyboard hands lines to ``submit`` and hears of replies by ``on_post``.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from adapters.chat import (
    COMMAND_THREAD,
    Accept,
    AdapterError,
    Attachment,
    Author,
    Capabilities,
    Delivered,
    Delivery,
    InDoubt,
    Limits,
    Message,
    PlainPlatform,
    Problem,
    Reply,
    ThreadRef,
)
from adapters.places import ChannelLook, PersonLook

PLATFORM = "terminal"

LOCAL_USER = Author(id="local", name="you")

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Return text without what could drive the terminal: control characters and overrides of direction."""
    return _CONTROL.sub("", text.replace("\r\n", "\n"))


def save(file: Attachment, folder: Path | None) -> str:
    """Save a file under its name, with a number where one of that name is there; return a line about it."""
    name = clean(file.name).replace("/", "_").lstrip(".") or "file"
    if folder is None:
        return f"(file: {name})"
    content = base64.b64decode(file.content) if file.encoding == "base64" else file.content.encode()
    stem, dot, kind = name.rpartition(".")
    for number in itertools.count(1):
        path = folder / (name if number == 1 else f"{stem}-{number}.{kind}" if dot and stem else f"{name}-{number}")
        try:
            with path.open("xb") as made:
                made.write(content)
        except FileExistsError:
            continue
        except OSError as error:
            return f"(file: {name}; it could not be saved: {error.strerror})"
        return f"(file: `{path}`)"
    raise AssertionError("unreachable")


class TerminalAdapter(PlainPlatform):
    """A workspace on this machine. All methods may be called concurrently, on one event loop.

    Args:
        workspace, channel: words for the address; no blanks, ``:`` or ``/``.
        output: where replies are written; Markdown is drawn when it is a terminal, else written as it is. None
            writes nothing, for callers that print by themselves.
        author: who is at the keyboard.
        on_post: called with every reply after it was written; must not block.
        folder: where files of replies are saved, never over an existing one; None only names them.
        now: the clock.
    """

    platform = PLATFORM
    capabilities = Capabilities(threads=True, status=True)
    limits = Limits(text_max=100_000)

    def __init__(
        self,
        workspace: str = "local",
        channel: str = "console",
        *,
        output: TextIO | None = None,
        author: Author = LOCAL_USER,
        on_post: Callable[[Reply], None] | None = None,
        folder: Path | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._workspace = workspace
        self._channel = channel
        self._output = output
        self._drawing = output is not None and output.isatty()
        self._author = author
        self._on_post = on_post
        self._folder = folder
        if folder is not None:
            self.capabilities = replace(self.capabilities, files=True)
        self._now = now
        self._accept: Accept | None = None
        self._posted: dict[tuple[str, str], str] = {}
        self._numbers = itertools.count(1)
        self._status = ""

    @property
    def connected(self) -> bool:
        """True from ``start`` to ``wind_down`` or ``stop``."""
        return self._accept is not None

    async def start(self, accept: Accept) -> None:
        """Hand what is submitted to ``accept`` from now on."""
        self._accept = accept

    async def wind_down(self) -> None:
        """Accept nothing more: whoever submits something is told so at once."""
        self._accept = None

    async def stop(self) -> None:
        """Accept nothing more. Safe to call twice."""
        self._accept = None

    def build_thread(self, name: str = "") -> ThreadRef:
        """Make the address of a thread; without ``name`` a new one."""
        thread = name or f"t-{uuid.uuid4().hex[:12]}"
        return ThreadRef(platform=PLATFORM, workspace=self._workspace, channel=self._channel, thread=thread)

    async def submit(self, text: str, thread: ThreadRef | None = None) -> Message:
        """Say something as the local user, in ``thread`` or in a new one; returns when it is accepted.

        Raises:
            AdapterError: the adapter is not started.
        """
        if self._accept is None:
            raise AdapterError("the terminal channel is not started")
        message = Message(
            thread=thread or self.build_thread(),
            id=uuid.uuid4().hex,
            author=self._author,
            text=text.strip(),
            mentioned=True,
            direct=True,
            sent_at=self._now(),
        )
        await self._accept(message)
        return message

    async def post(self, reply: Reply) -> Delivery:
        """Write one reply. A key that was written before is not written again."""
        posted = (reply.thread.key, reply.key)
        if posted not in self._posted:
            self._posted[posted] = str(next(self._numbers))
            if reply.files:
                saved = await asyncio.to_thread(self._save, reply.files)
                reply = replace(reply, text="\n\n".join([reply.text, *saved]))
            self._write(reply)
            if self._on_post is not None:
                self._on_post(reply)
        return Delivered(remote_id=self._posted[posted])

    async def find_posted(self, thread: ThreadRef, key: str) -> Delivered | InDoubt | None:
        """Tell whether this process wrote it; what an earlier process wrote is gone with its terminal."""
        remote_id = self._posted.get((thread.key, key))
        return Delivered(remote_id=remote_id) if remote_id is not None else None

    async def set_status(self, thread: ThreadRef, text: str) -> None:
        """Show on a terminal that work goes on; each new status is one dim line."""
        text = clean(text)
        if self._output is not None and self._drawing and text and text != self._status:
            self._output.write(f"\x1b[2m… {text}\x1b[0m\n")
            self._output.flush()
        self._status = text

    async def look_at_channel(self, workspace: str, channel: str) -> ChannelLook:
        """It is open: there is no other channel than the one in front of the person."""
        return ChannelLook(state="open", name=channel)

    async def look_at_person(self, workspace: str, user: str) -> PersonLook:
        """Whoever is at the keyboard is here."""
        return PersonLook(state="here", author=self._author)

    def thread_below(self, thread: ThreadRef, remote_id: str) -> ThreadRef:
        """Return the thread below a post; the numbers of posts begin anew with a process, so both names are in it."""
        if not thread.thread.startswith(COMMAND_THREAD):
            return thread
        try:
            return replace(thread, thread=f"{thread.thread.removeprefix(COMMAND_THREAD)}-{remote_id}")
        except ValueError:
            return thread

    async def check(self) -> tuple[Problem, ...]:
        """There is nothing that could be wrong."""
        return ()

    def _save(self, files: Sequence[Attachment]) -> list[str]:
        """Save files, and return what is to be said of each."""
        return [save(file, self._folder) for file in files]

    def _write(self, reply: Reply) -> None:
        if self._output is None:
            return
        text = clean(reply.text)
        if self._drawing:
            from rich.console import Console
            from rich.markdown import Markdown

            Console(file=self._output, highlight=False).print(Markdown(text, hyperlinks=False))
        else:
            self._output.write(text + "\n")
        self._output.flush()
