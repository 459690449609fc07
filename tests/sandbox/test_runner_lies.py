"""A runner that was taken over, or something else that answers in its place: it gets nothing but the run."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from bot.tools.python_sandbox.runner_backend import RunnerBackend, RunnerPatience
from bot.tools.python_sandbox.runner_wire import MEDIA_TYPE
from bot.tools.python_sandbox.types import (
    KiB,
    MiB,
    RunStatus,
    SandboxLimits,
    SandboxOutcome,
    SandboxRun,
    SandboxUnavailable,
)
from tests.sandbox.runners import HONEST, TOKEN, Script, build_answer, build_body, build_lie, open_liar
from tests.sandbox.sandboxes import SOON_S

LIMITS = SandboxLimits(wall_s=SOON_S, output_bytes=4 * KiB, scratch_bytes=1 * MiB, scratch_files=20)


def says(*parts: bytes, **changes: Any) -> Script:
    """Answer with a head that is right but for these changes, and with these parts."""

    async def script(first: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(build_answer(build_body(build_lie(body, **changes), *parts)))

    return script


def sends(content: bytes) -> Script:
    """Answer with these bytes."""

    async def script(first: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(content)

    return script


async def run(script: Script, tmp_path: Path, *, patience: RunnerPatience | None = None) -> SandboxOutcome:
    """Have a program run by a liar, and make sure that nothing but an outcome came of it."""
    (tmp_path / "canary").write_text("untouched")
    folder = tmp_path / "thread/run"
    for name in ("input", "output"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "output/mine").write_text("mine")
    if not (folder / "output/link").is_symlink():
        (folder / "output/link").symlink_to(tmp_path / "canary")
    async with open_liar(script) as liar:
        client = RunnerBackend(liar.url, TOKEN, patience=patience)
        try:
            async with asyncio.timeout(2 * SOON_S):
                return await client.run(SandboxRun(code="print(1)", folder=folder, limits=LIMITS))
        finally:
            await client.aclose()
            assert len(liar.runs) == 1, "a run is never asked for twice"
            assert (tmp_path / "canary").read_text() == "untouched"
            assert sorted(os.listdir(tmp_path)) == ["canary", "thread"]
            assert sorted(os.listdir(folder)) == ["input", "output"]
            assert not [name for name in os.listdir(folder / "output") if name.endswith(".part")]


def is_unused(outcome: SandboxOutcome, tmp_path: Path) -> bool:
    """Tell whether nothing of an answer was taken."""
    names = sorted(os.listdir(tmp_path / "thread/run/output"))
    kept = (tmp_path / "thread/run/output/mine").read_text() == "mine"
    return outcome.status is RunStatus.CRASHED and "not run again" in outcome.detail and kept and len(names) == 2


async def test_an_answer_that_is_right_is_taken(tmp_path: Path) -> None:
    files = [{"place": "output", "name": name, "size": 3} for name in ("new", "link")]
    script = says(b"out", b"er", b"one", b"two", files=files, stdout_bytes=3, stderr_bytes=2, gone=["mine"])
    outcome = await run(script, tmp_path)
    assert (outcome.status, outcome.stdout, outcome.stderr) == (RunStatus.OK, "out", "er")
    assert (tmp_path / "thread/run/output/new").read_text() == "one"
    assert not (tmp_path / "thread/run/output/mine").exists()
    assert not (tmp_path / "thread/run/output/link").is_symlink(), "a link is replaced, never followed"


NAMES = [
    "../canary",
    "../../canary",
    "..",
    ".",
    "",
    "/etc/cron.d/x",
    "a/b",
    "nul\0",
    "a\nb",
    "bidi\u202egnp.exe",
    "a" * 256,
    7,
    None,
]


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_that_leads_elsewhere_is_not_taken(tmp_path: Path, name: Any) -> None:
    for changes in ({"files": [{"place": "output", "name": name, "size": 4}]}, {"gone": [name]}):
        assert is_unused(await run(says(b"evil", **changes), tmp_path), tmp_path)


FILE = {"place": "output", "name": "a", "size": 4}
LIES: list[dict[str, Any]] = [
    {"run": "0" * 32},
    {"run": None},
    {"status": "fine"},
    {"state": "stolen"},
    {"exit_code": 2**40},
    {"exit_code": "0"},
    {"duration_s": -1},
    {"duration_s": float("inf")},
    {"cpu_s": float("nan")},
    {"peak_memory_bytes": -1},
    {"stdout_bytes": -4},
    {"stdout_bytes": 100 * MiB},
    {"stdout_bytes": 20 * KiB},
    {"stdout_bytes": 2**62},
    {"detail": "x" * 5000},
    {"left": -1},
    {"more": 1},
    {"files": [FILE, FILE]},
    {"files": [{**FILE, "place": "input"}]},
    {"files": [{**FILE, "place": "../.."}]},
    {"files": [{**FILE, "size": -4}]},
    {"files": [{**FILE, "size": 2 * MiB}]},
    {"files": [{**FILE, "size": 2**62}]},
    {"files": [{**FILE, "name": str(n), "size": 0} for n in range(40)]},
    {"files": [{**FILE, "link": "/etc/passwd"}]},
    {"gone": ["canary"]},
]


@pytest.mark.parametrize("lie", LIES, ids=[json.dumps(lie)[:50] for lie in LIES])
async def test_an_answer_with_a_lie_in_its_head_is_not_taken(tmp_path: Path, lie: dict[str, Any]) -> None:
    sizes = [lie.get("stdout_bytes", 0), *(part["size"] for part in lie.get("files", ()))]
    body = bytes(sum(sizes)) if 0 <= sum(sizes) <= 8 * MiB else b"evil"  # the lie is all that is wrong with it
    assert is_unused(await run(says(body, **lie), tmp_path), tmp_path)


async def test_an_answer_that_is_shorter_or_longer_than_its_head_says_is_not_taken(tmp_path: Path) -> None:
    for size in (3, 5):
        assert is_unused(await run(says(b"evil", files=[{**FILE, "size": size}]), tmp_path), tmp_path)


HEADS = [
    b"",
    b"{",
    b"[]",
    b"\xff\xfe",
    b"[" * 200_000,
    b'{"status":' * 50_000,
    b'{"exit_code": ' + b"9" * 500_000 + b"}",
    b'{"exit_code": 1e999999999}',
]


@pytest.mark.parametrize("head", HEADS, ids=[repr(head[:20]) for head in HEADS])
async def test_an_answer_that_is_no_json_is_not_taken(tmp_path: Path, head: bytes) -> None:
    assert is_unused(await run(sends(build_answer(build_body(head))), tmp_path), tmp_path)


async def test_an_answer_that_never_ends_costs_neither_memory_nor_disk(tmp_path: Path) -> None:
    async def script(first: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        answer = build_answer(b"", Content_Length="", Transfer_Encoding="chunked")
        content = build_body(build_lie(body, files=[FILE]))
        writer.write(answer + f"{len(content):x}\r\n".encode() + content + b"\r\n")
        while True:
            writer.write(b"100000\r\n" + bytes(MiB) + b"\r\n")
            await writer.drain()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert is_unused(await run(script, tmp_path), tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


async def test_a_head_that_says_to_be_four_gibibytes_is_not_waited_for(tmp_path: Path) -> None:
    assert is_unused(await run(sends(build_answer(b"\xff" * 4 + b"x" * 100)), tmp_path), tmp_path)


async def test_an_answer_that_comes_byte_by_byte_is_given_up(tmp_path: Path) -> None:
    async def script(first: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        content = build_answer(build_body(build_lie(body), b"x" * 10_000))
        for at in range(len(content)):
            writer.write(content[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0.02)

    outcome = await run(script, tmp_path, patience=RunnerPatience(run_s=1.0 - SOON_S))
    assert is_unused(outcome, tmp_path)
    assert "did not answer in time" in outcome.detail


async def test_an_answer_that_falls_silent_is_given_up(tmp_path: Path) -> None:
    async def script(first: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(build_answer(build_body(build_lie(body, stdout_bytes=9), b"out"), Content_Length="100000"))
        await writer.drain()
        await asyncio.Event().wait()

    assert is_unused(await run(script, tmp_path, patience=RunnerPatience(idle_s=0.2)), tmp_path)


async def test_an_answer_that_breaks_off_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    async def script(first: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        files = [{**FILE, "name": "mine"}, {**FILE, "name": "b", "size": 1000}]
        content = build_answer(build_body(build_lie(body, files=files), b"evil", b"half" * 10))
        writer.write(content.replace(b"Connection: close\r\n", b"").replace(b"Content-Length", b"X-Length"))

    assert is_unused(await run(script, tmp_path), tmp_path)


async def test_an_answer_that_goes_on_is_not_taken(tmp_path: Path) -> None:
    assert is_unused(await run(says(b"evil", b"more", files=[FILE]), tmp_path), tmp_path)


async def test_a_compressed_answer_is_not_unpacked(tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(200 * MiB))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert is_unused(await run(sends(build_answer(bomb, Content_Encoding="gzip")), tmp_path), tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


async def test_a_connection_that_closes_without_an_answer_is_told(tmp_path: Path) -> None:
    assert is_unused(await run(sends(b""), tmp_path), tmp_path)


BROKEN = [
    b"garbage\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 10_000 + b"\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 999999 OK\r\n\r\n",
]


@pytest.mark.parametrize("content", BROKEN, ids=[repr(content[:40]) for content in BROKEN])
async def test_an_answer_that_is_no_http_is_told(tmp_path: Path, content: bytes) -> None:
    assert is_unused(await run(sends(content), tmp_path), tmp_path)


async def test_an_answer_of_another_kind_is_told(tmp_path: Path) -> None:
    outcome = await run(sends(build_answer(b"<html>", content_type="text/html")), tmp_path)
    assert is_unused(outcome, tmp_path)
    assert "runner_url" in outcome.detail


async def test_nobody_is_sent_elsewhere_with_the_token(tmp_path: Path) -> None:
    async def caught(first: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("the other server must not be asked")

    async with open_liar(caught) as other:
        answer = build_answer(b"", status="307 Temporary Redirect", Location=f"{other.url}/v1/runs")
        with pytest.raises(SandboxUnavailable, match="sends elsewhere"):
            await run(sends(answer), tmp_path)
        assert other.runs == []


@pytest.mark.parametrize("status", ["500 Oops", "502 Bad Gateway", "504 Gateway Timeout", "503 No", "409 Conflict"])
async def test_an_error_that_may_have_come_after_the_run_began_is_not_told_as_not_run(
    tmp_path: Path, status: str
) -> None:
    answer = build_answer(b"", status=status, content_type="text/html", Hermod_Runner_Protocol="")
    assert is_unused(await run(sends(answer), tmp_path), tmp_path)


REFUSALS = [
    ("401 Unauthorized", {}, "", "runner_token"),
    ("429 Too Many Requests", {"Retry_After": "7"}, "", "try again in 7 s"),
    ("429 Too Many Requests", {"Retry_After": "-7"}, "", "try again in 5 s"),
    ("429 Too Many Requests", {"Retry_After": "9" * 5000}, "", "try again in 5 s"),
    ("400 Bad Request", {"Hermod_Runner_Protocol": "2"}, "protocol", "speaks protocol 2 and this Hermod 1"),
    ("404 Not Found", {"Hermod_Runner_Protocol": ""}, "", "something else than a runner"),
    ("413 Too Large", {}, "too_large", "a message"),
    ("503 No", {}, "unavailable", "a message"),
    ("507 Full", {}, "disk", "a message"),
]


@pytest.mark.parametrize(("status", "headers", "error", "text"), REFUSALS)
async def test_a_refusal_is_told_with_what_to_do(
    tmp_path: Path, status: str, headers: dict[str, str], error: str, text: str
) -> None:
    body = json.dumps({"error": error, "message": "a message\n\x1b[31m\u202e" + "x" * 3000}).encode()
    answer = build_answer(body, status=status, content_type="application/json", **headers)
    with pytest.raises(SandboxUnavailable, match=text) as caught:
        await run(sends(answer), tmp_path)
    assert "nothing was run" in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


PROBES: list[tuple[dict[str, Any], str]] = [
    ({"enforcing": False}, "without locking it in"),
    ({"works": False, "reason": "no Landlock\n\x1b[31m"}, "cannot lock code in: no Landlock"),
    ({"works": "yes"}, "cannot be used"),
    ({"enforcing": 1}, "cannot be used"),
    ({"facts": {str(n): "x" for n in range(100)}}, "cannot be used"),
    ({"more": "x"}, "cannot be used"),
    ({"reason": "x" * 60_000}, "cannot be used"),
    ({"version": "x" * 70_000}, "cannot be used"),
]


@pytest.mark.parametrize(("changes", "text"), PROBES)
async def test_a_probe_that_does_not_say_that_code_is_locked_in_is_not_enough(
    changes: dict[str, Any], text: str, tmp_path: Path
) -> None:
    async with open_liar(says()) as liar:
        liar.probe = {**HONEST, **changes}
        client = RunnerBackend(liar.url, TOKEN)
        seen = await client.probe()
        assert (seen.works, client.enforcing) == (False, False)
        assert text in seen.reason
        assert seen.reason.isprintable()
        with pytest.raises(SandboxUnavailable, match=text):
            await client.run(SandboxRun(code="print(1)", folder=tmp_path))
        await client.aclose()
        assert liar.runs == []


async def test_a_server_that_is_no_runner_is_told(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = RunnerBackend(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", TOKEN)
    with pytest.raises(SandboxUnavailable, match="something else than a runner"):
        await client.connect()
    await client.aclose()
    server.close()


async def test_what_a_runner_says_for_people_is_one_line_without_tricks(tmp_path: Path) -> None:
    outcome = await run(says(detail="it ended\n\x1b[31m\u202e@everyone"), tmp_path)
    assert outcome.detail.isprintable()
    assert MEDIA_TYPE not in outcome.detail
