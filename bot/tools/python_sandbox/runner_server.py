"""The runner: the sandbox behind HTTP, for a container or a cluster of its own (``hermod sandbox serve``).

It has the same backends as Hermod itself and none of its secrets. Whoever has the token may run programs within the
runner's limits, and nothing else; whoever has not learns whether it is well.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ssl
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog
from aiohttp import web

from bot.tools.python_sandbox.runner_exchange import Ended, receive_files, send_answer
from bot.tools.python_sandbox.runner_files import Landing, uninterrupted
from bot.tools.python_sandbox.runner_folders import RunFolders
from bot.tools.python_sandbox.runner_limits import NotStarted, Refusal, RunnerLimits, busy, check_token, disk_full
from bot.tools.python_sandbox.runner_listener import Connection, Listener
from bot.tools.python_sandbox.runner_wire import (
    FACT_CHARS,
    HEALTH_PATH,
    MEDIA_TYPE,
    MOST_FACTS,
    PROBE_PATH,
    PROTOCOL,
    PROTOCOL_HEADER,
    RUNS_PATH,
    BadMessage,
    ProbeAnswer,
    RunHead,
    clean_text,
    read_exactly,
    read_head,
    take_smaller,
)
from bot.tools.python_sandbox.turns import Turns
from bot.tools.python_sandbox.types import (
    Enforcement,
    KiB,
    MiB,
    SandboxBackend,
    SandboxRun,
    SandboxUnavailable,
)

log = structlog.get_logger("hermod.runner")

_SEEN_S, _MOST_SEEN = 900.0, 10_000
_LOOK_AGAIN_S = 60.0


class RunnerServer:
    """Serves runs.

    Args:
        backend: runs the programs; it has to lock code in.
        token: what a client has to have; only its digest is kept.
        folders: where the files of runs are.
        limits: see ``RunnerLimits``.
        version: of Hermod, told with the probe.
        monotonic: the clock, in seconds.

    Raises:
        NotStarted: there is no good token, or the backend does not lock code in.
    """

    def __init__(
        self,
        backend: SandboxBackend,
        *,
        token: str,
        folders: RunFolders,
        limits: RunnerLimits | None = None,
        version: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not backend.enforcing:
            raise NotStarted("a runner with a backend that locks nothing in serves nobody; set sandbox.backend to auto")
        self._digest = hashlib.sha256(check_token(token).encode()).digest()
        self.limits = limits or RunnerLimits()
        self._backend, self._folders, self._version, self._monotonic = backend, folders, version, monotonic
        self._turns = Turns(self.limits.places, most_waiting=self.limits.most_waiting)
        self._listener = Listener(self._handle, head_s=self.limits.head_s, most_connections=self.limits.connections)
        self._verdict = Enforcement(backend=backend.name, works=False, reason="it has not been probed yet")
        self._prober: asyncio.Task[None] | None = None
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._taken = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._listener.port

    @property
    def well(self) -> bool:
        """Whether runs are taken."""
        return self._verdict.works and not self._draining

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Listen, and look for the backend meanwhile; until it is found, runs are refused with the reason.

        Raises:
            OSError: the port cannot be used.
        """
        await self._listener.start(host, port, tls)
        self._prober = asyncio.create_task(self._keep_probing())

    async def probe(self) -> Enforcement:
        """Probe the backend now."""
        self._verdict = await self._backend.probe()
        return self._verdict

    async def drain(self) -> None:
        """Take no more requests, and wait for those under way, for as long as ``drain_s``."""
        self._draining = True
        self._listener.stop_accepting()
        try:
            async with asyncio.timeout(self.limits.drain_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("runner_drained_late", killed=self._taken)

    async def aclose(self) -> None:
        """Close the port, and kill what still runs. The backend is closed by whoever opened it."""
        self._draining = True
        if self._prober is not None:
            self._prober.cancel()
            await asyncio.wait({self._prober})
        await self._listener.aclose()
        async with asyncio.timeout(self.limits.drain_s):
            await self._idle.wait()

    async def _keep_probing(self) -> None:
        while True:
            if not self._verdict.works and (verdict := await self.probe()).works:
                log.info("runner_well", backend=verdict.backend, **{"facts": dict(verdict.facts)})
            elif not self._verdict.works:
                log.warning("runner_not_well", reason=self._verdict.reason)
            await asyncio.sleep(_LOOK_AGAIN_S)

    # -- requests ----------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._route(request)
        except Refusal as refusal:
            if refusal.status != 401:
                log.info("run_refused", status=refusal.status, error=refusal.error)
            body = {"error": refusal.error, "message": refusal.message}
            answer = web.json_response(body, status=refusal.status, headers=refusal.headers)
            answer.headers[PROTOCOL_HEADER] = str(PROTOCOL)
            answer.force_close()
            return answer

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = (request.method, request.raw_path)
        if asked == ("GET", HEALTH_PATH):
            answer = web.json_response({"ok": self.well}, status=200 if self.well else 503)
            answer.force_close()
            return answer
        self._check_token(request)
        if asked == ("GET", PROBE_PATH):
            return await self._serve_probe()
        if asked == ("POST", RUNS_PATH):
            return await self._serve_run(request)
        raise Refusal(404, "not_found", f"a runner has only POST {RUNS_PATH} and GET {PROBE_PATH}")

    def _check_token(self, request: web.BaseRequest) -> None:
        given = request.headers.getall("Authorization", [])
        word, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        if not hmac.compare_digest(digest, self._digest) or word.lower() != "bearer":
            raise Refusal(401, "unauthorized", "unauthorized", {"WWW-Authenticate": "Bearer"})

    async def _serve_probe(self) -> web.Response:
        verdict = await self.probe()
        answer = ProbeAnswer(
            protocol=PROTOCOL,
            version=self._version[:100],
            backend=verdict.backend[:100],
            enforcing=self._backend.enforcing,
            works=verdict.works and not self._draining,
            reason=clean_text("it is about to end" if self._draining else verdict.reason, 2000),
            facts={
                clean_text(name, 60): clean_text(fact, FACT_CHARS)
                for name, fact in list(verdict.facts.items())[:MOST_FACTS]
            },
        )
        response = web.Response(text=answer.model_dump_json(), content_type="application/json")
        response.headers[PROTOCOL_HEADER] = str(PROTOCOL)
        response.force_close()
        return response

    # -- runs --------------------------------------------------------------------------------------

    async def _serve_run(self, request: web.BaseRequest) -> web.StreamResponse:
        self._check_form(request)
        async with self._admit(), AsyncExitStack() as held:
            await self._folders.sweep()
            await _say_continue(request)
            head, code = await self._receive_head(request)
            folder = await self._enter(held, self._folders.new_run())
            known = await self._receive_files(request, head, folder)
            if isinstance(request.protocol, Connection):
                request.protocol.seal()
            await self._take_turn(held, head.thread)
            self._check_new(head.run)
            return await self._run(request, head, code, folder, known)

    async def _run(
        self, request: web.BaseRequest, head: RunHead, code: str, folder: Path, known: Mapping[str, str]
    ) -> web.StreamResponse:
        limits = take_smaller(head.limits, self.limits.ceilings)
        async with AsyncExitStack() as held:
            session = ""
            if head.session:  # a word counts for its thread only
                session = hashlib.sha256(f"{head.thread} {head.session}".encode()).hexdigest()
                given, folder = folder, await self._enter(held, self._folders.hold_session(session))
                await self._adopt(given, folder)
            try:
                run = SandboxRun(code=code, folder=folder, limits=limits, session=session)
                outcome = await self._backend.run(run)
            except SandboxUnavailable as error:
                raise Refusal(503, "unavailable", clean_text(str(error), 2000)) from error
            log.info("run_done", run=head.run, status=outcome.status.value, duration_s=round(outcome.duration_s, 3))
            ended = Ended(head=head, outcome=outcome, limits=limits, folder=folder, known=known)
            return await send_answer(request, ended, answer_s=self.limits.answer_s)

    def _check_form(self, request: web.BaseRequest) -> None:
        headers = request.headers
        if headers.get(PROTOCOL_HEADER) != str(PROTOCOL):
            raise Refusal(
                400, "protocol", f"this runner speaks protocol {PROTOCOL}; run Hermod and its runner at one version"
            )
        if request.content_type != MEDIA_TYPE or "Content-Encoding" in headers:
            raise Refusal(415, "form", f"a run is sent as {MEDIA_TYPE}, uncompressed")
        if "Transfer-Encoding" in headers or request.content_length is None:
            raise Refusal(411, "length", "a run is sent with its Content-Length, not in chunks")
        if request.content_length > self.limits.request_bytes:
            most = self.limits.request_bytes // MiB
            raise Refusal(413, "too_large", f"program and files together are more than this runner takes ({most} MiB)")

    @asynccontextmanager
    async def _admit(self) -> AsyncIterator[None]:
        """Count a request in, unless there are too many, or the runner cannot serve it."""
        if self._draining:
            raise Refusal(503, "unavailable", "the runner is about to end", {"Retry-After": "10"})
        if not self._verdict.works:
            raise Refusal(503, "unavailable", clean_text(f"the runner's sandbox: {self._verdict.reason}", 2000))
        if self._taken >= self.limits.places + self.limits.most_waiting:
            raise busy()
        self._taken += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._taken -= 1
            if not self._taken:
                self._idle.set()

    async def _receive_head(self, request: web.BaseRequest) -> tuple[RunHead, str]:
        async with self._receiving():
            head = await read_head(request.content, RunHead, idle_s=self.limits.idle_s)
            if head.size_bytes > (request.content_length or 0):
                raise BadMessage("its parts are larger than the request")
            if head.code_bytes > self.limits.ceilings.source_bytes:
                most = self.limits.ceilings.source_bytes // KiB
                raise Refusal(413, "too_large", f"the program is longer than this runner takes ({most} KiB)")
            code = await read_exactly(request.content, head.code_bytes, idle_s=self.limits.idle_s)
            try:
                return head, code.decode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                raise BadMessage("the program is no UTF-8") from error

    async def _receive_files(self, request: web.BaseRequest, head: RunHead, folder: Path) -> Mapping[str, str]:
        async with self._receiving():
            return await receive_files(request.content, head, folder, idle_s=self.limits.idle_s)

    @asynccontextmanager
    async def _receiving(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.limits.body_s):
                yield
        except BadMessage as error:
            raise Refusal(400, "bad_request", f"the request cannot be read: {error}") from error
        except TimeoutError as error:
            raise Refusal(408, "slow", "the request took too long to arrive") from error
        except OSError as error:
            raise disk_full(error) from error

    def _check_new(self, run: str) -> None:
        """Refuse a request that was seen before: whoever repeats it, it is run once."""
        now = self._monotonic()
        while self._seen and (len(self._seen) > _MOST_SEEN or next(iter(self._seen.values())) < now - _SEEN_S):
            self._seen.popitem(last=False)
        if run in self._seen:
            raise Refusal(409, "repeated", "this run was asked for before; it is not run again")
        self._seen[run] = now

    async def _take_turn(self, held: AsyncExitStack, thread: str) -> None:
        try:
            async with asyncio.timeout(self.limits.queue_s):
                await held.enter_async_context(self._turns.take(thread))
        except (TimeoutError, SandboxUnavailable) as error:
            raise busy() from error

    async def _enter(self, held: AsyncExitStack, folder: AbstractAsyncContextManager[Path]) -> Path:
        try:
            return await held.enter_async_context(folder)
        except OSError as error:
            raise disk_full(error) from error

    async def _adopt(self, given: Path, folder: Path) -> None:
        landing = Landing(folder)
        try:
            await uninterrupted(landing.open)
            await uninterrupted(landing.adopt, given)
        except OSError as error:
            raise disk_full(error) from error
        finally:
            await uninterrupted(landing.close)


async def _say_continue(request: web.BaseRequest) -> None:
    """Ask for the body, now that there is room for it (RFC 9110, section 10.1.1)."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
