"""Files of a Slack thread around its Python runs, through the real adapter and Slack's own clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.slack.app import SlackAdapter
from agent_core.context import NoRedactor, SystemClock
from agent_core.llm.scripted import ScriptedProvider, Turn, call, say
from agent_core.tools.registry import ToolRegistry
from bot.attachments import Attachments
from bot.storage.base import Store
from bot.storage.sqlite import SqliteStore
from bot.tools.python_sandbox.folders import Folders
from bot.tools.python_sandbox.tool import register_python_tool
from bot.tools.python_sandbox.types import SandboxLimits
from tests.integration.slack.conftest import build_adapter, wait_connected
from tests.servers.slack import SlackServer
from tests.unit.bot.desk import Desk
from tests.unit.sandbox.plain import PlainBackend

PLOT = (
    "import csv, struct, zlib\n"
    "rows = list(csv.DictReader(open('input/sales.csv')))\n"
    "def chunk(kind, data):\n"
    "    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))\n"
    "png = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 0, 0, 0, 0))\n"
    "png += chunk(b'IDAT', zlib.compress(b'\\0\\0')) + chunk(b'IEND', b'')\n"
    "open('output/plot.png', 'wb').write(png)\n"
    "open('output/sum.csv', 'w').write('total\\n%d\\n' % sum(int(r['total']) for r in rows))\n"
)
SALES = b"month,total\n1,10\n2,32\n"


@asynccontextmanager
async def hermod(
    server: SlackServer, store: Store, root: Path, turns: Sequence[Turn]
) -> AsyncIterator[tuple[PlainBackend, ScriptedProvider]]:
    """Hermod in the workspace, with ``run_python`` on a backend without locks."""
    adapter: SlackAdapter = build_adapter(server)
    folders, registry, backend = Folders(root, clock=SystemClock()), ToolRegistry(), PlainBackend()
    attachments = Attachments({"slack": adapter}, folders, redactor=NoRedactor(), most_bytes=100_000)
    register_python_tool(
        registry, backend, folders=folders, limits=SandboxLimits(), clock=SystemClock(), attached=attachments
    )
    provider = ScriptedProvider(turns)
    desk = Desk(store, provider, registry=registry, adapters={"slack": adapter}, attachments=attachments)
    try:
        await adapter.start(desk.inbox.accept)
        await wait_connected(adapter)
        async with desk.running():
            yield backend, provider
    finally:
        await adapter.stop()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = SqliteStore(tmp_path / "hermod.db")
    await opened.open()
    yield opened
    await opened.close()


def uploaded(server: SlackServer, root: str) -> list[dict[str, Any]]:
    return [f for m in server.bot_messages("C1OPS", root) for f in m.get("files", [])]


def said(server: SlackServer, root: str) -> list[str]:
    return [m["text"] for m in server.bot_messages("C1OPS", root) if m.get("text")]


async def test_a_csv_that_was_dropped_comes_back_as_a_plot_in_its_thread(
    server: SlackServer, store: Store, tmp_path: Path
) -> None:
    turns = [call(("run_python", {"code": PLOT})), say("Here is the plot.")]
    async with hermod(server, store, tmp_path / "s", turns):
        root = await server.mention("plot this", files={"sales.csv": SALES})
        await server.wait_until(lambda: len(uploaded(server, root)) == 2, 30)
    plot, total = uploaded(server, root)
    assert [plot["name"], total["name"]] == ["plot.png", "sum.csv"]
    assert server.blobs[plot["id"]].startswith(b"\x89PNG\r\n\x1a\n")
    assert server.blobs[total["id"]] == b"total\n42\n"
    assert any("Here is the plot." in text for text in said(server, root))
    assert server.violations == []


async def test_a_file_of_an_earlier_message_is_read_by_a_later_question(
    server: SlackServer, store: Store, tmp_path: Path
) -> None:
    look = "print(open('input/sales.csv').read())"
    turns = [say("Thank you."), call(("run_python", {"code": look})), say("Read.")]
    async with hermod(server, store, tmp_path / "s", turns) as (_, provider):
        root = await server.mention("this is our data", files={"sales.csv": SALES})
        await server.wait_until(lambda: any("Thank you." in text for text in said(server, root)), 30)
        await server.mention("read it", thread_ts=root, user="U2BOB")
        await server.wait_until(lambda: any("Read." in text for text in said(server, root)), 30)
    (result,) = [m.content for m in provider.requests[-1].messages if m.role == "tool"]
    assert "month,total" in result


async def test_without_the_scope_for_files_the_login_page_is_no_file_and_the_model_is_told(
    server: SlackServer, store: Store, tmp_path: Path
) -> None:
    server.scopes = tuple(scope for scope in server.scopes or () if scope != "files:read")
    turns = [call(("run_python", {"code": "import os\nprint(os.listdir('input'))"})), say("I could not read it.")]
    async with hermod(server, store, tmp_path / "s", turns) as (_, provider):
        root = await server.mention("read", files={"sales.csv": SALES})
        await server.wait_until(lambda: any("could not read" in text for text in said(server, root)), 30)
    (result,) = [m.content for m in provider.requests[-1].messages if m.role == "tool"]
    assert '"stdout":"[]\\n"' in result
    assert '"missing":[{"name":"sales.csv"' in result


async def test_a_slash_command_answers_with_output_and_files_in_the_channel(
    server: SlackServer, store: Store, tmp_path: Path
) -> None:
    code = "```open('output/a.txt','w').write('hello')\nprint('<!channel> done')```"
    async with hermod(server, store, tmp_path / "s", []):
        await server.slash("/py", code)
        await server.wait_until(lambda: [m for m in server.messages("C1OPS") if m.get("files")], 30)
    (filed,) = [m for m in server.messages("C1OPS") if m.get("files")]
    assert [(f["name"], server.blobs[f["id"]]) for f in filed["files"]] == [("a.txt", b"hello")]
    texts = [m["text"] for m in server.messages("C1OPS") if m.get("text") and "done" in m["text"]]
    assert len(texts) == 1
    assert server.pinged() == set()
