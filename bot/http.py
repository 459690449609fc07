"""The HTTP port: is it alive, is it ready, and its numbers for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from aiohttp import web

from adapters.chat import ChatAdapter
from bot.storage.base import Store, StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number of ``/metrics``. ``kind`` is Prometheus' ``gauge`` or ``counter``."""

    name: str
    help: str
    value: float
    kind: str = "gauge"
    labels: Mapping[str, str] = field(default_factory=dict)


def render_metrics(metrics: Iterable[Metric]) -> str:
    """Write metrics in Prometheus' text format, version 0.0.4 (prometheus.io, "Exposition formats")."""
    lines: list[str] = []
    described: set[str] = set()
    for metric in metrics:
        if metric.name not in described:
            described.add(metric.name)
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        labels = ",".join(f'{k}="{_escape(v)}"' for k, v in metric.labels.items())
        lines.append(f"{metric.name}{{{labels}}} {metric.value:g}" if labels else f"{metric.name} {metric.value:g}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@runtime_checkable
class HasRoutes(Protocol):
    """An adapter that people's browsers or its platform call."""

    def build_routes(self) -> Sequence[web.RouteDef]:
        """Build its routes."""
        ...


class HttpServer:
    """Serves ``/healthz``, ``/readyz``, ``/metrics`` and ``/providers``, and what adapters have to serve.

    Args:
        host, port: where to listen; port 0 takes a free one.
        store: must answer for health.
        adapters: all must be connected for readiness.
        alive: true while the dispatcher runs.
        metrics: the program's own counters.
        providers: how the model providers are doing, as JSON-ready values, for ``/providers``.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        store: Store,
        adapters: Mapping[str, ChatAdapter],
        alive: Callable[[], bool],
        metrics: Callable[[], Iterable[Metric]],
        providers: Callable[[], Sequence[Mapping[str, object]]] = tuple,
    ) -> None:
        self._host = host
        self.port = port
        self._store = store
        self._adapters = adapters
        self._alive = alive
        self._metrics = metrics
        self._providers = providers
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the port is taken or may not be used.
        """
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._serve_metrics)
        app.router.add_get("/providers", self._serve_providers)
        for adapter in self._adapters.values():
            if isinstance(adapter, HasRoutes):
                app.add_routes(adapter.build_routes())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self.port).start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the port. Safe to call twice."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _healthz(self, request: web.Request) -> web.Response:
        problem = await self._find_problem()
        return web.json_response({"ok": not problem, "problem": problem}, status=503 if problem else 200)

    async def _find_problem(self) -> str:
        if not self._alive():
            return "the dispatcher is not running"
        try:
            await self._store.ping()
        except StoreError as e:
            return str(e)
        return ""

    async def _readyz(self, request: web.Request) -> web.Response:
        waiting = [name for name, adapter in self._adapters.items() if not adapter.connected]
        problem = await self._find_problem()
        ready = not waiting and not problem
        body = {"ok": ready, "not_connected": waiting, "problem": problem}
        return web.json_response(body, status=200 if ready else 503)

    async def _serve_providers(self, request: web.Request) -> web.Response:
        return web.json_response({"items": list(self._providers())})

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        metrics = [*await self._read_gauges(), *self._metrics()]
        metrics += [
            Metric(
                name="hermod_adapter_connected",
                help="1 while events can arrive.",
                value=float(adapter.connected),
                labels={"platform": name},
            )
            for name, adapter in self._adapters.items()
        ]
        return web.Response(text=render_metrics(metrics), content_type="text/plain", charset="utf-8")

    async def _read_gauges(self) -> list[Metric]:
        """Count what waits; without storage there are no gauges, and the counters are still served."""
        try:
            counts = await self._store.count_rows()
        except StoreError:
            return []
        return [
            Metric(name="hermod_inbox_open", help="Accepted messages that wait.", value=counts.inbox_open),
            Metric(name="hermod_runs_active", help="Runs that have not ended.", value=counts.runs_active),
            Metric(name="hermod_outbox_pending", help="Replies that wait to be posted.", value=counts.outbox_pending),
            Metric(name="hermod_threads", help="Known threads.", value=counts.threads),
        ]
