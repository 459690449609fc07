"""Attacks on a runner's port, by people without the token and by a Hermod that was taken over.

After each the runner still runs a program for its own client, nothing was written outside its folder, and nothing of
the attack is left in it.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.tools.python_sandbox.runner_wire import MEDIA_TYPE, PROBE_PATH, RUNS_PATH
from bot.tools.python_sandbox.types import MiB
from tests.sandbox.runners import (
    AUTHORIZED,
    TOKEN,
    Runner,
    build_body,
    build_head,
    build_post,
    build_program,
    build_request,
    open_runner,
    read_reply,
)
from tests.sandbox.sandboxes import NAME_ITSELF, OpenSandbox, find_named, until

REQUEST_BYTES = 4 * MiB


@pytest.fixture
async def runner(open_sandbox: OpenSandbox, kind: str, tmp_path: Path) -> AsyncIterator[Runner]:
    """A runner with short waits, which has to be as it was in the end."""
    (tmp_path / "canary").write_text("untouched")
    backend = (await open_sandbox(kind)).backend
    waits: dict[str, Any] = {"head_s": 2.0, "idle_s": 2.0, "body_s": 4.0, "answer_s": 10.0}
    async with open_runner(backend, tmp_path, request_bytes=REQUEST_BYTES, connections=40, **waits) as opened:
        yield opened
        await until(lambda: not opened.server._taken, "no request is left")
        assert (await opened.run("print(1)")).stdout == "1\n"
        await until(lambda: not os.listdir(tmp_path / "runner/runs"), "no folder is left")
    assert (tmp_path / "canary").read_text() == "untouched"
    assert set(os.listdir(tmp_path)) <= {"canary", "runner", "here"}
    assert set(os.listdir(tmp_path / "runner")) <= {"lock", "runs", "sessions", "state"}


# -- without the token -----------------------------------------------------------------------------

LISTED = [("POST", RUNS_PATH), ("GET", PROBE_PATH), ("GET", "/"), ("GET", f"{RUNS_PATH}/1"), ("DELETE", RUNS_PATH)]


NO_TOKENS = [
    {},
    {"Authorization": f"Bearer {TOKEN}x"},
    {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": TOKEN},
    {"Authorization": "Bearer "},
    {"Authorization": "Bearer \xff\xfe"},
    {"X-Token": TOKEN, "Cookie": f"token={TOKEN}"},
]


@pytest.mark.parametrize("headers", NO_TOKENS)
async def test_without_the_token_nothing_is_said_but_401(runner: Runner, headers: dict[str, str]) -> None:
    for method, path in LISTED:
        reply = await runner.send(build_request(method, f"{path}?token={TOKEN}", headers))
        assert (reply.status, reply.data) == (401, {"error": "unauthorized", "message": "unauthorized"}), (method, path)
        assert "aiohttp" not in reply.headers["server"]


async def test_two_tokens_are_none(runner: Runner) -> None:
    twice = f"Authorization: Bearer wrong\r\nAuthorization: Bearer {TOKEN}"
    request = build_request("GET", PROBE_PATH, {}).replace(b"Host: runner", f"Host: runner\r\n{twice}".encode())
    assert (await runner.send(request)).status == 401


async def test_health_tells_nothing_but_that_it_is_well(runner: Runner) -> None:
    reply = await runner.send(build_request("GET", "/healthz", {}))
    assert (reply.status, reply.data) == (200, {"ok": True})
    assert (await runner.send(build_request("GET", "/healthz?x=1", {}))).status == 401
    assert (await runner.send(build_request("POST", "/healthz", {"Content-Length": "0"}))).status == 401


async def test_no_body_is_read_before_the_token(runner: Runner) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", runner.server.port)
    headers = {"Content-Length": str(REQUEST_BYTES), "Expect": "100-continue", "Content-Type": MEDIA_TYPE}
    writer.write(build_request("POST", RUNS_PATH, headers))
    first = await reader.readline()
    writer.close()
    assert first == b"HTTP/1.1 401 Unauthorized\r\n"


# -- the form of HTTP ------------------------------------------------------------------------------


async def test_a_body_in_chunks_is_refused_however_long_it_would_be(runner: Runner) -> None:
    chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
    reply = await runner.send(build_post(b"", Content_Length="", Transfer_Encoding="chunked") + chunk * 16)
    assert (reply.status, reply.data["error"]) == (411, "length")


AMBIGUOUS = [
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 5, 5",
    "Content-Length: +5",
    "Content-Length: -5",
    "Content-Length: 0x5",
    "Content-Length: 99999999999999999999999",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding:\x0bchunked",
    "Content-Length\r\n : 5",
    "X: 1\nContent-Length: 5",
]


async def test_headers_that_two_servers_could_read_differently_are_refused(runner: Runner) -> None:
    head = build_request("POST", RUNS_PATH, {**AUTHORIZED, "Content-Type": MEDIA_TYPE})
    smuggled = build_request("GET", PROBE_PATH, AUTHORIZED)
    for extra in AMBIGUOUS:
        request = head.replace(b"Host: runner", f"Host: runner\r\n{extra}".encode("latin-1")) + b"0\r\n\r\n" + smuggled
        reply = await runner.send(request)
        assert reply.status in {0, 400, 411, 413}, extra
        assert b"enforcing" not in reply.body, extra


async def test_a_second_request_on_a_connection_is_not_answered(runner: Runner) -> None:
    reply = await runner.send(build_request("GET", "/healthz", {}) + build_request("GET", PROBE_PATH, AUTHORIZED))
    assert reply.body == b'{"ok": true}'


async def test_bytes_behind_a_request_end_it_and_its_program(runner: Runner) -> None:
    name = f"tail{os.getpid()}"
    reader, writer = await asyncio.open_connection("127.0.0.1", runner.server.port)
    writer.write(build_post(build_program(NAME_ITSELF.format(name=name) + "import time; time.sleep(50)")))
    await until(lambda: find_named(name), "the program runs")
    writer.write(build_request("GET", PROBE_PATH, AUTHORIZED) * 1000)
    assert (await read_reply(reader)).status == 0
    writer.close()
    await until(lambda: not find_named(name), "the program is gone")


async def test_a_compressed_body_is_refused_and_not_unpacked(runner: Runner) -> None:
    bomb = gzip.compress(bytes(200 * MiB))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reply = await runner.post(bomb, Content_Encoding="gzip")
    assert (reply.status, reply.data["error"]) == (415, "form")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


async def test_a_request_that_is_too_large_is_refused_before_it_is_read(runner: Runner) -> None:
    reply = await runner.post(b"", Content_Length=str(REQUEST_BYTES + 1))
    assert (reply.status, reply.data["error"]) == (413, "too_large")


@pytest.mark.parametrize("changes", [{"Hermod_Runner_Protocol": "2"}, {"Hermod_Runner_Protocol": ""}])
async def test_another_protocol_is_refused(runner: Runner, changes: dict[str, str]) -> None:
    reply = await runner.post(build_program("print(1)"), **changes)
    assert (reply.status, reply.data["error"]) == (400, "protocol")


async def test_very_long_and_very_many_headers_are_refused(runner: Runner) -> None:
    for headers in ({"X": "a" * 20_000}, {f"X-{n}": "a" for n in range(5000)}):
        reply = await runner.send(build_request("GET", "/healthz", headers))
        assert reply.status in {0, 400, 431}


# -- time and number -------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET /healthz HTTP/1.1\r\nX: "])
async def test_a_silent_connection_is_closed(runner: Runner, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", runner.server.port)
    writer.write(sent)
    reply = await read_reply(reader)
    writer.close()
    assert reply.status == 0


async def test_a_head_that_comes_byte_by_byte_is_given_up(runner: Runner) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", runner.server.port)
    closed = asyncio.create_task(read_reply(reader))
    sent = 0
    while not closed.done():
        writer.write(b"GET /healthz HTTP/1.1\r\n" if not sent else f"X-{sent}: 1\r\n".encode())
        sent += 1
        await asyncio.wait({closed}, timeout=0.05)
    writer.close()
    assert closed.result().status == 0


async def test_a_body_that_comes_byte_by_byte_is_given_up(runner: Runner) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", runner.server.port)
    body = build_program("print(1)" * 1000)
    writer.write(build_post(b"", Content_Length=str(len(body))) + body[:2])
    closed = asyncio.create_task(read_reply(reader))
    sent = 2
    while not closed.done():
        writer.write(body[sent : sent + 1])
        sent += 1
        await asyncio.wait({closed}, timeout=0.05)
    writer.close()
    assert (closed.result().status, closed.result().data["error"]) == (408, "slow")


async def test_a_body_that_does_not_come_is_given_up(runner: Runner) -> None:
    body = build_program("print(1)")
    reply = await runner.send(build_post(body)[:-3])
    assert (reply.status, reply.data["error"]) == (408, "slow")


async def test_a_body_that_breaks_off_runs_nothing(runner: Runner, tmp_path: Path) -> None:
    part = {"place": "output", "name": "a", "size": 1000}
    body = build_body(build_head(files=[part]), b"x" * 10)
    await runner.send(build_post(body, Content_Length=str(len(body) + 990)), half_close=True)
    await until(lambda: not os.listdir(tmp_path / "runner/runs"), "no folder is left")


async def test_very_many_connections_cost_no_more_than_their_sockets(runner: Runner) -> None:
    opened = [await asyncio.open_connection("127.0.0.1", runner.server.port) for _ in range(120)]
    await until(lambda: runner.server._listener.connections <= 40, "those beyond the limit are closed")
    for _, writer in opened:
        writer.close()
    await until(lambda: not runner.server._listener.connections, "all are gone")


async def test_a_flood_of_requests_is_answered_with_when_to_come_again(runner: Runner) -> None:
    most = runner.server.limits.places + runner.server.limits.most_waiting
    code = "import time; time.sleep(0.2); print('done')"
    bodies = [build_program(code, run=f"{n:032x}", thread=f"{n:064x}") for n in range(most + 15)]
    replies = await asyncio.gather(*(runner.post(body) for body in bodies))
    refused = [reply for reply in replies if reply.status != 200]
    assert all(reply.status == 429 and int(reply.headers["retry-after"]) > 0 for reply in refused)
    assert len(replies) - len(refused) >= most
    assert len(refused) > 0


# -- what stands in a request ----------------------------------------------------------------------


def with_file(name: Any, place: str = "output", size: Any = 1) -> dict[str, Any]:
    return build_head(files=[{"place": place, "name": name, "size": size}])


BAD_NAMES = [
    "../canary",
    "..",
    ".",
    "",
    "/tmp/canary",
    "a/../../canary",
    "folder/file",
    "nul\0byte",
    "line\nbreak",
    "bidi\u202egnp.exe",
    "\u200bzero",
    "\x1b[31m",
    "a" * 256,
    "é" * 128,
    5,
    None,
    ["a"],
]


async def test_a_name_that_leads_elsewhere_is_refused(runner: Runner) -> None:
    for place in ("input", "output"):
        for name in BAD_NAMES:
            reply = await runner.post(build_body(with_file(name, place), b"x"))
            assert (reply.status, reply.data["error"]) == (400, "bad_request"), (place, name)


async def test_a_file_that_belongs_elsewhere_is_refused(runner: Runner) -> None:
    places: list[Any] = ["", ".", "..", "state", "../state", "Output", None, 1]
    for place in places:
        assert (await runner.post(build_body(with_file("a", place), b"x"))).status == 400, place


async def test_a_file_that_comes_twice_is_refused(runner: Runner) -> None:
    part = {"place": "input", "name": "a", "size": 1}
    assert (await runner.post(build_body(build_head(files=[part, part]), b"xy"))).status == 400


async def test_a_size_that_is_not_so_is_refused(runner: Runner) -> None:
    sizes: list[Any] = [-1, 2, 0, 10**9, 2**63, 2**70, 0.5, "1", None, True, float("inf")]
    for size in sizes:
        assert (await runner.post(build_body(with_file("a", size=size), b"x"))).status == 400, size


LIMITS = [-1, 0, -(2**63), 2**64, 10**400, "5", None, [], True, float("nan"), float("inf"), float("-inf")]


async def test_a_limit_that_is_none_is_refused(runner: Runner) -> None:
    for limit in ("wall_s", "memory_bytes", "scratch_files"):
        for value in LIMITS:
            head = build_head()
            head["limits"][limit] = value
            assert (await runner.post(build_body(head))).status == 400, (limit, value)


async def test_a_huge_limit_is_worth_the_runners_own(runner: Runner) -> None:
    for n, limit in enumerate(build_head()["limits"]):
        head = build_head(code_bytes=8, run=f"{n:032x}")
        head["limits"][limit] = 10**9 if limit.endswith("_s") else 2**53
        reply = await runner.post(build_body(head, b"print(1)"))
        assert (reply.status, reply.body[-2:]) == (200, b"1\n"), limit


async def test_a_file_that_a_program_may_write_is_bounded_by_the_runner(runner: Runner) -> None:
    head = build_head(code_bytes=0)
    code = b"open('output/a', 'wb').write(bytes(17 * 2**20))"
    head["code_bytes"], head["limits"]["file_bytes"], head["limits"]["scratch_bytes"] = len(code), 2**50, 2**50
    reply = await runner.post(build_body(head, code))
    assert b"File too large" in reply.body


NO_HEADS = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"[" * 200_000,
    b'{"run":' * 100_000,
    b'{"run": ' + b"9" * 500_000 + b"}",
    b'{"run": 1e999999999}',
    b'{"a": "' + b"\\u0000" * 100_000 + b'"}',
    json.dumps({**build_head(), "more": 1}).encode(),
    json.dumps({**build_head(), "run": "../../../../etc"}).encode(),
    json.dumps({**build_head(), "run": "0" * 32 + "\n"}).encode(),
    json.dumps({**build_head(), "thread": "../canary"}).encode(),
    json.dumps({**build_head(), "session": "../canary"}).encode(),
    json.dumps({**build_head(), "code_bytes": -5}).encode(),
    json.dumps(
        {**build_head(), "files": [{"place": "input", "name": str(n), "size": 0} for n in range(1201)]}
    ).encode(),
]


async def test_a_head_that_is_none_is_refused(runner: Runner) -> None:
    for head in NO_HEADS:
        reply = await runner.post(build_body(head))
        assert (reply.status, reply.data["error"]) == (400, "bad_request"), head[:60]
        assert len(reply.body) < 1000


async def test_a_head_that_says_to_be_four_gibibytes_is_refused(runner: Runner) -> None:
    assert (await runner.post(b"\xff\xff\xff\xff" + b"x" * 1000)).status == 400


async def test_a_program_that_is_no_text_is_refused(runner: Runner) -> None:
    assert (await runner.post(build_body(build_head(code_bytes=2), b"\xff\xfe"))).status == 400


async def test_bytes_that_no_part_announces_are_refused(runner: Runner) -> None:
    assert (await runner.post(build_program("print(1)") + b"x")).status == 400


async def test_a_program_in_a_session_cannot_make_the_next_input_land_elsewhere(runner: Runner, tmp_path: Path) -> None:
    session = "7" * 64
    code = (
        "import os\n"
        "for act in (\n"
        f"    lambda: os.rename('input', 'moved'), lambda: os.symlink({str(tmp_path)!r}, 'input'),\n"
        f"    lambda: os.rename('output', 'old'), lambda: os.symlink({str(tmp_path)!r}, 'output'),\n"
        "    lambda: open('output', 'w'), lambda: os.mkdir('output/canary'), lambda: os.mkdir('input', 0),\n"
        "):\n"
        "    try:\n        act()\n    except OSError:\n        pass\n"
    ).encode()
    first = await runner.post(build_body(build_head(code_bytes=len(code), session=session), code))
    assert first.status == 200
    files = [{"place": place, "name": "canary", "size": 4} for place in ("input", "output")]
    head = build_head(code_bytes=8, session=session, run="f" * 32, files=files)
    assert (await runner.post(build_body(head, b"print(1)", b"evil", b"evil"))).status == 200
    assert (tmp_path / "canary").read_text() == "untouched"


async def test_a_client_that_does_not_read_its_answer_is_given_up(runner: Runner, tmp_path: Path) -> None:
    code = b"for n in range(3): open(f'output/{n}', 'wb').write(os.urandom(15 * 2**20))"
    code = b"import os\n" + code
    reader, writer = await asyncio.open_connection("127.0.0.1", runner.server.port, limit=1024)
    writer.write(build_post(build_body(build_head(code_bytes=len(code)), code)))
    await until(lambda: os.listdir(tmp_path / "runner/runs"), "the program is there")
    await until(lambda: not os.listdir(tmp_path / "runner/runs"), "its answer is given up")
    writer.close()
    assert reader is not None
