"""The semantic tier in Milvus, shared by processes. Extra ``cache``."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from agent_core.llm.cache.policy import Entry, Scored

PREFIX = "hermod_answers_"
COUNTED_MOST = 10_000
T = TypeVar("T")


class MilvusSemantic:
    """Vectors in the collection ``hermod_answers_<dimension>``, made when first needed; expired rows are deleted.

    With the metric COSINE Milvus reports the *similarity* in the field that it calls ``distance``: bigger is closer.
    The client is the synchronous one, in threads: the other cannot make collections on milvus-lite.

    Args:
        uri: ``http://host:19530``, or a path ending in ``.db`` (milvus-lite, for one process).
        token: ``user:password`` or an API key, where the server wants one.
        timeout_s: bound of each request, in real seconds.
    """

    def __init__(self, uri: str, *, token: str = "", timeout_s: float = 2.0) -> None:
        self._uri, self._token, self._timeout_s = uri, token, timeout_s
        self._lock, self._collections = threading.Lock(), set[str]()
        self._client: Any = None
        # gRPC looks at it when it is imported, which is not yet. Its handlers of fork break programs that are just
        # being started, such as a sandbox's; nothing here forks without starting another program
        # (github.com/grpc/grpc/blob/master/doc/fork_support.md)
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

    async def search(self, partition: str, vector: Sequence[float], now: float, limit: int) -> Scored:
        """Return the most similar entries of the partition with their cosine similarity, best first."""

        def work(client: Any, name: str) -> Scored:
            where = f'partition == "{partition}" and expires_at > {now!r}'
            cosine = {"metric_type": "COSINE"}
            hits = client.search(
                name, [list(vector)], where, limit, ["entry"], cosine, self._timeout_s, anns_field="vector"
            )
            return [(float(hit["distance"]), Entry(**hit["entity"]["entry"])) for hit in hits[0]]

        return await asyncio.to_thread(self._run, len(vector), work)

    async def put(self, key: str, partition: str, vector: Sequence[float], entry: Entry) -> None:
        """Keep the entry, and delete what had expired when it was made."""
        row = {"key": key, "partition": partition, "vector": list(vector), "expires_at": entry.expires_at}
        row["origin"] = entry.origin

        def work(client: Any, name: str) -> None:
            client.upsert(name, [{**row, "entry": asdict(entry)}], timeout=self._timeout_s)
            client.delete(name, filter=f"expires_at <= {entry.kept_at!r}", timeout=self._timeout_s)

        await asyncio.to_thread(self._run, len(vector), work)

    async def count(self, origin: str) -> int:
        """Return how many entries have this origin, in every collection of ours."""

        def work(client: Any, _: str) -> int:
            return sum(self._count(client, name, origin) for name in self._list_ours(client))

        return await asyncio.to_thread(self._run, 0, work)

    async def drop(self, origin: str) -> int:
        """Drop every entry with this origin, in every collection of ours."""

        def work(client: Any, _: str) -> int:
            dropped = 0
            for name in self._list_ours(client):
                dropped += self._count(client, name, origin)
                client.delete(name, filter=f'origin == "{origin}"', timeout=self._timeout_s)
            return dropped

        return await asyncio.to_thread(self._run, 0, work)

    def _list_ours(self, client: Any) -> Iterator[str]:
        for name in client.list_collections(timeout=self._timeout_s):
            if name.startswith(PREFIX):
                client.load_collection(name, timeout=self._timeout_s)
                yield name

    def _count(self, client: Any, name: str, origin: str) -> int:
        rows = client.query(
            name, filter=f'origin == "{origin}"', output_fields=["key"], limit=COUNTED_MOST, timeout=self._timeout_s
        )
        return len(rows)

    async def aclose(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await asyncio.to_thread(self._client.close)

    def _run(self, dimension: int, work: Callable[[Any, str], T]) -> T:
        from grpc import FutureTimeoutError, RpcError
        from pymilvus.exceptions import MilvusException

        try:
            return work(*self._open(dimension))
        except (MilvusException, RpcError, FutureTimeoutError, TypeError, KeyError) as e:  # the last two: alien rows
            raise ConnectionError(f"Milvus: {type(e).__name__}") from e

    def _open(self, dimension: int) -> tuple[Any, str]:
        from pymilvus import MilvusClient

        name = f"{PREFIX}{dimension}"
        with self._lock:
            if self._client is None:
                self._client = MilvusClient(uri=self._uri, token=self._token, timeout=self._timeout_s)
            if dimension and name not in self._collections:
                if self._client.has_collection(name, timeout=self._timeout_s):
                    self._client.load_collection(name, timeout=self._timeout_s)  # another process made it
                else:
                    self._client.create_collection(
                        name, dimension, "key", "string", "vector", "COSINE", max_length=64, timeout=30
                    )
                self._collections.add(name)
        return self._client, name
