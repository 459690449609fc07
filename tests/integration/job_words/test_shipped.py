"""The shipped process takes jobs by words, without a model and with one, and confirms them in the thread."""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.acceptance.process import HermodProcess
from tests.servers.openai import OpenAIServer, Reply
from tests.servers.slack import SlackServer

pytestmark = pytest.mark.timeout(180)

CHANNEL = "C1OPS"
SCHEDULED = "is scheduled"
COMMANDS = (
    ("add every day at 18:00 UTC name=evening: locks", "`/jobs confirm`"),
    ("confirm", SCHEDULED),
    ("pause evening", "is paused"),
    ("", "paused by"),
    ("delete evening", "is to be deleted"),
    ("confirm", "is deleted"),
    ("", "no jobs here yet"),
)
"""What is said after ``/jobs``, and what has to be in its answer."""


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with SlackServer() as server:
        yield server


@pytest.fixture
async def model() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        yield server


def answers(slack: SlackServer, root: str) -> list[str]:
    return [message["text"] for message in slack.bot_messages(CHANNEL, root)]


async def say(slack: SlackServer, root: str, text: str, told: str, *, user: str = "U1ALICE") -> str:
    """Say something in a thread and wait for the answer with ``told`` in it: one may be shown while it is written."""
    before = len(answers(slack, root))
    await slack.say(text, thread_ts=root, user=user)
    await slack.wait_until(lambda: any(told in answer for answer in answers(slack, root)[before:]), 60)
    return answers(slack, root)[-1]


async def test_a_job_is_made_listed_paused_and_deleted_by_words_without_a_model(
    slack: SlackServer, tmp_path: Path
) -> None:
    hermod = HermodProcess(tmp_path, slack_url=slack.base_url, model_url=None)
    await hermod.start()
    try:
        await slack.wait_connected()
        root = await slack.mention("every weekday at 9 in Berlin post the database report here")
        await slack.wait_until(lambda: "`confirm`" in "".join(answers(slack, root)), 60)
        shown = answers(slack, root)[0]
        assert "0 9 * * MON-FRI" in shown
        assert "Europe/Berlin" in shown
        assert shown.count(" 09:00 +0") == 5
        assert "`confirm`" in shown
        await say(slack, root, "confirm", SCHEDULED)
        listed = await say(slack, root, "show me the scheduled jobs", "active")
        assert "0 9 * * MON-FRI" in listed
        name = "weekday"
        await say(slack, root, f"pause the job {name}", "is paused")
        await say(slack, root, "show me the scheduled jobs", "paused by")
        await say(slack, root, f"delete the job {name}", "not deleted yet")
        await say(slack, root, "确认", "is deleted")
        await say(slack, root, "每个工作日早上9点（柏林）在这里发数据库报告", "0 9 * * MON-FRI")
        await say(slack, root, "取消", "nothing has changed")
        assert slack.violations == []
    finally:
        assert await hermod.stop() == 0


async def test_only_the_persons_own_word_confirms_what_a_model_proposed(
    slack: SlackServer, model: OpenAIServer, tmp_path: Path
) -> None:
    arguments = {"when": "every monday at 8:15 in Berlin", "task": "what got slower?", "name": "weekly"}
    model.on(user="post a report", step=0).tools(("schedule_report", arguments))
    model.on(user="post a report", step=1).dynamic(
        lambda r: Reply(str(json.loads(r.tool_results["schedule_report"])["status"]))
    )
    model.on(user="confirm").text("I am a model and confirm nothing")
    hermod = HermodProcess(tmp_path, slack_url=slack.base_url, model_url=model.base_url)
    await hermod.start()
    try:
        await slack.wait_connected()
        root = await slack.mention("post a report about what got slower, every monday at 8:15 in Berlin")
        await slack.wait_until(lambda: "Only proposed" in "".join(answers(slack, root)), 60)
        asked = len(model.requests)
        await say(slack, root, "confirm", "waits for the word of the person who asked for it", user="U2BOB")
        await say(slack, root, "confirm", SCHEDULED)
        assert len(model.requests) == asked, "the word is answered without a model"
        assert slack.violations == []
        assert model.violations == []
    finally:
        assert await hermod.stop() == 0


def _answered(responses: Sequence[object], told: str) -> bool:
    return any(told in str(response) for response in responses)


async def test_the_slash_command_is_confirmed_by_the_next_one(slack: SlackServer, tmp_path: Path) -> None:
    hermod = HermodProcess(tmp_path, slack_url=slack.base_url, model_url=None)
    await hermod.start()
    try:
        await slack.wait_connected()
        for text, told in COMMANDS:
            outcome = await slack.slash("/jobs", text)
            await slack.wait_until(functools.partial(_answered, outcome.responses, told), 60)
        assert slack.violations == []
    finally:
        assert await hermod.stop() == 0
