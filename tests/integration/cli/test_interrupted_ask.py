"""Ctrl-C during ``hermod ask`` ends the run, not only the process."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from tests.integration.cli.command import build_environ, hermod
from tests.servers.openai import Failure, OpenAIServer, Request


async def test_an_interrupted_question_leaves_no_run_that_seems_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "hermod.toml").write_text("")
    async with OpenAIServer(models=()) as server:
        asked = asyncio.Event()

        def hang(request: Request) -> Failure:
            asked.set()
            return Failure(500, "", "", hang=True)

        server.on().dynamic(hang)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bot", "ask", "are you there?", cwd=tmp_path,
            env=build_environ(OPENAI_API_KEY="sk-local-key", OPENAI_BASE_URL=server.base_url),
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        await asyncio.wait_for(asked.wait(), 60)
        process.send_signal(signal.SIGINT)
        _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 130
    assert b"Traceback" not in said
    items = hermod(tmp_path, "sessions", "list", "--json").data["items"]
    assert isinstance(items, list)
    assert [(item["runs"], item["busy"]) for item in items] == [(1, False)]
