"""Every name that goes into a trace or a metric, and nothing else.

Two conventions are spoken: ``v1.41``, the last that OpenTelemetry's core had for generative AI, which backends know
today, and ``latest``, the state of https://github.com/open-telemetry/semantic-conventions-genai, which has no stable
release yet (its migration page lists the changes). Histograms have the bounds that they advise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Semconv = Literal["v1.41", "latest"]
SCOPE: Final = "agent_core"

# spans
OPERATION, CONVERSATION, COMPACTED = "gen_ai.operation.name", "gen_ai.conversation.id", "gen_ai.conversation.compacted"
AGENT, WORKFLOW, PROVIDER = "gen_ai.agent.name", "gen_ai.workflow.name", "gen_ai.provider.name"
PROMPT_NAME, PROMPT_VERSION, OUTPUT_TYPE = "gen_ai.prompt.name", "gen_ai.prompt.version", "gen_ai.output.type"
REQUEST_MODEL, REQUEST_MAX_TOKENS = "gen_ai.request.model", "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE, REQUEST_STREAM = "gen_ai.request.temperature", "gen_ai.request.stream"
RESPONSE_ID, RESPONSE_MODEL = "gen_ai.response.id", "gen_ai.response.model"
FINISH_REASONS, FIRST_CHUNK = "gen_ai.response.finish_reasons", "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS, OUTPUT_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
CACHE_READ, REASONING = "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.reasoning.output_tokens"
CACHE_WRITE: Final[Mapping[Semconv, str]] = {
    "v1.41": "gen_ai.usage.cache_creation.input_tokens",
    "latest": "gen_ai.usage.cache_write.input_tokens",
}
TOOL, TOOL_TYPE, TOOL_DESCRIPTION = "gen_ai.tool.name", "gen_ai.tool.type", "gen_ai.tool.description"
CALL_ID, TYPE_OF_TOKEN, MODALITY = "gen_ai.tool.call.id", "gen_ai.token.type", "gen_ai.token.modality"
ERROR, ADDRESS, PORT = "error.type", "server.address", "server.port"

# content, only when asked for
INPUT_MESSAGES, OUTPUT_MESSAGES = "gen_ai.input.messages", "gen_ai.output.messages"
INSTRUCTIONS, TOOL_DEFINITIONS = "gen_ai.system_instructions", "gen_ai.tool.definitions"
CALL_ARGUMENTS, CALL_RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
MESSAGE = "exception.message"

# our own
RUN_ID, PURPOSE, ATTEMPTS = "agent_core.run.id", "agent_core.purpose", "agent_core.attempts"
REPLAYED, COST_USD, CACHE_HIT = "agent_core.replayed", "agent_core.cost_usd", "agent_core.cache_hit"
ATTEMPT_FAILED, ANSWER_RESTARTED = "agent_core.attempt_failed", "agent_core.answer_restarted"

# metrics: what is measured -> name, unit, bounds of its histogram (without bounds it is a counter)
_SHORT_S, _TOKENS, _CALLS = [0.01 * 2**n for n in range(14)], [4.0**n for n in range(14)], [2.0**n for n in range(8)]
_CHAT: Final = "gen_ai.client.inference"
METRICS: Final[Mapping[Semconv, Mapping[str, tuple[str, str, list[float]]]]] = {
    "v1.41": {
        "chat": ("gen_ai.client.operation.duration", "s", _SHORT_S),
        "first_chunk": ("gen_ai.client.operation.time_to_first_chunk", "s", _SHORT_S),
        "tokens": ("gen_ai.client.token.usage", "{token}", _TOKENS),
    },
    "latest": {
        "chat": (f"{_CHAT}.duration", "s", _SHORT_S),
        "first_chunk": (f"{_CHAT}.time_to_first_chunk", "s", _SHORT_S),
        "chat_input": (f"{_CHAT}.operation.input_tokens", "{token}", _TOKENS),
        "chat_output": (f"{_CHAT}.operation.output_tokens", "{token}", _TOKENS),
        "total_input": (f"{_CHAT}.usage.input_tokens", "{token}", []),
        "total_output": (f"{_CHAT}.usage.output_tokens", "{token}", []),
        "total_cache_read": (f"{_CHAT}.usage.cache_read.input_tokens", "{token}", []),
        "total_cache_write": (f"{_CHAT}.usage.cache_write.input_tokens", "{token}", []),
        "total_reasoning": (f"{_CHAT}.usage.reasoning.output_tokens", "{token}", []),
        "tool": ("gen_ai.execute_tool.duration", "s", _SHORT_S),
        "agent": ("gen_ai.invoke_agent.duration", "s", [0.1 * 2**n for n in range(13)]),
        "agent_chats": ("gen_ai.invoke_agent.inference_calls", "{inference_call}", _CALLS),
        "agent_calls": ("gen_ai.invoke_agent.tool_calls", "{tool_call}", _CALLS),
        "workflow": ("gen_ai.invoke_workflow.duration", "s", [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200]),
    },
}
