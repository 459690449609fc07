"""When a failed request is sent again, and how long to wait before."""

from __future__ import annotations

import random
from dataclasses import dataclass

from agent_core.errors import ConfigError, ProviderTimeout, ProviderUnavailable, RateLimited

RETRYABLE = (RateLimited, ProviderTimeout, ProviderUnavailable)
"""After these the same request may succeed at the same provider a moment later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How many requests one call may send in all, fallbacks included, and the first and the longest wait."""

    max_attempts: int = 3
    backoff_base_s: float = 2.0
    backoff_cap_s: float = 30.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or not 0 <= self.backoff_base_s <= self.backoff_cap_s:
            raise ConfigError("a retry policy needs max_attempts >= 1 and 0 <= backoff_base_s <= backoff_cap_s")

    def backoff_s(self, n: int, rng: random.Random) -> float:
        """Seconds before the ``n``-th new round (from 1): doubling, half fixed and half chance ("equal jitter")."""
        return min(self.backoff_cap_s, self.backoff_base_s * 2.0 ** min(n - 1, 60)) * (0.5 + 0.5 * rng.random())
