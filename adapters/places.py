"""What some platforms can tell of their channels and people, before something is promised for later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from adapters.chat import Author, ThreadRef


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
