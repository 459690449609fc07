"""When a failed request is sent again, and how long to wait before."""

from __future__ import annotations

import random
from dataclasses import dataclass

from agent_core.errors import ConfigError, ProviderTimeout, ProviderUnavailable, RateLimited

RETRYABLE = (RateLimited, ProviderTimeout, ProviderUnavailable)
"""After these the same request may succeed at the same provider a moment later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """One budget for retries and fallbacks together.

    Args:
        max_attempts: requests that one call may send in all.
        backoff_base_s: the first wait; each later one is twice as long.
        backoff_cap_s: the longest wait.
    """

    max_attempts: int = 3
    backoff_base_s: float = 2.0
    backoff_cap_s: float = 30.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or not 0 <= self.backoff_base_s <= self.backoff_cap_s:
            raise ConfigError("a retry policy needs max_attempts >= 1 and 0 <= backoff_base_s <= backoff_cap_s")

    def backoff_s(self, n: int, rng: random.Random) -> float:
        """Seconds before the ``n``-th new round (from 1): half of them fixed, half by chance ("equal jitter").

        So waiters do not come back all at once, and none comes back at once.
        """
        whole_s = min(self.backoff_cap_s, self.backoff_base_s * 2.0 ** min(n - 1, 60))
        return whole_s * (0.5 + 0.5 * rng.random())
