"""A backend that is chosen when it is first needed: looking for one takes seconds, and many commands run no code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from bot.tools.python_sandbox.types import (
    Enforcement,
    SandboxBackend,
    SandboxOutcome,
    SandboxRun,
    SandboxUnavailable,
)

log = structlog.get_logger("hermod.sandbox")

AGAIN_S = 60.0
"""How long a refusal holds before it is looked again: a runner may have been started, a package installed."""


class LazyBackend:
    """Finds its backend at the first run; where there is none, nothing runs, and every run says why.

    Args:
        name: the configured one, such as ``auto``.
        enforcing: whatever backend is found locks code in. It is told before one is found, since that decides who may
            use the tool; only a setting of its own allows a backend that does not.
        find: finds and probes the backend, or raises ``SandboxUnavailable``.
        monotonic: the clock, in seconds.
    """

    def __init__(
        self,
        name: str,
        *,
        enforcing: bool,
        find: Callable[[], Awaitable[SandboxBackend]],
        monotonic: Callable[[], float],
    ) -> None:
        self.name = name
        self.enforcing = enforcing
        self._find = find
        self._monotonic = monotonic
        self._finding = asyncio.Lock()
        self._found: SandboxBackend | None = None
        self._refusal: SandboxUnavailable | None = None
        self._refused_at = 0.0

    async def find(self) -> SandboxBackend:
        """Return the backend, which is looked for once.

        Raises:
            SandboxUnavailable: nothing can lock code in; looked for again after ``AGAIN_S``.
        """
        async with self._finding:
            if self._found is not None:
                return self._found
            if self._refusal is not None and self._monotonic() - self._refused_at < AGAIN_S:
                raise SandboxUnavailable(str(self._refusal))
            try:
                found = await self._find()
            except SandboxUnavailable as refusal:
                self._refusal, self._refused_at = refusal, self._monotonic()
                log.warning("sandbox_unavailable", reason=str(refusal))
                raise
            if self.enforcing and not found.enforcing:
                await found.aclose()
                raise SandboxUnavailable(f"the backend {found.name} does not lock code in, and the settings ask for it")
            self._found, self._refusal = found, None
            log.info("sandbox_found", backend=found.name, enforcing=found.enforcing)
            return found

    async def probe(self) -> Enforcement:
        """Look for the backend, and tell what it was seen to enforce. Never raises."""
        try:
            return await (await self.find()).probe()
        except SandboxUnavailable as refusal:
            return Enforcement(backend=self.name, works=False, reason=str(refusal))

    async def run(self, run: SandboxRun) -> SandboxOutcome:
        """Run one program.

        Raises:
            SandboxUnavailable: there is no backend, or it could not be started; nothing of it was run.
        """
        return await (await self.find()).run(run)

    async def aclose(self) -> None:
        """End every process of the backend, if one was found."""
        async with self._finding:
            if self._found is not None:
                found, self._found = self._found, None
                await found.aclose()
