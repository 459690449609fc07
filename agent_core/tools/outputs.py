"""``read_output``: the parts of a long tool result that the history does not hold."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent_core.context import RunContext
from agent_core.errors import ToolFailed
from agent_core.tools.executor import READ_OUTPUT
from agent_core.tools.registry import ToolRegistry

SHARE = 0.7
"""Of the run's output cap for one reading, so that the reading itself, escaped as JSON, is seldom cut again."""


async def read_output(
    ctx: RunContext,
    output_id: Annotated[str, Field(min_length=1, max_length=100)],
    start: Annotated[int, Field(ge=0)] = 0,
    end: Annotated[int | None, Field(ge=1)] = None,
) -> dict[str, object]:
    """Read characters start to end of an earlier tool result of this thread whose middle was left out.

    Args:
        output_id: as the note "characters left out" in that result gives it.
        start: first character, counted from 0.
        end: character after the last one; as many as fit when it is left out.
    """
    text = await ctx.outputs.get(ctx.thread_id, output_id)
    if text is None:
        raise ToolFailed(
            f"no output {output_id!r} is kept for this thread",
            code="unknown_output",
            fix="take the output_id from the note in a result, or run the tool again",
        )
    most = max(1, int(ctx.limits.tool_output_chars * SHARE))
    stop = min(len(text), start + most if end is None else min(end, start + most))
    return {
        "ok": True,
        "output_id": output_id,
        "start": min(start, len(text)),
        "end": max(stop, min(start, len(text))),
        "total": len(text),
        "text": text[start:stop],
    }


def register_read_output(registry: ToolRegistry) -> None:
    """Register ``read_output``; from then on what is cut out of results is kept for it.

    Raises:
        ConfigError: the name is taken.
    """
    registry.register(read_output, name=READ_OUTPUT)
