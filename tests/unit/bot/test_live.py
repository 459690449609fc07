"""An answer is seen while it is written, without its secrets, and becomes the reply exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.chat import Delivery, InDoubt, Rejected, Reply, RetryLater
from agent_core.agent import Agent
from agent_core.llm.scripted import ScriptedProvider, call, say
from agent_core.llm.types import ModelRequest, ModelResponse, StreamItem, StreamRestarted, TextChunk
from agent_core.tools.registry import ToolRegistry
from bot.live import show_safely
from bot.redact import MARK, SecretRedactor
from bot.storage.base import Claim, OutboxState, Store
from bot.storage.sqlite import SqliteStore
from tests.unit.bot.desk import Desk, desk
from tests.unit.bot.gates import Hanging, deleted, stop, until
from tests.unit.bot.recording import MemoryChat, MemoryDraft, message

THREAD = message("").thread
SECRET = "hunter2-is-the-word"


class Writer(ScriptedProvider):
    """Streams the pieces of its turns; waits where a piece is an event."""

    def __init__(self, *answers: list[str | asyncio.Event | StreamRestarted]) -> None:
        super().__init__([])
        self._answers = list(answers)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        self.requests.append(request)
        text = ""
        for piece in self._answers.pop(0):
            match piece:
                case asyncio.Event():
                    await piece.wait()
                case StreamRestarted():
                    text = ""
                    yield piece
                case str():
                    text += piece
                    yield TextChunk(text=piece)
        yield say(text)


def last_text(chat: MemoryChat) -> str:
    draft = chat.drafts[-1]
    return draft.shown[-1][0] if draft.shown else ""


async def test_an_answer_is_seen_while_it_is_written_and_becomes_the_reply(store: Store) -> None:
    go_on = asyncio.Event()
    made = Desk(store, Writer(["The disk ", "is ", go_on, "full."]), chat=MemoryChat(drafts=True))
    async with made.running():
        await made.inbox.accept(message("hi"))
        await until(lambda: bool(made.chat.drafts) and last_text(made.chat) == "The disk is ")
        assert list(made.chat.visible.values()) == ["The disk is "]
        run_id = (await store.list_runs())[0].run_id
        assert await store.load_draft(run_id) in made.chat.visible
        go_on.set()
        await until(lambda: len(made.chat.posts) == 1)
    assert made.texts == ["The disk is full."]
    assert made.chat.finished == [f"{run_id}/1"]
    assert made.chat.visible == {}
    assert await store.load_draft(run_id) is None


async def test_an_answer_that_begins_anew_is_seen_anew(store: Store) -> None:
    go_on = asyncio.Event()
    pieces: list[str | asyncio.Event | StreamRestarted] = [
        "Half an answer ", StreamRestarted(reason="broke off"), "The whole ", go_on, "one.",
    ]  # fmt: skip
    made = Desk(store, Writer(pieces), chat=MemoryChat(drafts=True))
    async with made.running():
        await made.inbox.accept(message("hi"))
        await until(lambda: bool(made.chat.drafts) and last_text(made.chat) == "The whole ")
        go_on.set()
        await until(lambda: len(made.chat.posts) == 1)
    assert made.texts == ["The whole one."]


async def test_a_secret_is_never_seen_not_even_its_beginning(store: Store) -> None:
    chat = MemoryChat(drafts=True)
    pieces: list[str | asyncio.Event | StreamRestarted] = []
    for word in ("The ", "password ", "of ", "it "):
        pieces += [word, Seen(chat, word)]
    for letter in f"is {SECRET} and the rest ":
        pieces += [letter, Tick()]
    made = Desk(store, Writer(pieces), chat=chat, redactor=SecretRedactor([SECRET]))
    async with made.running():
        await made.inbox.accept(message("hi"))
        await until(lambda: len(made.chat.posts) == 1)
    seen = [text for text, _ in made.chat.drafts[0].shown]
    assert len(seen) > 3
    assert not any("hunter" in text for text in seen)
    assert made.texts == [f"The password of it is {MARK} and the rest"]


class Seen(asyncio.Event):
    """Waits until people see a draft that ends with some text."""

    def __init__(self, chat: MemoryChat, end: str = "") -> None:
        super().__init__()
        self._chat, self._end = chat, end

    async def wait(self) -> bool:  # type: ignore[override]
        await until(lambda: bool(self._chat.visible) and last_text(self._chat).endswith(self._end))
        return True


class Tick(asyncio.Event):
    """Lets everybody else have a turn or two."""

    async def wait(self) -> bool:  # type: ignore[override]
        for _ in range(4):
            await asyncio.sleep(0.001)
        return True


@given(st.text(alphabet=st.sampled_from("ab hunter2-is-the-word\n密。"), max_size=60), st.integers(0, 60))
def test_no_cut_of_a_text_shows_a_part_of_a_secret(around: str, at: int) -> None:
    redactor = SecretRedactor([SECRET])
    text = f"{around[:at]} {SECRET} {around[at:]}"
    for end in range(len(text) + 1):
        shown = show_safely(text[:end], redactor)
        assert SECRET[:6] not in shown.replace(around[:at], "").replace(around[at:], "")
        assert redactor.redact(text).startswith(shown) or shown.strip() == "" or MARK in shown


async def test_tool_calls_are_the_lines_of_a_plan(store: Store) -> None:
    tools = ToolRegistry()

    async def look(thing: str, n: int = 1) -> str:
        """Look at a thing."""
        return thing

    async def fail(why: str) -> str:
        """Fail."""
        raise RuntimeError(why)

    tools.register(look)
    tools.register(fail)
    made, _ = desk(
        store,
        [call(("look", {"thing": "orders " * 30}), ("fail", {"why": SECRET})), say("done")],
        registry=tools,
        chat=MemoryChat(drafts=True),
        redactor=SecretRedactor([SECRET]),
    )
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    plans = [plan for _, plan in made.chat.drafts[0].shown]
    assert {step.state for plan in plans for step in plan} <= {"running", "done", "failed"}
    final = {step.title.partition(":")[0]: step for step in plans[-1]}
    assert final["look"].title.startswith("look: orders orders")
    assert len(final["look"].title) < 80
    assert final["fail"].title == f"fail: {MARK}"


async def test_a_platform_that_is_slow_to_show_holds_up_neither_run_nor_answer(store: Store) -> None:
    chat = MemoryChat(drafts=True)
    chat.may_show.clear()
    first, done = asyncio.Event(), asyncio.Event()

    class Notes(Writer):
        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
            async for item in super().stream(request):
                if isinstance(item, ModelResponse):
                    done.set()
                yield item

    made = Desk(store, Notes(["one ", first, *[f"word{n} " for n in range(200)]]), chat=chat)
    async with made.running():
        await made.inbox.accept(message("hi"))
        await chat.showing.wait()
        first.set()
        await asyncio.wait_for(done.wait(), 30)  # the run went on to its end
        chat.may_show.set()
        await until(lambda: len(chat.posts) == 1)
    assert len(chat.drafts[0].shown) == 1
    assert made.texts[0].endswith("word199")


@pytest.mark.parametrize("outcome", [None, Rejected(reason="no")])
async def test_a_draft_that_cannot_become_the_reply_leaves_one_answer_or_none_and_nothing_half(
    store: Store, outcome: Delivery | None
) -> None:
    chat = MemoryChat(drafts=True)

    def gone(reply: Reply) -> Delivery | None:
        if outcome is None:
            chat.visible.clear()  # the draft removes itself before it says so
        return outcome

    chat.finishes = [gone]
    made = Desk(store, Writer(["The disk ", Seen(chat), "is full."]), chat=chat)
    async with made.running():
        await made.inbox.accept(message("hi"))
        await until(lambda: _settled(store))
    assert made.texts == ([] if isinstance(outcome, Rejected) else ["The disk is full."])
    assert chat.visible == {}
    assert chat.finished == []


async def _settled(store: Store) -> bool:
    rows = await store.load_outbox(THREAD.key)
    return bool(rows) and all(row.state.final for row in rows)


async def test_a_draft_whose_end_is_in_doubt_is_looked_for_and_not_posted_twice(store: Store) -> None:
    chat = MemoryChat(drafts=True)

    def arrives(reply: Reply) -> Delivery:
        chat.visible.clear()
        chat.posts.append(reply)
        return InDoubt(reason="reset")

    chat.finishes = [arrives]
    made = Desk(store, Writer(["The disk ", Seen(chat), "is full."]), chat=chat)
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    assert made.texts == ["The disk is full."]


async def test_a_draft_whose_end_is_in_doubt_and_that_is_not_there_is_removed_and_posted_anew(store: Store) -> None:
    chat = MemoryChat(drafts=True)
    chat.finishes = [InDoubt(reason="reset")]
    made = Desk(store, Writer(["The disk ", Seen(chat), "is full."]), chat=chat)
    async with made.running():
        await made.inbox.accept(message("hi"))
        await until(lambda: _settled(store))
    assert made.texts == ["The disk is full."]
    assert (chat.visible, chat.finished) == ({}, [])


LONG = "\n\n".join(f"line {n} " + "word " * 30 for n in range(60))


async def test_a_long_answer_becomes_of_its_draft_as_a_whole(store: Store) -> None:
    chat = MemoryChat(drafts=True)
    made = Desk(store, Writer([LONG[:50], Seen(chat), LONG[50:]]), chat=chat)
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    assert made.texts == [LONG.strip()]
    assert [key.rpartition("/")[2] for key in made.chat.finished] == ["1"]


async def test_a_long_answer_whose_draft_is_gone_is_posted_in_parts_that_fit(store: Store) -> None:
    chat = MemoryChat(drafts=True)

    def gone(reply: Reply) -> None:
        chat.visible.clear()

    chat.finishes = [gone]
    made = Desk(store, Writer([LONG[:50], Seen(chat), LONG[50:]]), chat=chat)
    async with made.running():
        await made.inbox.accept(message("hi"))
        await until(lambda: _settled(store))
    assert len(made.texts) > 1
    assert max(map(len, made.texts)) <= chat.limits.text_max
    assert " ".join(made.texts).split() == LONG.split()
    assert [post.key.rpartition("/")[2] for post in chat.posts] == [str(n) for n in range(1, len(chat.posts) + 1)]


async def test_a_draft_that_has_to_wait_is_finished_later_and_stays_visible_until_then(store: Store) -> None:
    chat = MemoryChat(drafts=True)
    seen: list[bool] = []

    def busy(reply: Reply) -> Delivery:
        seen.append(bool(chat.visible))
        return RetryLater(after_s=0.0, reason="busy")

    chat.finishes = [busy, busy]
    made = Desk(store, Writer([LONG[:50], Seen(chat), LONG[50:]]), chat=chat)
    async with made.running():
        await made.inbox.accept(message("hi"))
        await until(lambda: _settled(store))
    assert made.texts == [LONG.strip()]
    assert (seen, len(chat.finished), chat.discarded) == ([True, True], 1, [])


async def test_a_stopped_answer_keeps_what_was_written_so_far(store: Store) -> None:
    made = Desk(store, Writer(["The disk is ", asyncio.Event()]), chat=MemoryChat(drafts=True))
    async with made.running():
        await made.inbox.accept(message("hi"))
        await until(lambda: bool(made.chat.visible))
        await made.inbox.accept(stop())
        await until(lambda: len(made.chat.posts) == 1)
    assert made.texts == ["The disk is\n\nStopped."]
    assert len(made.chat.finished) == 1


async def test_an_answer_that_is_not_to_be_said_leaves_nothing_visible(store: Store) -> None:
    tool = Hanging()
    made, _ = desk(store, [call(("hang", {}))], registry=tool.registry, chat=MemoryChat(drafts=True))
    async with made.running():
        await made.inbox.accept(message("hi"))
        await until(lambda: bool(made.chat.visible))
        await made.inbox.accept(deleted(1))
        await until(lambda: made.chat.visible == {})
    assert made.texts == []


# -- processes that die ----------------------------------------------------------------------------


class Dying(SqliteStore):
    """Hangs for ever at a chosen verb, as a process that is killed there: nothing after it happens."""

    dies_at = ""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.died = asyncio.Event()

    async def _die(self, verb: str) -> None:
        if self.dies_at == verb:
            self.died.set()
            await asyncio.Event().wait()

    async def begin_send(self, claim: Claim, outbox_id: int, *, now: object) -> float:
        await self._die("before begin_send")
        left_s = await super().begin_send(claim, outbox_id, now=now)  # type: ignore[arg-type]
        await self._die("after begin_send")
        return left_s

    async def finish_send(self, claim: Claim, outbox_id: int, state: OutboxState, **rest: object) -> None:
        await self._die("before finish_send")
        await super().finish_send(claim, outbox_id, state, **rest)  # type: ignore[arg-type]


class Stays(MemoryDraft):
    """A draft whose process is gone cannot remove itself."""

    async def abandon(self) -> None: ...


MOMENTS = ["before it is known", "while it writes", "before begin_send", "after begin_send", "before finish_send"]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_process_that_dies_at_any_moment_of_a_draft_leaves_exactly_one_whole_answer(
    tmp_path: Path, moment: str
) -> None:
    chat = MemoryChat(drafts=True)
    chat.open_draft = lambda thread, *, asker: (chat.drafts.append(Stays(chat)), chat.drafts[-1])[1]  # type: ignore[method-assign,func-returns-value]
    store = Dying(tmp_path / "hermod.db")
    store.dies_at = moment
    await store.open()
    stuck = asyncio.Event()
    pieces: list[str | asyncio.Event | StreamRestarted] = ["The disk ", Tick(), "is "]
    if moment in ("before it is known", "while it writes"):
        pieces.append(stuck)
    if moment == "before it is known":
        chat.may_show.clear()  # it is visible, and the platform has not told its id yet
    first = Desk(store, Writer([*pieces, "full."]), chat=chat)
    await first.inbox.accept(message("hi"))
    working = asyncio.create_task(first.dispatcher.work_all())
    if moment == "while it writes":
        await until(lambda: _recorded(store, "d1"))
    elif moment == "before it is known":
        await until(lambda: _recorded(store, ""))
        await chat.showing.wait()
    else:
        await asyncio.wait_for(store.died.wait(), 30)
    working.cancel()
    await asyncio.wait({working})
    store.dies_at = ""
    chat.may_show.set()
    second = Desk(store, Writer(["The disk ", Tick(), "is full."]), chat=chat)
    await second.dispatcher.work_all()
    assert second.texts == ["The disk is full."]
    assert chat.visible == {}
    await store.close()


async def _recorded(store: Store, remote_id: str) -> bool:
    runs = await store.list_runs()
    return bool(runs) and await store.load_draft(runs[0].run_id) == remote_id


async def test_a_post_is_not_begun_on_the_last_moments_of_a_lease(store: Store) -> None:
    made, _ = desk(store, [say("hello")])
    begin = store.begin_send
    seen: list[float] = []

    async def begin_late(claim: Claim, outbox_id: int, *, now: object) -> float:
        left_s = await begin(claim, outbox_id, now=now)  # type: ignore[arg-type]
        seen.append(left_s)
        return 1.0 if len(seen) == 1 else left_s

    store.begin_send = begin_late  # type: ignore[method-assign]
    await made.inbox.accept(message("hi"))
    await made.dispatcher.work_all()
    assert made.texts == ["hello"]
    assert len(seen) == 2
    assert [row.attempts for row in await store.load_outbox(THREAD.key)] == [2]


async def test_while_a_thread_is_summarised_the_status_says_so(store: Store) -> None:
    long = "word " * 60
    turns = [*(say(f"answer {n} {long}") for n in range(4)), say("they need an index"), say("ok")]
    made, _ = desk(store, turns, agent=Agent(name="operations", memory_tokens=600, stream=False))
    for number in range(5):
        made.chat.statuses.clear()
        await made.inbox.accept(message(f"question {number} {long}", number=number))
        await made.dispatcher.work_all()
    assert "is summarising…" in made.chat.statuses
    assert made.chat.statuses[-1] == "is thinking…"
