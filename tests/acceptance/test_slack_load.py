"""A thousand mentions through the shipped process, with everything that Slack does to an app on a bad day.

Fifty threads, each in a channel of its own (a channel takes one message a second, so twenty answers a channel take
twenty seconds at least), talk at the same time; in a thread the next question comes when the last one is answered, as
people do, since what arrives during a run is taken together and answered once.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.acceptance.process import HermodProcess
from tests.servers.openai import OpenAIServer, Reply, Request
from tests.servers.slack import SlackServer

THREADS, ROUNDS = 50, 20
QUESTIONS = THREADS * ROUNDS
BOUND_S = 100.0
"""On a machine of two cores that does nothing else; what is enforced is twice as long."""

SOCKETS = 2


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with SlackServer(ack_timeout=2.0, retry_delays=(0.2, *(0.5,) * 60)) as server:
        yield server


@pytest.fixture
async def model() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        yield server


@pytest.fixture
async def hermod(tmp_path: Path, slack: SlackServer, model: OpenAIServer) -> AsyncIterator[HermodProcess]:
    process = HermodProcess(tmp_path, slack_url=slack.base_url, model_url=model.base_url)
    yield process
    await process.stop()


def answer(number: int) -> str:
    """What the model says to a question; one answer in each thread is long enough to be watched while it is written."""
    return f"answer {number}" + (" in many words" * 20 if number % ROUNDS == ROUNDS // 2 else "")


def echo(request: Request) -> Reply:
    """Answer the number that the newest question ends with."""
    number = int(re.findall(r"[0-9]+", request.last_user)[-1])
    return Reply(answer(number), pace=0.05 if number % ROUNDS == ROUNDS // 2 else 0.0)


async def converse(slack: SlackServer, number: int, rng: random.Random) -> str:
    """Ask twenty questions in a thread, one after the other; returns the thread's root."""
    channel, messages = f"C{number:03}LOAD", slack.channels[f"C{number:03}LOAD"].messages
    root: str | None = None
    for n in range(ROUNDS):
        copies = {
            "mention": rng.randint(1, 2),
            "message": rng.randint(0, 2),
            "mention_first": rng.random() < 0.5,
            "same_envelope": rng.random() < 0.2,
        }
        question = f"question {number * ROUNDS + n}"
        ts = await slack.mention(question, channel=channel, thread_ts=root, copies=copies, user=rng.choice(PEOPLE))
        root = root or ts
        await slack.wait_until(lambda: len(messages) >= 2 * (n + 1), 2 * BOUND_S)  # noqa: B023 - waited for at once
    assert root is not None
    return root


PEOPLE = [f"U{n}ASKER" for n in range(1, 11)]


async def disturb(slack: SlackServer, rng: random.Random) -> None:
    """Replace, break and warn connections, and lose acknowledgements. An app may open ten connections a minute."""
    for kind in ("refresh", "kill", "warning", "refresh"):
        slack.drop_ack("app_mention", 15)
        slack.drop_ack("message", 10)
        await asyncio.sleep(rng.uniform(3, 6))
        which = rng.randrange(len(slack.open_sockets)) if slack.open_sockets else None
        if kind == "kill":
            await slack.kill_sockets(which)
        elif kind == "warning":
            await slack.disconnect("warning", which=which, grace=1.0)
        else:
            await slack.disconnect("refresh_requested", which=which)


@pytest.mark.timeout(300)
async def test_1000_mentions_get_1000_answers_in_their_threads_in_order_and_no_call_goes_above_its_rate(
    slack: SlackServer, model: OpenAIServer, hermod: HermodProcess
) -> None:
    model.on().dynamic(echo)
    for person in PEOPLE:
        slack.add_user(person, person.lower())
    for number in range(THREADS):
        slack.add_channel(f"C{number:03}LOAD", f"load-{number}", members=set(PEOPLE))
    slack.inject("chat.postMessage", http=429, retry_after=1, every=23, times=25)
    slack.inject("chat.postMessage", error="ratelimited", every=41, times=10)
    slack.inject("chat.startStream", http=429, retry_after=2, every=5, times=5)
    slack.inject("assistant.threads.setStatus", http=429, retry_after=1, every=29, times=20)
    await hermod.start()
    await slack.wait_connected(sockets=SOCKETS)
    async with asyncio.timeout(2 * BOUND_S):
        disturber = asyncio.create_task(disturb(slack, random.Random(4)))
        async with asyncio.TaskGroup() as group:
            talks = [group.create_task(converse(slack, n, random.Random(1000 + n))) for n in range(THREADS)]
        disturber.cancel()
    roots = [talk.result() for talk in talks]
    await slack.wait_until(lambda: all(s["state"] != "in_progress" for s in slack.streams.values()))
    await asyncio.sleep(2)  # anything doubled would come now

    for number, root in enumerate(roots):
        answers = [m["text"] for m in slack.bot_messages(f"C{number:03}LOAD", root)]
        assert answers == [answer(number * ROUNDS + n) for n in range(ROUNDS)]
        assert len(slack.bot_messages(f"C{number:03}LOAD")) == ROUNDS  # nothing beside the thread
    mentions = Counter(str(d.body["event"].get("ts")) for d in slack.deliveries if "event" in d.body)
    assert len(slack.deliveries) > 2 * QUESTIONS
    assert max(mentions.values()) >= 4
    assert sum(1 for d in slack.deliveries if d.error) >= 50  # acknowledgements were lost, connections broke
    assert len({d.socket for d in slack.deliveries}) >= SOCKETS
    assert len(model.requests) == QUESTIONS
    assert slack.streams  # some answers were watched while they were written
    assert slack.rate_violations == []
    assert slack.pinged() == set()
    assert model.violations == []
