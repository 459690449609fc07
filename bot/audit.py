"""What goes into the audit chain: who was allowed or refused what. Digests, never contents.

The chain itself is the store's (``Store.add_audit``, ``hermod audit verify``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from agent_core.context import Clock, RunContext
from agent_core.tools.approval import Authorizer, Denial
from agent_core.tools.base import Tool
from bot.access import Caller, find_callers
from bot.storage.base import Store


def digest(value: object) -> str:
    """Return the sha256 of ``value`` as canonical JSON: equal values have equal digests, and none can be read back."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class AuditLog:
    """Appends to the audit chain of a store. Safe to use concurrently."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def record(
        self,
        action: str,
        *,
        actor: str,
        thread_key: str = "",
        run_id: str = "",
        detail: Mapping[str, str | int] | None = None,
    ) -> None:
        """Append one line.

        Args:
            action: ``noun.verb-in-the-past``, such as ``tool.allowed``.
            actor: who did it, see ``name_actor``.
            thread_key, run_id: where it happened; empty where that is nowhere.
            detail: names, codes and digests; no text that a person or a model wrote.

        Raises:
            StoreError: the storage did not take it; what was to be recorded must then not happen.
        """
        text = json.dumps(dict(detail or {}), sort_keys=True, ensure_ascii=False)
        await self._store.add_audit(
            at=self._clock.now(), actor=actor, action=action, thread_key=thread_key, run_id=run_id, detail=text
        )


def name_actor(caller: Caller) -> str:
    """Return ``slack:T1/U1``: ids that stay, no names that change."""
    return f"{caller.platform}:{caller.workspace}/{caller.user_id}"


class AuditedAuthorizer:
    """An ``Authorizer`` whose every decision about a call is in the audit chain before the call runs.

    A resumed run asks again, so a call can have two lines with one digest.
    """

    def __init__(self, inner: Authorizer, audit: AuditLog) -> None:
        self._inner = inner
        self._audit = audit

    def visible(self, ctx: RunContext, tool: Tool) -> bool:
        """What the inner one says; not recorded, because nothing happens."""
        return self._inner.visible(ctx, tool)

    async def authorize(self, ctx: RunContext, tool: Tool, arguments: Mapping[str, object]) -> Denial | None:
        """What the inner one says, recorded first.

        Raises:
            StoreError: it could not be recorded; the executor then refuses the call.
        """
        denial = await self._inner.authorize(ctx, tool, arguments)
        detail: dict[str, str | int] = {"tool": tool.name, "effect": tool.effect.value, "arguments": digest(arguments)}
        if isinstance(target := arguments.get("target"), str):
            detail["target"] = ctx.redactor.redact(target)  # an address may be given for a name
        await self._audit.record(
            "tool.allowed" if denial is None else "tool.denied",
            actor=",".join(map(name_actor, find_callers(ctx.deps))) or "unknown",
            thread_key=ctx.thread_id,
            run_id=ctx.run_id,
            detail=detail,
        )
        return denial
