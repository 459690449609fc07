"""What a platform can show of Hermod beside its threads: a page of its own, and suggestions for a first question.

Platform-neutral values; an adapter that has such places draws them, ``bot.home`` fills them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from adapters.chat import Opened, ThreadRef


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeLine:
    """One line of a page. ``text`` is canonical Markdown; ``thread`` makes it lead there."""

    text: str
    thread: ThreadRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeSection:
    """A part of a page."""

    title: str
    lines: tuple[HomeLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HomePage:
    """The page of one person."""

    title: str
    sections: tuple[HomeSection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A first question that can be asked with one click: ``title`` is shown, ``message`` is sent."""

    title: str
    message: str


class Surfaces(Protocol):
    """Fills the places. Both may be called concurrently, and answer within a second or so."""

    async def build_home(self, opened: Opened) -> HomePage:
        """Build the page of the person who opened it: nothing that this person may not see."""
        ...

    async def suggest(self, opened: Opened) -> tuple[Suggestion, ...]:
        """Return at most four questions that this person may ask; empty when that is none."""
        ...


@runtime_checkable
class HasSurfaces(Protocol):
    """An adapter with such places."""

    def show_surfaces(self, surfaces: Surfaces) -> None:
        """Draw what ``surfaces`` gives, from now on."""
        ...
