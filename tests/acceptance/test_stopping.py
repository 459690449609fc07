"""Told to stop at any moment, the shipped process ends cleanly and the next one goes on where it was."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path

import pytest

from tests.acceptance.process import HermodProcess
from tests.servers.openai import Call, OpenAIServer, Reply, Request
from tests.servers.slack import SlackServer

STOPS = 7


def answer(request: Request) -> Reply:
    """Look at the thing that was asked for, then name it."""
    number = re.findall(r"[0-9]+", request.last_user)[-1]
    if request.tool_results:
        return Reply(f"answer {number}")
    return Reply(None, [Call("look_at", f'{{"thing": "thing{number}"}}')])


@pytest.mark.timeout(240)
async def test_a_stop_at_random_moments_loses_nothing_doubles_nothing_and_logs_no_error(tmp_path: Path) -> None:
    rng = random.Random(15)
    roots: dict[str, str] = {}
    async with SlackServer(ack_timeout=1.0, retry_delays=(0.2, *(0.5,) * 100)) as slack, OpenAIServer() as model:
        model.on().dynamic(answer)
        model.rules[0].after(0.15)
        hermod = HermodProcess(tmp_path, slack_url=slack.base_url, model_url=model.base_url)
        try:
            await hermod.start()
            await slack.wait_connected()
            for number in range(STOPS):
                roots[await slack.mention(f"thing {number}")] = f"answer {number}"
                await asyncio.sleep(rng.uniform(0.0, 0.7))
                assert await hermod.stop() == 0
                await slack.wait_gone()
                await hermod.start()
                await slack.wait_connected()
            await slack.wait_until(lambda: all(slack.replies("C1OPS", root) for root in roots))
        finally:
            assert await hermod.stop() == 0
        found = {root: [str(m["text"]) for m in slack.bot_messages("C1OPS", root)] for root in roots}
    assert found == {root: [text] for root, text in roots.items()}
    looks = hermod.tool_log.read_text().split()
    assert sorted(looks) == sorted(f"thing{number}" for number in range(STOPS))
    assert [event for event in hermod.events() if event["level"] in ("error", "critical")] == []
    assert "Traceback" not in hermod.log_path.read_text()


@pytest.mark.timeout(120)
async def test_a_process_that_is_told_to_stop_twice_while_it_works_still_answers(tmp_path: Path) -> None:
    async with SlackServer() as slack, OpenAIServer() as model:
        asked = asyncio.Event()

        def slowly(request: Request) -> Reply:
            asked.set()
            return Reply("one two three four five", pace=0.2)

        model.on().dynamic(slowly)
        hermod = HermodProcess(tmp_path, slack_url=slack.base_url, model_url=model.base_url)
        await hermod.start()
        await slack.wait_connected()
        root = await slack.mention("count")
        await asked.wait()
        await asyncio.gather(hermod.stop(), hermod.stop())
        assert [m["text"] for m in slack.bot_messages("C1OPS", root)] == ["one two three four five"]
    assert [event for event in hermod.events() if event["level"] == "error"] == []
