"""What a worker's program wrote and printed goes along with the report."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from agent_core.context import MemoryJournal, RunContext, SystemClock
from agent_core.llm.openai_compat import OpenAICompatible
from bot.attachments import Attachments
from bot.redact import SecretRedactor
from bot.storage.sqlite import SqliteStore
from bot.tools.python_sandbox.files import MadeFile
from bot.tools.python_sandbox.folders import Folders
from bot.tools.python_sandbox.made import Made, MadeFiles, new_output_id
from bot.tools.python_sandbox.types import RunStatus, SandboxOutcome
from tests.integration.reports.stage import DIVIDES, WRITES, Desk, Stage, open_sequel, plan_call, read_body
from tests.servers.openai import OpenAIServer

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


async def test_files_of_a_program_are_posted_and_its_output_is_kept_also_after_a_restart(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore, tmp_path: Path
) -> None:
    folders = Folders(tmp_path / "threads", clock=SystemClock())
    redactor = SecretRedactor(["hunter2hunter2"])
    ran: list[str] = []

    def build(desk: Desk) -> Stage:
        registry = desk.registry()

        async def run_python(ctx: RunContext, code: str) -> str:
            """Run a program."""
            ran.append(code)
            made = Made(
                output_id=new_output_id(),
                outcome=SandboxOutcome(status=RunStatus.OK, stdout="a lot"),
                files=(
                    MadeFile(name="shares.png", content=PNG, kind="png"),
                    MadeFile(name="shares.csv", content=b"who\nhunter2hunter2\n", kind="csv"),
                ),
            )
            MadeFiles(folders).save(ctx.thread_id, ctx.run_id, made)
            await ctx.outputs.put(ctx.thread_id, made.output_id, "all that it printed")
            return json.dumps({"ok": True, "output_id": made.output_id, "stdout": "a lot"}, separators=(",", ":"))

        registry.register(run_python)
        attachments = Attachments(
            {}, folders, redactor=redactor, most_bytes=1_000_000, most_files_out=4, most_bytes_out=1_000_000
        )
        return Stage(store, model, desk=desk, registry=registry, attachments=attachments)

    server.on(system=DIVIDES).tools(plan_call(("a1", "analyst", "draw the shares")))
    server.on(system="^You are analyst", step=0).tools(("run_python", {"code": "plot()"}))
    server.on(system="^You are analyst").text("drawn")
    server.on(system=WRITES).text("Shares [analyst:a1].\n---\nSee the picture [analyst:a1].")
    journal, stage = MemoryJournal(), build(Desk())
    first = await stage.run(journal=journal)
    _, replies = read_body(first)
    files = {file.name: file for file in replies[-1].files}
    assert base64.b64decode(files["shares.png"].content) == PNG
    assert "hunter2hunter2" not in first.sequel
    assert "all that it printed" in dict(open_sequel(first).outputs).values()
    again = build(Desk())
    again.outputs = stage.outputs  # as the store would have it
    second = await again.run(journal=journal)
    assert second.sequel == first.sequel
    assert ran == ["plot()"]
