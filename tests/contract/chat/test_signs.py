"""What shows that work goes on, and files that go out."""

from __future__ import annotations

from adapters.chat import Attachment, Delivered, Reply, ThreadRef
from tests.contract.chat import unable
from tests.contract.chat.place import Place, arrived, ask
from tests.contract.chat.scenario import scenario

CSV = Attachment(name="rows.csv", content="a,b\n1,ü\n", title="The rows")
PLOT = Attachment(name="plot.png", content="iVBORw0KGgoAAQID", encoding="base64")


@scenario("status")
async def test_work_shows_until_the_answer_stands(place: Place) -> None:
    thread = (await ask(place)).thread
    assert place.adapter.capabilities.status
    await place.adapter.set_status(thread, "looking at shop")
    assert place.works(thread)
    await place.adapter.post(Reply(thread=thread, text="Two.", key="run/1"))
    await place.adapter.set_status(thread, "")
    assert not place.works(thread)


@scenario("status")
async def test_a_status_never_raises_wherever_it_is_shown(place: Place) -> None:
    message = await ask(place)
    thread = message.thread
    nowhere = ThreadRef(platform=thread.platform, workspace=thread.workspace, channel="99", thread="1.1")
    command = ThreadRef(
        platform=thread.platform, workspace=thread.workspace, channel=thread.channel, thread="command-1"
    )
    for ref in (thread, nowhere, command):
        await place.adapter.set_status(ref, "working")
        await place.adapter.set_status(ref, "")
    await place.adapter.post(Reply(thread=thread, text="Two.", key="run/1"))


@scenario("signs", unable=unable.no_signs)
async def test_signs_are_put_on_a_question_and_taken_off(place: Place) -> None:
    message = await ask(place)
    for sign in ("queued", "seen", "stopped"):
        await place.adapter.react(message.thread, message.id, sign)
        assert place.signs(message.id) == {sign}
        await place.adapter.react(message.thread, message.id, f"-{sign}")
        assert place.signs(message.id) == set()


@scenario("signs", unable=unable.no_signs)
async def test_a_sign_stays_on_its_question_once_a_thread_is_open(place: Place) -> None:
    message = await ask(place)
    await place.adapter.post(Reply(thread=message.thread, text="Two.", key="run/1"))
    await place.adapter.react(message.thread, message.id, "seen")
    assert place.signs(message.id) == {"seen"}


@scenario("signs", unable=unable.no_signs)
async def test_signs_that_do_not_fit_do_nothing(place: Place) -> None:
    message = await ask(place)
    await place.adapter.react(message.thread, message.id, "-queued")
    await place.adapter.react(message.thread, message.id, "no such sign")
    await place.adapter.react(message.thread, message.id, "seen")
    await place.adapter.react(message.thread, message.id, "seen")
    assert place.signs(message.id) == {"seen"}


def files(place: Place, thread: ThreadRef) -> dict[str, bytes]:
    return {name: blob for post in place.posts(thread) for name, blob in post.files.items()}


@scenario("files", unable=unable.plain_text)
async def test_files_arrive_byte_by_byte_with_the_answer(place: Place) -> None:
    thread = (await ask(place)).thread
    posted = await place.adapter.post(Reply(thread=thread, text="See files.", key="run/1", files=(CSV, PLOT)))
    assert isinstance(posted, Delivered)
    assert files(place, thread) == {"rows.csv": "a,b\n1,ü\n".encode(), "plot.png": b"\x89PNG\r\n\x1a\n\x00\x01\x02\x03"}
    assert place.posts(thread)[0].text == "See files."
    assert place.posts(thread)[0].id == posted.remote_id


@scenario("files", unable=unable.plain_text)
async def test_a_large_file_arrives(place: Place) -> None:
    thread = (await ask(place)).thread
    large = Attachment(name="all.csv", content="x" * 3_000_000)
    assert isinstance(
        await place.adapter.post(Reply(thread=thread, text="See file.", key="run/1", files=(large,))), Delivered
    )
    assert len(files(place, thread)["all.csv"]) == 3_000_000


@scenario("files", unable=unable.plain_text)
async def test_a_file_that_is_refused_is_named_and_the_words_stay(place: Place) -> None:
    thread = (await ask(place)).thread
    place.forbid_files()
    outcome = await place.adapter.post(Reply(thread=thread, text="See file.", key="run/1", files=(CSV,)))
    assert isinstance(outcome, Delivered)
    assert files(place, thread) == {}
    whole = " ".join(post.text for post in place.posts(thread))
    assert whole.startswith("See file.")
    assert "rows.csv" in whole


@scenario("files", unable=unable.plain_text)
async def test_a_file_of_a_direct_answer_stays_there(place: Place) -> None:
    thread = (await arrived(place, await place.say_direct("rows?"))).thread
    await place.adapter.post(Reply(thread=thread, text="See file.", key="run/1", files=(CSV,)))
    assert set(files(place, thread)) == {"rows.csv"}
