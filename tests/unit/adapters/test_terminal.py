from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest

from adapters.chat import AdapterError, Attachment, Inbound, Message, Reply
from adapters.terminal.app import TerminalAdapter


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


async def take(inbound: Inbound) -> bool:
    return True


async def test_what_is_submitted_is_accepted_as_the_local_users_message() -> None:
    seen: list[Inbound] = []

    async def accept(inbound: Inbound) -> bool:
        seen.append(inbound)
        return True

    adapter = TerminalAdapter("demo", "shop", output=io.StringIO())
    await adapter.start(accept)
    first = await adapter.submit(" which queries are slow? ")
    second = await adapter.submit("and why?", first.thread)
    assert seen == [first, second]
    assert isinstance(first, Message)
    assert (first.text, first.author.name, first.direct) == ("which queries are slow?", "you", True)
    assert second.thread == first.thread
    assert second.id != first.id
    assert (await adapter.submit("other")).thread != first.thread


async def test_nothing_can_be_said_before_the_start() -> None:
    with pytest.raises(AdapterError, match="not started"):
        await TerminalAdapter(output=io.StringIO()).submit("x")


async def test_a_pipe_gets_the_text_as_it_is() -> None:
    output = io.StringIO()
    adapter = TerminalAdapter(output=output)
    text = "**2** queries:\n\n| a | b |\n|---|---|\n| 1 | " + "x" * 200 + " |"
    await adapter.post(Reply(thread=adapter.build_thread(), text=text, key="k"))
    assert output.getvalue() == text + "\n"


async def test_a_terminal_gets_drawn_markdown_with_visible_link_targets() -> None:
    output = Tty()
    adapter = TerminalAdapter(output=output)
    await adapter.post(Reply(thread=adapter.build_thread(), text="**bold** [page](https://ex.test/a)", key="k"))
    assert "**" not in output.getvalue()
    assert "https://ex.test/a" in output.getvalue()
    assert "\x1b]8" not in output.getvalue()


@pytest.mark.parametrize("output", [io.StringIO(), Tty()])
async def test_a_reply_cannot_drive_the_terminal(output: io.StringIO) -> None:
    adapter = TerminalAdapter(output=output)
    evil = "a\x1b[2Jb\x1b]0;title\x07c\x9bd\u202ee"
    await adapter.post(Reply(thread=adapter.build_thread(), text=evil, key="k"))
    await adapter.set_status(adapter.build_thread(), evil)
    written = output.getvalue()
    assert "\x1b[2J" not in written
    assert not set(written) & {"\x07", "\x9b", "\u202e"}


async def test_each_reply_is_told_once() -> None:
    heard: list[str] = []
    adapter = TerminalAdapter(on_post=lambda reply: heard.append(reply.key))
    await adapter.start(take)
    one, two = adapter.build_thread("one"), adapter.build_thread("two")
    await adapter.post(Reply(thread=one, text="x", key="k1"))
    await adapter.post(Reply(thread=two, text="y", key="k2"))
    await adapter.post(Reply(thread=one, text="x", key="k1"))
    assert heard == ["k1", "k2"]


async def test_a_status_is_written_once_and_only_on_a_terminal() -> None:
    pipe, tty = io.StringIO(), Tty()
    for output in (pipe, tty):
        adapter = TerminalAdapter(output=output)
        thread = adapter.build_thread()
        for text in ("working", "working", ""):
            await adapter.set_status(thread, text)
    assert pipe.getvalue() == ""
    assert tty.getvalue().count("working") == 1


# -- files -----------------------------------------------------------------------------------------


async def test_files_are_saved_beside_what_is_there_already_and_named(tmp_path: Path) -> None:
    output = io.StringIO()
    adapter = TerminalAdapter(output=output, folder=tmp_path)
    assert adapter.capabilities.files
    (tmp_path / "plot.png").write_bytes(b"mine")
    files = (
        Attachment(name="plot.png", content=base64.b64encode(b"\x89PNG").decode(), encoding="base64"),
        Attachment(name="../../etc/\x1b[2Jrows.csv", content="a,b\n"),
        Attachment(name="..", content="x"),
    )
    await adapter.post(Reply(thread=adapter.build_thread(), text="done", key="k", files=files))
    saved = {path.name: path.read_bytes() for path in tmp_path.iterdir()}  # noqa: ASYNC240 - nothing else runs
    assert saved["plot.png"] == b"mine"
    assert saved["plot-2.png"] == b"\x89PNG"
    assert len(saved) == 4
    assert b"a,b\n" in saved.values()
    assert str(tmp_path / "plot-2.png") in output.getvalue()
    assert "\x1b" not in output.getvalue()


async def test_without_a_folder_files_are_named_only(tmp_path: Path) -> None:
    output = io.StringIO()
    adapter = TerminalAdapter(output=output)
    assert not adapter.capabilities.files
    reply = Reply(thread=adapter.build_thread(), text="done", key="k", files=(Attachment(name="a.csv", content="1"),))
    await adapter.post(reply)
    assert "(file: a.csv)" in output.getvalue()


async def test_a_file_that_cannot_be_saved_is_told(tmp_path: Path) -> None:
    output = io.StringIO()
    adapter = TerminalAdapter(output=output, folder=tmp_path / "gone")
    reply = Reply(thread=adapter.build_thread(), text="done", key="k", files=(Attachment(name="a.csv", content="1"),))
    await adapter.post(reply)
    assert "could not be saved: No such file or directory" in output.getvalue()
