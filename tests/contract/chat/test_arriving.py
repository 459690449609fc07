"""How what is said arrives: whole, in order, once, and again when it could not be stored."""

from __future__ import annotations

import asyncio

import pytest

from adapters.chat import Inbound, Reply
from tests.contract.chat import unable
from tests.contract.chat.place import Place, all_heard, arrived, ask, until
from tests.contract.chat.scenario import scenario

TEXTS = {
    "emoji": "is it up? \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "cjk": "過去30分間で遅いクエリはどれですか？ 哪些查询很慢？",
    "rtl": "אילו שאילתות איטיות? أي الاستعلامات بطيئة؟",
    "code": "why?\n```sql\nselect a < b && c > d from t;\n```",
    "signs": "5 < 6 && 7 > 6 & so on; **bold** _x_ `code`",
    "lines": "one\ntwo\n\nthree",
}


@pytest.mark.parametrize("kind", TEXTS)
@scenario("any-text")
async def test_a_text_arrives_character_by_character(place: Place, kind: str) -> None:
    assert (await ask(place, TEXTS[kind])).text == TEXTS[kind]


@scenario("any-text")
async def test_a_message_of_4000_characters_arrives_whole(place: Place) -> None:
    text = "".join(f"word{n:05} " for n in range(400))[:3_960].strip()  # a mention needs some, too
    assert (await ask(place, text)).text == text


@scenario("attached", unable=unable.nothing_but_messages)
async def test_attached_files_come_with_names_and_sizes(place: Place) -> None:
    files = {"rows.csv": b"a,b\n1,2\n", "plot.png": b"\x89PNG" + bytes(100)}
    message = await arrived(place, await place.say("look", files=files))
    assert message.text == "look"
    assert {(f.name, f.size) for f in message.files} == {(name, len(blob)) for name, blob in files.items()}


@scenario("attached", unable=unable.nothing_but_messages)
async def test_a_file_without_words_is_heard_in_the_thread(place: Place) -> None:
    thread = (await ask(place)).thread
    said = await place.say("", thread=thread, mention=False, files={"rows.csv": b"a,b\n"})
    message = await arrived(place, said)
    assert (message.thread, message.text, [f.name for f in message.files]) == (thread, "", ["rows.csv"])


@scenario("order")
async def test_what_is_said_in_a_thread_comes_in_order(place: Place) -> None:
    thread = (await ask(place)).thread
    said = [await place.say(f"m{n}", thread=thread, mention=False) for n in range(12)]
    await until(lambda: set(said) <= {m.id for m in place.inbox.messages})
    heard = list(dict.fromkeys(m.id for m in place.inbox.messages if m.id in said))
    assert heard == said


@scenario("order")
async def test_threads_do_not_wait_for_each_other(place: Place) -> None:
    threads = [(await ask(place, f"q{n}")).thread for n in range(3)]
    said = {}
    for n in range(4):
        for thread in threads:
            said[await place.say(f"m{n}", thread=thread, mention=False)] = thread
    await until(lambda: said.keys() <= {m.id for m in place.inbox.messages})
    for thread in threads:
        heard = list(dict.fromkeys(m.id for m in place.inbox.messages if m.thread == thread and m.id in said))
        assert heard == [key for key, where in said.items() if where == thread]


@scenario("order")
async def test_a_message_that_takes_long_to_store_does_not_hold_up_other_threads(place: Place) -> None:
    one, two = (await ask(place, "one")).thread, (await ask(place, "two")).thread
    release, real = asyncio.Event(), place.inbox.accept

    async def slow(inbound: Inbound) -> bool:
        if inbound.thread == one:
            await release.wait()
        return await real(inbound)

    await place.adapter.stop()
    await place.adapter.start(slow)
    await until(lambda: place.adapter.connected)
    first = asyncio.create_task(place.say("slow", thread=one, mention=False))
    quick = await place.say("quick", thread=two, mention=False)
    await arrived(place, quick)
    assert not any(m.text == "slow" for m in place.inbox.messages)
    release.set()
    await arrived(place, await first)


@scenario("once", unable=unable.nothing_but_messages)
async def test_every_delivery_of_a_message_has_its_id_and_address(place: Place) -> None:
    said = await place.say_twice("which queries are slow?")
    await arrived(place, said)
    await place.settle()
    heard = [m for m in place.inbox.messages if m.text == "which queries are slow?"]
    assert {(m.id, m.thread, m.author.id) for m in heard} == {(said, heard[0].thread, place.person("alice"))}
    assert all(m.mentioned for m in heard)


@scenario("once", unable=unable.nothing_but_messages)
async def test_a_message_that_comes_again_after_its_answer_is_still_the_same(place: Place) -> None:
    message = await ask(place)
    await place.adapter.post(Reply(thread=message.thread, text="Two.", key="run/1"))
    await place.edit(message.id, "which queries are slow??", mention=True)
    assert {(m.id, m.thread) for m in await all_heard(place)} == {(message.id, message.thread)}


@scenario("stored", unable=unable.told_at_once)
async def test_what_could_not_be_stored_at_first_arrives(place: Place) -> None:
    place.inbox.failures = 2
    said = await place.say("which queries are slow?")
    assert (await arrived(place, said)).text == "which queries are slow?"
    assert place.inbox.failures == 0


@scenario("stored", unable=unable.told_at_once)
async def test_what_is_stored_late_stays_in_order(place: Place) -> None:
    thread = (await ask(place)).thread
    place.inbox.failures = 1
    said = [await place.say(f"m{n}", thread=thread, mention=False) for n in range(2)]
    await until(lambda: set(said) <= {m.id for m in place.inbox.messages})
    if place.way == "discord":  # Slack delivers again what failed, after what followed; the inbox sorts by time
        assert [m.id for m in place.inbox.messages if m.id in said] == said
    assert sorted(said) == said


@scenario("mention")
async def test_what_hermod_does_not_take_is_no_error(place: Place) -> None:
    place.inbox.answer = False
    message = await ask(place, "lunch?")
    await place.settle()
    assert message.text == "lunch?"
    assert place.adapter.connected
