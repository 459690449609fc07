"""One page of the web as text: what kinds are read, by whom, and how much of it an answer holds."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import sys
from dataclasses import dataclass

from agent_core.errors import ToolFailed
from bot.tools.research.extract import CPU_S
from bot.tools.research.text import clean_line, clean_lines, decode
from bot.tools.research.web import Fetched

WALL_S = CPU_S + 5.0
"""For the process that reads one page, in seconds."""

HTML = frozenset({"text/html", "application/xhtml+xml"})
TEXTS = frozenset({"text/plain", "text/markdown", "text/x-markdown", "text/x-rst", "application/json", "text/json"})
UNNAMED = frozenset({"application/octet-stream", ""})
"""What stands in the place of a kind where the server does not tell one."""

TITLE_CHARS, AUTHOR_CHARS, DATE_CHARS = 300, 200, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What was read; ``text`` is all of it. ``title``, ``author`` and ``published`` are empty where it has none."""

    text: str
    title: str = ""
    author: str = ""
    published: str = ""


async def read_fetched(fetched: Fetched, *, wall_s: float = WALL_S) -> Page:
    """Read what was fetched.

    Args:
        fetched: what came.
        wall_s: for the process that reads HTML, in seconds; it is killed then.

    Raises:
        ToolFailed: ``unsupported_kind``, ``no_text``, ``missing_extra``, ``page_too_complex``.
    """
    kind = fetched.kind.lower()
    start = fetched.body[:1_024].lstrip().lower()
    if kind in UNNAMED and (start.startswith((b"<!doctype html", b"<html"))):
        kind = "text/html"
    if (kind not in HTML and kind not in TEXTS and not kind.endswith("+json")) or start.startswith(b"%pdf-"):
        named = "a PDF file" if "pdf" in kind or start.startswith(b"%pdf-") else f"of the kind {clean_line(kind, 80)!r}"
        raise ToolFailed(
            f"what is at this address is {named}, and only web pages and plain texts are read",
            code="unsupported_kind",
            fix="look for a page in HTML with the same content, such as the abstract of a paper",
        )
    if b"\0" in fetched.body[:4_096] and not fetched.body.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ToolFailed(
            "what is at this address is no text, whatever its server says",
            code="unsupported_kind",
            fix="try another page",
        )
    # in a thread: a million lines take a second, in which nobody else would be served
    text = await asyncio.to_thread(decode, fetched.body, fetched.charset, cut=fetched.cut)
    if kind in HTML:
        page = await _extract(text, fetched.url, wall_s)
    else:
        page = Page(text=await asyncio.to_thread(clean_lines, text))
    if not page.text.strip():
        raise ToolFailed(
            "there is no text on this page; perhaps a program in it fetches the text, and no programs are run",
            code="no_text",
            fix="try another page, or one of this site that is not made by JavaScript",
        )
    return page


async def _extract(page: str, url: str, wall_s: float) -> Page:
    """Have the main text of a page found, by a process that may be killed at any time."""
    if importlib.util.find_spec("trafilatura") is None:
        raise ToolFailed(
            "the library that finds the text of a page is not installed",
            code="missing_extra",
            fix="pip install 'hermod-bot[research]', then start again",
        )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "bot.tools.research.extract",
        url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LC_ALL": "C.UTF-8"},
        start_new_session=True,  # Ctrl-C goes to us; we end it
    )
    try:
        async with asyncio.timeout(wall_s):
            out, _ = await process.communicate(page.encode("utf-8", "replace"))
    except TimeoutError:
        raise _too_complex() from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
    if process.returncode:
        raise _too_complex()
    return await asyncio.to_thread(_read_found, out)


def _read_found(out: bytes) -> Page:
    found = json.loads(out)
    return Page(
        text=clean_lines(found["text"]),
        title=clean_line(found["title"], TITLE_CHARS),
        author=clean_line(found["author"], AUTHOR_CHARS),
        published=clean_line(found["published"], DATE_CHARS),
    )


def _too_complex() -> ToolFailed:
    return ToolFailed(
        "to read this page took more time or memory than a page may take",
        code="page_too_complex",
        fix="try another page",
    )
