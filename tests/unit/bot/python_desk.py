"""Hermod with ``run_python`` around it, on a backend without locks.

Run as ``python -m tests.unit.bot.python_desk DATABASE FOLDER PLACE`` it works one turn, in which a program makes a
file, and ends by SIGKILL before the ``result`` of the program is recorded, or before the ``answer``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from adapters.chat import FileRef
from agent_core.context import NoRedactor, Redactor, StepState, SystemClock
from agent_core.llm.scripted import ScriptedProvider, Turn, call, say
from agent_core.llm.types import ModelRequest, ModelResponse
from agent_core.tools.registry import ToolRegistry
from bot.attachments import Attachments
from bot.storage.base import Claim, Store
from bot.storage.sqlite import SqliteStore
from bot.tools.python_sandbox.folders import Folders
from bot.tools.python_sandbox.tool import register_python_tool
from bot.tools.python_sandbox.types import SandboxLimits
from tests.unit.bot.desk import Desk
from tests.unit.bot.recording import MemoryChat, message
from tests.unit.sandbox.plain import PlainBackend


class FilingChat(MemoryChat):
    """A chat whose messages have files; ``asked`` are those that were fetched."""

    def __init__(self, files: Mapping[str, bytes] | None = None, *, drafts: bool = False) -> None:
        super().__init__(drafts=drafts)
        self.contents = dict(files or {})
        self.asked: list[str] = []
        self.hanging = asyncio.Event()
        self.hang_on = ""

    async def fetch_file(self, file: FileRef, *, max_bytes: int) -> bytes | None:
        self.asked.append(file.id)
        if file.id == self.hang_on:
            self.hanging.set()
            await asyncio.Event().wait()
        content = self.contents.get(file.id)
        return content if content is not None and len(content) <= max_bytes else None


class PythonDesk:
    """A desk, the folders of its threads, and the backend that runs its programs."""

    def __init__(
        self,
        store: Store,
        root: Path,
        turns: Sequence[Turn] = (),
        *,
        provider: ScriptedProvider | None = None,
        chat: FilingChat | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self.chat = chat or FilingChat()
        self.backend = PlainBackend()
        self.folders = Folders(root, clock=SystemClock())
        self.provider = provider or ScriptedProvider(turns)
        self.attachments = Attachments(
            {"memory": self.chat}, self.folders, redactor=redactor or NoRedactor(), most_bytes=1000
        )
        registry = ToolRegistry()
        register_python_tool(
            registry,
            self.backend,
            folders=self.folders,
            limits=SandboxLimits(),
            clock=SystemClock(),
            attached=self.attachments,
        )
        self.desk = Desk(
            store,
            self.provider,
            registry=registry,
            chat=self.chat,
            attachments=self.attachments,
            redactor=redactor,
        )

    def results(self, number: int = -1) -> list[dict[str, object]]:
        """What ``run_python`` gave back, as the request ``number`` holds it."""
        return [json.loads(m.content) for m in self.provider.requests[number].messages if m.role == "tool"]


class DyingStore(SqliteStore):
    """Ends its process where the result of a tool would be recorded."""

    async def finish_step(
        self, claim: Claim, run_id: str, key: str, state: StepState, result: str, now: datetime
    ) -> None:
        if key.startswith("tool:"):
            os.kill(os.getpid(), signal.SIGKILL)
        await super().finish_step(claim, run_id, key, state, result, now)


class DyingProvider(ScriptedProvider):
    """Ends its process where it is asked for the answer."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        response = await super().complete(request)
        if len(self.requests) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return response


MAKE = {"code": "import os\nopen('output/made.txt', 'w').write(str(os.getppid()))"}


async def main(database: str, root: str, place: str) -> None:
    """Work one turn; it does not get far."""
    store = DyingStore(Path(database)) if place == "result" else SqliteStore(Path(database))
    await store.open()
    provider = (DyingProvider if place == "answer" else ScriptedProvider)([call(("run_python", MAKE)), say("never")])
    made = PythonDesk(store, Path(root), provider=provider)
    await made.desk.inbox.accept(message("make a file"))
    await made.desk.dispatcher.work_all()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
