"""``hermod demo``: a database with real slow queries, and a thread to ask about it."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from pathlib import Path

from agent_core.console import StreamPrinter
from agent_core.context import SystemClock
from bot.app import open_storage
from bot.cli.chat import converse
from bot.cli.local import open_thread
from bot.cli.setup import print_error, print_text, start_logging
from bot.demo.workload import DemoDatabase
from bot.settings import Settings, load_settings
from bot.tools.slow_queries import record_reading
from bot.tools.targets import Target

QUESTIONS = (
    "Which queries were slow in the last 30 minutes?",
    "Explain the slowest of them.",
    "Which index should I add?",
    "Who is blocking whom?",
    "What is 2**10 + math.sqrt(144)?",
)


async def run_demo(*, once: bool, verbose: bool) -> int:
    """Start the demo; everything it made is gone when it ends."""
    task = asyncio.current_task()
    assert task is not None
    # Ctrl-C and SIGTERM end the demo through its finally blocks, so that no server stays behind
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda number, frame: loop.call_soon_threadsafe(task.cancel))
    try:
        return await _run(once=once, verbose=verbose)
    except asyncio.CancelledError:
        print_error("\nhermod: stopped; nothing is left behind")
        return 130


async def _run(*, once: bool, verbose: bool) -> int:
    print_error("Starting a Postgres of its own with a small shop in it; this takes some seconds.")
    with tempfile.TemporaryDirectory(prefix="hermod-demo-") as folder:

        async def read_first(url: str) -> None:
            # before anything was slow, so that the first question has an exact window already
            async with open_storage(_load_settings(folder, url)) as store:
                await record_reading(Target.from_url("shop", url), store, SystemClock())

        async with DemoDatabase(on_loaded=read_first) as shop:
            settings = _load_settings(folder, shop.url)
            start_logging(settings, verbose=verbose, quiet=True)
            print_text(_introduction(settings, shop))
            if not once:
                return await converse(settings, channel="demo", thread="demo", greeting=_suggestions())
            return await _ask_once(settings)


def _load_settings(folder: str, url: str) -> Settings:
    """Settings of the demo alone: its own storage and target; the model is the environment's, if it names one."""
    path = Path(folder) / "hermod.toml"
    storage = f'[storage]\nurl = "sqlite:///{folder}/hermod.db"\n'
    path.write_text(f'{storage}[targets.shop]\nurl = "{url}"\nallow_sql = true\n', "utf-8")
    return load_settings(path, {k: v for k, v in os.environ.items() if not k.startswith("HERMOD_")})


def _introduction(settings: Settings, shop: DemoDatabase) -> str:
    model = settings.effective_models(os.environ)[0]
    brain = (
        "No model key is set (OPENAI_API_KEY), so the offline provider answers: it matches words to tools."
        if model.kind == "offline"
        else f"Questions go to the model {model.model}."
    )
    facts = shop.facts
    rows = ", ".join(f"{count:,} {table}" for table, count in facts.rows.items())
    return (
        f"The database `shop` is up after {facts.start_s:.1f} s: {rows}.\n"
        f"An index is missing on {facts.missing_index}, and an application is suffering from it right now.\n{brain}\n"
    )


def _suggestions() -> str:
    lines = [f"  {question}" for question in QUESTIONS]
    return "\n".join(["Try, for example:", *lines, "/help shows the commands, /quit ends the demo."])


async def _ask_once(settings: Settings) -> int:
    printer = StreamPrinter()
    failed = False
    async with open_thread(settings, channel="demo", thread="once", tap=printer) as local:
        for question in QUESTIONS:
            print_text(f"you> {question}")
            answer = await local.ask(question)
            printer.finish(answer.text)
            print_text("")
            failed |= answer.run is None or answer.run.state != "finished"
    return int(failed)
