"""Secrets that people paste, and Hermod's own: they reach no model, no storage and no log, whatever the log level."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.process import HermodProcess
from tests.acceptance.secrecy import find_secrets, read_folder
from tests.integration.cli.command import hermod
from tests.servers.openai import OpenAIServer, Reply, Request
from tests.servers.slack import SlackServer

BOT_TOKEN, APP_TOKEN = "xoxb-2718281828-b0ttok3nxyz", "xapp-1-A0FAKE-3141592653-app70k3n"
DATABASE_PASSWORD = "Sh0p/Pass+wörd"

KEY_LINES = (
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7",
    "VJTUt9Us8cKjMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDu",
)
PEM = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(KEY_LINES) + "\n-----END PRIVATE KEY-----"

PASTED = {
    "a Slack token": ("xoxb-17653672481-19874698323-pdFZKVeTuE8sk7oOcHrzqqgy", ["pdFZKVeTuE8sk7oOcHrzqqgy"]),
    "an app token": ("xapp-1-A012ABCD0A0-1234567890123-0123456789abcdef", ["1234567890123-0123456789abcdef"]),
    "a database URL": ("postgresql://admin:hunter2-Ku7x@db.example:5432/shop", ["hunter2-Ku7x"]),
    "a URL as Slack links it": ("<mysql://root:tr0ub4dor-R8q@db.example/shop>", ["tr0ub4dor-R8q"]),
    "a URL with an escaped sign": ("postgresql://admin:Pa55&amp;Zw9kQ@db.example/shop", ["Zw9kQ"]),
    "a model key": ("sk-proj-T3BlbkFJ0123456789abcdefghij", ["T3BlbkFJ0123456789abcdefghij"]),
    "a cloud key": ("AKIAIOSFODNN7EXAMPLE", ["AKIAIOSFODNN7EXAMPLE"]),
    "a PEM key": (PEM, list(KEY_LINES)),
    "a PEM key in a code block": (f"```{PEM}```", list(KEY_LINES)),
    "a PEM key cut off": (PEM.partition("\n-----END")[0], list(KEY_LINES)),
    "a header": ("Authorization: Bearer 8f14e45fceea167a5a36dedd4bea2543", ["8f14e45fceea167a5a36dedd4bea2543"]),
    "the bot's token": (BOT_TOKEN, []),
    "the app's token": (APP_TOKEN, []),
    "a target's password": (f"is {DATABASE_PASSWORD} still right", []),
    "a target's password, encoded": ("is Sh0p%2FPass%2Bw%C3%B6rd still right", []),
}


@dataclass(frozen=True, kw_only=True)
class World:
    slack: SlackServer
    model: OpenAIServer
    process: HermodProcess
    folder: Path


def repeat(request: Request) -> Reply:
    """A model that says again what it was told."""
    return Reply(f"You said: {request.last_user}")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with SlackServer(bot_token=BOT_TOKEN, app_token=APP_TOKEN) as slack, OpenAIServer() as model:
        model.on().dynamic(repeat)
        process = HermodProcess(
            tmp_path,
            slack_url=slack.base_url,
            model_url=model.base_url,
            bot_token=BOT_TOKEN,
            app_token=APP_TOKEN,
            extra='[targets.shop]\nurl = "postgresql://hermod:Sh0p%2FPass%2Bw%C3%B6rd@127.0.0.1:9/shop"\n',
            verbose=True,
        )
        await process.start()
        try:
            await slack.wait_connected()
            yield World(slack=slack, model=model, process=process, folder=tmp_path)
        finally:
            await process.stop()
        assert (slack.violations, model.violations) == ([], [])


def list_secrets() -> list[str]:
    return [BOT_TOKEN, APP_TOKEN, DATABASE_PASSWORD, *(part for _, parts in PASTED.values() for part in parts)]


async def test_pasted_secrets_and_hermods_own_reach_neither_model_nor_storage_nor_log(world: World) -> None:
    slack, model = world.slack, world.model
    asks = {}
    for n, (name, (text, _)) in enumerate(PASTED.items()):
        slack.add_channel(channel := f"C{n}PASTE", f"paste-{n}")  # each has its own pace
        root = await slack.mention(f"what is this ({name})? {text}\nthank you", channel=channel)
        asks[name] = (channel, root)
    for name, place in asks.items():
        await slack.wait_until(lambda place=place: slack.replies(*place))  # type: ignore[misc]
        (answer,) = slack.bot_messages(*place)
        assert "[redacted]" in answer["text"], name
        # what stands around it stays; a key without an end is blanked to the end of the text
        assert ("thank you" in answer["text"]) is (name != "a PEM key cut off"), name
    # and where no mention is needed: in a thread of the bot's
    channel, first = next(iter(asks.values()))
    await slack.say(f"and again: {PASTED['a database URL'][0]} {BOT_TOKEN}", channel=channel, thread_ts=first)
    await slack.wait_until(lambda: len(slack.replies(channel, first)) == 2)
    asked = await asyncio.to_thread(
        hermod,
        world.folder,
        "ask",
        f"what is {PEM} and {BOT_TOKEN}?",
        "--verbose",
        TOOL_LOG=str(world.process.tool_log),
    )
    assert asked.code == 0
    assert await world.process.stop() == 0
    assert len(model.requests) == len(PASTED) + 2
    places = read_folder(world.folder)
    assert {"hermod.db", "hermod.log"} <= set(places)
    places["model"] = json.dumps([r.body for r in model.requests], ensure_ascii=False).encode()
    places["slack"] = json.dumps([c.args for c in slack.calls], ensure_ascii=False).encode()
    places["ask"] = (asked.out + asked.err).encode()
    assert find_secrets(list_secrets(), places, addresses=False) == []


async def test_a_secret_that_a_model_makes_up_or_a_tool_returns_is_not_passed_on(world: World) -> None:
    slack, model = world.slack, world.model
    model.rules.clear()
    text = f"{PASTED['a model key'][0]} {PASTED['a database URL'][0]} {DATABASE_PASSWORD}"
    model.on(step=0).tools(("look_at", {"thing": text}))
    model.on(step=1).dynamic(lambda r: Reply(f"{r.tool_results['look_at']}: {text}"))
    root = await slack.mention("look at it")
    await slack.wait_until(lambda: slack.replies("C1OPS", root))
    assert "[redacted]" in slack.replies("C1OPS", root)[0]["text"]
    assert await world.process.stop() == 0
    with contextlib.closing(sqlite3.connect(world.folder / "hermod.db")) as connection:
        ((thread, run),) = connection.execute("SELECT thread_key, run_id FROM run").fetchall()
    # The journal keeps a call as the model wrote it, or it could not be resumed; nothing shows it.
    commands = (
        ["trace", run],
        ["trace", run, "--json"],
        ["sessions", "show", thread],
        ["sessions", "show", thread, "--json"],
    )
    shown = [
        await asyncio.to_thread(hermod, world.folder, *words, TOOL_LOG=str(world.process.tool_log))
        for words in commands
    ]
    assert all(done.code == 0 and "look_at" in done.out for done in shown)
    places = {" ".join(words): (d.out + d.err).encode() for words, d in zip(commands, shown, strict=True)}
    places["log"] = world.process.log_path.read_bytes()
    places["slack"] = json.dumps([c.args for c in slack.calls], ensure_ascii=False).encode()
    places["model"] = json.dumps([r.body for r in model.requests], ensure_ascii=False).encode()
    assert find_secrets(list_secrets(), places, addresses=False) == []
