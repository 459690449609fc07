"""How soon people on Slack see a sign of work, and how far what they see of an answer lags behind the model.

The sign: milliseconds from the moment a mention is written until ``assistant.threads.setStatus`` is called, of
``hermod run`` beside a bare bolt app that does nothing else. Both are processes of their own, each on a local workspace
of the same kind in this process; they take turns, and what counts is the difference within a pair.

The lag: twenty threads are answered at once with 10,000 characters each, which the model sends at 200 tokens (of four
characters) a second; every word has a number, so it can be seen which words have arrived. At every moment the lag is
the age of the oldest word that the model has sent and nobody can see yet. Slack takes 20 streams, 100 additions and 50
edits a minute from an app in a workspace: the rates are kept to (the table says so), and bound what is possible.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from benchmarks.table import Row
from tests.acceptance.process import HermodProcess
from tests.servers.openai import OpenAIServer
from tests.servers.slack import SlackServer

PAIRS, QUICK_PAIRS = 30, 8
WARM_UP = 3
SIGN_BOUND_MS = 50.0

THREADS = 20
CHARS = 10_000
CHARS_A_S = 200 * 4
NATIVE_BOUND_S, EDITS_BOUND_S = 3.0, 5.0
LOOK_S = 0.02
PATIENCE_S = 90.0

_WORD = re.compile(r"w(\d{6})")


def measure(*, quick: bool) -> list[Row]:
    """Measure both; the rows of the table. Quick: fewer pairs, and no streams."""
    rows = asyncio.run(_measure_sign(QUICK_PAIRS if quick else PAIRS))
    if not quick:
        rows += asyncio.run(_measure_lag(native=True))
        rows += asyncio.run(_measure_lag(native=False))
    return rows


# -- the first sign --------------------------------------------------------------------------------------------------


async def _measure_sign(pairs: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        async with SlackServer() as ours, SlackServer() as bare, OpenAIServer() as model:
            model.on().text("fine")
            hermod = HermodProcess(Path(folder), slack_url=ours.base_url, model_url=model.base_url)
            await hermod.start()
            command = [sys.executable, "-m", "benchmarks.slack_latency", bare.base_url, bare.bot_token, bare.app_token]
            echo = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220 - returns at once
            try:
                await asyncio.gather(ours.wait_connected(30), bare.wait_connected(30))
                waits = [(await _see_sign(bare), await _see_sign(ours)) for _ in range(WARM_UP + pairs)][WARM_UP:]
            finally:
                echo.terminate()
                await asyncio.to_thread(echo.wait, 10)
                await hermod.stop()
    added = sorted(ours_s - bare_s for bare_s, ours_s in waits)
    what = "mention to first sign (status)"
    median = statistics.median(added) * 1000
    return [
        Row(cell=what, who="bare bolt echo", value=f"{statistics.median(b for b, _ in waits) * 1000:.1f} ms"),
        Row(
            cell=what,
            who="hermod",
            value=f"{statistics.median(o for _, o in waits) * 1000:.1f} ms",
            ratio=f"{median:+.1f} ms [{added[0] * 1000:+.1f}, {added[-1] * 1000:+.1f}]",
            bound=f"<= +{SIGN_BOUND_MS:.0f} ms",
            holds=median <= SIGN_BOUND_MS,
        ),
    ]


async def _see_sign(slack: SlackServer) -> float:
    """Mention the app in a new thread; seconds until the status, once the answer is there too."""
    slack.statuses.clear()
    begun = slack.clock.now()
    root = await slack.mention("how are you?", channel="C1OPS")
    status = await slack.wait_until(lambda: next((s for s in slack.statuses if s["thread_ts"] == root), None), 20)
    await slack.wait_until(lambda: slack.bot_messages("C1OPS", root), 20)
    # a second a channel is all that a workspace takes, and the end of a run is not part of the next one's beginning
    await asyncio.sleep(1.05)
    return float(status["at"]) - begun


def run_echo(base_url: str, bot_token: str, app_token: str) -> None:
    """The bare app: a status and an echo for every mention."""
    from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
    from slack_bolt.async_app import AsyncApp
    from slack_sdk.web.async_client import AsyncWebClient

    async def serve() -> None:
        app = AsyncApp(client=AsyncWebClient(token=bot_token, base_url=base_url))

        @app.event("app_mention")
        async def echo(event: dict[str, str], client: AsyncWebClient) -> None:
            root = event.get("thread_ts") or event["ts"]
            await client.assistant_threads_setStatus(channel_id=event["channel"], thread_ts=root, status="is thinking…")
            await client.chat_postMessage(channel=event["channel"], thread_ts=root, text=event["text"])

        @app.event("message")
        async def ignore() -> None: ...

        handler = AsyncSocketModeHandler(app, app_token, web_client=AsyncWebClient(base_url=base_url))
        await handler.start_async()  # type: ignore[no-untyped-call]

    asyncio.run(serve())


# -- the lag of what is shown ----------------------------------------------------------------------------------------


@dataclass
class _Answer:
    """What the model has sent in one thread: when its words left, by their number."""

    sent_at: list[float] = field(default_factory=list)
    worst_s: float = 0.0

    def look(self, seen: int, now: float) -> None:
        """Note the lag, when the first ``seen`` words are visible."""
        if seen < len(self.sent_at):
            self.worst_s = max(self.worst_s, now - self.sent_at[seen])


WORDS = [f"w{n:06d}" for n in range(CHARS // 8)]


class _PacedModel:
    """A model that sends a word of eight characters each hundredth of a second, and remembers when."""

    def __init__(self) -> None:
        self.answers: dict[int, _Answer] = {}
        self.base_url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        asked = json.dumps((await request.json())["messages"])
        mine = self.answers[int(re.findall(r"thread ([0-9]+)", asked)[-1])]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        begun = time.monotonic()
        for n, word in enumerate(WORDS):
            await asyncio.sleep(max(0.0, begun + n * 8 / CHARS_A_S - time.monotonic()))
            mine.sent_at.append(time.monotonic())
            await response.write(_event({"content": f"{word} "}))
        await response.write(_event({}, "stop") + b"data: [DONE]\n\n")
        return response


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "fake-large", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@asynccontextmanager
async def _open_model() -> AsyncIterator[_PacedModel]:
    model = _PacedModel()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", model.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    model.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield model
    await runner.cleanup()


async def _measure_lag(*, native: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        async with SlackServer() as slack, _open_model() as model:
            if not native:
                slack.inject("chat.startStream", error="unknown_method", times=10**6)
            hermod = HermodProcess(Path(folder), slack_url=slack.base_url, model_url=model.base_url)
            await hermod.start()
            try:
                await slack.wait_connected(30)
                roots = await _ask_all(slack, model)
                whole = await _watch(slack, model, roots)
            finally:
                await hermod.stop()
    worst = sorted(answer.worst_s for answer in model.answers.values())
    bound = NATIVE_BOUND_S if native else EDITS_BOUND_S
    broken = slack.rate_violations
    shown = "native streams" if native else "edits"
    calls = ", ".join(f"{len(slack.calls_to(m))} {m.removeprefix('chat.')}" for m in _DRAFT_CALLS)
    what = f"{THREADS} answers of {CHARS:,} characters at 200 tokens/s"
    return [
        Row(
            cell=what,
            who=f"{shown}: visible lag",
            value=f"{worst[-1]:.1f} s at most",
            ratio=f"median {statistics.median(worst):.1f} s [{worst[0]:.1f}-{worst[-1]:.1f}]",
            bound=f"<= {bound:.0f} s",
            holds=worst[-1] <= bound,
        ),
        Row(
            cell=what,
            who=f"{shown}: final text equal",
            value=f"{whole} of {THREADS}",
            bound="all",
            holds=whole == THREADS,
        ),
        Row(
            cell=what,
            who=f"{shown}: above a published rate",
            value=f"{len(broken)} methods",
            ratio=calls,
            bound="none",
            holds=not broken,
        ),
    ]


_DRAFT_CALLS = ("chat.startStream", "chat.appendStream", "chat.stopStream", "chat.update", "chat.postMessage")


async def _ask_all(slack: SlackServer, model: _PacedModel) -> dict[int, tuple[str, str]]:
    """Ask in every thread at once; their channels and roots by number."""
    roots = {}
    for number in range(THREADS):
        slack.add_channel(channel := f"C{number:03}LAG", f"lag-{number}")
        model.answers[number] = _Answer()
        roots[number] = channel, await slack.mention(f"write at length in thread {number}", channel=channel)
    return roots


async def _watch(slack: SlackServer, model: _PacedModel, roots: dict[int, tuple[str, str]]) -> int:
    """Look at every thread until all is visible; the number of threads whose words are exactly the model's."""
    deadline = time.monotonic() + PATIENCE_S
    seen = dict.fromkeys(roots, 0)
    while min(seen.values()) < len(WORDS) and time.monotonic() < deadline:
        for number, (channel, root) in roots.items():
            seen[number] = _visible(slack, channel, root)
            model.answers[number].look(seen[number], time.monotonic())
        await asyncio.sleep(LOOK_S)
    await asyncio.sleep(2)  # whatever is posted twice comes now
    return sum(_words(slack, *place) == WORDS for place in roots.values())


def _visible(slack: SlackServer, channel: str, root: str) -> int:
    """How many words, from the first one on, can be read without a gap, or how far a draft that shows its end is."""
    found = [int(number) for number in _WORD.findall(_read(slack, channel, root))]
    return max(found, default=-1) + 1


def _words(slack: SlackServer, channel: str, root: str) -> Sequence[str]:
    return [f"w{number}" for number in _WORD.findall(_read(slack, channel, root))]


def _read(slack: SlackServer, channel: str, root: str) -> str:
    parts = []
    for message in slack.bot_messages(channel, root):
        parts.append(str(message["text"]))
        parts += [slack.blobs[info["id"]].decode() for info in message.get("files", [])]
    return "\n".join(parts)


if __name__ == "__main__":
    run_echo(*sys.argv[1:4])
