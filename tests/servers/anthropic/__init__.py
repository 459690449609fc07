"""A local server that speaks Anthropic's Messages API, strictly, for the official client."""

from tests.servers.anthropic.protocol import refusal
from tests.servers.anthropic.server import AnthropicServer, Failure, Reply

__all__ = ["AnthropicServer", "Failure", "Reply", "refusal"]
