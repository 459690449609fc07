"""From whatever a vendor's SDK raises to the provider errors of the engine.

The SDKs of OpenAI and Anthropic come from one generator: their exceptions have the same names and the same gaps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import ModuleType

from agent_core import errors
from agent_core.context import Clock
from agent_core.errors import ProviderError, ProviderUnavailable

_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|request_too_large|maximum context length|range of input length"
    r"|context (window|length|size|limit)|(prompt|input) is too long|reduce the length of the (messages|input|prompt)",
    re.IGNORECASE,
)
"""How OpenAI, Anthropic, DeepSeek, Qwen, vLLM, Ollama and llama.cpp say that a history is too long."""

_TRANSPORTS = {"httpx2", "httpx", "httpcore2", "aiohttp"}
_NO_CREDIT = {"insufficient_quota", "billing_error", "billing_hard_limit_reached"}
_REMEDIES = {
    401: " (check the provider's api_key)",
    402: " (the account has no credit)",
    403: " (the key may not use this model)",
    404: " (check the provider's model and base_url)",
}


def read_refusal(error: object) -> tuple[int, str, str]:
    """Read status, what is named (code, type, parameter) and message of an SDK's ``APIError``.

    The shapes are those of OpenAI, Anthropic, vLLM (FastAPI's too) and Ollama.
    """
    body = getattr(error, "body", None)
    if isinstance(body, Mapping) and isinstance(body.get("error"), Mapping):
        body = body["error"]
    data: Mapping[str, object] = body if isinstance(body, Mapping) else {}
    said = data.get("message") or data.get("detail") or data.get("error") or body or getattr(error, "message", error)
    named = " ".join(str(data[key]) for key in ("code", "type", "param") if data.get(key))
    return getattr(error, "status_code", 0), named, str(said)


def read_retry_after(headers: Mapping[str, str], clock: Clock) -> float | None:
    """Return the seconds that a server asks to wait, or None.

    Reads ``retry-after-ms``, then ``Retry-After`` in seconds or as a date (RFC 9110, 10.2.3); a date counts from the
    server's own ``Date``, where it sends one, since clocks differ.
    """
    for header, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(header) or ""
        try:
            seconds = float(value) / unit
        except ValueError:
            if (until := _read_date(value)) is None:
                continue
            seconds = (until - (_read_date(headers.get("date") or "") or clock.now())).total_seconds()
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _read_date(value: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


class ErrorTranslator:
    """A context manager that turns what an SDK, its transport and the wire raise into ``ProviderError``.

    It holds no state of a request, so one instance serves all, also at the same time. ``sdk`` is the ``openai`` or the
    ``anthropic`` module; ``secret`` is the key, which must not be in any message; ``clock`` is for dates.
    """

    def __init__(self, sdk: ModuleType, *, provider: str, secret: str, clock: Clock) -> None:
        self._sdk, self._provider, self._secret, self._clock = sdk, provider, secret, clock

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and (translated := self.translate(error)) is not None:
            raise translated from error

    def translate(self, error: BaseException) -> ProviderError | None:
        """Return the error to raise instead, or None to let ``error`` pass."""
        if isinstance(error, self._sdk.APIStatusError):
            return self._judge(error, error.response.headers)
        transport = type(error).__module__.partition(".")[0] in _TRANSPORTS  # Anthropic's streams let these through
        if isinstance(error, TimeoutError | self._sdk.APIConnectionError | OSError) or transport:
            causes = [error]
            while (cause := causes[-1].__cause__) is not None:
                causes.append(cause)
            # the aiohttp transport reports every broken connection as a time-out; the cause knows better
            if any(isinstance(e, TimeoutError) for e in causes):
                return errors.ProviderTimeout("no answer in time", provider=self._provider)
            return ProviderUnavailable(f"not reachable ({type(causes[-1]).__name__})", provider=self._provider)
        if isinstance(error, self._sdk.APIError):
            return self._judge(error, {})
        if isinstance(error, ValueError):
            return ProviderUnavailable(f"unusable answer: {self._clean(str(error))}", provider=self._provider)
        return None

    def _judge(self, error: BaseException, headers: Mapping[str, str]) -> ProviderError:
        """Tell apart by status, and inside a stream (it began with 200) by the kind that the server names."""
        status, named, said = read_refusal(error)
        said, provider = self._clean(said), self._provider
        if status in (0, 200, 400, 413, 422) and _OVERFLOW.search(f"{named} {said}"):
            return errors.ContextOverflow(said, provider=provider)
        if not _NO_CREDIT.isdisjoint(named.split()):
            return errors.ProviderRefused(f"{said}{_REMEDIES[402]}", provider=provider)
        wait_s = read_retry_after(headers, self._clock)
        if status == 429 or (status in (503, 529) and wait_s is not None) or (status < 400 and "rate_limit" in named):
            label = f"HTTP {status}" if status >= 400 else "rate limited"
            return errors.RateLimited(f"{label}: {said}", provider=provider, retry_after_s=wait_s)
        if status < 400 or status in (408, 409) or status >= 500:
            label = f"HTTP {status}" if status >= 400 else "unusable answer"
            return ProviderUnavailable(f"{label}: {said}", provider=provider)
        return errors.ProviderRefused(f"HTTP {status}: {said}{_REMEDIES.get(status, '')}", provider=provider)

    def _clean(self, text: str) -> str:
        text = text.replace(self._secret, "[redacted]") if len(self._secret) > 7 else text  # "none" is no secret
        return " ".join(text.split())[:300]
