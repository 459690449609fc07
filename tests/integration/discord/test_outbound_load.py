"""Many threads at once, within Discord's limits."""

from __future__ import annotations

import asyncio

from adapters.chat import Delivered, RetryLater
from tests.integration.discord.outbound_desk import Desk, contents, open_desk, place, reply
from tests.servers.discord import DiscordServer


async def answer(desk: Desk, root: str) -> None:
    """Answer a question as the sender does: what is put off is tried again when it was told."""
    thread = place(desk.server, root)
    desk.threads.remember(thread, exists=False, title=f"Question {root}")
    while True:
        await desk.outbound.set_status(thread, "is thinking")
        outcome = await desk.outbound.post(reply(thread, f"answer to {root}", f"{root}/1"))
        if not isinstance(outcome, RetryLater):
            assert isinstance(outcome, Delivered)
            return
        await asyncio.sleep(outcome.after_s)


async def test_a_hundred_questions_at_once_are_answered_once_each_and_no_limit_is_broken() -> None:
    async with DiscordServer(strict_rate_limits=True) as server, open_desk(server) as desk:
        # threads are opened in one channel, whose bucket is wide here; all calls together have the published limit
        roots = [await server.mention(f"question {n}") for n in range(100)]
        async with asyncio.timeout(60.0):
            await asyncio.gather(*(answer(desk, root) for root in roots))
        assert all(contents(server, root) == [f"answer to {root}"] for root in roots)
        assert server.rate_violations == []
        assert [call for call in server.calls if call.status == 429] == []
        assert server.rates.busiest(".*") <= 50
        assert server.violations == []
