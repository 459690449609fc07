"""Who may use a tool, and who lets it change something: the two seams a program fills in.

Both fail closed: an error in either of them means that the tool does not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from agent_core.context import RunContext
from agent_core.llm.types import ToolCall
from agent_core.tools.base import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """A call is not allowed; ``reason`` is read by the model and by the person who asked."""

    reason: str


class Authorizer(Protocol):
    """Decides what the person behind ``ctx.deps`` may use. Called concurrently."""

    def visible(self, ctx: RunContext, tool: Tool) -> bool:
        """True when the model may know of ``tool`` at all; else it is never told its schema. Must not block."""
        ...

    async def authorize(self, ctx: RunContext, tool: Tool, arguments: Mapping[str, object]) -> Denial | None:
        """Look at one call; ``arguments`` are validated, defaults filled in, and must not be changed.

        Returns:
            None when it is allowed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person said to a WRITE or EXEC call. ``by`` names the person, ``reason`` says why not."""

    approved: bool
    by: str = ""
    reason: str = ""


class Approver(Protocol):
    """Asks a person before a WRITE or EXEC call. Called concurrently."""

    async def approve(self, ctx: RunContext, tool: Tool, call: ToolCall) -> Decision:
        """Ask and wait; it is cancelled at the run's deadline.

        A resumed run asks again for the same ``ctx.run_id`` and ``call.id``, also for a call that had already
        run (its stored result is then used): answer with the decision that was made.
        """
        ...
