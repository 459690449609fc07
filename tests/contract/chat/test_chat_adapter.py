"""What every ``ChatAdapter`` does alike. A new platform adds a ``Place`` below and passes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from adapters.chat import ChatAdapter, Delivered, Delivery, Message, Reply, RetryLater, ThreadRef
from adapters.markdown import fit_markdown
from adapters.slack.manifest import BOT_SCOPES
from adapters.terminal.app import TerminalAdapter
from tests.integration.slack.conftest import Inbox, build_adapter
from tests.servers.slack import Copies, SlackServer


class Place(Protocol):
    """A platform with one person in it."""

    adapter: ChatAdapter

    async def say(self, text: str, thread: ThreadRef | None = None) -> None: ...

    def posted(self, thread: ThreadRef) -> list[str]: ...


class TerminalPlace:
    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.terminal = TerminalAdapter(output=io.StringIO(), on_post=self.replies.append)
        self.adapter: ChatAdapter = self.terminal

    async def say(self, text: str, thread: ThreadRef | None = None) -> None:
        await self.terminal.submit(text, thread)

    def posted(self, thread: ThreadRef) -> list[str]:
        return [r.text for r in self.replies if r.thread == thread]


class SlackPlace:
    def __init__(self, server: SlackServer) -> None:
        self.server = server
        self.adapter: ChatAdapter = build_adapter(server)

    async def say(self, text: str, thread: ThreadRef | None = None) -> None:
        await self.server.mention(text, thread_ts=thread.thread if thread else None, copies=Copies(message=0))

    def posted(self, thread: ThreadRef) -> list[str]:
        return [m["text"] for m in self.server.bot_messages(thread.channel, thread.thread)]


@pytest.fixture(params=["terminal", "slack"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    if request.param == "terminal":
        yield TerminalPlace()
        return
    async with SlackServer(scopes=tuple(BOT_SCOPES)) as server:
        slack = SlackPlace(server)
        yield slack
        await slack.adapter.stop()


@pytest.fixture
async def inbox(place: Place) -> AsyncIterator[Inbox]:
    inbox = Inbox()
    await place.adapter.start(inbox.accept)
    yield inbox
    await place.adapter.stop()


async def heard(place: Place, inbox: Inbox, text: str, thread: ThreadRef | None = None) -> Message:
    count = len(inbox.messages)
    await place.say(text, thread)
    await inbox.wait_for(lambda: len(inbox.messages) > count)
    return inbox.messages[-1]


async def deliver(place: Place, reply: Reply) -> Delivery:
    """Post as the outbox does: again when the platform takes no more just now."""
    outcome = await place.adapter.post(reply)
    for _ in range(20):
        if not isinstance(outcome, RetryLater):
            break
        await asyncio.sleep(outcome.after_s)
        outcome = await place.adapter.post(reply)
    return outcome


async def test_a_message_has_an_address_that_can_be_written_and_read_back(place: Place, inbox: Inbox) -> None:
    message = await heard(place, inbox, "hello")
    assert ThreadRef.parse_key(message.thread.key) == message.thread
    assert message.thread.platform == place.adapter.platform
    assert message.text == "hello"
    assert message.sent_at.tzinfo is not None
    assert message.id
    assert message.author.id
    assert message.author.name


async def test_an_answer_and_a_follow_up_stay_in_the_thread(place: Place, inbox: Inbox) -> None:
    first = await heard(place, inbox, "hello")
    other = await heard(place, inbox, "something else")
    assert isinstance(await place.adapter.post(Reply(thread=first.thread, text="hi", key="k1")), Delivered)
    follow_up = await heard(place, inbox, "and?", first.thread)
    assert follow_up.thread == first.thread
    assert follow_up.id != first.id
    assert other.thread != first.thread
    assert place.posted(first.thread) == ["hi"]
    assert place.posted(other.thread) == []


async def test_a_post_is_found_by_its_key_and_only_there(place: Place, inbox: Inbox) -> None:
    one, two = await heard(place, inbox, "one"), await heard(place, inbox, "two")
    posted = await place.adapter.post(Reply(thread=one.thread, text="hi", key="k1"))
    assert await place.adapter.find_posted(one.thread, "k1") == posted
    assert await place.adapter.find_posted(one.thread, "k2") is None
    assert await place.adapter.find_posted(two.thread, "k1") is None


async def test_posts_at_the_same_time_each_reach_their_thread(place: Place, inbox: Inbox) -> None:
    threads = [(await heard(place, inbox, f"q{n}")).thread for n in range(4)]
    replies = [Reply(thread=t, text=f"a{n}", key=f"k{n}") for n, t in enumerate(threads)]
    outcomes = await asyncio.gather(*(deliver(place, r) for r in replies))
    assert all(isinstance(o, Delivered) for o in outcomes)
    assert len({o.remote_id for o in outcomes if isinstance(o, Delivered)}) == 4
    assert [place.posted(t) for t in threads] == [["a0"], ["a1"], ["a2"], ["a3"]]


async def test_every_part_that_fits_the_limits_is_taken(place: Place, inbox: Inbox) -> None:
    thread = (await heard(place, inbox, "much")).thread
    text = "\n\n".join(["# Report", "words & <more> words " * 900, "```sql\n" + "select 1;\n" * 900 + "```"])
    parts = fit_markdown(text, place.adapter.limits)
    for n, part in enumerate(parts):
        assert isinstance(await deliver(place, Reply(thread=thread, text=part, key=f"k{n}")), Delivered)
    assert len(place.posted(thread)) == len(parts)


async def test_a_status_never_raises_wherever_it_is_shown(place: Place, inbox: Inbox) -> None:
    thread = (await heard(place, inbox, "hello")).thread
    nowhere = ThreadRef(platform=thread.platform, workspace=thread.workspace, channel="C9", thread="1.1")
    for ref in (thread, nowhere):
        await place.adapter.set_status(ref, "working")
        await place.adapter.set_status(ref, "")


async def test_it_says_whether_it_is_connected_and_stops_twice(place: Place) -> None:
    inbox = Inbox()
    seen = [place.adapter.connected]
    await place.adapter.start(inbox.accept)
    seen.append(place.adapter.connected)
    await place.adapter.stop()
    await place.adapter.stop()
    seen.append(place.adapter.connected)
    assert seen == [False, True, False]


async def test_the_self_check_never_raises(place: Place) -> None:
    assert await place.adapter.check() == ()
    await place.adapter.stop()


async def test_what_is_not_for_us_is_no_error(place: Place, inbox: Inbox) -> None:
    inbox.answer = False
    assert (await heard(place, inbox, "lunch?")).text == "lunch?"
