"""What some platforms can tell of their channels and people, before something is promised for later."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar, runtime_checkable

from adapters.chat import Author, ThreadRef

GLANCE_S = 60.0
"""How long something that was well is taken to be so still."""

MOST_GLANCES = 1_000

_Look = TypeVar("_Look")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLook:
    """What is known of a channel.

    Args:
        state: ``open``: Hermod can post there, with files and threads; ``closed``: it lacks a right or is not a member;
            ``gone``: deleted, archived, or never there as far as it can see; ``unknown``: the platform did not tell.
        name: for people, such as ``#ops``; empty when it is not known.
        what, fix: what is wrong, and how to mend it; empty while it is open.
    """

    state: Literal["open", "closed", "gone", "unknown"]
    name: str = ""
    what: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonLook:
    """What is known of a person. ``gone``: left, or was deactivated. ``author`` is set where the state is ``here``."""

    state: Literal["here", "gone", "unknown"]
    author: Author | None = None


@runtime_checkable
class HasPlaces(Protocol):
    """An adapter that can look. Nothing here raises; both calls are bounded in time."""

    async def look_at_channel(self, workspace: str, channel: str) -> ChannelLook:
        """Tell whether Hermod can post in a channel."""
        ...

    async def look_at_person(self, workspace: str, user: str) -> PersonLook:
        """Tell whether a person is still there, and what they are."""
        ...

    def thread_below(self, thread: ThreadRef, remote_id: str) -> ThreadRef:
        """Return the thread below a post that stands in the channel itself (``thread`` is where it was posted to)."""
        ...


class Glance(Generic[_Look]):
    """What was seen a moment ago, so that many reports of one minute ask a platform once.

    Only what was well belongs here: what is wrong may have been mended since.

    Args:
        monotonic: the clock, seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: OrderedDict[tuple[str, str], tuple[_Look, float]] = OrderedDict()

    def find(self, workspace: str, name: str) -> _Look | None:
        """Return what was seen within ``GLANCE_S``; None where that is nothing."""
        look, until = self._seen.get((workspace, name), (None, 0.0))
        return look if self._monotonic() < until else None

    def keep(self, workspace: str, name: str, look: _Look) -> None:
        """Keep what was seen; the oldest of too many is forgotten."""
        self._seen[workspace, name] = (look, self._monotonic() + GLANCE_S)
        self._seen.move_to_end((workspace, name))
        while len(self._seen) > MOST_GLANCES:
            self._seen.popitem(last=False)
