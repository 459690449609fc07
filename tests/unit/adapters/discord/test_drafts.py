"""A draft over a port that a test answers, in time that a test turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.chat import Delivered, Delivery, InDoubt, PlanStep, Rejected, Reply, RetryLater, ThreadRef
from adapters.discord.buttons import has_stop
from adapters.discord.drafts import QUICK_S, SLOW_S, DiscordDraft
from adapters.discord.page import LEFT_OUT, Page, plan_lines, turn_page
from adapters.discord.payload import Payload
from adapters.discord.render import CONTENT_MAX, content_size
from tests.unit.adapters.discord.reader import read
from tests.unit.adapters.discord.timeline import Timeline
from tests.unit.adapters.markdown_texts import MARKUP

REPLY = Reply(
    thread=ThreadRef(platform="discord", workspace="1", channel="2", thread="3"), text="The whole answer.", key="r/1"
)
TAKEN = Delivered(remote_id="")


class Port:
    """A thread that keeps what stands in it. ``outcomes`` are taken for the next calls; else a call is taken."""

    def __init__(self, time: Timeline) -> None:
        self._time = time
        self.standing: dict[str, Payload | Reply] = {}
        self.calls: list[tuple[float, str]] = []
        self.outcomes: list[Delivery | Callable[[], Delivery]] = []
        self.nonces: dict[str, str] = {}
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def create(self, payload: Payload, *, nonce: str) -> Delivery:
        def make() -> str:
            self.nonces.setdefault(nonce, f"d{len(self.nonces) + 1}")
            self.standing.setdefault(self.nonces[nonce], payload)
            return self.nonces[nonce]

        return await self._call("create", make)

    async def edit(self, message_id: str, payload: Payload) -> Delivery:
        def change() -> str:
            self.standing[message_id] = payload
            return message_id

        return await self._call("edit", change)

    async def delete(self, message_id: str) -> None:
        self.calls.append((self._time.monotonic(), "delete"))
        self.standing.pop(message_id, None)

    async def clear(self) -> None:
        self.calls.append((self._time.monotonic(), "clear"))
        self.standing = {key: kept for key, kept in self.standing.items() if not key.startswith("d")}

    async def post(self, reply: Reply) -> Delivery:
        def make() -> str:
            self.standing[reply.key] = reply
            return reply.key

        return await self._call("post", make)

    async def _call(self, name: str, act: Callable[[], str]) -> Delivery:
        self.calls.append((self._time.monotonic(), name))
        await self.may_answer.wait()
        outcome = self.outcomes.pop(0) if self.outcomes else TAKEN
        if callable(outcome):  # it happened, and the answer got lost
            act()
            return outcome()
        return Delivered(remote_id=act()) if isinstance(outcome, Delivered) else outcome

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.calls]

    @property
    def content(self) -> str:
        """What the draft shows."""
        (payload,) = self.standing.values()
        assert isinstance(payload, Payload)
        return payload.content


class Bench:
    def __init__(self) -> None:
        self.time = Timeline()
        self.port = Port(self.time)
        self.draft = DiscordDraft(self.port, monotonic=self.time.monotonic, sleep=self.time.sleep)

    async def show(self, text: str, *plan: PlanStep, seconds: float = 5.0) -> None:
        await self.draft.show(text, plan)
        await self.time.advance(seconds)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.draft.halt()


def step(n: int, state: str = "done", title: str = "get_slow_queries: shop", detail: str = "0.4 s") -> PlanStep:
    return PlanStep(id=str(n), title=title, state=state, detail=detail)  # type: ignore[arg-type]


# -- while it is written -----------------------------------------------------------------------------


async def test_the_first_words_are_posted_soon_and_the_rest_is_edited_in(bench: Bench) -> None:
    await bench.show("Hello wor", seconds=0.2)
    assert bench.port.calls == []
    await bench.time.advance(0.1)
    assert bench.port.content == "Hello"
    assert bench.draft.remote_id == "d1"
    await bench.show("Hello world, all **bo", seconds=QUICK_S)
    assert bench.port.content == "Hello world, all"
    assert bench.port.names == ["create", "edit"]
    assert all(has_stop({"components": p.components}) for p in bench.port.standing.values() if isinstance(p, Payload))


async def test_b060_token_after_token_becomes_an_edit_now_and_then(bench: Bench) -> None:
    for n in range(2000):
        await bench.draft.show("word " * n)
        await bench.time.advance(0.01)
    times = [at for at, _ in bench.port.calls]
    assert 12 <= len(times) <= 17  # in 20 s
    assert min(b - a for a, b in pairwise(times)) >= 1.0


async def test_b058_what_came_in_between_is_left_out_and_the_last_text_is_shown(bench: Bench) -> None:
    await bench.show("one ")
    for n in range(60):
        await bench.draft.show(f"state {n} ")
        await bench.time.settle()
    await bench.time.advance(10)
    assert bench.port.content == "state 59"
    assert bench.port.names == ["create", "edit", "edit"]


async def test_after_a_refusal_it_waits_as_long_as_it_is_told_and_goes_on_more_slowly(bench: Bench) -> None:
    await bench.show("one ")
    bench.port.outcomes = [RetryLater(after_s=7.0, reason="429"), RetryLater(after_s=0.0, reason="429")]
    await bench.show("one two ", seconds=6.9)
    assert bench.port.names == ["create", "edit"]
    await bench.time.advance(30)
    (_, _), (a, _), (b, _), (c, _) = bench.port.calls
    assert b - a == pytest.approx(7.0)
    assert c - b == pytest.approx(4 * QUICK_S)  # each refusal doubles the time
    assert bench.port.content == "one two"
    for n in range(40):  # and it becomes quick again
        await bench.show("one two " + "x " * n, seconds=SLOW_S)
    before = len(bench.port.calls)
    for n in range(20):
        await bench.show("and " * n, seconds=QUICK_S)
    assert len(bench.port.calls) - before >= 18


async def test_the_pace_never_falls_below_its_bound(bench: Bench) -> None:
    await bench.show("one ")
    bench.port.outcomes = [RetryLater(after_s=0.0, reason="429")] * 20
    await bench.show("one two ", seconds=400)
    times = [at for at, _ in bench.port.calls[1:]]
    assert max(b - a for a, b in pairwise(times)) == pytest.approx(SLOW_S)
    assert bench.port.content == "one two"


async def test_steps_stand_above_the_text_in_small_print(bench: Bench) -> None:
    await bench.show("", step(1, "running", "run_python: **x** @everyone <@1>", ""))
    assert bench.port.content == "-# … run_python: \\*\\*x\\*\\* @\u200beveryone \\<\u200b@1>"
    await bench.show("The **answer**. ", step(1), step(2, "failed", "explain", ""))
    assert bench.port.content == "-# ✓ get_slow_queries: shop (0.4 s)\n-# ✗ explain\nThe **answer**."


async def test_a_long_plan_beside_a_long_text_fits(bench: Bench) -> None:
    plan = [step(n, title="*<@1>_" * 60, detail="\U0001f600" * 300) for n in range(30)]
    await bench.show("*word* \U0001f600 [a](https://ex.test) " * 500, *plan)
    assert 1500 < content_size(bench.port.content) <= CONTENT_MAX
    assert read(bench.port.content).live == []


async def test_nothing_is_posted_while_there_is_nothing_to_see(bench: Bench) -> None:
    await bench.show("  ")
    await bench.show("unfinishe")
    assert bench.port.calls == []


async def test_a_text_that_begins_anew_replaces_what_is_seen(bench: Bench) -> None:
    await bench.show("Wrong, wrong. ")
    await bench.show("Right. ")
    assert bench.port.content == "Right."


@pytest.mark.parametrize("outcome", [Rejected(reason="gone", gone=True), Rejected(reason="no")])
async def test_where_nothing_can_be_shown_nothing_more_is_tried(bench: Bench, outcome: Delivery) -> None:
    bench.port.outcomes = [outcome]
    await bench.show("one ")
    await bench.show("one two ")
    assert bench.port.names == ["create"]
    assert await bench.draft.finish(REPLY) is None


async def test_a_post_in_doubt_is_made_again_with_the_same_nonce_and_is_there_once(bench: Bench) -> None:
    bench.port.outcomes = [lambda: InDoubt(reason="the connection broke")]
    await bench.show("one ")
    assert bench.port.names[:2] == ["create", "create"]
    await bench.show("one two ")
    assert list(bench.port.standing) == ["d1"]
    assert bench.port.content == "one two"


# -- its end -------------------------------------------------------------------------------------------


async def test_a_message_in_doubt_of_which_discord_does_not_tell_is_looked_for_and_removed(bench: Bench) -> None:
    bench.port.outcomes = [lambda: InDoubt(reason="the connection broke"), RetryLater(after_s=30, reason="429")]
    await bench.show("one ", seconds=2.0)
    assert list(bench.port.standing) == ["d1"]
    bench.port.outcomes = [RetryLater(after_s=30, reason="429")]
    assert await bench.draft.finish(REPLY) is None
    assert bench.port.standing == {}
    assert bench.port.names == ["create", "create", "create", "clear"]
    await bench.draft.abandon()
    assert bench.port.names[-1] == "clear"


async def test_the_reply_is_posted_under_its_key_and_then_the_draft_goes(bench: Bench) -> None:
    await bench.show("The whole ")
    assert await bench.draft.finish(REPLY) == Delivered(remote_id="r/1")
    assert bench.port.names == ["create", "post", "delete"]
    assert bench.port.standing == {"r/1": REPLY}
    await bench.show("late ")
    await bench.draft.abandon()
    assert bench.port.names == ["create", "post", "delete"]


async def test_without_anything_visible_the_reply_is_posted_by_others(bench: Bench) -> None:
    assert await bench.draft.finish(REPLY) is None
    await bench.draft.show("one ")
    assert await bench.draft.finish(REPLY) is None
    assert bench.port.calls == []


@pytest.mark.parametrize("change", [{"text": "x " * 1500}, {"private_to": "9"}])
async def test_a_reply_that_the_draft_cannot_become_is_posted_by_others(bench: Bench, change: dict[str, str]) -> None:
    await bench.show("one ")
    assert await bench.draft.finish(replace(REPLY, **change)) is None  # type: ignore[arg-type]
    assert bench.port.standing == {}


async def test_a_reply_that_is_put_off_leaves_the_draft_and_is_finished_later(bench: Bench) -> None:
    await bench.show("one ")
    bench.port.outcomes = [RetryLater(after_s=3, reason="429"), InDoubt(reason="?"), TAKEN]
    assert await bench.draft.finish(REPLY) == RetryLater(after_s=3, reason="429")
    assert list(bench.port.standing) == ["d1"]
    assert await bench.draft.finish(REPLY) == InDoubt(reason="?")
    assert list(bench.port.standing) == ["d1"]
    assert await bench.draft.finish(REPLY) == Delivered(remote_id="r/1")
    assert list(bench.port.standing) == ["r/1"]


async def test_a_reply_that_is_refused_leaves_the_draft_to_abandon(bench: Bench) -> None:
    await bench.show("one ")
    bench.port.outcomes = [Rejected(reason="no")]
    assert await bench.draft.finish(REPLY) == Rejected(reason="no")
    await bench.draft.abandon()
    assert bench.port.standing == {}


async def test_a_call_that_is_under_way_is_waited_for(bench: Bench) -> None:
    await bench.show("one ", seconds=0.1)
    bench.port.may_answer.clear()
    await bench.time.advance(1)
    assert bench.port.names == ["create"]
    ending = asyncio.create_task(bench.draft.finish(REPLY))
    await bench.time.settle()
    assert not ending.done()
    bench.port.may_answer.set()
    async with asyncio.timeout(30):  # a thread measures the reply
        assert await ending == Delivered(remote_id="r/1")
    assert list(bench.port.standing) == ["r/1"]


@pytest.mark.parametrize("end", ["finish", "abandon"])
async def test_a_message_that_may_have_been_made_is_found_and_removed(bench: Bench, end: str) -> None:
    doubt: Callable[[], Delivery] = lambda: InDoubt(reason="?")  # noqa: E731
    bench.port.outcomes = [doubt, doubt, doubt]
    await bench.show("one ", seconds=30)
    assert bench.draft.remote_id == ""
    assert list(bench.port.standing) == ["d1"]
    if end == "finish":
        assert await bench.draft.finish(REPLY) == Delivered(remote_id="r/1")
    else:
        await bench.draft.abandon()
    assert list(bench.port.standing) == (["r/1"] if end == "finish" else [])


# -- what is seen --------------------------------------------------------------------------------------


def grow(text: str, step_by: int = 37) -> list[Page]:
    """The pages of a text that grows."""
    pages, page = [], Page()
    for end in range(step_by, len(text) + step_by, step_by):
        page = turn_page(page, text[:end], CONTENT_MAX)
        pages.append(page)
    return pages


def test_a_text_over_the_limit_shows_its_end_and_does_not_move_with_every_word() -> None:
    text = "".join(f"Line {n} of the answer.\n" for n in range(400))
    pages = grow(text)
    assert all(content_size(page.content) <= CONTENT_MAX for page in pages)
    assert pages[0].start == 0
    assert len({page.start for page in pages}) < 12
    assert "Line 399 of the answer." in pages[-1].content
    assert pages[-1].content.startswith(LEFT_OUT)
    assert all(read(page.content).text.rstrip().endswith(page.text.rstrip()[-5:]) for page in pages)


def test_code_and_tables_go_on_as_such_on_the_next_page() -> None:
    code = "Look:\n```sql\n" + "".join(f"select {n};\n" for n in range(400))
    last = grow(code)[-1]
    assert last.start > 0
    assert [language for language, _ in read(last.content).blocks] == ["sql"]
    table = "| a | b |\n|---|---|\n" + "".join(f"| r{n} | x |\n" for n in range(35))
    page = turn_page(Page(), "word " * 350 + "\n\n" + table, CONTENT_MAX)
    assert page.start > 0
    ((_, drawn),) = read(page.content).blocks
    assert drawn.split("\n")[0].startswith("a")


@settings(max_examples=100, deadline=None)
@given(MARKUP, st.integers(1, 80))
def test_whatever_is_written_a_page_fits_and_mentions_nobody(text: str, times: int) -> None:
    for page in grow(text * times, 400):
        assert content_size(page.content) <= CONTENT_MAX
        assert read(page.content).live == []


def test_a_long_plan_shows_its_newest_steps() -> None:
    lines = plan_lines([step(n, title=f"tool_{n}: " + "x" * 200) for n in range(9)])
    assert lines[0] == "-# … 5 steps before"
    assert [line[5:11] for line in lines[1:]] == [f"tool_{n}" for n in range(5, 9)]
    assert all(len(line) < 130 for line in lines)
