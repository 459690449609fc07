"""Logging: key-value events on stderr, every value redacted before it is written."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import TextIO

import structlog

from agent_core.context import Redactor

SPARSE, SPARSE_S = "opentelemetry.", 300.0
"""Loggers that are each heard once in that time: they repeat themselves for as long as an endpoint is down."""

NOISY = (
    "slack_bolt",
    "slack_sdk",
    "discord",
    "aiohttp",
    "apscheduler",
    "asyncio",
    "openai",
    "httpx2",
    "httpcore2",
    "genai_prices",
    "psycopg",
    "trafilatura",
)
"""Libraries that are only heard from warnings on; below, some write all that comes in, and tokens with it."""


def configure_logging(redactor: Redactor, *, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Set logging up for one process.

    Args:
        redactor: applied to every event and value, and to exception texts.
        level: from which level on Hermod's own events are written.
        stream: where to; standard error by default. A terminal gets readable lines, anything else JSON.
    """
    target = stream or sys.stderr
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _Redacting(redactor),
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=True) if target.isatty() else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=target),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processor=renderer))
    handler.addFilter(_Sparse())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in NOISY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


class _Sparse(logging.Filter):
    """Lets a record of each sparse logger through once in ``SPARSE_S`` seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(SPARSE):
            return True
        if record.created < self._next.get(record.name, 0.0):
            return False
        self._next[record.name] = record.created + SPARSE_S
        return True


class _Redacting:
    """A processor that redacts every text value of an event."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def __call__(self, logger: object, method: str, event: MutableMapping[str, object]) -> MutableMapping[str, object]:
        for key, value in event.items():
            if isinstance(value, str):
                event[key] = self._redactor.redact(value)
            elif not isinstance(value, int | float | None) and not key.startswith("_"):
                event[key] = self._redactor.redact(str(value))
        return event
