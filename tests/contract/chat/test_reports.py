"""Reports: a post that nobody asked for, in the channel itself; a thread below it; and questions there."""

from __future__ import annotations

import pytest

from adapters.chat import (
    COMMAND_THREAD,
    Attachment,
    Author,
    Button,
    Delivered,
    InDoubt,
    Rejected,
    Reply,
    RetryLater,
    ThreadRef,
)
from adapters.places import HasPlaces
from tests.contract.chat import unable
from tests.contract.chat.place import Place, arrived, ask
from tests.contract.chat.scenario import scenario
from tests.contract.chat.test_posting import deliver, texts

HEADLINE = "Daily database report: **3 slow queries**\nshop: p95 is up by 40 %"


def root_of(place: Place, digest: str = "0123456789abcdef") -> ThreadRef:
    """Where a report begins: no thread of the platform's."""
    platform, workspace, channel = place.channel()
    return ThreadRef(platform=platform, workspace=workspace, channel=channel, thread=f"{COMMAND_THREAD}report-{digest}")


def below(place: Place, root: ThreadRef, headline: object) -> ThreadRef:
    """The thread below a headline that was posted."""
    assert isinstance(headline, Delivered)
    assert isinstance(place.adapter, HasPlaces)
    return place.adapter.thread_below(root, headline.remote_id)


async def begin(place: Place, root: ThreadRef, key: str = "run1/1") -> ThreadRef:
    """Post the headline of a report; returns the thread below it."""
    return below(place, root, await deliver(place, Reply(thread=root, text=HEADLINE, key=key)))


@scenario("root")
async def test_the_headline_stands_in_the_channel_itself(place: Place) -> None:
    root = root_of(place)
    asked = (await ask(place)).thread
    posted = await place.adapter.post(Reply(thread=root, text="Daily: fine", key="run1/1"))
    assert isinstance(posted, Delivered)
    assert texts(place, root) == ["Daily: fine"]
    assert texts(place, asked) == []
    assert place.pinged() == set()
    if place.way == "discord":
        (message,) = place.server.bot_messages(root.channel)  # type: ignore[attr-defined]
        assert "message_reference" not in message or message["message_reference"] is None
        assert place.server.threads() == []  # type: ignore[attr-defined]


@scenario("root")
async def test_the_headline_is_found_and_only_there(place: Place) -> None:
    root, buttons = root_of(place), (Button(name="again", label="Run again", value="j1"),)
    posted = await place.adapter.post(Reply(thread=root, text="Daily: fine", key="run1/1", buttons=buttons))
    thread = below(place, root, posted)
    assert await place.adapter.find_posted(root, "run1/1") == posted
    assert await place.adapter.find_posted(root, "run2/1") is None
    assert await place.adapter.find_posted(thread, "run1/1") is None
    await deliver(place, Reply(thread=thread, text="the rest", key="run1/2"))
    assert await place.adapter.find_posted(root, "run1/1") == posted
    assert not isinstance(await place.adapter.find_posted(root, "run1/2"), Delivered)
    assert await place.adapter.find_posted(thread, "run1/1") is None


@scenario("root")
async def test_what_shows_work_does_no_harm_where_no_thread_is(place: Place) -> None:
    root = root_of(place)
    await place.adapter.set_status(root, "working")
    assert place.adapter.open_draft(root, asker=Author(id="settings", name="hermod.toml")) is None
    for sign in ("queued", "seen", "-queued"):
        await place.adapter.react(root, root.thread, sign)
    await place.adapter.discard_draft(root, "")
    assert await place.adapter.fetch_history(root, limit=10) == ()
    await place.adapter.set_status(root, "")
    assert texts(place, root) == []
    await begin(place, root)
    assert len(texts(place, root)) == 1


@scenario("root")
async def test_reports_of_the_same_minute_are_told_apart(place: Place) -> None:
    roots = [root_of(place, digest) for digest in ("00aa", "00bb")]
    threads = [await begin(place, root, f"run{n}/1") for n, root in enumerate(roots)]
    assert len({thread.key for thread in threads}) == 2
    for n, thread in enumerate(threads):
        await deliver(place, Reply(thread=thread, text=f"rest {n}", key=f"run{n}/2"))
    assert [texts(place, thread) for thread in threads] == [["rest 0"], ["rest 1"]]


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("taken_over", [True, False], ids=["another process", "the same process"])
@scenario("doubt", unable=unable.always_delivered)
async def test_a_headline_whose_connection_broke_stands_there_once(
    place: Place, arrives: bool, taken_over: bool
) -> None:
    root = root_of(place)
    thread = await begin(place, root_of(place, "00bb"), "run0/1")  # of another report
    await deliver(place, Reply(thread=thread, text="before", key="run0/2"))
    place.break_post(arrives=arrives)
    reply = Reply(thread=root, text="Daily: fine", key="run1/1")
    assert isinstance(await place.adapter.post(reply), InDoubt)
    if taken_over:
        await place.take_over()
    found = await place.adapter.find_posted(root, "run1/1")
    assert not isinstance(found, InDoubt)
    assert isinstance(found or await deliver(place, reply), Delivered)
    assert texts(place, root)[1:] == ["Daily: fine"]


@scenario("below")
async def test_the_rest_stands_in_the_thread_below_in_order(place: Place) -> None:
    root = root_of(place)
    thread = await begin(place, root)
    files = (Attachment(name="rows.csv", content="a,b\n1,2\n"), Attachment(name="more.csv", content="c\n3\n"))
    assert isinstance(await deliver(place, Reply(thread=thread, text="part 1", key="run1/2")), Delivered)
    assert isinstance(await deliver(place, Reply(thread=thread, text="part 2", key="run1/3", files=files)), Delivered)
    posts = place.posts(thread)
    if place.way == "terminal":
        assert [post.text.partition("\n")[0] for post in posts] == ["part 1", "part 2"]
    else:
        assert [post.text for post in posts if post.text][:2] == ["part 1", "part 2"]
        named = {name: content for post in posts for name, content in post.files.items()}
        assert named == {"rows.csv": b"a,b\n1,2\n", "more.csv": b"c\n3\n"}
    assert len(texts(place, root)) == 1


@scenario("below")
async def test_a_question_there_needs_no_mention_and_has_that_address(place: Place) -> None:
    thread = await begin(place, root_of(place))
    await deliver(place, Reply(thread=thread, text="the rest", key="run1/2"))
    message = await arrived(place, await place.say("explain row 3", thread=thread, mention=False))
    assert message.thread == thread
    assert message.text == "explain row 3"
    assert ThreadRef.parse_key(thread.key) == thread
    await deliver(place, Reply(thread=message.thread, text="Row 3 is the cart.", key="run2/1"))
    assert texts(place, thread) == ["the rest", "Row 3 is the cart."]


@scenario("below")
async def test_a_question_after_a_restart_has_the_same_address(place: Place) -> None:
    root = root_of(place)
    thread = await begin(place, root)
    await deliver(place, Reply(thread=thread, text="the rest", key="run1/2"))
    await place.restart()
    message = await arrived(place, await place.say("why?", thread=thread, mention=False))
    assert message.thread == thread


@scenario("below")
async def test_a_question_with_no_rest_has_that_address_too(place: Place) -> None:
    """As where the report is one line: people begin the thread below it."""
    thread = await begin(place, root_of(place))
    message = await arrived(place, await place.say("since when?", thread=thread))
    assert message.thread == thread


@scenario("below")
async def test_a_post_in_a_thread_has_no_further_thread_below(place: Place) -> None:
    thread = (await ask(place)).thread
    posted = await place.adapter.post(Reply(thread=thread, text="hi", key="k1"))
    assert below(place, thread, posted) == thread


@scenario("below")
async def test_a_post_that_cannot_begin_a_thread_is_answered_where_it_stands(place: Place) -> None:
    root = root_of(place)
    assert isinstance(place.adapter, HasPlaces)
    for remote_id in ("", "no id: at all", "a/b"):
        assert place.adapter.thread_below(root, remote_id).channel == root.channel


@scenario("headless", unable=unable.nothing_taken_back)
async def test_a_headline_that_somebody_deleted_ends_the_rest_with_a_reason(place: Place) -> None:
    root = root_of(place)
    posted = await place.adapter.post(Reply(thread=root, text=HEADLINE, key="run1/1"))
    thread = below(place, root, posted)
    assert isinstance(posted, Delivered)
    await place.delete(posted.remote_id)
    for n in (2, 3):
        outcome = await place.adapter.post(Reply(thread=thread, text=f"part {n}", key=f"run1/{n}"))
        assert isinstance(outcome, Rejected)
        assert outcome.gone
        assert "was deleted" in outcome.reason
    assert texts(place, root) == texts(place, thread) == []
    await place.adapter.set_status(thread, "working")
    await place.adapter.discard_draft(thread, "")
    assert await place.adapter.find_posted(thread, "run1/2") is None
    await begin(place, root_of(place, "00bb"), "run2/1")  # the channel is as it was
    assert len(texts(place, root)) == 1


@scenario("headless", unable=unable.nothing_taken_back)
async def test_a_report_for_a_channel_that_is_closed_is_refused_with_its_remedy(place: Place) -> None:
    place.forbid_posting()
    outcome = await place.adapter.post(Reply(thread=root_of(place), text=HEADLINE, key="run1/1"))
    assert isinstance(outcome, Rejected)
    assert any(remedy in outcome.reason.lower() for remedy in ("invite", "permission")), outcome.reason


@scenario("headless", unable=unable.nothing_taken_back)
async def test_a_report_for_a_channel_that_was_deleted_is_told_as_gone(place: Place) -> None:
    root = root_of(place)
    server = place.server  # type: ignore[attr-defined]
    if place.way == "discord":
        await server.delete_channel(root.channel)
    else:
        server.remove_channel(root.channel)
    for _ in range(2):
        outcome = await place.adapter.post(Reply(thread=root, text=HEADLINE, key="run1/1"))
        assert isinstance(outcome, Rejected)
        assert outcome.gone
        assert outcome.reason


@scenario("rates", unable=unable.always_delivered)
async def test_a_headline_that_has_to_wait_is_posted_once(place: Place) -> None:
    root, reply = root_of(place), Reply(thread=root_of(place), text="Daily: fine", key="run1/1")
    place.limit_posts(1.0)
    assert isinstance(await place.adapter.post(reply), RetryLater | Delivered)
    assert isinstance(await deliver(place, reply), Delivered)
    assert texts(place, root) == ["Daily: fine"]


@scenario("looking", unable=unable.always_there)
async def test_an_open_channel_is_told_from_one_that_is_not(place: Place) -> None:
    _, workspace, channel = place.channel()
    assert isinstance(place.adapter, HasPlaces)
    look = await place.adapter.look_at_channel(workspace, channel)
    assert (look.state, look.name, look.what, look.fix) == ("open", "#ops", "", "")
    await place.restart()
    place.forbid_seeing()
    assert isinstance(place.adapter, HasPlaces)
    closed = await place.adapter.look_at_channel(workspace, channel)
    assert closed.state == "closed"
    assert closed.what
    assert closed.fix
    gone = await place.adapter.look_at_channel(workspace, "404404404404404404")
    assert gone.state == "gone"
    assert gone.fix


@scenario("looking", unable=unable.always_there)
async def test_a_person_is_told_from_one_who_is_not_there(place: Place) -> None:
    _, workspace, _ = place.channel()
    message = await ask(place)
    assert isinstance(place.adapter, HasPlaces)
    look = await place.adapter.look_at_person(workspace, place.person("alice"))
    assert (look.state, look.author) == ("here", message.author)
    gone = await place.adapter.look_at_person(workspace, "404404404404404404")
    assert (gone.state, gone.author) == ("gone", None)
