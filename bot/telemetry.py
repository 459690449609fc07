"""Export of traces and metrics over OTLP/HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bot.settings import ModelSettings, Settings

if TYPE_CHECKING:
    from agent_core.telemetry import Telemetry

FLUSH_S = 3.0
"""How long the end of the process waits for what was not sent yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What follows the runs, and what sends out what it saw."""

    telemetry: Telemetry
    ends: Sequence[Callable[[], object]]

    async def aclose(self) -> None:
        """Send what is still held, for at most ``FLUSH_S`` seconds: an endpoint that is down must not hold the end."""
        loop, waits = asyncio.get_running_loop(), list[asyncio.Future[None]]()
        for end in self.ends:
            waits.append(done := loop.create_future())
            # threads of their own: they are left behind where they hang, and the interpreter waits for any other kind
            threading.Thread(target=_end, args=(end, loop, done), daemon=True, name="otel-flush").start()
        await asyncio.wait(waits, timeout=FLUSH_S)


def _end(end: Callable[[], object], loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
    try:
        end()
    finally:
        with suppress(RuntimeError):  # nobody waits any more, and the loop is closed
            loop.call_soon_threadsafe(done.cancel)


def build_export(settings: Settings, models: Sequence[ModelSettings]) -> Export | None:
    """Build the export to ``otel.endpoint``, or None without one."""
    otel = settings.otel
    if otel.endpoint is None:
        return None
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from agent_core.telemetry import Endpoint, Telemetry

    base, resource = otel.endpoint.rstrip("/"), Resource.create({"service.name": "hermod"})
    # not shut down by the interpreter: it would wait for an endpoint that is down
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{base}/v1/traces")))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=f"{base}/v1/metrics"))
    meters = MeterProvider(metric_readers=[reader], resource=resource, shutdown_on_exit=False)
    endpoints = {}
    for model in models:
        address = urlsplit(model.base_url or "")
        endpoints[model.name] = Endpoint(
            vendor=model.kind, model=model.model, address=address.hostname or "", port=address.port
        )
    telemetry = Telemetry(
        tracer_provider=tracers,
        meter_provider=meters,
        semconv=otel.semconv,
        content=otel.content,
        endpoints=endpoints,
    )
    return Export(telemetry=telemetry, ends=(tracers.shutdown, partial(meters.shutdown, timeout_millis=FLUSH_S * 1000)))
