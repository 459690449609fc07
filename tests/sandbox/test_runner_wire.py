"""The form of requests and answers: what one side writes the other reads, and nothing else is taken."""

from __future__ import annotations

import asyncio
import os
import threading
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.tools.python_sandbox.runner_files import Landing, NotSendable, find_news, list_sent, read_file, uninterrupted
from bot.tools.python_sandbox.runner_wire import (
    AnswerHead,
    BadMessage,
    Part,
    RunHead,
    build_frame,
    build_wire_limits,
    clean_text,
    is_safe_name,
    read_end,
    read_exactly,
    read_head,
    take_smaller,
)
from bot.tools.python_sandbox.types import RunStatus, SandboxLimits
from tests.sandbox.runners import build_body, build_head

names = st.text(min_size=1, max_size=20).filter(is_safe_name)
sizes = st.integers(min_value=0, max_value=2**40)
parts = st.builds(Part, place=st.sampled_from(["input", "output"]), name=names, size=sizes)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


class Bytes:
    """Gives bytes a few at a time."""

    def __init__(self, content: bytes, step: int = 7) -> None:
        self._content, self._step = content, step

    async def read(self, n: int = -1) -> bytes:
        """Return at most ``n``."""
        most = min(n, self._step) if n >= 0 else self._step
        chunk, self._content = self._content[:most], self._content[most:]
        return chunk


def read(content: bytes) -> RunHead:
    """Read a request's head."""

    async def work() -> RunHead:
        return await read_head(Bytes(content), RunHead, idle_s=10.0)

    return asyncio.run(work())


@settings(max_examples=50, deadline=None)
@given(files=st.lists(parts, max_size=5, unique_by=lambda part: (part.place, part.name)), code_bytes=sizes)
def test_a_request_is_read_as_it_was_written(files: list[Part], code_bytes: int) -> None:
    limits = build_wire_limits(SandboxLimits())
    head = RunHead(run="a" * 32, thread="b" * 64, limits=limits, code_bytes=code_bytes, files=tuple(files))
    assert read(build_frame(head)) == head
    assert take_smaller(head.limits, SandboxLimits()) == SandboxLimits()


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=200))
def test_bytes_that_are_no_request_are_refused(content: bytes) -> None:
    for sent in (content, len(content).to_bytes(4, "big") + content):
        with pytest.raises(BadMessage):
            read(sent)


def read_or_refuse(content: bytes) -> RunHead | BadMessage:
    """Read a request's head, or return why it is none."""
    try:
        return read(content)
    except BadMessage as error:
        return error


@settings(max_examples=100, deadline=None)
@given(key=st.sampled_from([*build_head(), "other"]), value=anything)
def test_a_head_with_anything_in_it_is_read_or_refused_and_its_content_is_not_repeated(key: str, value: Any) -> None:
    found = read_or_refuse(build_body({**build_head(), key: value}))
    if isinstance(found, RunHead):
        assert all(is_safe_name(part.name) for part in found.files)
        assert found.size_bytes >= 0
    else:
        assert str(found).isprintable()
        assert len(str(found)) < 200


@given(name=st.text(max_size=300))
def test_a_name_that_is_taken_is_one_visible_component_of_a_path(name: str) -> None:
    if not is_safe_name(name):
        return
    assert os.path.basename(name) == name not in ("", ".", "..")
    assert len(os.fsencode(name)) <= 255
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for char in name)


@given(text=st.text(max_size=100), most=st.integers(min_value=1, max_value=50))
def test_a_text_for_people_is_one_bounded_visible_line(text: str, most: int) -> None:
    shown = clean_text(text, most)
    assert len(shown) <= most
    assert shown.isprintable()


def test_the_smaller_limit_holds_whichever_side_has_it() -> None:
    mine = SandboxLimits(wall_s=10, cpu_s=9, files_out=0)
    asked = SandboxLimits(wall_s=5, cpu_s=20, files_out=7)
    found = take_smaller(build_wire_limits(asked), mine)
    assert (found.wall_s, found.cpu_s, found.files_out) == (5, 9, 0)


async def test_what_ends_too_early_or_too_late_is_refused() -> None:
    with pytest.raises(BadMessage, match="too early"):
        await read_exactly(Bytes(b"abc"), 4, idle_s=10.0)
    with pytest.raises(BadMessage, match="does not end"):
        await read_end(Bytes(b"abc"), idle_s=10.0)
    with pytest.raises(TimeoutError):
        await read_end(asyncio.StreamReader(), idle_s=0.01)


def test_an_answer_brings_no_file_for_the_input() -> None:
    fields: dict[str, Any] = dict.fromkeys(("stdout_bytes", "stderr_bytes", "exit_code", "peak_memory_bytes"), 0)
    fields |= {"duration_s": 0.0, "cpu_s": 0.0, "detail": "", "stdout_cut": False, "stderr_cut": False}
    files = (Part(place="input", name="a", size=1),)
    with pytest.raises(ValueError, match="output/"):
        AnswerHead(run="x", status=RunStatus.OK, state="fresh", files=files, **fields)


async def test_work_in_a_thread_is_waited_for_when_it_is_cancelled() -> None:
    begun, go, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go.wait(60)
        done.set()

    async def hold() -> None:
        try:
            await uninterrupted(work)
        finally:
            assert done.is_set(), "nothing may be closed while the thread works with it"

    task = asyncio.create_task(hold())
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    await asyncio.wait({task}, timeout=0.05)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- folders ---------------------------------------------------------------------------------------


def land(folder: Path, *, commit: bool = True, **files: str) -> None:
    """Let files arrive in ``output/``."""
    landing = Landing(folder).open()
    try:
        for name, content in files.items():
            landing.begin(Part(place="output", name=name, size=len(content)))
            landing.write(content.encode())
            landing.end()
        if commit:
            landing.commit()
    finally:
        landing.close()


def test_files_get_their_names_all_at_once_or_none_does(tmp_path: Path) -> None:
    land(tmp_path, a="1", b="2")
    land(tmp_path, commit=False, a="other", c="3")
    assert {path.name: path.read_text() for path in (tmp_path / "output").iterdir()} == {"a": "1", "b": "2"}


def test_a_link_in_the_place_of_a_folder_is_replaced_and_not_followed(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir()
    outside.mkdir()
    (run / "output").symlink_to(outside)
    (run / "input").write_text("a file")
    land(run, a="1")
    assert (run / "output/a").read_text() == "1"
    assert os.listdir(outside) == []


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("untouched")
    (tmp_path / "run/output").mkdir(parents=True)
    (tmp_path / "run/output/a").symlink_to(tmp_path / "outside")
    land(tmp_path / "run", a="1")
    assert ((tmp_path / "outside").read_text(), (tmp_path / "run/output/a").read_text()) == ("untouched", "1")


def test_a_folder_that_has_a_files_name_stays(tmp_path: Path) -> None:
    (tmp_path / "output/a/b").mkdir(parents=True)
    land(tmp_path, a="1", c="2")
    assert sorted(os.listdir(tmp_path / "output")) == ["a", "c"]
    assert (tmp_path / "output/a/b").is_dir()


def test_what_is_no_plain_file_is_neither_sent_nor_read(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    output = tmp_path / "run/output"
    output.mkdir(parents=True)
    (output / "link").symlink_to(tmp_path / "outside")
    os.link(tmp_path / "outside", output / "hard")
    os.mkfifo(output / "fifo")
    (output / "folder").mkdir()
    (output / "file").write_text("1")
    news = find_news(tmp_path / "run", {}, most_files=10, most_bytes=100)
    assert [file.part.name for file in news.files] == ["file"]
    assert news.left == 4
    assert [file.name for file in list_sent(tmp_path / "run", most_bytes=100)] == ["file"]


def test_a_file_that_became_another_one_is_not_sent_as_it(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    land(tmp_path, a="12345")
    file = list_sent(tmp_path, most_bytes=100)[0]
    (tmp_path / "output/a").write_text("1")
    with pytest.raises(OSError, match="became shorter"):
        list(read_file(tmp_path, file))
    (tmp_path / "output/a").unlink()
    (tmp_path / "output/a").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="symbolic links"):
        list(read_file(tmp_path, file))


def test_files_that_cannot_be_sent_are_named(tmp_path: Path) -> None:
    land(tmp_path, a="12345")
    with pytest.raises(NotSendable, match="5 bytes"):
        list_sent(tmp_path, most_bytes=4)
    (tmp_path / "output/bad\nname").write_text("1")
    with pytest.raises(NotSendable, match="bad name"):
        list_sent(tmp_path, most_bytes=100)
