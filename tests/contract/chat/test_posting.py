"""Answers: where they stand, that they stand there once, and that they can be found."""

from __future__ import annotations

import asyncio

from adapters.chat import Button, Delivered, Delivery, Rejected, Reply, RetryLater, ThreadRef
from adapters.markdown import fit_markdown
from tests.contract.chat import unable
from tests.contract.chat.place import Place, arrived, ask
from tests.contract.chat.scenario import scenario


async def deliver(place: Place, reply: Reply) -> Delivery:
    """Post as the outbox does: again when the platform takes no more just now."""
    outcome = await place.adapter.post(reply)
    for _ in range(20):
        if not isinstance(outcome, RetryLater):
            break
        await asyncio.sleep(outcome.after_s)
        outcome = await place.adapter.post(reply)
    return outcome


def texts(place: Place, thread: ThreadRef) -> list[str]:
    return [post.text for post in place.posts(thread)]


@scenario("thread")
async def test_an_answer_stands_in_the_thread_of_its_question(place: Place) -> None:
    one, two = await ask(place, "one"), await ask(place, "two")
    posted = await place.adapter.post(Reply(thread=one.thread, text="hi", key="k1"))
    assert isinstance(posted, Delivered)
    assert [(post.id, post.text) for post in place.posts(one.thread)] == [(posted.remote_id, "hi")] or (
        place.way == "terminal" and texts(place, one.thread) == ["hi"]
    )
    assert texts(place, two.thread) == []


@scenario("thread")
async def test_answers_at_the_same_time_each_reach_their_thread(place: Place) -> None:
    threads = [(await ask(place, f"q{n}")).thread for n in range(3)]
    replies = [Reply(thread=t, text=f"a{n}", key=f"k{n}") for n, t in enumerate(threads)]
    outcomes = await asyncio.gather(*(deliver(place, r) for r in replies))
    assert len({o.remote_id for o in outcomes if isinstance(o, Delivered)}) == 3
    assert [texts(place, t) for t in threads] == [["a0"], ["a1"], ["a2"]]


@scenario("thread")
async def test_a_second_person_in_the_thread_is_answered_there(place: Place) -> None:
    thread = (await ask(place)).thread
    await place.adapter.post(Reply(thread=thread, text="Two.", key="run1/1"))
    who = "alice" if place.way == "terminal" else "bob"
    other = await arrived(place, await place.say("which?", thread=thread, mention=False, who=who))  # type: ignore[arg-type]
    assert other.author.id == place.person(who)  # type: ignore[arg-type]
    await place.adapter.post(Reply(thread=other.thread, text="These.", key="run2/1"))
    assert texts(place, thread) == ["Two.", "These."]


@scenario("thread")
async def test_an_answer_without_words_ends_in_an_outcome(place: Place) -> None:
    """Platforms take no empty message: it is refused with a reason, or says that there is nothing to show."""
    thread = (await ask(place)).thread
    outcome = await place.adapter.post(Reply(thread=thread, text=" \n", key="k"))
    assert isinstance(outcome, Delivered | Rejected)
    assert isinstance(outcome, Rejected) is not bool(texts(place, thread))
    if isinstance(outcome, Rejected):
        assert "empty" in outcome.reason


@scenario("found")
async def test_an_answer_is_found_by_its_key_and_only_there(place: Place) -> None:
    one, two = await ask(place, "one"), await ask(place, "two")
    buttons = (Button(name="stop", label="Stop", value="s1"),)
    posted = await place.adapter.post(Reply(thread=one.thread, text="hi", key="k1", buttons=buttons))
    assert isinstance(posted, Delivered)
    assert await place.adapter.find_posted(one.thread, "k1") == posted
    assert await place.adapter.find_posted(one.thread, "k2") is None
    assert await place.adapter.find_posted(two.thread, "k1") is None


@scenario("found")
async def test_the_same_key_twice_is_posted_once(place: Place) -> None:
    """As the outbox does with every row that it finds undone: look, and post only what is not there."""
    thread = (await ask(place)).thread
    reply = Reply(thread=thread, text="hi", key="k1")
    for _ in range(3):
        if await place.adapter.find_posted(thread, reply.key) is None:
            assert isinstance(await deliver(place, reply), Delivered)
    assert texts(place, thread) == ["hi"]


@scenario("found")
async def test_an_answer_in_doubt_is_posted_once_after_a_restart(place: Place) -> None:
    """As after a crash between posting and recording."""
    thread = (await ask(place)).thread
    reply = Reply(thread=thread, text="hi", key="k1")
    posted = await place.adapter.post(reply)
    await place.restart()
    found = await place.adapter.find_posted(thread, "k1")
    if place.way == "terminal":
        assert found is None  # the screen of the process before went with it
        return
    assert found is None or found == posted
    if found is None:
        assert await place.adapter.post(reply) == posted
    assert texts(place, thread) == ["hi"]


@scenario("found")
async def test_an_answer_with_buttons_is_found_after_a_restart(place: Place) -> None:
    thread = (await ask(place)).thread
    buttons = (Button(name="approve", label="Approve", value="a1"),)
    posted = await place.adapter.post(Reply(thread=thread, text="May I?", key="k1", buttons=buttons))
    await place.restart()
    found = await place.adapter.find_posted(thread, "k1")
    assert found == (None if place.way == "terminal" else posted)


@scenario("found")
async def test_what_was_never_posted_is_certainly_absent(place: Place) -> None:
    message = await ask(place)
    assert await place.adapter.find_posted(message.thread, "k1") is None
    assert texts(place, message.thread) == []


@scenario("parts")
async def test_two_parts_stand_in_order(place: Place) -> None:
    thread = (await ask(place)).thread
    for n in (1, 2):
        assert isinstance(await deliver(place, Reply(thread=thread, text=f"part {n}", key=f"run/{n}")), Delivered)
    assert texts(place, thread) == ["part 1", "part 2"]


@scenario("parts")
async def test_the_longest_part_is_taken_whole(place: Place) -> None:
    thread = (await ask(place)).thread
    text = " ".join(f"w{n:05}" for n in range(30_000))
    part = fit_markdown(text, place.adapter.limits)[0]
    assert isinstance(await deliver(place, Reply(thread=thread, text=part, key="run/1")), Delivered)
    (post,) = place.posts(thread)
    assert post.text.split() == part.split()
    assert len(part) > place.adapter.limits.text_max * 0.9


@scenario("parts")
async def test_no_part_of_an_answer_that_was_cut_is_refused(place: Place) -> None:
    thread = (await ask(place)).thread
    text = "\n\n".join(["# Report", "words & <more> words " * 300, "```sql\n" + "select 1;\n" * 300 + "```", "end"])
    parts = fit_markdown(text, place.adapter.limits)
    for n, part in enumerate(parts, start=1):
        assert isinstance(await deliver(place, Reply(thread=thread, text=part, key=f"run/{n}")), Delivered)
    posts = place.posts(thread)
    assert len(posts) == len(parts)
    assert sum(post.text.count("select 1;") for post in posts) == 300
    assert posts[-1].text.rstrip().endswith("end")


@scenario("previews", unable=unable.nobody_to_ping)
async def test_links_of_an_answer_are_not_fetched(place: Place) -> None:
    thread = (await ask(place)).thread
    await place.adapter.post(Reply(thread=thread, text="see https://example.com/ and [x](https://ex.test)", key="k"))
    (post,) = place.posts(thread)
    assert not post.previews
    assert "https://ex.test" in post.text
