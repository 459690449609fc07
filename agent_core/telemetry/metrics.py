"""The metrics of runs, by either convention."""

from __future__ import annotations

from opentelemetry.metrics import Meter
from opentelemetry.util.types import AttributeValue

from agent_core.llm.types import Usage
from agent_core.telemetry import names

Attributes = dict[str, AttributeValue]


class Instruments:
    """Records what ``names.METRICS`` has for the convention; the rest of what is measured goes nowhere."""

    def __init__(self, meter: Meter, semconv: names.Semconv) -> None:
        self._puts = {
            key: meter.create_histogram(name, unit, explicit_bucket_boundaries_advisory=bounds).record
            if bounds
            else meter.create_counter(name, unit).add
            for key, (name, unit, bounds) in names.METRICS[semconv].items()
        }

    def put(self, key: str, value: float, attributes: Attributes) -> None:
        """Record one value."""
        if put := self._puts.get(key):
            put(value, attributes)

    def chat(self, seconds: float, first_chunk_s: float | None, usage: Usage | None, attributes: Attributes) -> None:
        """Record one model call; ``usage`` is what the provider reported, None where it reported nothing."""
        self.put("chat", seconds, attributes)
        common = {key: value for key, value in attributes.items() if key != names.ERROR}
        if first_chunk_s is not None:
            self.put("first_chunk", first_chunk_s, common)
        known = usage or Usage()  # ``latest`` wants a 0 where nothing was reported, ``v1.41`` nothing
        for key, tokens in (("input", known.input_tokens), ("output", known.output_tokens)):
            self.put(f"chat_{key}", tokens, attributes)
            if usage:
                self.put("tokens", tokens, {**common, names.TYPE_OF_TOKEN: key})
        common[names.MODALITY] = "text" if usage else "unknown"
        self.put("total_input", known.input_tokens, common)
        self.put("total_output", known.output_tokens, common)
        self.put("total_cache_read", known.cached_input_tokens, common)
        self.put("total_cache_write", known.cache_write_tokens, common)
        self.put("total_reasoning", known.reasoning_tokens, common)
