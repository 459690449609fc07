"""Each reply is posted once, or said to be missing; nothing that one reply does keeps the others back."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic_core import to_json

from adapters.chat import Delivered, Delivery, InDoubt, Limits, Reply, RetryLater
from agent_core.context import SystemClock
from agent_core.llm.scripted import say
from bot.presenter import NOTHING_VISIBLE, build_reply_rows, load_reply
from bot.sender import UNDELIVERED, UNKNOWN_DELIVERY
from bot.storage.base import Claim, NewOutboxItem, OutboxState, Store, StoreError
from bot.storage.sqlite import SqliteStore
from tests.unit.bot.desk import Desk, desk
from tests.unit.bot.recording import MemoryChat, message

THREAD = message("").thread


async def ask(made: Desk, text: str = "hi", *, number: int = 1) -> None:
    await made.inbox.accept(message(text, number=number))
    await made.dispatcher.work_all()


async def states(store: Store) -> list[OutboxState]:
    return [row.state for row in await store.load_outbox(THREAD.key)]


async def test_a_row_that_cannot_be_read_is_given_up_visibly_and_does_not_block_the_thread(store: Store) -> None:
    made, _ = desk(store, [say("hello")])
    await store.add_outbox(
        NewOutboxItem(
            key="old/1", thread_key=THREAD.key, run_id=None, body='{"text": 1}', created_at=SystemClock().now()
        )
    )
    await ask(made)
    assert sorted(made.texts) == sorted([UNDELIVERED, "hello"])
    assert (await states(store))[0] is OutboxState.FAILED


async def test_a_reply_that_breaks_the_adapter_does_not_keep_later_answers_back(store: Store) -> None:
    made, _ = desk(store, [say("poison"), say("fine")])

    def breaks(reply: Reply) -> Delivery:
        raise RecursionError("too deep for the renderer")

    made.chat.outcomes = [breaks]
    await ask(made, number=1)
    assert made.texts == [UNKNOWN_DELIVERY]
    await ask(made, number=2)
    assert made.texts == [UNKNOWN_DELIVERY, "fine"]
    assert await states(store) == [OutboxState.FAILED, OutboxState.DELIVERED, OutboxState.DELIVERED]


async def test_a_platform_that_says_retry_now_is_not_asked_again_at_once(store: Store) -> None:
    made, _ = desk(store, [say("hello")])
    made.chat.outcomes = [RetryLater(after_s=0.0, reason="later")] * 50
    await ask(made)
    assert len(made.chat.outcomes) == 49
    async with made.running():
        made.chat.outcomes = []
        await made.chat.wait_for_posts(1)
    assert made.texts == ["hello"]


async def test_a_post_that_gets_lost_every_time_is_sent_again_less_and_less_often(store: Store) -> None:
    made, _ = desk(store, [say("hello")])
    made.chat.outcomes = [InDoubt(reason="reset")] * 50
    await ask(made)
    assert len(made.chat.outcomes) == 48
    (row,) = await store.load_outbox(THREAD.key)
    assert row.state is OutboxState.PENDING
    assert (row.next_at - SystemClock().now()).total_seconds() > 0.5


async def test_a_post_that_arrives_after_the_first_look_is_not_posted_again(store: Store) -> None:
    made, _ = desk(store, [say("hello")])
    made.chat.outcomes = [InDoubt(reason="timeout")]
    made.chat.lookups = [None, Delivered(remote_id="late")]
    await ask(made)
    assert made.texts == []  # the platform has it, and this process did not send it a second time
    assert await states(store) == [OutboxState.DELIVERED]


async def test_a_post_without_an_answer_is_in_doubt_after_a_while(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.sender.CALL_TIMEOUT_S", 0.05)
    made, _ = desk(store, [say("hello")])
    post = made.chat.post

    async def post_and_hang(reply: Reply) -> Delivery:
        await post(reply)
        await asyncio.Event().wait()
        raise AssertionError

    made.chat.post = post_and_hang  # type: ignore[method-assign]
    async with asyncio.timeout(30):
        await ask(made)
    assert made.texts == ["hello"]
    assert await states(store) == [OutboxState.DELIVERED]


class NoticesFail(SqliteStore):
    """Fails once when a notice is to be queued."""

    failed = False

    async def add_outbox(self, item: NewOutboxItem) -> None:
        if not self.failed:
            self.failed = True
            raise StoreError("the disk is full")
        await super().add_outbox(item)


async def test_a_reply_is_only_given_up_together_with_the_word_that_it_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.sender.IN_DOUBT_WAITS_S", (0.0,))
    store = NoticesFail(tmp_path / "hermod.db")
    await store.open()
    made, _ = desk(store, [say("hello")])
    made.chat.outcomes = [InDoubt(reason="reset")]
    made.chat.lookups = [InDoubt(reason="no scope")] * 4
    await ask(made)
    assert made.texts == [UNKNOWN_DELIVERY]
    await store.close()


@pytest.mark.parametrize("text", ["#", "> ", "```\n```", "\u200b", "&nbsp;", "\u00ad\u2060"])
def test_an_answer_that_would_show_nothing_says_so(text: str) -> None:
    now = SystemClock().now()
    rows = build_reply_rows(THREAD, text, run_id="r1", limits=Limits(text_max=400), now=now)
    assert [NOTHING_VISIBLE in row.body for row in rows] == [True]


@pytest.mark.parametrize("tail_in_file", [False, True])
@pytest.mark.parametrize("text", ["[a]: https://example.com", "[a]: <b>\n" * 5_000])
def test_an_answer_of_link_definitions_alone_is_answered_by_a_word_and_not_by_nothing(
    text: str, tail_in_file: bool
) -> None:
    limits = Limits(text_max=400, tail_in_file=tail_in_file)
    rows = build_reply_rows(THREAD, text, run_id="r1", limits=limits, now=SystemClock().now())
    assert [NOTHING_VISIBLE in row.body for row in rows] == [True]


@pytest.mark.parametrize("text", ["👍", "…", "**", "---", "是", "42", "`x`"])
def test_a_short_answer_is_an_answer(text: str) -> None:
    now = SystemClock().now()
    rows = build_reply_rows(THREAD, text, run_id="r1", limits=Limits(text_max=400), now=now)
    assert [NOTHING_VISIBLE in row.body for row in rows] == [False]


async def test_a_long_answer_is_several_posts_in_order_without_a_word_lost(store: Store) -> None:
    text = "\n\n".join(f"line {n} " + "word " * 30 for n in range(130))
    assert len(text) > 20_000
    made, _ = desk(store, [say(text)])
    await ask(made)
    assert len(made.texts) > 4
    assert max(map(len, made.texts)) <= made.chat.limits.text_max
    assert " ".join(made.texts).split() == text.split()


class MeasuredChat(MemoryChat):
    """A chat in which a bar takes two hundred characters."""

    limits = Limits(text_max=2_000, measure=lambda text: len(text) + 200 * text.count("|"))


def whole_row(text: str) -> NewOutboxItem:
    """The whole answer of a run, as a draft that did not become it leaves it."""
    reply = Reply(thread=THREAD, text=text, key="r1/1")
    body = to_json(reply).decode()
    return NewOutboxItem(key=reply.key, thread_key=THREAD.key, run_id="r1", body=body, created_at=SystemClock().now())


async def test_a_short_answer_whose_rendering_is_long_becomes_several_posts(store: Store) -> None:
    made, _ = desk(store, [], chat=MeasuredChat())
    await store.add_outbox(whole_row("\n\n".join(["a|b"] * 12)))
    await made.dispatcher.work_all()
    assert len(made.texts) > 1
    assert " ".join(made.texts).split() == ["a|b"] * 12


async def test_a_text_is_never_cut_on_the_thread_that_serves_all_others(store: Store) -> None:
    seen: set[int] = set()

    def measure(text: str) -> int:
        seen.add(threading.get_ident())
        return len(text)

    class Watched(MemoryChat):
        limits = Limits(text_max=400, measure=measure)

    text = "\n\n".join(["words " * 20] * 60)
    made, _ = desk(store, [say(text)], chat=Watched())
    await store.add_outbox(whole_row(text))
    await ask(made)
    assert len(made.texts) > 20
    assert seen
    assert threading.get_ident() not in seen


class HangsAfterBegin(SqliteStore):
    """Records that a post begins, then hangs once, as a process that is cancelled in that moment."""

    begun: asyncio.Event | None = None

    async def begin_send(self, claim: Claim, outbox_id: int, *, now: datetime) -> float:
        left_s = await super().begin_send(claim, outbox_id, now=now)
        if self.begun is not None and not self.begun.is_set():
            self.begun.set()
            await asyncio.Event().wait()
        return left_s


async def test_work_that_is_cancelled_just_before_it_posts_does_not_post_and_the_next_one_does(tmp_path: Path) -> None:
    store = HangsAfterBegin(tmp_path / "hermod.db")
    store.begun = asyncio.Event()
    await store.open()
    first, _ = desk(store, [say("hello")])
    await first.inbox.accept(message("hi"))
    working = asyncio.create_task(first.dispatcher.work_all())
    await asyncio.wait_for(store.begun.wait(), 30)
    working.cancel()
    await asyncio.wait({working})
    assert first.texts == []
    second, _ = desk(store, [], chat=first.chat)
    await second.dispatcher.work_all()
    assert second.texts == ["hello"]
    await store.close()


def test_the_rest_of_a_flood_goes_into_a_file_with_the_last_post() -> None:
    text = "\n\n".join(f"paragraph {n} " + "word " * 60 for n in range(400))
    limits = Limits(text_max=3_000, tail_in_file=True)
    rows = build_reply_rows(
        message("hi").thread, text, run_id="r1", limits=limits, now=datetime(2026, 1, 1, tzinfo=UTC)
    )
    replies = [load_reply(row.body) for row in rows]
    assert len(replies) == 12
    assert [len(reply.files) for reply in replies] == [0] * 11 + [1]
    shown = " ".join(reply.text for reply in replies)
    assert "answer.md" in replies[-1].text
    for n in range(400):
        assert (f"paragraph {n} " in shown) != (f"paragraph {n} " in replies[-1].files[0].content)
