"""How checks are graded: names, bounds, and the words around a number. No database here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from bot.tools.database_health.answer import Check, Status

CheckName = Literal[
    "connections",
    "cache_hit",
    "checkpoints",
    "archiving",
    "replication",
    "slots",
    "long_transactions",
    "idle_in_transaction",
    "sequences",
    "objects",
    "wraparound",
    "history",
]
ALL_CHECKS: tuple[CheckName, ...] = get_args(CheckName)

POSTGRES_ONLY = frozenset({"checkpoints", "archiving", "slots", "wraparound"})
MYSQL_ONLY = frozenset({"history"})

_GiB = 1024**3
_MiB = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """From where on a number is a warning, and from where on it is critical; None: never."""

    warn: float
    critical: float | None = None

    def grade(self, value: float) -> Status:
        """Grade a number that is worse the larger it is."""
        if self.critical is not None and value >= self.critical:
            return "critical"
        return "warn" if value >= self.warn else "ok"

    def describe(self, say: Callable[[float], str]) -> str:
        """Say the bounds in words; ``say`` writes a number with its unit."""
        critical = "" if self.critical is None else f", critical from {say(self.critical)}"
        return f"warn from {say(self.warn)}{critical}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthBounds:
    """What numbers are compared with.

    Args:
        connections: share of the connections that ordinary roles may have.
        storm_share: of those connections, begun within ``storm_s``: a storm; at least ``storm_least`` of them.
        miss: share of block reads that the buffer cache did not serve; judged from ``miss_least`` reads on.
        requested_checkpoints: checkpoints an hour that came before their time because of much WAL.
        lag_bytes, lag_s: of a standby.
        slot_bytes: WAL that a slot in use keeps; ``idle_slot_bytes``: that an unused one keeps.
        transaction_s: age of a transaction.
        idle_s: how long a session idles inside a transaction; ``idle_blocking_s``: while others wait for it.
        sequence: used share of a sequence's or an AUTO_INCREMENT column's range.
        unlogged_bytes: size of an unlogged table from which on it is told.
        wraparound: share of the 2^31 transaction ids.
        history: MySQL: length of InnoDB's history list.
    """

    connections: Bounds = Bounds(warn=0.8, critical=0.95)
    storm_share: float = 0.4
    storm_least: int = 10
    storm_s: float = 60.0
    miss: Bounds = Bounds(warn=0.1)
    miss_least: int = 20_000
    requested_checkpoints: Bounds = Bounds(warn=6, critical=60)
    lag_bytes: Bounds = Bounds(warn=256 * _MiB, critical=4 * _GiB)
    lag_s: Bounds = Bounds(warn=30, critical=300)
    slot_bytes: Bounds = Bounds(warn=4 * _GiB, critical=32 * _GiB)
    idle_slot_bytes: Bounds = Bounds(warn=16 * _MiB, critical=8 * _GiB)
    transaction_s: Bounds = Bounds(warn=300, critical=3600)
    idle_s: Bounds = Bounds(warn=10, critical=300)
    idle_blocking_s: Bounds = Bounds(warn=0, critical=60)
    sequence: Bounds = Bounds(warn=0.75, critical=0.9)
    unlogged_bytes: int = _MiB
    wraparound: Bounds = Bounds(warn=0.5, critical=0.75)
    history: Bounds = Bounds(warn=100_000, critical=1_000_000)


HEALTH_BOUNDS = HealthBounds()

_ORDER: tuple[Status, ...] = ("critical", "warn", "ok", "unknown")


def worst(statuses: Iterable[Status]) -> Status:
    """Return the worst; ``unknown`` only where nothing is known."""
    return min(statuses, key=_ORDER.index, default="unknown")


def order_checks(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Put what needs attention first, then what is not known, then what is well."""
    order: tuple[Status, ...] = ("critical", "warn", "unknown", "ok")
    return tuple(sorted(checks, key=lambda check: order.index(check.status)))


def unknown(check: str, why: str, *, grant: str | None = None) -> Check:
    """Build the result of a check that could not look."""
    advice = f"run: {grant}" if grant else ""
    return Check(check=check, status="unknown", value=None, unit="", bound="", evidence=why, advice=advice, grant=grant)
