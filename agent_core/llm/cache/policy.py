"""When an answer may be served again, and to whom: the rules over the two tiers and their backends."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from agent_core.context import Clock, SystemClock
from agent_core.errors import AgentError
from agent_core.llm.cache.gate import is_momentary, normalise, same_question

logger = logging.getLogger("agent_core.cache")
MAX_QUESTION_CHARS, CANDIDATES, VECTORS, REST_S = 4000, 16, 64, 30.0
Embed = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheQuestion:
    """The newest question's ``text`` (redacted) and all that shapes its answer.

    ``scope`` says who may share answers (channel and roles); empty: nobody, nothing is kept. ``context`` is a digest of
    the rest: models, parameters, instructions, earlier history, tools and their times to live. ``origin`` names the
    thread, for ``forget``; it is no part of the key.
    """

    scope: str
    text: str
    context: str
    origin: str = ""

    @property
    def key(self) -> str:
        """Name of its entry: equal in every process, and nothing can be read from it."""
        return _digest(self.scope, self.context, normalise(self.text))

    @property
    def partition(self) -> str:
        """Name of the questions that it may be compared with."""
        return _digest(self.scope, self.context)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheHit:
    """An answer from the cache; ``score`` is the cosine similarity (1 is equal), None in the exact tier."""

    answer: str
    tier: Literal["exact", "semantic"]
    age_s: float
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a tier keeps; instants in seconds since 1970, so that processes agree on them. ``origin`` is a digest."""

    question: str
    answer: str
    kept_at: float
    expires_at: float
    origin: str = ""


Scored = Sequence[tuple[float, Entry]]


class ExactTier(Protocol):
    """Entries by key; expired ones may come back. Raises ``ConnectionError`` when the backend does not serve."""

    async def get(self, key: str) -> Entry | None:
        """Return the entry, or None."""

    async def put(self, key: str, entry: Entry, ttl_s: float) -> None:
        """Keep the entry for ``ttl_s`` seconds, in place of one of the same key."""

    async def count(self, origin: str) -> int:
        """Return how many entries have this origin."""

    async def drop(self, origin: str) -> int:
        """Drop every entry with this origin, and return how many those were."""

    async def aclose(self) -> None:
        """Release what is held."""


class SemanticTier(Protocol):
    """Entries by vector, inside partitions. Raises ``ConnectionError`` when the backend does not serve."""

    async def search(self, partition: str, vector: Sequence[float], now: float, limit: int) -> Scored:
        """Return at most ``limit`` entries of this partition that live at ``now``, the most similar first.

        The number is the cosine similarity: 1 the same direction, 0 unrelated; not a distance (1 - similarity).
        """

    async def put(self, key: str, partition: str, vector: Sequence[float], entry: Entry) -> None:
        """Keep the entry, in place of one of the same key."""

    async def count(self, origin: str) -> int:
        """Return how many entries have this origin."""

    async def drop(self, origin: str) -> int:
        """Drop every entry with this origin, and return how many those were."""

    async def aclose(self) -> None:
        """Release what is held."""


@dataclass(kw_only=True)
class AnswerCache:
    """Final answers by question: an exact tier, and behind it a semantic one with a gate. Safe to call concurrently.

    Nothing here ends a run: a backend or embedding provider that fails, or takes longer than ``wait_s`` real seconds,
    is a miss; it is logged once and left alone for half a minute. Questions about the moment or the asker's own affairs
    (``is_momentary``), and those over 4,000 characters, are neither kept nor served.

    Args:
        exact, semantic: the tiers; None switches one off. The semantic one needs ``embed`` (one vector a text).
        ttl_s: seconds that an answer lives at most.
        threshold: cosine similarity that a semantic hit must exceed.
    """

    exact: ExactTier | None
    semantic: SemanticTier | None = None
    embed: Embed | None = None
    ttl_s: float = 3600.0
    threshold: float = 0.92
    clock: Clock = field(default_factory=SystemClock)
    wait_s: float = 0.5
    _rests_until: dict[str, float] = field(default_factory=dict, init=False)
    _vectors: dict[str, Sequence[float]] = field(default_factory=dict, init=False)

    async def prepare(self, wait_s: float = 30.0) -> None:
        """Open the semantic tier before the first question, since imports and collections take long. Optional."""
        if self.semantic is not None and (vector := await self._vector("ready", wait_s)) is not None:
            await self._try("semantic tier", wait_s, self.semantic.search, "", vector, 0.0, 1)

    async def find(self, question: CacheQuestion) -> CacheHit | None:
        """Return a kept answer to this question from the same scope and context, or None."""
        if not _may_share(question):
            return None
        now = self.clock.now().timestamp()
        if self.exact is not None:
            entry = await self._try("exact tier", self.wait_s, self.exact.get, question.key)
            if entry is not None and entry.expires_at > now:
                return CacheHit(answer=entry.answer, tier="exact", age_s=now - entry.kept_at)
        if self.semantic is None or (vector := await self._vector(question.text, self.wait_s)) is None:
            return None
        place = (question.partition, vector, now, CANDIDATES)
        for score, entry in await self._try("semantic tier", self.wait_s, self.semantic.search, *place) or ():
            if score > self.threshold and entry.expires_at > now and same_question(question.text, entry.question):
                await self._put_exact(question.key, entry, entry.expires_at - now)
                return CacheHit(answer=entry.answer, tier="semantic", age_s=now - entry.kept_at, score=score)
        return None

    async def keep(self, question: CacheQuestion, answer: str, *, ttl_s: float | None = None) -> None:
        """Keep an answer for the lower of the cache's time to live and ``ttl_s`` seconds; 0 or less: not at all."""
        lives_s = self.ttl_s if ttl_s is None else min(ttl_s, self.ttl_s)
        if not (lives_s > 0 and answer.strip() and _may_share(question)):
            return
        now = self.clock.now().timestamp()
        origin = _digest(question.origin) if question.origin else ""
        entry = Entry(question=question.text, answer=answer, kept_at=now, expires_at=now + lives_s, origin=origin)
        await self._put_exact(question.key, entry, lives_s)
        if self.semantic is not None and (vector := await self._vector(question.text, self.wait_s)) is not None:
            place = (question.key, question.partition, vector, entry)
            await self._try("semantic tier", self.wait_s, self.semantic.put, *place)

    async def count(self, origin: str) -> int:
        """Return how many answers are kept from one thread; both tiers hold the same ones, so the fuller counts."""
        counts = [await self._try(part, self.wait_s, tier.count, _digest(origin)) or 0 for part, tier in self._tiers()]
        return max(counts, default=0)

    async def forget(self, origin: str, *, wait_s: float = 5.0) -> int:
        """Drop what was kept from one thread; a backend that fails keeps it until it expires.

        Returns:
            How many answers those were, as ``count`` counts.
        """
        counts = [await self._try(part, wait_s, tier.drop, _digest(origin)) or 0 for part, tier in self._tiers()]
        return max(counts, default=0)

    def _tiers(self) -> list[tuple[str, ExactTier | SemanticTier]]:
        tiers = (("exact tier", self.exact), ("semantic tier", self.semantic))
        return [(part, tier) for part, tier in tiers if tier is not None]

    async def aclose(self) -> None:
        """Close both tiers."""
        for tier in (self.exact, self.semantic):
            if tier is not None:
                await tier.aclose()

    async def _put_exact(self, key: str, entry: Entry, ttl_s: float) -> None:
        if self.exact is not None:
            await self._try("exact tier", self.wait_s, self.exact.put, key, entry, ttl_s)

    async def _vector(self, text: str, wait_s: float) -> Sequence[float] | None:
        """The text's vector; the last few are remembered, since ``keep`` mostly follows a ``find``."""
        if text not in self._vectors and self.embed is not None:
            for vector in (await self._try("embedding", wait_s, self.embed, [text]) or ())[:1]:
                self._vectors[text] = vector
            while len(self._vectors) > VECTORS:
                del self._vectors[next(iter(self._vectors))]
        return self._vectors.get(text)

    async def _try(self, part: str, wait_s: float, call: Callable[..., Awaitable[T]], *args: object) -> T | None:
        """Return what the backend says: None when it fails, is too slow, or did so a moment ago."""
        if self.clock.monotonic() < self._rests_until.get(part, 0.0):
            return None
        try:
            async with asyncio.timeout(wait_s):
                result = await call(*args)
        except (AgentError, OSError, ValueError) as e:
            if part not in self._rests_until:
                logger.warning("the cache's %s failed and is left out: %s", part, str(e) or type(e).__name__)
            self._rests_until[part] = self.clock.monotonic() + REST_S
            return None
        self._rests_until.pop(part, None)
        return result


def _may_share(question: CacheQuestion) -> bool:
    return bool(question.scope) and len(question.text) <= MAX_QUESTION_CHARS and not is_momentary(question.text)


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(["hermod-cache-1", *parts]).encode()).hexdigest()
