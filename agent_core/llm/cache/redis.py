"""The exact tier in Redis or Valkey, shared by processes. Extra ``cache``."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

from agent_core.llm.cache.policy import Entry


class RedisExact:
    """Entries as JSON under ``hermod:answer:<sha256>``, which the server lets expire; connects when first needed.

    Args:
        url: ``redis://[user:password@]host:port/db``, ``rediss://`` or ``unix://``.
    """

    def __init__(self, url: str) -> None:
        from redis.asyncio import Redis
        from redis.exceptions import RedisError

        self._client, self._error = Redis.from_url(url, decode_responses=True), RedisError

    async def get(self, key: str) -> Entry | None:
        """Return the entry, or None."""
        try:
            text = await self._client.get(f"hermod:answer:{key}")
            return None if text is None else Entry(**json.loads(text))
        except (self._error, TypeError) as e:  # TypeError: not an entry of ours
            raise ConnectionError(f"Redis: {type(e).__name__}") from e

    async def put(self, key: str, entry: Entry, ttl_s: float) -> None:
        """Keep the entry for ``ttl_s`` seconds of the server's clock."""
        name, origin, lives_ms = f"hermod:answer:{key}", f"hermod:origin:{entry.origin}", math.ceil(ttl_s * 1000)
        try:
            async with self._client.pipeline() as pipe:
                pipe.set(name, json.dumps(asdict(entry)), px=lives_ms)
                if entry.origin:
                    pipe.sadd(origin, name)
                    pipe.pexpire(origin, lives_ms, nx=True)
                    pipe.pexpire(origin, lives_ms, gt=True)
                await pipe.execute()
        except self._error as e:
            raise ConnectionError(f"Redis: {type(e).__name__}") from e

    async def count(self, origin: str) -> int:
        """Return how many entries have this origin and have not expired."""
        try:
            names = await self._client.smembers(f"hermod:origin:{origin}")
            return int(await self._client.exists(*names)) if names else 0
        except self._error as e:
            raise ConnectionError(f"Redis: {type(e).__name__}") from e

    async def drop(self, origin: str) -> int:
        """Drop every entry with this origin."""
        try:
            names = await self._client.smembers(f"hermod:origin:{origin}")
            dropped = int(await self._client.delete(*names)) if names else 0
            await self._client.delete(f"hermod:origin:{origin}")
            return dropped
        except self._error as e:
            raise ConnectionError(f"Redis: {type(e).__name__}") from e

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
