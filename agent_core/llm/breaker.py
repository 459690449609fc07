"""A circuit breaker: a provider that keeps failing is left alone for a while, then tried by one request.

Closed: everybody may ask. Failures in a row open it: nobody may. After the recovery time it is half open: exactly one
request, the probe, may ask; its success closes the breaker, its failure opens it again. Refusals (4xx) and
cancellations say nothing about a provider's health: they neither count nor reset the count (a 400 between two 500s
must not hide an outage), and a probe that ends so leaves its place to the next request.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from agent_core.context import Clock
from agent_core.errors import ProviderError, ProviderRefused, RateLimited

LONG_WAIT_S = 60.0
"""A ``Retry-After`` above this opens the breaker for that long; up to it the provider is only paused."""


class BreakerState(StrEnum):
    """What a breaker lets through: everything, nothing, or one probe."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """How many failures in a row open a breaker, and for how many seconds."""

    failure_threshold: int = 3
    recovery_timeout_s: float = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Permit:
    """Leave to send one request, given in one ``era`` of the breaker; a probe's ends at ``ends_at``."""

    era: int
    ends_at: float


class Breaker:
    """The breaker of one provider, for one event loop: no method waits, so each is atomic.

    Every permit goes back with ``release``, after ``succeed``, ``fail`` or neither. ``failures`` counts those in a row.
    """

    def __init__(self, policy: BreakerPolicy, clock: Clock) -> None:
        self.failures = 0
        self._policy, self._clock = policy, clock
        self._era = 0  # grows with each change of state: what began before one says nothing of the time after it
        self._open_until: float | None = None
        self._paused_until = -math.inf
        self._probe: Permit | None = None

    @property
    def state(self) -> BreakerState:
        """Closed, open, or half open."""
        if self._open_until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self._clock.monotonic() < self._open_until else BreakerState.HALF_OPEN

    @property
    def wait_s(self) -> float:
        """Seconds until a request may be sent, as far as time decides; 0 when it may now."""
        return max(0.0, max(self._paused_until, self._open_until or -math.inf) - self._clock.monotonic())

    def admits(self) -> bool:
        """Whether ``admit`` would give a permit now."""
        # a probe whose time is over (its stream is held by somebody who reads no more) blocks nobody
        probing = self._probe is not None and self._clock.monotonic() < self._probe.ends_at
        return not probing and self.wait_s == 0.0

    def admit(self, lease_s: float) -> Permit | None:
        """Give leave to send one request that lasts at most ``lease_s``, or None when nobody may send one."""
        if not self.admits():
            return None
        permit = Permit(self._era, self._clock.monotonic() + lease_s)
        self._probe = None if self._open_until is None else permit
        return permit

    def succeed(self, permit: Permit) -> None:
        """Note an answer: failures begin at 0 again, and a probe's closes the breaker."""
        if permit.era == self._era:
            self.failures = 0
            if self._open_until is not None:
                self._change(None)

    def fail(self, permit: Permit, error: ProviderError) -> None:
        """Note a failure: one too many in a row, or a probe's, opens the breaker; a refusal counts as nothing.

        With a ``retry_after_s`` nothing is sent for that time, or longer where that is known already.
        """
        now = self._clock.monotonic()
        if isinstance(error, RateLimited) and error.retry_after_s is not None:
            until = now + error.retry_after_s
            if error.retry_after_s > LONG_WAIT_S:
                self._change(max(until, self._open_until or until))
            else:
                self._paused_until = max(until, self._paused_until)
        elif permit.era == self._era and not isinstance(error, ProviderRefused):
            self.failures += 1
            if self._open_until is not None or self.failures >= self._policy.failure_threshold:
                self._change(now + self._policy.recovery_timeout_s)

    def release(self, permit: Permit) -> None:
        """Give a permit back; a probe's place is free then."""
        if self._probe is permit:
            self._probe = None

    def _change(self, open_until: float | None) -> None:
        self._open_until, self._probe, self._era = open_until, None, self._era + 1
