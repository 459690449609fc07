"""The backend that has programs run elsewhere: by ``hermod sandbox serve``, over HTTP.

A run is asked for once and never repeated. What went wrong before the runner had all of a request was never run, and
is told as ``SandboxUnavailable``; after that nobody here can know how far it came, so the outcome is ``crashed``.
Nothing that the runner says is trusted: its answers are bounded in size, time and number, names are checked, and files
get their names only when all of an answer has been read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bot.tools.python_sandbox.runner_address import Address, PrivateResolver, explain, read_refusal
from bot.tools.python_sandbox.runner_files import Landing, uninterrupted
from bot.tools.python_sandbox.runner_sending import Sending, SessionMarks
from bot.tools.python_sandbox.runner_wire import (
    DETAIL_CHARS,
    MEDIA_TYPE,
    PROBE_PATH,
    PROTOCOL,
    PROTOCOL_HEADER,
    RUNS_PATH,
    AnswerHead,
    BadMessage,
    ProbeAnswer,
    clean_text,
    parse_json,
    read_end,
    read_exactly,
    read_head,
    read_part,
)
from bot.tools.python_sandbox.types import (
    Enforcement,
    KiB,
    RunStatus,
    SandboxOutcome,
    SandboxRun,
    SandboxUnavailable,
    SessionState,
)

NAME = "runner"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerPatience:
    """How long a runner may take, in seconds.

    Args:
        connect_s: until there is a connection.
        probe_s: until it has said what it enforces; it may run canaries for that.
        run_s: beyond the program's own time: to send files, to wait for a place, to fetch what came out.
        idle_s: the longest silence within an answer.
    """

    connect_s: float = 5.0
    probe_s: float = 90.0
    run_s: float = 45.0
    idle_s: float = 15.0


_SMALL_BYTES = 64 * KiB


class RunnerBackend:
    """Has programs run by a runner.

    Args:
        url: of the runner.
        token: that it asks for.
        marks: a private folder that remembers which sessions there were; None: only in memory.
        patience: see ``RunnerPatience``.

    Raises:
        SandboxUnavailable: address or token cannot be used; the message says what to do.
    """

    name = NAME

    def __init__(
        self, url: str, token: str, *, marks: Path | None = None, patience: RunnerPatience | None = None
    ) -> None:
        self._address = Address.parse(url)
        if len(token) == 0 or not all("!" <= char <= "~" for char in token):
            raise SandboxUnavailable("sandbox.runner_token: it has to be visible ASCII characters, without blanks")
        self._headers = {"Authorization": f"Bearer {token}", PROTOCOL_HEADER: str(PROTOCOL)}
        self._patience = patience or RunnerPatience()
        self._sessions = SessionMarks(marks)
        self.enforcing = False
        """Whether the runner has said that a backend is active that locks code in."""
        self._closed = False
        self._http: aiohttp.ClientSession | None = None

    async def connect(self) -> None:
        """Ask the runner what it enforces.

        Raises:
            SandboxUnavailable: it cannot be reached, speaks otherwise, or locks nothing in.
        """
        verdict = await self.probe()
        if not verdict.works:
            raise SandboxUnavailable(verdict.reason)

    async def probe(self) -> Enforcement:
        """Ask the runner what it was seen to enforce. Never raises."""
        try:
            answer = await self._fetch_probe()
        except SandboxUnavailable as error:
            self.enforcing = False
            return Enforcement(backend=NAME, works=False, reason=str(error))
        self.enforcing = answer.works and answer.enforcing
        reason = ""
        if not answer.enforcing:
            reason = (
                f"the runner at {self._address.url} runs code without locking it in, so it is not used; "
                "set sandbox.backend there to auto"
            )
        elif not answer.works:
            reason = f"the runner at {self._address.url} cannot lock code in: {clean_text(answer.reason, 1000)}"
        facts = {
            "runner": self._address.url,
            "transport": self._address.transport,
            "version": clean_text(answer.version, 60),
            "backend": clean_text(answer.backend, 60),
            **{f"runner's {clean_text(name, 60)}": clean_text(fact, 300) for name, fact in answer.facts.items()},
        }
        return Enforcement(backend=NAME, works=self.enforcing, reason=reason, facts=facts)

    async def run(self, run: SandboxRun) -> SandboxOutcome:
        """Have one program run. Cancelling closes the connection, by which the runner kills it.

        Raises:
            SandboxUnavailable: nothing of it was run.
        """
        if not self.enforcing:
            await self.connect()
        sending = await asyncio.to_thread(Sending.build, run)
        try:
            async with asyncio.timeout(run.limits.wall_s + self._patience.run_s):
                return await self._exchange(run, sending)
        except (aiohttp.ClientError, BadMessage, ConnectionError, TimeoutError) as error:
            reason = explain(error, self._address)
            if not sending.complete:
                raise SandboxUnavailable(f"{reason}; nothing was run") from error
            await self._sessions.know(run.session)
            return _build_unknown(reason)

    async def aclose(self) -> None:
        """Close every connection; the runner kills what it runs for them."""
        self._closed = True
        if self._http is not None:
            await self._http.close()

    def _check_protocol(self, answer: aiohttp.ClientResponse) -> None:
        spoken = answer.headers.get(PROTOCOL_HEADER)
        if spoken is None:
            raise SandboxUnavailable(
                f"at {self._address.url} there is something else than a runner; is sandbox.runner_url right?"
            )
        if spoken != str(PROTOCOL):
            raise SandboxUnavailable(
                f"the runner at {self._address.url} speaks protocol {clean_text(spoken, 10)} and this Hermod "
                f"{PROTOCOL}: run both at one version (the image of the runner is the one of Hermod)"
            )

    # -- what is asked -----------------------------------------------------------------------------

    @asynccontextmanager
    async def _ask(
        self, method: str, path: str, *, sending: Sending | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._closed:
            raise SandboxUnavailable("the sandbox has been closed; nothing was run")
        if self._http is None:
            # No connection is used twice: one that the other side has closed meanwhile would lose a run.
            connector = aiohttp.TCPConnector(force_close=True, limit=0, resolver=PrivateResolver.choose(self._address))
            self._http = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._patience.connect_s),
                skip_auto_headers=("User-Agent", "Accept-Encoding"),
            )
        headers = dict(self._headers)
        if sending is not None:
            headers |= {"Content-Type": MEDIA_TYPE, "Content-Length": str(sending.size_bytes)}
        async with self._http.request(
            method,
            f"{self._address.url}{path}",
            headers=headers,
            data=None if sending is None else sending.send(),
            expect100=sending is not None,
            allow_redirects=False,
        ) as answer:
            yield answer

    async def _fetch_probe(self) -> ProbeAnswer:
        try:
            async with asyncio.timeout(self._patience.probe_s), self._ask("GET", PROBE_PATH) as answer:
                content = await _read_small(answer)
                if answer.status != 200:
                    raise SandboxUnavailable(read_refusal(answer.status, answer.headers, content, self._address).text)
                self._check_protocol(answer)
                return parse_json(content, ProbeAnswer)
        except (aiohttp.ClientError, BadMessage, ConnectionError, TimeoutError) as error:
            raise SandboxUnavailable(explain(error, self._address)) from error

    async def _exchange(self, run: SandboxRun, sending: Sending) -> SandboxOutcome:
        async with self._ask("POST", RUNS_PATH, sending=sending) as answer:
            if answer.status != 200:
                said = read_refusal(answer.status, answer.headers, await _read_small(answer), self._address)
                if said.not_run or not sending.complete:
                    raise SandboxUnavailable(f"{said.text}; nothing was run")
                raise BadMessage(said.text)
            if answer.content_type != MEDIA_TYPE:
                raise BadMessage("it is of another kind; is sandbox.runner_url right?")
            head = await read_head(answer.content, AnswerHead, idle_s=self._patience.idle_s)
            sending.check(head)
            texts = [
                await read_exactly(answer.content, size, idle_s=self._patience.idle_s)
                for size in (head.stdout_bytes, head.stderr_bytes)
            ]
            await self._fetch_files(answer, head, run.folder)
        state: SessionState = "fresh"
        if run.session:
            state = "lost" if head.state == "fresh" and self._sessions.was_there(run.session) else head.state
            await self._sessions.know(run.session)
        return _build_outcome(head, texts, state)

    async def _fetch_files(self, answer: aiohttp.ClientResponse, head: AnswerHead, folder: Path) -> None:
        landing = Landing(folder)
        try:
            await uninterrupted(landing.open)
            for part in head.files:
                await uninterrupted(landing.begin, part)
                async for chunk in read_part(answer.content, part.size, idle_s=self._patience.idle_s):
                    await uninterrupted(landing.write, chunk)
                await uninterrupted(landing.end)
            await read_end(answer.content, idle_s=self._patience.idle_s)
            await uninterrupted(landing.commit)
            await uninterrupted(landing.remove, head.gone)
        finally:
            await uninterrupted(landing.close)


async def _read_small(answer: aiohttp.ClientResponse) -> bytes:
    """Read an answer that is not expected to be long; what is beyond is not read."""
    content = bytearray()
    while len(content) < _SMALL_BYTES and (chunk := await answer.content.read(_SMALL_BYTES - len(content))):
        content += chunk
    return bytes(content)


def _build_outcome(head: AnswerHead, texts: Sequence[bytes], state: SessionState) -> SandboxOutcome:
    stdout, stderr = (text.decode("utf-8", "replace") for text in texts)
    detail = [clean_text(head.detail, DETAIL_CHARS)]
    if head.left:
        detail.append(
            f"Of output/ {head.left:,} {'entry was' if head.left == 1 else 'entries were'} not handed back: only plain "
            "files directly in it are, and only as many as the limits allow."
        )
    return SandboxOutcome(
        status=head.status,
        stdout=stdout,
        stderr=stderr,
        stdout_cut=head.stdout_cut,
        stderr_cut=head.stderr_cut,
        exit_code=head.exit_code,
        duration_s=head.duration_s,
        cpu_s=head.cpu_s,
        peak_memory_bytes=head.peak_memory_bytes,
        state=state,
        detail=" ".join(part for part in detail if part),
    )


def _build_unknown(reason: str) -> SandboxOutcome:
    return SandboxOutcome(
        status=RunStatus.CRASHED,
        exit_code=-9,
        detail=(
            f"Its result is lost: {reason}. Whether the program came to its end is not known; it was not run again, "
            "and nothing that it made was kept."
        ),
    )
