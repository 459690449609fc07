"""Traces and metrics of runs, by OpenTelemetry's conventions for generative AI.

Nothing else in the engine imports this package; importing it needs ``opentelemetry-api`` (the extra ``otel``).
"""

from agent_core.telemetry.spans import Endpoint, Telemetry

__all__ = ["Endpoint", "Telemetry"]
