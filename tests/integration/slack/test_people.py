"""What people control, through the whole of Hermod over Slack's own client: commands, thumbs, memory, the page."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from adapters.slack.manifest import BOT_EVENTS, BOT_SCOPES
from bot.feedback import THANKS_DOWN, THANKS_UP
from tests.bugs.slack.office import Office, open_office
from tests.clocks import NoonClock
from tests.servers.slack import SlackServer

LOOKING_TOOL = '''
def register(registry):
    """Register a tool that a person can run."""

    async def look_at(thing: str, times: int = 1) -> str:
        """Look at a thing. More is said here.

        Args:
            thing: which one.
            times: how often.
        """
        return f"{thing} is fine " * times

    registry.register(look_at)
'''


@pytest.fixture
async def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Office]:
    """A workspace that grants and sends exactly what the manifest asks for; what one used today is asked for there."""
    (tmp_path / "looking_tool.py").write_text(LOOKING_TOOL)
    monkeypatch.syspath_prepend(str(tmp_path))
    slack = SlackServer(scopes=tuple(BOT_SCOPES), subscriptions=BOT_EVENTS)
    extra = '[tools]\nmodules = ["looking_tool"]\n[targets.shop]\nurl = "postgresql://hermod@127.0.0.1:9/shop"\n'
    async with open_office(tmp_path, extra=extra, slack=slack, clock=NoonClock()) as office:
        office.model.on().text("the disk is full")
        yield office
        assert office.slack.violations == []


async def test_a_slash_command_is_acknowledged_at_once_and_answered_for_everybody(office: Office) -> None:
    done = await office.slack.slash("/hermod", "look_at thing=disk times=2")
    assert done.error == ""
    await office.slack.wait_until(lambda: office.slack.bot_messages("C1OPS"))
    (answer,) = office.slack.bot_messages("C1OPS")
    assert answer["text"].strip() == "disk is fine disk is fine"
    assert "thread_ts" not in answer
    assert office.model.requests == []


async def test_where_the_bot_is_not_a_member_the_answer_still_reaches_the_one_who_asked(office: Office) -> None:
    office.slack.add_channel("C9OUT", "out", bot_in=False)
    done = await office.slack.slash("/hermod", "look_at thing=disk", channel="C9OUT")
    await office.slack.wait_until(lambda: done.responses)
    assert done.responses[0]["text"].strip() == "disk is fine"
    assert done.responses[0]["response_type"] == "ephemeral"


async def test_a_mistake_is_told_to_the_one_who_made_it(office: Office) -> None:
    done = await office.slack.slash("/slowq", "limt=5")
    await office.slack.wait_until(lambda: done.responses)
    assert [r["response_type"] for r in done.responses] == ["ephemeral"]
    assert "did you mean limit?" in done.responses[0]["text"]
    assert "target" in done.responses[0]["text"]
    assert office.slack.bot_messages("C1OPS") == []


async def test_ask_is_answered_by_the_agent_in_the_channel(office: Office) -> None:
    done = await office.slack.slash("/hermod", "ask why is it slow?")
    assert done.error == ""
    await office.slack.wait_until(lambda: office.slack.bot_messages("C1OPS"))
    (answer,) = office.slack.bot_messages("C1OPS")
    assert "why is it slow?" in answer["text"]
    assert "the disk is full" in answer["text"]
    await office.slack.click(answer["ts"], "feedback", positive=True)
    await office.slack.wait_until(lambda: office.slack.ephemerals)
    assert office.slack.ephemerals[0]["text"] == THANKS_UP


async def test_the_same_words_work_as_a_mention_in_a_thread(office: Office) -> None:
    root = await office.ask("what is wrong?")
    await office.ask('look_at thing="the disk"', thread_ts=root)
    assert office.answers(root)[-1]["text"].strip() == "the disk is fine"
    assert len(office.model.requests) == 1
    await office.ask("look_at the disk, please", thread_ts=root)
    assert len(office.model.requests) == 2, "that was a question"


async def test_thumbs_are_kept_the_newest_counts_and_only_the_one_who_pressed_is_thanked(
    office: Office, tmp_path: Path
) -> None:
    root = await office.ask("what is wrong?")
    (answer,) = office.answers(root)
    await office.slack.click(answer["ts"], "feedback", positive=True)
    await office.slack.wait_until(lambda: any(THANKS_UP in e["text"] for e in office.slack.ephemerals))
    await office.slack.click(answer["ts"], "feedback", positive=False)
    await office.slack.wait_until(lambda: any(THANKS_DOWN in e["text"] for e in office.slack.ephemerals))
    await office.slack.click(answer["ts"], "feedback", user="U2BOB", positive=True)
    await office.slack.wait_until(lambda: len(office.slack.ephemerals) == 3)
    assert [e["user"] for e in office.slack.ephemerals] == ["U1ALICE", "U1ALICE", "U2BOB"]
    assert {e["thread_ts"] for e in office.slack.ephemerals} == {root}
    assert len(office.answers(root)) == 1, "nothing is said in the thread itself"
    with closing(sqlite3.connect(tmp_path / "hermod.db")) as database:
        rows = database.execute("SELECT author, value FROM feedback ORDER BY author").fetchall()
    assert rows == [("slack:U1ALICE", "down"), ("slack:U2BOB", "up")]
    metrics = {(m.name, m.labels.get("value")): m.value for m in office.app.metrics()}
    assert metrics["hermod_feedback_total", "up"] == 2
    assert metrics["hermod_feedback_total", "down"] == 1


async def test_a_thread_is_shown_and_forgotten_with_a_receipt(office: Office, tmp_path: Path) -> None:
    root = await office.ask("what is wrong with Nemo's disk?")
    await office.ask("memory", thread_ts=root)
    assert "2 messages of its history" in office.answers(root)[-1]["text"]
    await office.ask("forget", thread_ts=root)
    receipt = office.answers(root)[-1]["text"]
    assert "I have forgotten this thread:" in receipt
    assert "2 messages of its history" in receipt
    assert "1 trace of runs" in receipt
    await office.ask("memory", thread_ts=root)
    assert "2 messages" not in office.answers(root)[-1]["text"]
    assert len(office.model.requests) == 1
    with closing(sqlite3.connect(tmp_path / "hermod.db")) as database:
        assert "Nemo" not in "\n".join(database.iterdump())
        ((actor, detail),) = database.execute(
            "SELECT actor, detail FROM audit WHERE action = 'thread.forgotten'"
        ).fetchall()
    assert actor == "slack:T0FAKE/U1ALICE"
    assert '"messages": 2' in detail


async def test_the_slash_command_forgets_a_thread_of_its_channel_by_a_link(office: Office) -> None:
    root = await office.ask("what is wrong?")
    link = f"https://fake.slack.com/archives/C1OPS/p{root.replace('.', '')}?thread_ts={root}&cid=C1OPS"
    elsewhere = await office.slack.slash("/forget", f"<{link}>", channel="D1ALICE")
    await office.slack.wait_until(lambda: elsewhere.responses)
    assert "not in this channel" in elsewhere.responses[0]["text"]
    done = await office.slack.slash("/forget", f"<{link}>")
    await office.slack.wait_until(lambda: done.responses)
    assert "I have forgotten this thread:" in done.responses[0]["text"]
    empty = await office.slack.slash("/forget", "")
    await office.slack.wait_until(lambda: empty.responses)
    assert "knows no thread" in empty.responses[0]["text"]
    assert empty.responses[0]["response_type"] == "ephemeral"


async def test_usage_is_told_to_the_one_who_asks(office: Office) -> None:
    await office.ask("what is wrong?")
    mine, theirs = await office.slack.slash("/usage"), await office.slack.slash("/usage", "7", user="U2BOB")
    await office.slack.wait_until(lambda: mine.responses and theirs.responses)
    assert "You used today (UTC): 1 request" in mine.responses[0]["text"]
    assert "You used today (UTC): nothing." in theirs.responses[0]["text"]
    assert "In the last 7 days: nothing." in theirs.responses[0]["text"]
    assert {r["response_type"] for r in (*mine.responses, *theirs.responses)} == {"ephemeral"}


async def test_the_page_shows_state_ones_own_threads_and_ones_own_usage(office: Office) -> None:
    root = await office.ask("what is wrong?")
    await office.slack.open_home()
    await office.slack.wait_until(lambda: "VHOMEU1ALICE" in office.slack.views)
    shown = "\n".join(block["text"]["text"] for block in office.slack.home_view("U1ALICE")["blocks"])
    assert "Slack: connected" in shown
    assert "Model `main`: answers" in shown
    assert f"/archives/C1OPS/p{root.replace('.', '')}|" in shown
    assert "Today (UTC): 1 request" in shown
    assert "Your scheduled reports" in shown
    await office.slack.open_home(user="U2BOB")
    await office.slack.wait_until(lambda: "VHOMEU2BOB" in office.slack.views)
    theirs = "\n".join(block["text"]["text"] for block in office.slack.home_view("U2BOB")["blocks"])
    assert root.replace(".", "") not in theirs
    assert "Today (UTC): nothing" in theirs


async def test_the_messages_tab_suggests_what_the_tools_can_answer(office: Office) -> None:
    await office.slack.open_home(tab="messages")
    await office.slack.wait_until(lambda: office.slack.prompts)
    messages = [p["message"] for p in office.slack.prompts[0]["prompts"]]
    assert messages[0] == "Which queries were slow in the last 30 minutes?"
    assert "Show yesterday's statements on shop that were slower than 500 ms" in messages
