"""Runners on this machine for the tests: the real service on a real port, raw connections to it, and ones that lie."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.tools.python_sandbox.runner_backend import RunnerBackend, RunnerPatience
from bot.tools.python_sandbox.runner_folders import RunFolders
from bot.tools.python_sandbox.runner_limits import RunnerLimits
from bot.tools.python_sandbox.runner_server import RunnerServer
from bot.tools.python_sandbox.runner_wire import MEDIA_TYPE, PROTOCOL, PROTOCOL_HEADER, RUNS_PATH, WireLimits
from bot.tools.python_sandbox.types import Enforcement, SandboxBackend, SandboxLimits, SandboxOutcome, SandboxRun
from tests.sandbox.sandboxes import SOON_S

TOKEN = "a-token-for-tests-0123456789"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}", PROTOCOL_HEADER: str(PROTOCOL)}
CEILINGS = SandboxLimits(wall_s=SOON_S, cpu_s=20.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a raw connection was answered with."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> dict[str, Any]:
        """The body as JSON."""
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found


class Runner:
    """One runner, with a client of Hermod's own and ways to talk to it otherwise."""

    def __init__(self, server: RunnerServer, root: Path, *, marks: Path | None = None) -> None:
        self.server, self.root = server, root
        self.url = f"http://127.0.0.1:{server.port}"
        self.client = RunnerBackend(self.url, TOKEN, marks=marks, patience=RunnerPatience(run_s=2 * SOON_S))
        self._count = 0

    def new_folder(self, **inputs: str) -> Path:
        """Make a run's folder with these input files, in a thread of its own."""
        self._count += 1
        folder = self.root / f"thread-{self._count}" / "run"
        for name in ("input", "output"):
            (folder / name).mkdir(parents=True, mode=0o700)
        for name, content in inputs.items():
            (folder / "input" / name).write_text(content)
        return folder

    async def run(self, code: str, *, folder: Path | None = None, session: str = "", **limits: Any) -> SandboxOutcome:
        """Have a program run; limits are generous where the test does not say."""
        wanted = SandboxLimits(**{"wall_s": SOON_S, "cpu_s": 20.0, **limits})
        run = SandboxRun(code=code, folder=folder or self.new_folder(), limits=wanted, session=session)
        async with asyncio.timeout(2 * SOON_S):
            return await self.client.run(run)

    async def send(self, content: bytes, *, half_close: bool = False) -> Reply:
        """Send bytes on a connection of their own, and read what comes until it is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(content)
                await writer.drain()
                if half_close:
                    writer.write_eof()
            return await read_reply(reader)
        finally:
            writer.close()

    async def post(self, body: bytes, **changes: str) -> Reply:
        """Post a body to the runs, as an authorized client does but for some headers."""
        return await self.send(build_post(body, **changes))


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """Read an answer until its connection is closed; status 0 when there was none."""
    content = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(SOON_S):
            while chunk := await reader.read(64 * 1024):
                content += chunk
    head, _, body = content.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n").partition(b"\r\n\r\n")
    if not head:
        return Reply(status=0, headers={}, body=b"")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Reply(status=int(first.split()[1]), headers=headers, body=body)


def build_request(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Return the bytes of a request; headers with an empty value are left out."""
    lines = [f"{method} {path} HTTP/1.1", "Host: runner", *(f"{n}: {v}" for n, v in headers.items() if v)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def build_post(body: bytes, **changes: str) -> bytes:
    """Return the bytes of a request to run something; ``changes`` are headers with ``_`` for ``-``."""
    usual = {**AUTHORIZED, "Content-Type": MEDIA_TYPE, "Content-Length": str(len(body))}
    other = {name.replace("_", "-"): value for name, value in changes.items()}
    return build_request("POST", RUNS_PATH, {**usual, **other}, body)


def build_head(**changes: Any) -> dict[str, Any]:
    """Return the head of a small run."""
    limits = WireLimits(**{name: getattr(CEILINGS, name) for name in WireLimits.model_fields}).model_dump()
    return {"run": "0" * 32, "thread": "1" * 64, "limits": limits, "code_bytes": 0, "files": [], **changes}


def build_body(head: Mapping[str, Any] | bytes, *parts: bytes) -> bytes:
    """Return a body in the form of the wire, whether or not its head is right."""
    content = head if isinstance(head, bytes) else json.dumps(head).encode()
    return len(content).to_bytes(4, "big") + content + b"".join(parts)


def build_program(code: str, **changes: Any) -> bytes:
    """Return the body of a run of this program without files."""
    content = code.encode()
    return build_body(build_head(code_bytes=len(content), **changes), content)


class Believed:
    """A real backend that is believed without its canaries, which take a second."""

    enforcing = True

    def __init__(self, backend: SandboxBackend) -> None:
        self.name, self._backend = backend.name, backend

    async def probe(self) -> Enforcement:
        """Say that it works."""
        return Enforcement(backend=self.name, works=True)

    async def run(self, run: SandboxRun) -> SandboxOutcome:
        """Run a program."""
        return await self._backend.run(run)

    async def aclose(self) -> None:
        """End every process."""
        await self._backend.aclose()


@asynccontextmanager
async def open_runner(
    backend: SandboxBackend, root: Path, *, marks: Path | None = None, canaries: bool = False, **limits: Any
) -> AsyncIterator[Runner]:
    """Start a runner, wait until it is well, and close it in the end. The backend stays open."""
    folders = RunFolders(root / "runner")
    await asyncio.to_thread(folders.open)
    wanted = RunnerLimits(**{"ceilings": CEILINGS, "queue_s": SOON_S, "drain_s": SOON_S, **limits})
    server = RunnerServer(
        backend if canaries else Believed(backend), token=TOKEN, folders=folders, limits=wanted, version="0.0-test"
    )
    await server.start("127.0.0.1", 0)
    await server.probe()
    runner = Runner(server, root / "here", marks=marks)
    try:
        yield runner
    finally:
        await runner.client.aclose()
        await server.aclose()
        await asyncio.to_thread(folders.close)


# -- runners that lie ------------------------------------------------------------------------------

Script = Callable[[str, bytes, asyncio.StreamWriter], Awaitable[None]]
"""Answers a request, given its first line and its body."""

HONEST = {
    "protocol": PROTOCOL,
    "version": "1",
    "backend": "landlock",
    "enforcing": True,
    "works": True,
    "reason": "",
    "facts": {},
}


@dataclass(slots=True)
class Liar:
    """A server that answers runs as a test says."""

    url: str = ""
    runs: list[bytes] = field(default_factory=list)
    probe: Mapping[str, Any] = field(default_factory=lambda: HONEST)


@asynccontextmanager
async def open_liar(script: Script) -> AsyncIterator[Liar]:
    """Start a server that says that it is a runner; each run is answered by the script."""
    liar = Liar()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await _answer(reader, writer, liar, script)
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    liar.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield liar
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, liar: Liar, script: Script) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first = head.partition("\r\n")[0]
    if first.startswith("GET"):
        writer.write(build_answer(json.dumps(liar.probe).encode(), content_type="application/json"))
        await writer.drain()
        return
    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length"))
    body = await reader.readexactly(length)
    liar.runs.append(body)
    await script(first, body, writer)
    await writer.drain()


def build_answer(body: bytes, *, status: str = "200 OK", content_type: str = MEDIA_TYPE, **headers: str) -> bytes:
    """Return the bytes of an HTTP answer; ``headers`` have ``_`` for ``-``."""
    usual = {
        "Content-Type": content_type,
        "Content-Length": str(len(body)),
        PROTOCOL_HEADER: str(PROTOCOL),
        "Connection": "close",
    }
    wanted = {**usual, **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in wanted.items() if value)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def find_run(body: bytes) -> str:
    """Return the number of the run that a request asks for."""
    length = int.from_bytes(body[:4], "big")
    return str(json.loads(body[4 : 4 + length])["run"])


def build_lie(body: bytes, **changes: Any) -> dict[str, Any]:
    """Return an answer's head that is right but for some changes."""
    return {
        "run": find_run(body),
        "status": "ok",
        "stdout_bytes": 0,
        "stderr_bytes": 0,
        "stdout_cut": False,
        "stderr_cut": False,
        "exit_code": 0,
        "duration_s": 0.1,
        "cpu_s": 0.1,
        "peak_memory_bytes": 0,
        "state": "fresh",
        "detail": "",
        "files": [],
        "gone": [],
        "left": 0,
        **changes,
    }
