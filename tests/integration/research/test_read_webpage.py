"""``read_webpage``: what of a page is read, what is refused, and what a hostile page can do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_core.errors import ToolFailed
from agent_core.tools.base import ToolResult
from bot.tools.research.page import read_fetched
from bot.tools.research.web import Fetched
from tests.integration.research.conftest import BuildDesk, Desk
from tests.servers.web import WebServer


async def read(desk: Desk, server: WebServer, path: str) -> dict[str, Any]:
    value = json.loads((await fetch(desk, server, path)).content)
    assert isinstance(value, dict)
    return value


async def fetch(desk: Desk, server: WebServer, path: str) -> ToolResult:
    return await desk.call("read_webpage", json.dumps({"url": server.url(path)}))


async def test_an_article_is_read_without_what_surrounds_it(server: WebServer, build_desk: BuildDesk) -> None:
    found = await read(build_desk(), server, "/page/news")
    assert (found["title"], found["author"], found["published"]) == ("What statements cost", "Jane Doe", "2025-11-03")
    assert "about one percent of throughput" in found["text"]
    assert "| on | 40600 |" in found["text"]
    for other in ("cookies", "Imprint", "About us", "track()"):
        assert other not in found["text"]
    assert found["more"] == ""
    assert found["characters"] == len(found["text"])


async def test_documentation_keeps_its_code(server: WebServer, build_desk: BuildDesk) -> None:
    found = await read(build_desk(), server, "/page/docs")
    assert "VACUUM (VERBOSE) orders;" in found["text"]
    assert "Contents" not in found["text"]


async def test_the_address_is_the_one_after_redirects(server: WebServer, build_desk: BuildDesk) -> None:
    found = await read(build_desk(), server, "/chain/3")
    assert found["url"] == server.url("/page/news")
    assert (await read(build_desk(), server, "/chain/9"))["error"]["code"] == "too_many_redirects"


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:1/", "http://10.0.0.1/"]
)
async def test_a_redirect_into_a_private_network_is_refused(
    server: WebServer, build_desk: BuildDesk, target: str
) -> None:
    assert (await read(build_desk(), server, f"/to/x?url={target}"))["error"]["code"] == "address_refused"


async def test_the_own_search_service_is_no_page(server: WebServer, build_desk: BuildDesk) -> None:
    desk = build_desk(allow_hosts=())
    assert (await read(desk, server, "/page/news"))["error"]["code"] == "address_refused"
    assert server.log == []
    assert (await desk.call("web_search", '{"query": "a"}')).ok


async def test_a_page_that_only_a_program_fills_is_told(server: WebServer, build_desk: BuildDesk) -> None:
    error = (await read(build_desk(), server, "/page/scripted"))["error"]
    assert error["code"] == "no_text"
    assert "JavaScript" in error["fix"]
    assert (await read(build_desk(), server, "/page/empty"))["error"]["code"] == "no_text"


@pytest.mark.parametrize("name", ["pdf", "hidden-pdf", "image", "binary"])
async def test_what_is_no_text_is_refused(server: WebServer, build_desk: BuildDesk, name: str) -> None:
    error = (await read(build_desk(), server, f"/page/{name}"))["error"]
    assert error["code"] == "unsupported_kind"
    assert ("PDF" in error["message"]) == ("pdf" in name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("text", "plain\ntext\n\nwith spaces"),
        ("markdown", "# Title\n\n- one\n    code stays"),
        ("json", '{"version": "18.1", "note": "gr\\u00f6\\u00dfer"}'),
    ],
)
async def test_plain_texts_are_read_as_they_are(server: WebServer, build_desk: BuildDesk, name: str, text: str) -> None:
    assert (await read(build_desk(), server, f"/page/{name}"))["text"] == text


@pytest.mark.parametrize("name", ["chinese-gbk", "chinese-meta"])
async def test_chinese_pages_are_decoded_as_they_declare(server: WebServer, build_desk: BuildDesk, name: str) -> None:
    found = await read(build_desk(), server, f"/page/{name}")
    assert "防止事务编号回卷" in found["text"]


@pytest.mark.parametrize("name", ["wrong-charset", "no-charset", "odd-charset", "utf-16"])
async def test_wrong_and_missing_declarations_are_seen_through(
    server: WebServer, build_desk: BuildDesk, name: str
) -> None:
    found = await read(build_desk(), server, f"/page/{name}")
    assert found["text"] == "Die Größe der Tabelle ändert sich nicht – „wirklich“."


async def test_a_page_without_a_kind_is_read_when_it_begins_like_one(server: WebServer, build_desk: BuildDesk) -> None:
    assert "one percent" in (await read(build_desk(), server, "/page/unnamed"))["text"]


async def test_a_long_page_comes_in_parts_that_join_without_a_gap(server: WebServer, build_desk: BuildDesk) -> None:
    desk = build_desk()
    result = await fetch(desk, server, "/page/long")
    assert not result.truncated
    found = json.loads(result.content)
    assert 8_000 < len(found["text"]) <= 12_000
    assert found["more"].startswith("read_output(")
    output_id = found["more"].split('"')[1]
    text, start = found["text"], len(found["text"])
    assert f"start={start})" in found["more"]
    while start < found["characters"]:
        part = json.loads(
            (await desk.call("read_output", json.dumps({"output_id": output_id, "start": start}))).content
        )
        text, start = text + part["text"], part["end"]
    assert len(text) == found["characters"]
    assert all(f"Paragraph {n} says" in text for n in range(600))


async def test_a_huge_page_is_cut_and_says_so(server: WebServer, build_desk: BuildDesk) -> None:
    found = await read(build_desk(), server, "/page/huge")
    assert found["ok"] is True
    assert "larger than 2 MiB" in found["warnings"][0]


async def test_a_page_that_grows_when_it_is_unpacked_is_cut(server: WebServer, build_desk: BuildDesk) -> None:
    found = await read(build_desk(), server, "/bomb")
    assert found.get("ok") is True or found["error"]["code"] in ("page_too_complex", "fetch_failed")
    assert "50000000" not in json.dumps(found)


async def test_a_page_that_drips_is_given_up(server: WebServer, build_desk: BuildDesk) -> None:
    desk = build_desk(timeout_s=0.5)
    result = await fetch(desk, server, "/drip")
    assert not result.ok
    assert "0.5 seconds" in result.content


async def test_a_page_that_is_made_to_exhaust_its_reader_ends_with_its_process(
    server: WebServer, build_desk: BuildDesk
) -> None:
    found = await read(build_desk(), server, "/page/deep")
    assert found.get("ok") is True or found["error"]["code"] in ("no_text", "page_too_complex")


async def test_a_reader_that_does_not_end_is_killed() -> None:
    html = Fetched(
        url="http://x.org/", kind="text/html", charset="", body=b"<p>Some text of a short page.</p>", cut=False
    )
    with pytest.raises(ToolFailed) as failed:
        await read_fetched(html, wall_s=0.01)  # no process starts as quickly as this
    assert failed.value.code == "page_too_complex"
    assert (await read_fetched(html)).text == "Some text of a short page."


async def test_others_are_served_while_a_long_text_is_read() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(count())
    text = Fetched(url="http://x.org/", kind="text/plain", charset="", body=b"a\n" * 300_000, cut=False)
    assert len((await read_fetched(text)).text) == 599_999
    others.cancel()
    assert turns > 10


def test_what_a_page_grows_to_in_its_reader_is_cut() -> None:
    page = f"<html><head><title>{'t' * 500}</title></head><body><p>{'word ' * 500}</p></body></html>"
    code = "from bot.tools.research import extract; extract.MOST_CHARS = 160; extract.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "http://x.org/"],
        input=page,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = json.loads(done.stdout)
    assert (len(found["text"]), found["title"]) == (160, "tttttttttt")


async def test_a_reader_ends_with_the_run_that_wanted_it() -> None:
    page = b"<html><body><p>" + b"a<br>" * 400_000 + b"</p></body></html>"  # takes longer than it may
    fetched = Fetched(url="http://x.org/", kind="text/html", charset="", body=page, cut=False)
    reading = asyncio.create_task(read_fetched(fetched, wall_s=120))
    async with asyncio.timeout(60):
        while not any(used_s > 2 for used_s in find_readers().values()):  # noqa: ASYNC110  # a process has no event
            await asyncio.sleep(0.02)  # until it has all of the page, and works on it
    reader = max(find_readers(), key=find_readers().__getitem__)
    async with asyncio.timeout(5):  # it would go on for longer
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    with pytest.raises(ProcessLookupError):  # nor does it wait for somebody who asks how it ended
        os.kill(reader, 0)


@pytest.mark.parametrize(
    ("bound", "burn", "ended"),
    [
        ("CPU_S = 1", "while True: pass", -signal.SIGKILL),
        ("MEMORY_BYTES = 300 << 20", "bytearray(400 << 20)", 1),
    ],
)
def test_a_reader_takes_no_more_than_its_bounds(bound: str, burn: str, ended: int) -> None:
    code = (
        "from bot.tools.research import extract\n"
        f"extract.{bound}\n"
        f"def burn(page, url):\n    {burn}\n    return {{}}\n"
        "extract.read_page = burn\n"
        "extract.main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "x"], input=b"<p>", capture_output=True, timeout=60, check=False)
    assert done.returncode == ended, done.stderr


def find_readers() -> dict[int, float]:
    """Return the processes of ours that read a page, and how much of a processor's time each has used, in seconds."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and b"research.extract" in stat.with_name("cmdline").read_bytes():
                found[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


async def test_an_address_that_is_none_is_told(build_desk: BuildDesk) -> None:
    for url in ("postgresql.org", "file:///etc/passwd", "http://user:word@example.org/"):
        result = await build_desk().call("read_webpage", json.dumps({"url": url}))
        assert json.loads(result.content)["error"]["code"] == "bad_url"
