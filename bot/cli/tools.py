"""``hermod tools list`` and ``hermod tools run``."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from pathlib import Path

from adapters.chat import ThreadRef
from adapters.terminal.app import save
from agent_core.context import RunContext, SystemClock
from bot.access import Caller
from bot.app import build_limits, open_storage
from bot.arguments import BadArguments, describe_usage, fields_of
from bot.attachments import RunFiles
from bot.cli.setup import print_error, print_failure, print_json, print_text, set_up
from bot.commands import parse_pairs, summarise
from bot.redact import SecretRedactor
from bot.settings import Settings
from bot.toolbox import build_tools
from bot.turn import Turn
from reading.layout import render_result

MAX_OUTPUT_CHARS = 10_000_000
"""Nobody's context window is at stake here, and JSON must stay whole."""


async def run_tools_list(*, config: Path | None, as_json: bool) -> int:
    """``hermod tools list``."""
    settings = set_up(config)
    async with open_storage(settings) as store:
        tools = build_tools(settings, store, SystemClock())
    found = tools.registry.tools()
    if as_json:
        items = [
            {"name": t.name, "effect": t.effect.value, "description": t.description, "parameters": dict(t.parameters)}
            for t in found
        ]
        print_json({"items": items})
        return 0
    for tool in found:
        print_text(f"{tool.name}  ({tool.effect})  {summarise(tool.spec)}")
        print_text(f"    {describe_usage(tool.spec)}")
    return 0


async def run_tool(name: str, words: list[str], *, config: Path | None, as_json: bool, verbose: bool) -> int:
    """``hermod tools run``."""
    settings = set_up(config, verbose=verbose)
    async with open_storage(settings) as store:
        tools = build_tools(settings, store, SystemClock())
        ctx = _build_context(settings)
        spec = tools.commands.find(ctx, name)
        if spec is None:
            known = ", ".join(tools.registry.names())
            print_failure(f"there is no tool {name!r}; there are: {known}", code="unknown_tool", as_json=as_json)
            return 1
        try:
            arguments = parse_pairs(spec, words)
        except BadArguments as e:
            named = dict(word.split("=", 1) for word in words if "=" in word)
            if len(named) < len(words) or not named.keys() <= fields_of(spec).keys():
                print_failure(str(e), code="invalid_arguments", as_json=as_json)
                return 1
            arguments = dict[str, object](named)  # only values are wrong, and of these the tool itself tells more
        made = RunFiles(tools.attachments, ctx.thread_id)
        try:
            result = await tools.commands.call(replace(ctx, emit=made.on_event), spec, arguments)
            saved = [save(file, Path.cwd()) for file in await made.build()]
        finally:
            await tools.aclose()
    if as_json:
        print_json(_as_envelope(result.content, ok=result.ok))
    else:
        print_text(render_result(result.content, {}))
    for line in saved:
        print_error(line)
    return 0 if result.ok else 1


def _build_context(settings: Settings) -> RunContext:
    clock = SystemClock()
    run_id = f"r{secrets.token_hex(8)}"
    thread = ThreadRef(platform="terminal", workspace="local", channel="tools", thread=run_id)
    limits = replace(build_limits(settings), tool_output_chars=MAX_OUTPUT_CHARS)
    caller = Caller(platform="terminal", workspace="local", channel="tools", user_id="local", local=True)
    return RunContext(
        run_id=run_id,
        thread_id=thread.key,
        limits=limits,
        deadline=clock.monotonic() + limits.run_deadline_s,
        clock=clock,
        redactor=SecretRedactor(settings.secrets()),
        deps=Turn(thread=thread, callers=(caller,)),
    )


def _as_envelope(content: str, *, ok: bool) -> dict[str, object]:
    """Put a tool's own JSON object at top level; any other result under ``result``."""
    try:
        data = json.loads(content)
    except ValueError:
        data = content
    return {"ok": ok, **data} if isinstance(data, dict) else {"ok": ok, "result": data}
