"""One exchange on a runner: a request is taken apart into a run's folder, and a run's folder is put into an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from bot.tools.python_sandbox.runner_files import Landing, News, find_news, read_file, uninterrupted
from bot.tools.python_sandbox.runner_wire import (
    DETAIL_CHARS,
    MEDIA_TYPE,
    PROTOCOL,
    PROTOCOL_HEADER,
    TEXT_FACTOR,
    AnswerHead,
    Reads,
    RunHead,
    build_frame,
    clean_text,
    count_seconds,
    read_end,
    read_part,
)
from bot.tools.python_sandbox.types import SandboxLimits, SandboxOutcome

_CODES = range(-255, 256)


async def receive_files(reader: Reads, head: RunHead, folder: Path, *, idle_s: float) -> Mapping[str, str]:
    """Write the files of a request into a run's folder, and return the digests of those in ``output/``.

    Raises:
        BadMessage: the request is not as its head says; no file has got its name.
        TimeoutError: the sender was silent for too long.
        OSError: the disk is full.
    """
    landing = Landing(folder)
    try:
        await uninterrupted(landing.open)
        for part in head.files:
            await uninterrupted(landing.begin, part)
            async for chunk in read_part(reader, part.size, idle_s=idle_s):
                await uninterrupted(landing.write, chunk)
            await uninterrupted(landing.end)
        await read_end(reader, idle_s=idle_s)
        return await uninterrupted(landing.commit)
    finally:
        await uninterrupted(landing.close)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run that has ended.

    Args:
        head: what was asked for.
        outcome: how it ended.
        limits: that it had.
        folder: where it ran.
        known: digests of the files that ``output/`` had before.
    """

    head: RunHead
    outcome: SandboxOutcome
    limits: SandboxLimits
    folder: Path
    known: Mapping[str, str]


async def send_answer(request: web.BaseRequest, ended: Ended, *, answer_s: float) -> web.StreamResponse:
    """Send how a run ended, its output and its files.

    Raises:
        TimeoutError: the client does not read.
        OSError: a file is another one by now; the answer breaks off, which the client sees.
    """
    news = await asyncio.to_thread(_find_news, ended)
    most = TEXT_FACTOR * ended.limits.output_bytes
    texts = [text.encode("utf-8", "replace")[:most] for text in (ended.outcome.stdout, ended.outcome.stderr)]
    frame = build_frame(_build_head(ended, news, texts))
    response = web.StreamResponse(
        headers={"Content-Type": MEDIA_TYPE, PROTOCOL_HEADER: str(PROTOCOL), "Server": "hermod"}
    )
    response.content_length = sum(map(len, (frame, *texts))) + sum(file.part.size for file in news.files)
    response.force_close()
    async with asyncio.timeout(answer_s):
        await response.prepare(request)
        for content in (frame, *texts):
            await response.write(content)
        for file in news.files:
            chunks = read_file(ended.folder, file)
            while chunk := await asyncio.to_thread(next, chunks, b""):
                await response.write(chunk)
        await response.write_eof()
    return response


def _find_news(ended: Ended) -> News:
    sent = [part for part in ended.head.files if part.place == "output"]
    return find_news(
        ended.folder,
        ended.known,
        most_files=ended.limits.scratch_files + len(sent),
        most_bytes=ended.limits.scratch_bytes + sum(part.size for part in sent),
    )


def _build_head(ended: Ended, news: News, texts: list[bytes]) -> AnswerHead:
    outcome = ended.outcome
    return AnswerHead(
        run=ended.head.run,
        status=outcome.status,
        stdout_bytes=len(texts[0]),
        stderr_bytes=len(texts[1]),
        stdout_cut=outcome.stdout_cut,
        stderr_cut=outcome.stderr_cut,
        exit_code=outcome.exit_code if outcome.exit_code in _CODES else 255,
        duration_s=count_seconds(outcome.duration_s),
        cpu_s=count_seconds(outcome.cpu_s),
        peak_memory_bytes=max(0, outcome.peak_memory_bytes),
        state=outcome.state,
        detail=clean_text(outcome.detail, DETAIL_CHARS),
        files=tuple(file.part for file in news.files),
        gone=news.gone,
        left=news.left,
    )
