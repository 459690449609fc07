"""What is read: what was said before, and files that people attach."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapters.chat import Attachment, Delivered, FileRef, Reply
from tests.contract.chat import unable
from tests.contract.chat.place import Place, arrived, ask
from tests.contract.chat.scenario import scenario


@scenario("history", unable=unable.no_past)
async def test_a_thread_is_read_with_who_said_what_oldest_first(place: Place) -> None:
    assert place.adapter.capabilities.history
    thread = (await ask(place, "which queries are slow?")).thread
    await place.adapter.post(Reply(thread=thread, text="Two.", key="run/1"))
    await arrived(place, await place.say("which two? 遅い", thread=thread, mention=False, who="bob"))
    said = await place.adapter.fetch_history(thread, limit=10)
    assert [(s.author.id == place.person("bob"), s.text, s.own) for s in said] == [
        (False, "which queries are slow?", False),
        (False, "Two.", True),
        (True, "which two? 遅い", False),
    ]
    assert [s.sent_at for s in said] == sorted(s.sent_at for s in said)
    assert said[0].author.id == place.person("alice")
    assert all(s.id and s.author.name and s.sent_at.tzinfo is not None for s in said)


@scenario("history", unable=unable.no_past)
async def test_a_long_thread_gives_its_newest_messages(place: Place) -> None:
    thread = (await ask(place)).thread
    for n in range(25):
        said_last = await place.say(f"m{n}", thread=thread, mention=False)
    await arrived(place, said_last)
    said = await place.adapter.fetch_history(thread, limit=4)
    assert [s.text for s in said] == ["m21", "m22", "m23", "m24"]


@scenario("history", unable=unable.no_past)
async def test_other_threads_are_no_part_of_it(place: Place) -> None:
    one, two = await ask(place, "one"), await ask(place, "two")
    for message in (one, two):
        await place.adapter.post(Reply(thread=message.thread, text=f"to {message.text}", key=f"{message.id}/1"))
    assert [s.text for s in await place.adapter.fetch_history(one.thread, limit=10)] == ["one", "to one"]


@scenario("history", unable=unable.no_past)
async def test_a_deleted_message_is_no_part_of_it(place: Place) -> None:
    message = await ask(place)
    await place.adapter.post(Reply(thread=message.thread, text="Two.", key="run/1"))
    await place.delete(message.id)
    assert [s.text for s in await place.adapter.fetch_history(message.thread, limit=10)] in (["Two."], [])


@pytest.mark.parametrize("blob", [b"a,b\n1,2\n", bytes(range(256)) * 400])
@scenario("fetching", unable=unable.no_files_in)
async def test_an_attached_file_is_fetched_byte_by_byte(place: Place, blob: bytes) -> None:
    message = await arrived(place, await place.say("look", files={"rows.csv": blob}))
    (file,) = message.files
    assert await place.adapter.fetch_file(file, max_bytes=len(blob)) == blob


@scenario("fetching", unable=unable.no_files_in)
async def test_a_file_that_is_too_large_is_not_fetched_whatever_its_size_says(place: Place) -> None:
    message = await arrived(place, await place.say("look", files={"rows.csv": b"x" * 5_000}))
    (file,) = message.files
    assert await place.adapter.fetch_file(file, max_bytes=4_999) is None
    assert await place.adapter.fetch_file(replace(file, size=1), max_bytes=4_999) is None


@scenario("fetching", unable=unable.no_files_in)
async def test_a_file_that_is_not_there_is_none(place: Place) -> None:
    message = await arrived(place, await place.say("look", files={"rows.csv": b"a,b\n"}))
    (file,) = message.files
    for other in (FileRef(id="9", name="x"), replace(file, address=""), replace(file, address="http://127.0.0.1:9/x")):
        assert await place.adapter.fetch_file(other, max_bytes=100) is None


@scenario("fetching", unable=unable.no_files_in)
async def test_a_file_is_fetched_after_a_restart(place: Place) -> None:
    message = await arrived(place, await place.say("look", files={"rows.csv": b"a,b\n"}))
    await place.restart()
    assert await place.adapter.fetch_file(message.files[0], max_bytes=100) == b"a,b\n"


@scenario("files", unable=unable.plain_text)
async def test_what_hermod_attached_is_told_in_the_history(place: Place) -> None:
    thread = (await ask(place)).thread
    reply = Reply(thread=thread, text="See file.", key="k", files=(Attachment(name="rows.csv", content="a,b\n"),))
    assert isinstance(await place.adapter.post(reply), Delivered)
    said = "\n".join(s.text for s in await place.adapter.fetch_history(thread, limit=10) if s.own)
    assert "See file." in said
    assert "rows.csv" in said
