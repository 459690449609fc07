"""The engine: agents, tools, memory and model providers. It knows no chat platform and no product.

The names below are imported when they are first used, so that ``import agent_core`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_core.agent import Agent
    from agent_core.context import Limits, RunContext
    from agent_core.llm.offline import OfflineProvider
    from agent_core.llm.openai_compat import OpenAICompatible
    from agent_core.llm.router import Router
    from agent_core.llm.scripted import ScriptedProvider
    from agent_core.llm.types import ModelMessage
    from agent_core.memory.conversation import Conversation
    from agent_core.runtime.loop import AgentLoop
    from agent_core.runtime.state import RunRecord, RunState
    from agent_core.tools.base import Effect
    from agent_core.tools.executor import ToolExecutor
    from agent_core.tools.registry import ToolRegistry

__all__ = [
    "Agent",
    "AgentLoop",
    "Conversation",
    "Effect",
    "Limits",
    "ModelMessage",
    "OfflineProvider",
    "OpenAICompatible",
    "Router",
    "RunContext",
    "RunRecord",
    "RunState",
    "ScriptedProvider",
    "ToolExecutor",
    "ToolRegistry",
]

_PLACES = {
    "Agent": "agent",
    "AgentLoop": "runtime.loop",
    "Conversation": "memory.conversation",
    "Effect": "tools.base",
    "Limits": "context",
    "ModelMessage": "llm.types",
    "OfflineProvider": "llm.offline",
    "OpenAICompatible": "llm.openai_compat",
    "Router": "llm.router",
    "RunContext": "context",
    "RunRecord": "runtime.state",
    "RunState": "runtime.state",
    "ScriptedProvider": "llm.scripted",
    "ToolExecutor": "tools.executor",
    "ToolRegistry": "tools.registry",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
