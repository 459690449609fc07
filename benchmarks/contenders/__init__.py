"""The loops that are compared. Each module opens one kind of loop; its libraries are imported by it alone."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from benchmarks.cells import Cell

Ask = Callable[[int], Awaitable[str]]
"""Makes run number n, with history, tools and everything else of its own, and returns its answer."""

Open = Callable[[str, Cell], AbstractAsyncContextManager[Ask]]
"""Connects to a base URL for one cell's work; connections and loops are reused by all runs of the cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One loop.

    Args:
        label: as the table shows it.
        place: module and name of its ``Open``.
        libraries: distributions whose versions matter.
        peer: true when it lives in the peers' own environment.
    """

    label: str
    place: str
    libraries: tuple[str, ...] = ("openai",)
    peer: bool = False

    def load(self) -> Open:
        """Import the loop.

        Raises:
            ImportError: a library, or a part of the engine, is not there.
        """
        module, _, name = self.place.partition(":")
        found: Open = getattr(importlib.import_module(f"benchmarks.contenders.{module}"), name)
        return found


CONTENDERS = {
    "raw": Contender(label="raw SDK (httpx2)", place="raw:open_raw", libraries=("openai", "httpx2")),
    "raw-aiohttp": Contender(label="raw SDK (aiohttp)", place="raw:open_aiohttp", libraries=("openai", "aiohttp")),
    "hermod": Contender(label="hermod", place="hermod:open_plain", libraries=("pydantic", "tiktoken")),
    "hermod-traced": Contender(
        label="hermod, traced", place="hermod:open_traced", libraries=("opentelemetry-api", "opentelemetry-sdk")
    ),
    "hermod-sqlite": Contender(label="hermod, SQLite", place="hermod:open_sqlite", libraries=("aiosqlite",)),
    "pydantic-ai": Contender(
        label="pydantic-ai", place="pydantic_ai_loop:open_peer", libraries=("pydantic-ai-slim", "openai"), peer=True
    ),
    "openai-agents": Contender(
        label="openai-agents", place="openai_agents_loop:open_peer", libraries=("openai-agents", "openai"), peer=True
    ),
    "langgraph": Contender(
        label="langgraph",
        place="langgraph_loop:open_peer",
        libraries=("langchain", "langgraph", "langchain-openai", "openai"),
        peer=True,
    ),
}
