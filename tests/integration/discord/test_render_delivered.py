"""Rendered answers reach Discord whole, and ping nobody: checked by what the server keeps."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from adapters.chat import Delivered
from adapters.discord.render import LIMITS
from bot.presenter import build_reply_rows, load_reply
from tests.integration.discord.outbound_desk import open_desk, place
from tests.servers.discord import DiscordServer
from tests.unit.adapters.discord.test_render import build_long_answer

KNOWN = re.compile(r"\b(?:w\d+x\d+|one\d+|two\d+|quoted\d+|c\d+|q\d+|r\d+y\d+)\b")


async def test_an_answer_of_60_kb_arrives_whole_and_the_ledger_stays_empty(server: DiscordServer) -> None:
    root = await server.mention("tell me all")
    thread = place(server, root)
    text = build_long_answer(60_000) + f"\n\n<@{server.alice}> <@{server.bob}> @everyone"
    rows = build_reply_rows(thread, text, run_id="run-1", limits=LIMITS, now=datetime.now(UTC), feedback="run-1")
    async with open_desk(server) as desk:
        for row in rows:
            assert isinstance(await desk.outbound.post(load_reply(row.body)), Delivered)
    messages = server.bot_messages(root)
    files = [file for message in messages for file in message["attachments"]]
    arrived = " ".join([*(m["content"] for m in messages), *(server.blobs[f["id"]].decode() for f in files)])
    assert set(KNOWN.findall(text)) == set(KNOWN.findall(arrived))
    assert all(0 < len(m["content"]) <= 2000 for m in messages)
    assert [m["content"].count("```") % 2 for m in messages] == [0] * len(messages)
    assert files[-1]["filename"] == "answer.md"
    assert server.pings == []
    assert server.violations == []
