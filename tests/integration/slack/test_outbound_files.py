"""Files out and in, and what was said in a thread before."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from adapters.chat import Attachment, Delivered, FileRef
from adapters.slack.parse import Person
from tests.integration.slack.desk import HandClock, open_outbound, place, reply, until
from tests.servers.slack import SlackServer

CSV = Attachment(name="rows.csv", content="a,b\n1,ü\n", title="The rows")


def uploaded(server: SlackServer, root: str) -> list[dict[str, Any]]:
    return [f for m in server.bot_messages("C1OPS", root) for f in m.get("files", [])]


async def test_files_follow_the_text_in_the_same_thread(server: SlackServer) -> None:
    root = await server.say("root")
    binary = Attachment(name="../../etc/pass\nwd", content="AAEC", encoding="base64")
    async with open_outbound(server) as outbound:
        posted = await outbound.post(reply(root, "See files.", files=(CSV, binary)))
        assert await outbound.find_posted(place(root), "run-1/1") == posted
    first, *others = server.bot_messages("C1OPS", root)
    assert first["text"] == "See files."
    assert len(others) == 2
    csv, raw = uploaded(server, root)
    assert (csv["name"], csv["title"], server.blobs[csv["id"]]) == ("rows.csv", "The rows", "a,b\n1,ü\n".encode())
    assert (raw["name"], server.blobs[raw["id"]]) == ("passwd", b"\x00\x01\x02")
    assert [c.args["thread_ts"] for c in server.calls_to("files.completeUploadExternal")] == [root, root]
    assert server.violations == []


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("files.getUploadURLExternal", {"error": "missing_scope"}),
        ("files.getUploadURLExternal", {"drop": True, "times": 2}),
        ("files.completeUploadExternal", {"error": "internal_error", "times": 2}),
        ("files.completeUploadExternal", {"http": 500, "times": 2}),
    ],
)
async def test_a_file_that_fails_is_named_and_the_text_stays(
    server: SlackServer, method: str, fault: dict[str, Any]
) -> None:
    root = await server.say("root")
    server.inject(method, **fault)
    async with open_outbound(server) as outbound:
        assert isinstance(await outbound.post(reply(root, "See file.", files=(CSV,))), Delivered)
    text, notice = (m["text"] for m in server.bot_messages("C1OPS", root))
    assert text == "See file."
    assert "rows.csv" in notice


async def test_of_a_post_that_was_interrupted_only_the_missing_files_are_posted(server: SlackServer) -> None:
    root = await server.say("root")
    other = Attachment(name="other.csv", content="c\n2\n")
    whole = reply(root, "See files.", files=(CSV, other))
    async with open_outbound(server) as dying:
        posted = await dying.post(reply(root, "See files.", files=(CSV,)))  # it died before the second one
        assert isinstance(posted, Delivered)
        assert isinstance(await dying.post(reply(root, "Next.", key="run-2/1", files=(other,))), Delivered)
    async with open_outbound(server) as outbound:
        await outbound.complete_post(whole, posted.remote_id)
        # what stands behind the next reply is not this one's
        assert [f["name"] for f in uploaded(server, root)] == ["rows.csv", "other.csv", "other.csv"]
    assert len(server.replies("C1OPS", root)) == 2
    assert server.violations == []


async def test_an_interrupted_post_in_the_channel_itself_is_completed_once(server: SlackServer) -> None:
    asked = reply("command-1.2.abc", "See files.", files=(CSV,))
    async with open_outbound(server) as dying:
        posted = await dying.post(reply("command-1.2.abc", "See files."))
        assert isinstance(posted, Delivered)
    for _ in range(2):
        async with open_outbound(server) as outbound:
            await outbound.complete_post(asked, posted.remote_id)
    assert [f["name"] for m in server.bot_messages("C1OPS") for f in m.get("files", [])] == ["rows.csv"]


async def test_what_cannot_be_seen_is_not_posted_again_but_said(server: SlackServer) -> None:
    root = await server.say("root")
    whole = reply(root, "See files.", files=(CSV,))
    async with open_outbound(server) as outbound:
        posted = await outbound.post(whole)
        assert isinstance(posted, Delivered)
        server.inject("conversations.replies", error="missing_scope")
        await outbound.complete_post(whole, posted.remote_id)
    assert [f["name"] for f in uploaded(server, root)] == ["rows.csv"]
    assert "do not know whether these files arrived" in server.bot_messages("C1OPS", root)[-1]["text"]


@pytest.mark.parametrize("method", ["files.getUploadURLExternal", "files.completeUploadExternal"])
async def test_a_file_whose_connection_broke_is_sent_once_more(server: SlackServer, method: str) -> None:
    root = await server.say("root")
    server.inject(method, drop=True)
    async with open_outbound(server) as outbound:
        assert isinstance(await outbound.post(reply(root, "See file.", files=(CSV,))), Delivered)
    assert [f["name"] for f in uploaded(server, root)] == ["rows.csv"]
    assert len(server.bot_messages("C1OPS", root)) == 2


@pytest.mark.parametrize(("fault", "looks"), [({"drop": True}, 2), ({"http": 500}, 99)])
async def test_a_file_that_arrived_is_looked_for_until_the_thread_can_be_read(
    server: SlackServer, fault: dict[str, Any], looks: int
) -> None:
    root = await server.say("root")
    server.inject("files.completeUploadExternal", after=True, drop=True)
    server.inject("conversations.replies", times=looks, **fault)
    async with open_outbound(server, HandClock()) as outbound:
        assert isinstance(await outbound.post(reply(root, "See file.", files=(CSV,))), Delivered)
    assert [f["name"] for f in uploaded(server, root)] == ["rows.csv"]
    notices = [m["text"] for m in server.bot_messages("C1OPS", root)[1:] if m["text"]]
    assert ["do not know whether these files arrived" in text for text in notices] == ([True] if looks > 9 else [])


@pytest.mark.parametrize("fault", [{"drop": True}, {"http": 500}])
async def test_a_file_that_arrived_though_its_answer_got_lost_is_not_said_to_be_missing(
    server: SlackServer, fault: dict[str, Any]
) -> None:
    root = await server.say("root")
    server.inject("files.completeUploadExternal", after=True, **fault)
    async with open_outbound(server) as outbound:
        assert isinstance(await outbound.post(reply(root, "See file.", files=(CSV,))), Delivered)
    assert [f["name"] for f in uploaded(server, root)] == ["rows.csv"]
    assert [m["text"] for m in server.replies("C1OPS", root)] == ["See file."]
    assert "attach" not in " ".join(m["text"] for m in server.bot_messages("C1OPS", root))


async def test_a_process_that_stood_still_between_text_and_file_leaves_the_file_to_the_one_that_took_over(
    server: SlackServer,
) -> None:
    root = await server.say("root")
    whole = reply(root, "See files.", files=(CSV,))
    clock = HandClock()
    hold = asyncio.Event()
    fault = server.inject("files.getUploadURLExternal", hold=hold)
    async with open_outbound(server, clock) as late, open_outbound(server) as other:
        posting = asyncio.create_task(late.post(whole))
        await until(lambda: fault.reached)
        await other.complete_post(whole, server.replies("C1OPS", root)[0]["ts"])
        clock.seconds += 30.0
        hold.set()
        assert isinstance(await posting, Delivered)
    assert [f["name"] for f in uploaded(server, root)] == ["rows.csv"]


@pytest.mark.parametrize("content", ["", "%%%"])
async def test_a_file_without_content_is_not_sent(server: SlackServer, content: str) -> None:
    root = await server.say("root")
    broken = Attachment(name="x.bin", content=content, encoding="base64")
    async with open_outbound(server) as outbound:
        assert isinstance(await outbound.post(reply(root, "See file.", files=(broken,))), Delivered)
    assert server.calls_to("files.getUploadURLExternal") == []
    assert len(server.bot_messages("C1OPS", root)) == 2


async def test_b072_a_caption_in_markdown_goes_as_plain_text_and_the_body_as_its_own_message(
    server: SlackServer,
) -> None:
    """Slack answers internal_error to a markdown block beside an upload."""
    root = await server.say("root")
    async with open_outbound(server) as outbound:
        assert isinstance(await outbound.post(reply(root, "# Title\n\n**bold**", files=(CSV,))), Delivered)
    (call,) = server.calls_to("files.completeUploadExternal")
    assert "blocks" not in call.args
    assert "*bold*" in server.bot_messages("C1OPS", root)[0]["text"]
    assert len(uploaded(server, root)) == 1


async def test_b073_a_result_object_as_content_is_written_as_json(server: SlackServer) -> None:
    """A tool's result was passed as file content and crashed the upload."""
    root = await server.say("root")
    result = Attachment(name="result.json", content=cast("str", {"rows": [[1, None]], "ok": True}))
    async with open_outbound(server) as outbound:
        assert isinstance(await outbound.post(reply(root, "See file.", files=(result,))), Delivered)
    (info,) = uploaded(server, root)
    assert b'"ok": true' in server.blobs[info["id"]]


# -- in


async def test_an_attached_file_is_fetched_with_the_token(server: SlackServer) -> None:
    await server.say("look", files={"log.txt": b"line\n"})
    (info,) = server.files.values()
    file = FileRef(id=info["id"], name="log.txt", size=5, address=info["url_private"])
    async with open_outbound(server) as outbound:
        assert await outbound.fetch_file(file, max_bytes=5) == b"line\n"
        assert await outbound.fetch_file(file, max_bytes=4) is None


async def test_a_file_that_is_larger_than_it_says_is_given_up(server: SlackServer) -> None:
    await server.say("look", files={"log.txt": b"x" * 300_000})
    (info,) = server.files.values()
    file = FileRef(id=info["id"], name="log.txt", size=10, address=info["url_private"])
    async with open_outbound(server) as outbound:
        assert await outbound.fetch_file(file, max_bytes=100_000) is None


async def test_b068_a_login_page_is_no_file(server: SlackServer) -> None:
    """Without files:read Slack answers 200 and its login page, which was saved as an image."""
    await server.say("look", files={"plot.png": b"\x89PNG", "page.html": b"<html>hi</html>"})
    server.scopes = ("chat:write",)
    async with open_outbound(server) as outbound:
        for info in server.files.values():
            file = FileRef(id=info["id"], name=info["name"], size=info["size"], address=info["url_private"])
            assert await outbound.fetch_file(file, max_bytes=1_000) is None


async def test_a_page_that_was_attached_is_fetched(server: SlackServer) -> None:
    await server.say("look", files={"page.html": b"<html>hi</html>"})
    (info,) = server.files.values()
    file = FileRef(id=info["id"], name="page.html", size=15, address=info["url_private"])
    async with open_outbound(server) as outbound:
        assert await outbound.fetch_file(file, max_bytes=1_000) == b"<html>hi</html>"


async def test_b071_a_redirect_is_not_followed_with_the_token(server: SlackServer) -> None:
    """A download followed a redirect to an internal address."""
    await server.say("look", files={"log.txt": b"line\n"})
    (info,) = server.files.values()
    async with SlackServer() as other:
        info["_redirect"] = f"{other.origin}/api/auth.test"
        file = FileRef(id=info["id"], name="log.txt", address=info["url_private"])
        async with open_outbound(server) as outbound:
            assert await outbound.fetch_file(file, max_bytes=1_000) is None
        assert other.calls == []


async def test_b071_the_token_is_shown_to_slacks_hosts_only(server: SlackServer) -> None:
    async with SlackServer() as other, open_outbound(server) as outbound:
        for address in (
            f"{other.origin}/files/F1",
            "http://files.slack.com/files-pri/T1-F1/a",
            "https://files.slack.com.example.test/a",
            "https://files.slack.com@127.0.0.1/a",
            "http://169.254.169.254/",
            server.origin.replace("//", "//a:b@") + "/files/F1",
            "ftp://files.slack.com/a",
            "https://[::1",
            "",
        ):
            file = FileRef(id="F1", name="a", address=address)
            assert await outbound.fetch_file(file, max_bytes=1_000) is None
        assert other.calls == []


# -- history


async def test_a_thread_is_read_with_who_said_what(server: SlackServer) -> None:
    async def people(ids: Any) -> Mapping[str, Person]:
        return {"U1ALICE": Person(name="Alice"), "U2BOB": Person(name="Bob", guest=True)}

    root = await server.say("the db is slow &amp; <@U2BOB> knows")
    await server.say("", thread_ts=root, extra={"bot_id": "B7", "username": "alerts", "user": "U7",
                                                "attachments": [{"title": "CPU", "text": "97 %"}]})  # fmt: skip
    await server.say("see log", thread_ts=root, user="U2BOB", files={"log.txt": b"x"})
    async with open_outbound(server, people=people) as outbound:
        assert isinstance(await outbound.post(reply(root, "On it.")), Delivered)
        said = await outbound.fetch_history(place(root), limit=10)
        newest = await outbound.fetch_history(place(root), limit=2)
        (file,) = said[2].files
        assert await outbound.fetch_file(file, max_bytes=1_000) == b"x"
    assert [(s.author.name, s.text, s.own) for s in said] == [
        ("Alice", "the db is slow & @Bob knows", False),
        ("alerts", "CPU\n97 %", False),
        ("Bob", "see log\n[attached file: log.txt]", False),
        ("hermod", "On it.", True),
    ]
    assert said[1].author.bot
    assert said[2].author.guest
    assert newest == said[2:]
    assert [[f.name for f in s.files] for s in said] == [[], [], ["log.txt"], []]
    assert said[0].sent_at < said[3].sent_at


async def test_a_long_thread_gives_its_newest_messages(server: SlackServer) -> None:
    root = await server.say("root")
    for n in range(30):
        await server.say(f"m{n}", thread_ts=root)
    server.max_page = 15
    async with open_outbound(server) as outbound:
        said = await outbound.fetch_history(place(root), limit=3)
    assert [s.text for s in said] == ["m27", "m28", "m29"]


@pytest.mark.parametrize(
    "fault", [{"http": 429, "retry_after": 60}, {"error": "missing_scope"}, {"drop": True, "times": 9}]
)
async def test_a_thread_that_cannot_be_read_is_empty(server: SlackServer, fault: dict[str, Any]) -> None:
    root = await server.say("root")
    server.inject("conversations.replies", **fault)
    async with open_outbound(server) as outbound:
        assert await outbound.fetch_history(place(root), limit=3) == ()


async def test_a_command_has_no_history(server: SlackServer) -> None:
    async with open_outbound(server) as outbound:
        assert await outbound.fetch_history(place("command-1.2"), limit=3) == ()
    assert server.calls == []
