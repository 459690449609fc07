"""The contract's ways of not being able: what a scenario tries where its platform cannot do the thing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from adapters.chat import Button, Delivered, FileRef, Reply, ThreadRef
from adapters.commands import HasCommands
from adapters.places import HasPlaces
from tests.contract.chat.place import PATIENCE_S, Place, arrived, ask, until
from tests.servers.slack.model import Copies

Check = Callable[[Place], Awaitable[None]]
"""Tries that the contract's way of not being able holds."""


async def nothing_but_messages(place: Place) -> None:
    """All that comes in is a message, from a person, addressed to Hermod, with nothing beside its words."""
    message = await arrived(place, await place.say("@everyone @here <@1> hello"))
    assert place.inbox.items == [message]
    assert (message.mentioned, message.direct) == (True, True)
    assert not message.author.bot
    assert (message.files, message.quoted, message.text) == ((), "", "@everyone @here <@1> hello")


async def told_at_once(place: Place) -> None:
    """What cannot be stored is an error to whoever said it; said again it arrives."""
    place.inbox.failures = 1
    try:
        await place.say("hello")
    except OSError:
        pass
    else:
        raise AssertionError("the failure was swallowed")
    assert place.inbox.items == []
    assert (await ask(place, "hello")).text == "hello"


async def no_group_mention(place: Place) -> None:
    """A mention of some group is none of Hermod."""
    if place.way == "terminal":
        await nothing_but_messages(place)
        return
    said = await place.call_group("look")
    await ask(place, "and now?")
    await place.settle()
    assert [m.mentioned for m in place.inbox.messages if m.id == said] in ([], [False])


async def plain_text(place: Place) -> None:
    """Buttons, thumbs and files are declared as not possible; the words of such a reply arrive."""
    able = place.adapter.capabilities
    assert (able.buttons, able.files, able.edits) == (False, False, False)
    thread = (await ask(place)).thread
    button = Button(name="approve", label="Approve", value="a1")
    assert isinstance(
        await place.adapter.post(Reply(thread=thread, text="May I?", key="k", buttons=(button,), feedback="f")),
        Delivered,
    )
    assert [post.text for post in place.posts(thread)] == ["May I?"]


async def open_to_all(place: Place) -> None:
    """``private_to`` is declared as not honoured, so that nothing private is handed over."""
    assert not place.adapter.capabilities.private
    thread = (await ask(place)).thread
    assert isinstance(
        await place.adapter.post(Reply(thread=thread, text="for you", key="k", private_to="local")), Delivered
    )
    assert [post.text for post in place.posts(thread)] == ["for you"]


async def always_delivered(place: Place) -> None:
    """Nothing is refused, limited or in doubt: every reply is delivered, and found again."""
    thread = (await ask(place)).thread
    for n in range(50):
        posted = await place.adapter.post(Reply(thread=thread, text=f"a{n}", key=f"k{n}"))
        assert isinstance(posted, Delivered)
        assert await place.adapter.find_posted(thread, f"k{n}") == posted
        assert await place.adapter.post(Reply(thread=thread, text=f"a{n}", key=f"k{n}")) == posted
    assert [post.text for post in place.posts(thread)] == [f"a{n}" for n in range(50)]


async def nobody_to_ping(place: Place) -> None:
    """Mentions are words."""
    thread = (await ask(place)).thread
    said = "@everyone <@1> <!channel>"
    await place.adapter.post(Reply(thread=thread, text=said, key="k", mentions=frozenset({"1"})))
    assert [post.text for post in place.posts(thread)] == [said]


async def no_drafts(place: Place) -> None:
    """``open_draft`` gives None, and there is nothing to discard."""
    assert not place.adapter.capabilities.drafts
    message = await ask(place)
    assert place.adapter.open_draft(message.thread, asker=message.author) is None
    await place.adapter.discard_draft(message.thread, "")
    await place.adapter.discard_draft(message.thread, "1")
    assert place.posts(message.thread) == []


async def no_signs(place: Place) -> None:
    """``react`` does nothing, quietly."""
    message = await ask(place)
    for sign in ("queued", "-queued", "seen", "no such sign"):
        await place.adapter.react(message.thread, message.id, sign)
    assert place.posts(message.thread) == []


async def nothing_taken_back(place: Place) -> None:
    """What follows a report stands below it, since nobody can take the report away."""
    root = ThreadRef(platform="terminal", workspace="local", channel="console", thread="command-report-00aa")
    assert isinstance(place.adapter, HasPlaces)
    headline = await place.adapter.post(Reply(thread=root, text="Daily: fine", key="run1/1"))
    assert isinstance(headline, Delivered)
    below = place.adapter.thread_below(root, headline.remote_id)
    assert isinstance(await place.adapter.post(Reply(thread=below, text="the rest", key="run1/2")), Delivered)
    assert [post.text for post in place.posts(below)] == ["the rest"]


async def always_there(place: Place) -> None:
    """Every look says so."""
    assert isinstance(place.adapter, HasPlaces)
    look = await place.adapter.look_at_channel("local", "console")
    assert (look.state, look.name, look.what, look.fix) == ("open", "console", "", "")
    person = await place.adapter.look_at_person("local", "local")
    assert (person.state, person.author) == ("here", (await ask(place)).author)


async def no_past(place: Place) -> None:
    """The history is declared as not readable, and is empty."""
    assert not place.adapter.capabilities.history
    message = await ask(place)
    assert await place.adapter.fetch_history(message.thread, limit=10) == ()


async def no_files_in(place: Place) -> None:
    """``fetch_file`` gives None."""
    assert await place.adapter.fetch_file(FileRef(id="1", name="rows.csv", size=1), max_bytes=100) is None


async def no_offers(place: Place) -> None:
    """The adapter takes no offers, so nothing expects the platform to show some."""
    assert not isinstance(place.adapter, HasCommands)


async def no_command_in_a_thread(place: Place) -> None:
    """A command belongs to no thread: its address says so, and is answered in the channel."""
    if place.way == "terminal":
        await no_offers(place)
        return
    thread = (await ask(place)).thread
    command = await place.give("ask", {"question": "why?"}, thread=thread)
    await place.inbox.wait_for(lambda: place.inbox.commands, PATIENCE_S)
    (heard,) = place.inbox.commands
    assert (heard.id, heard.thread.channel) == (command, thread.channel)
    assert heard.thread.thread.startswith("command-")


async def never_cut(place: Place) -> None:
    """There is no connection that could break. Over HTTP what was not acknowledged comes again, as the same message."""
    if place.way == "slack-http":
        place.server.drop_ack("message", times=2)  # type: ignore[attr-defined]
        place.server.copies = Copies(mention=0)  # type: ignore[attr-defined]
    first = await ask(place, "are you there?")
    await until(lambda: len(place.inbox.messages) == (3 if place.way == "slack-http" else 1))
    await place.settle()
    assert place.adapter.connected
    assert {(m.id, m.thread, m.text) for m in place.inbox.messages} == {(first.id, first.thread, "are you there?")}


async def no_token(place: Place) -> None:
    """It starts without being configured."""
    await place.adapter.stop()
    await place.adapter.start(place.inbox.accept)
    assert place.adapter.connected


async def nothing_missing(place: Place) -> None:
    """``check`` finds nothing."""
    assert await place.adapter.check() == ()


async def one_workspace(place: Place) -> None:
    """Every address is in the same workspace."""
    assert len({(await ask(place, f"q{n}")).thread.workspace for n in range(3)}) == 1


async def no_stop(place: Place) -> None:
    """Whatever shows that work goes on, nothing but messages comes from here."""
    message = await ask(place)
    await place.adapter.set_status(message.thread, "working")
    after = await ask(place, "stop")
    assert place.inbox.items == [message, after]
    assert after.text == "stop"  # a word, which Hermod itself understands
