"""Told to stop at any moment, the shipped process ends cleanly and the next one goes on where it was."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path

import pytest

from tests.acceptance.on_discord import PATIENCE_S as DISCORD_S
from tests.acceptance.on_discord import drafts, said
from tests.acceptance.process import HermodProcess, until
from tests.ports import free_port
from tests.servers.discord import DiscordServer
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


WORDS = " ".join(f"w{n}" for n in range(40))


def write_slowly(request: Request) -> Reply:
    """Write an answer for eight seconds, where people watch it; only the first question is worth it."""
    return Reply(WORDS, pace=0.2) if "first" in request.last_user else Reply("Yes.")


def is_draining(hermod: HermodProcess) -> bool:
    return any(event["event"] == "draining" for event in hermod.events())


@pytest.mark.timeout(180)
@pytest.mark.parametrize("mode", ["socket", "http"])
async def test_an_answer_is_seen_growing_to_its_end_while_what_is_said_meanwhile_is_left_to_the_next_start(
    tmp_path: Path, mode: str
) -> None:
    async with SlackServer(ack_timeout=5.0, retry_delays=(0.2, *(0.5,) * 200)) as slack, OpenAIServer() as model:
        model.on().dynamic(write_slowly)
        port = free_port()
        environ = {"HERMOD_SLACK__MODE": mode, "HERMOD_SLACK__SIGNING_SECRET": slack.signing_secret}
        environ |= {"HERMOD_HTTP__PORT": str(port)}
        hermod = HermodProcess(tmp_path, slack_url=slack.base_url, model_url=model.base_url, environ=environ)
        if mode == "http":
            slack.request_url = f"http://127.0.0.1:{port}/slack/events"
        try:
            await hermod.start()
            root = await slack.mention("the first")
            await slack.wait_until(lambda: slack.calls_to("chat.appendStream"))
            ending = asyncio.create_task(hermod.stop())
            await until(lambda: is_draining(hermod))
            if mode == "socket":
                await slack.wait_gone()
            while (await hermod.get("/readyz"))[0] != 503:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.02)
            grown = len(slack.calls_to("chat.appendStream"))
            later = await slack.mention("and the second?")
            assert await ending == 0
            assert len(slack.calls_to("chat.appendStream")) > grown
            assert [m["text"] for m in slack.bot_messages("C1OPS", root)] == [WORDS]
            assert slack.bot_messages("C1OPS", later) == []
            tries = [d for d in slack.deliveries if d.body.get("event", {}).get("ts") == later]
            assert tries
            assert not any(d.acked for d in tries)
            await hermod.start()
            await slack.wait_until(lambda: slack.replies("C1OPS", later))
        finally:
            assert await hermod.stop() == 0
        assert [m["text"] for m in slack.bot_messages("C1OPS", later)] == ["Yes."]
        assert [m["text"] for m in slack.bot_messages("C1OPS", root)] == [WORDS]
    assert [event for event in hermod.events() if event["level"] in ("error", "critical")] == []


@pytest.mark.timeout(240)
async def test_on_discord_what_is_said_while_an_answer_is_finished_waits_in_the_storage(tmp_path: Path) -> None:
    async with DiscordServer(strict_rate_limits=True) as discord, OpenAIServer() as model:
        model.on().dynamic(write_slowly)
        hermod = HermodProcess(tmp_path, model_url=model.base_url, discord=discord)
        try:
            await hermod.start()
            await hermod.wait_ready()
            await discord.wait_until(lambda: discord.commands["global"], DISCORD_S)
            thread = await discord.mention("the first")
            await discord.wait_until(lambda: drafts(discord, thread), DISCORD_S)
            ending = asyncio.create_task(hermod.stop())
            await until(lambda: is_draining(hermod))
            edits = len(discord.calls_to(rf"^PATCH /channels/{thread}/messages/"))
            later = await discord.mention("and the second?")
            direct = discord.dm_with(discord.alice)
            await discord.say("and the third?", channel=direct)  # no event tells of it a second time
            used = await discord.slash("ask", {"question": "and the fourth?"})
            assert used.response == {"type": 5}
            assert await ending == 0
            assert len(discord.calls_to(rf"^PATCH /channels/{thread}/messages/")) > edits + 1, "not only the end of it"
            assert said(discord, thread) == [WORDS]
            assert said(discord, later) == said(discord, direct) == []
            await hermod.start()
            for place in (later, direct):
                await discord.wait_until(lambda place=place: said(discord, place), DISCORD_S)  # type: ignore[misc]
            await discord.wait_until(lambda: any("Yes." in m["content"] for m in discord.shown(used)), DISCORD_S)
        finally:
            assert await hermod.stop() == 0
        assert (said(discord, thread), said(discord, later), said(discord, direct)) == ([WORDS], ["Yes."], ["Yes."])
        assert discord.violations == []
    assert [event for event in hermod.events() if event["level"] in ("error", "critical")] == []
