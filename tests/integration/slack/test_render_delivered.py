"""What the renderer makes, sent with Slack's own client to the local workspace: taken, complete, and pinging nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from adapters.slack.render import Rendered, fit_message, render_edit, render_message
from adapters.slack.streamed import StreamText
from tests.servers.slack import SlackServer
from tests.unit.adapters.markdown_texts import CONSTRUCTS, NASTY, PINGS

EVERYTHING = "\n\n".join(construct.replace("{}", PINGS) for construct in CONSTRUCTS)


@pytest.fixture
async def server() -> AsyncIterator[SlackServer]:
    async with SlackServer() as server:
        yield server


@pytest.fixture
def web(server: SlackServer) -> AsyncWebClient:
    return AsyncWebClient(token=server.bot_token, base_url=server.base_url)


async def post(web: AsyncWebClient, rendered: Rendered, thread_ts: str) -> str:
    answer = await web.chat_postMessage(
        channel="C1OPS",
        thread_ts=thread_ts,
        text=rendered.text,
        blocks=list(rendered.blocks) or None,
        unfurl_links=False,
        unfurl_media=False,
    )
    for file in rendered.files:
        await web.files_upload_v2(
            channel="C1OPS", thread_ts=thread_ts, filename=file.name, title=file.title, content=file.content
        )
    return str(answer["ts"])


async def test_b051_all_constructs_in_one_thread_ping_nobody(server: SlackServer, web: AsyncWebClient) -> None:
    root = await server.say("root")
    for construct in CONSTRUCTS:
        await post(web, render_message(construct.replace("{}", PINGS)), root)
    for part in fit_message(EVERYTHING).parts:
        await post(web, render_message(part, native_tables=False), root)
    assert server.pinged() == set()


async def test_b054_the_listed_person_is_pinged_and_nobody_else(server: SlackServer, web: AsyncWebClient) -> None:
    root = await server.say("root")
    await post(web, render_message(f"<@U1ALICE>: **{PINGS}** <@U2BOB> `<@U2BOB>`", {"U1ALICE"}), root)
    assert server.pinged() == {"U1ALICE"}


async def test_texts_that_went_wrong_elsewhere_are_posted(server: SlackServer, web: AsyncWebClient) -> None:
    root = await server.say("root")
    posted = [await post(web, rendered, root) for text in NASTY if (rendered := render_message(text)).text]
    assert len(server.bot_messages("C1OPS", root)) >= len(posted) > 15
    assert server.pinged() == set()
    assert server.violations == []


async def test_b043_a_table_of_a_real_query_is_posted_with_its_file(server: SlackServer, web: AsyncWebClient) -> None:
    root = await server.say("root")
    rows = "".join(f"| {n} | NULL | {'x' * (4000 if n == 7 else 0)} |\n" for n in range(150))
    await post(web, render_message("| id | note | long |\n|--:|---|---|\n" + rows), root)
    (file,) = [f for m in server.bot_messages("C1OPS", root) for f in m.get("files", [])]
    assert file["name"] == "table-1.csv"
    assert server.blobs[file["id"]].decode().count("NULL") == 150


async def test_b042_a_long_answer_is_posted_part_by_part(server: SlackServer, web: AsyncWebClient) -> None:
    root = await server.say("root")
    text = "\n\n".join(f"## Part {n}\n\n" + "word " * 120 + "\n\n```sql\nselect 1;\n```" for n in range(60))
    fitted = fit_message(text, reserve_blocks=2)
    for part in fitted.parts:
        await post(web, render_message(part, reserve_blocks=2), root)
    shown = str([m["blocks"] for m in server.bot_messages("C1OPS", root)])
    assert [f"Part {n}'" in shown for n in range(60)] == [True] * 60
    assert shown.count("word") == 60 * 120


async def test_b041_an_edit_is_taken_however_long_the_draft_is(server: SlackServer, web: AsyncWebClient) -> None:
    root = await server.say("root")
    ts = await post(web, render_message("begun"), root)
    for size in (40, 3_000, 9_000):
        await web.chat_update(channel="C1OPS", ts=ts, text=render_edit("数量 **x** `<!here>`\n" * (size // 20)))
    assert server.bot_messages("C1OPS", root)[-1]["text"].endswith("…")
    assert server.pinged() == set()


async def test_a_stream_shows_exactly_what_was_rendered_and_pings_nobody(
    server: SlackServer, web: AsyncWebClient
) -> None:
    root = await server.say("root")
    stream, written = StreamText(), ""
    started = await web.chat_startStream(
        channel="C1OPS", thread_ts=root, recipient_user_id="U1ALICE", recipient_team_id=server.team_id
    )
    for end in range(1, len(EVERYTHING) + 50, 50):
        whole = stream.show(EVERYTHING[:end], final=end >= len(EVERYTHING))
        assert whole.startswith(written)
        if new := whole[len(written) :]:
            await web.chat_appendStream(channel="C1OPS", ts=str(started["ts"]), markdown_text=new)
        written = whole
    await web.chat_stopStream(channel="C1OPS", ts=str(started["ts"]))
    (message,) = server.bot_messages("C1OPS", root)
    assert message["text"] == stream.show(EVERYTHING, final=True)
    assert server.pinged() == set()
