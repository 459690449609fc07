"""The engine: agents, tools, memory and model providers. It knows no chat platform and no product.

The names below are imported when they are first used, so that ``import agent_core`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_core.agent import Agent
    from agent_core.context import Budget, Limits, MemoryJournal, MemoryOutputs, RunContext, Steering
    from agent_core.errors import AgentError, ConfigError, ModelRetry, ProviderError, RunError, ToolFailed
    from agent_core.llm.anthropic import Anthropic
    from agent_core.llm.breaker import BreakerPolicy
    from agent_core.llm.cache import AnswerCache, MemoryExact, MemorySemantic
    from agent_core.llm.offline import OfflineProvider
    from agent_core.llm.openai_compat import OpenAICompatible
    from agent_core.llm.pricing import Price, PriceList
    from agent_core.llm.prompted import PromptedActions
    from agent_core.llm.provider import Provider
    from agent_core.llm.retry import RetryPolicy
    from agent_core.llm.router import ProviderState, Route, Router
    from agent_core.llm.scripted import ScriptedProvider
    from agent_core.llm.structured import OutputContract, ask_structured
    from agent_core.llm.tokens import load_counter
    from agent_core.llm.types import ModelMessage, ModelRequest, ModelResponse, ToolCall, ToolExample, Usage
    from agent_core.llm.vendor import VendorProvider
    from agent_core.memory.conversation import Conversation, Summary
    from agent_core.memory.summarize import Summarizer
    from agent_core.observe import trace_as_data, trace_as_text
    from agent_core.prompts import load_prompt, load_prompts
    from agent_core.runtime.events import RunEnded, RunEvent, StepFinished, TextDelta, ToolFinished, ToolStarted
    from agent_core.runtime.loop import AgentLoop
    from agent_core.runtime.state import RunRecord, RunState, Step
    from agent_core.supervisor import Supervisor, SupervisorRecord
    from agent_core.telemetry import Endpoint, Telemetry
    from agent_core.tools.base import Effect, Tool, ToolResult
    from agent_core.tools.builtin import register_builtin
    from agent_core.tools.executor import ToolExecutor
    from agent_core.tools.registry import ToolRegistry
    from agent_core.workers import Worker, build_workers, register_call_worker

_PLACES = {
    "agent": "Agent",
    "context": "Budget Limits MemoryJournal MemoryOutputs RunContext Steering",
    "errors": "AgentError ConfigError ModelRetry ProviderError RunError ToolFailed",
    "llm.anthropic": "Anthropic",
    "llm.breaker": "BreakerPolicy",
    "llm.cache": "AnswerCache MemoryExact MemorySemantic",
    "llm.offline": "OfflineProvider",
    "llm.openai_compat": "OpenAICompatible",
    "llm.pricing": "Price PriceList",
    "llm.prompted": "PromptedActions",
    "llm.provider": "Provider",
    "llm.retry": "RetryPolicy",
    "llm.router": "ProviderState Route Router",
    "llm.scripted": "ScriptedProvider",
    "llm.structured": "OutputContract ask_structured",
    "llm.tokens": "load_counter",
    "llm.types": "ModelMessage ModelRequest ModelResponse ToolCall ToolExample Usage",
    "llm.vendor": "VendorProvider",
    "memory.conversation": "Conversation Summary",
    "memory.summarize": "Summarizer",
    "observe": "trace_as_data trace_as_text",
    "prompts": "load_prompt load_prompts",
    "runtime.events": "RunEnded RunEvent StepFinished TextDelta ToolFinished ToolStarted",
    "runtime.loop": "AgentLoop",
    "runtime.state": "RunRecord RunState Step",
    "supervisor": "Supervisor SupervisorRecord",
    "telemetry": "Endpoint Telemetry",
    "tools.base": "Effect Tool ToolResult",
    "tools.builtin": "register_builtin",
    "tools.executor": "ToolExecutor",
    "tools.registry": "ToolRegistry",
    "workers": "Worker build_workers register_call_worker",
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names.split()}

# fmt: off
__all__ = [
    "Agent", "AgentError", "AgentLoop", "AnswerCache", "Anthropic", "BreakerPolicy", "Budget",
    "ConfigError", "Conversation", "Effect", "Endpoint", "Limits", "MemoryExact", "MemoryJournal", "MemoryOutputs",
    "MemorySemantic", "ModelMessage", "ModelRequest", "ModelResponse", "ModelRetry", "OfflineProvider",
    "OpenAICompatible", "OutputContract", "Price", "PriceList", "PromptedActions", "Provider", "ProviderError",
    "ProviderState", "RetryPolicy", "Route", "Router", "RunContext", "RunEnded", "RunError", "RunEvent",
    "RunRecord", "RunState", "ScriptedProvider", "Steering", "Step", "StepFinished", "Summarizer", "Summary",
    "Supervisor", "SupervisorRecord", "Telemetry", "TextDelta", "Tool", "ToolCall", "ToolExample", "ToolExecutor",
    "ToolFailed", "ToolFinished", "ToolRegistry", "ToolResult", "ToolStarted", "Usage", "VendorProvider", "Worker",
    "ask_structured", "build_workers", "load_counter", "load_prompt", "load_prompts", "register_builtin",
    "register_call_worker", "trace_as_data", "trace_as_text",
]
# fmt: on


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
