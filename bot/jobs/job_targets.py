"""Which targets a job's run may look at: those of the job, and of them only what its owner may use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from agent_core.context import RunContext
from agent_core.tools.approval import Authorizer, Denial
from agent_core.tools.base import Tool
from bot.access import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDeps:
    """What the tools of a job's run find in ``ctx.deps``: who asked, and the job's targets."""

    callers: tuple[Caller, ...]
    targets: frozenset[str]


class JobAuthorizer:
    """Asks the job's list of targets, and then the program's authorizer; a run that is no job's may do nothing.

    In this order, so that the audit chain has no line about a call as allowed that is then refused here.

    Args:
        inner: the program's authorizer.
        configured: names of all targets; a call that names none means the only one.
    """

    def __init__(self, inner: Authorizer, configured: Collection[str]) -> None:
        self._inner = inner
        self._configured = tuple(configured)

    def visible(self, ctx: RunContext, tool: Tool) -> bool:
        """True when the model may know of the tool."""
        return isinstance(ctx.deps, JobDeps) and self._inner.visible(ctx, tool)

    async def authorize(self, ctx: RunContext, tool: Tool, arguments: Mapping[str, object]) -> Denial | None:
        """Refuse what the program refuses, and every target that is not the job's."""
        deps = ctx.deps
        if not isinstance(deps, JobDeps):
            return Denial(reason="I cannot tell which job this belongs to; look at the log")
        if (
            "target" in tool.arguments.model_fields
            and (denial := self._refuse(deps, arguments.get("target"))) is not None
        ):
            return denial
        return await self._inner.authorize(ctx, tool, arguments)

    def _refuse(self, deps: JobDeps, said: object) -> Denial | None:
        name = said if isinstance(said, str) and said else None
        if name is None:
            if len(self._configured) != 1:
                return Denial(reason="a report looks at several targets, so a call has to name the one that it means")
            name = self._configured[0]
        if name.lower() in {target.lower() for target in deps.targets}:
            return None
        mine = ", ".join(sorted(deps.targets)) or "none"
        return Denial(reason=f"the target {name[:60]} is not one of this report; its targets: {mine}")
