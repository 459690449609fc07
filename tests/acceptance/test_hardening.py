"""What other processes of the same account can learn of a running Hermod."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.acceptance.process import HermodProcess
from tests.servers.discord import DiscordServer

PEEK = """
import ctypes
import pathlib


def register(registry):
    answer = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
    pathlib.Path(__file__).with_name("dumpable").write_text(str(answer))
"""


async def test_a_running_process_can_be_neither_read_nor_traced_by_others_of_its_user(tmp_path: Path) -> None:
    """It asks the kernel about itself (prctl(2), PR_GET_DUMPABLE): 0 hides its environment and memory in /proc."""
    async with DiscordServer() as discord:
        process = HermodProcess(tmp_path, model_url=None, discord=discord)
        (tmp_path / "counted_tools.py").write_text(PEEK)
        await process.start()
        try:
            await process.wait_ready()
        finally:
            await process.stop()
    assert await asyncio.to_thread((tmp_path / "dumpable").read_text) == "0"
