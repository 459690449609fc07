"""What is seen of an answer while it is written: the steps of its plan, and the end of its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapters.chat import PlanStep
from adapters.discord.escape import escape
from adapters.discord.render import CONTENT_MAX, content_size, render_markdown
from adapters.markdown.grapheme import cut_before
from adapters.markdown.growing import open_fence, open_table

PLAN_LINES = 4
TITLE_MAX = 100

LEFT_OUT = "-# … the beginning is left out here; the whole answer follows when it is written"
"""Stands above a text that is longer than a message; its end is shown."""

KEPT = 700
"""Characters that stay when the text has grown over the end of the message: room for what comes, and no sudden jump."""

_SIGNS: Mapping[str, str] = {"pending": "○", "running": "…", "done": "✓", "failed": "✗"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Which part of a growing text is shown: from ``start`` on, as ``content`` in Discord's Markdown."""

    text: str = ""
    start: int = 0
    content: str = ""


def turn_page(page: Page, text: str, room: int) -> Page:
    """Return the page that shows the end of ``text`` in ``room`` UTF-16 units.

    It begins where ``page`` began, so that what is read does not move, until that does not fit any more.
    """
    start = page.start if text.startswith(page.text[: page.start]) else 0
    shown = _render(text, start)
    kept = KEPT
    while content_size(shown) > room:
        start = _line_near(text, max(start + 1, len(text) - kept))
        shown = _render(text, start)
        kept //= 2
        if not kept and content_size(shown) > room:
            return Page(text=text, start=start, content=LEFT_OUT)
    return Page(text=text, start=start, content=shown)


def plan_lines(plan: Sequence[PlanStep]) -> list[str]:
    """Write the newest steps of a plan as small print."""
    lines = [f"-# … {len(plan) - PLAN_LINES} steps before"] if len(plan) > PLAN_LINES else []
    for step in plan[-PLAN_LINES:]:
        detail = f" ({_short(step.detail)})" if step.detail else ""
        lines.append(f"-# {_SIGNS[step.state]} {_short(step.title)}{detail}")
    return lines


def _short(text: str) -> str:
    text = " ".join(text.split())
    return escape(text if len(text) <= TITLE_MAX else text[: cut_before(text, TITLE_MAX - 1)] + "…")


def _render(text: str, start: int) -> str:
    if len(text) - start > 2 * CONTENT_MAX:  # hardly ever fits, and may take long to be rendered
        return text[start:]
    if not start:
        return render_markdown(text).content
    head = open_fence(text[:start]) or open_table(text[:start], text[start:])
    rest = text[start:].strip("\n")
    content = render_markdown(f"{head}\n{rest}" if head else rest).content
    return f"{LEFT_OUT}\n{content}" if content else ""


def _line_near(text: str, at: int) -> int:
    """A line's end, else a blank, near ``at``, else a place between two graphemes."""
    for mark in ("\n", " "):
        found = text.find(mark, at, at + KEPT // 2)
        if found > 0:
            return found
    return cut_before(text, min(at, len(text)))
