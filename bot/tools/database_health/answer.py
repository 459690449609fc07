"""What the three tools answer. Sizes in bytes, durations in seconds, shares 0..1; names quoted as SQL wants them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.tools.envelope import Envelope

IndexKind = Literal["invalid", "duplicate", "prefix_redundant", "unused"]
Status = Literal["ok", "warn", "critical", "unknown"]
BloatMethod = Literal["pgstattuple_approx", "statistics", "data_free", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFinding:
    """An index that costs something and gives nothing, or less than it seems.

    Args:
        table, index: with their schema.
        kind: ``invalid`` (never used, still written), ``duplicate`` (another index has the same columns and serves
            the same statements), ``prefix_redundant`` (another one begins with its columns), ``unused``.
        size_bytes: with all partitions.
        finding: what speaks for it, in words.
        suggestion: the statement that a person may run after looking; nobody else does. None where the evidence is
            too thin, for example when the counters have only just begun.
        covered_by: the index that does its work.
        scans: since the counters began, with all partitions; None when they cannot be read.
        backs_constraint: a primary key, unique or exclusion constraint stands on it.
        notes: what to look at before dropping it.
        definition: without literals.
    """

    table: str
    index: str
    kind: IndexKind
    size_bytes: int
    finding: str
    suggestion: str | None
    covered_by: str | None = None
    scans: int | None = None
    backs_constraint: bool = False
    notes: tuple[str, ...] = ()
    definition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexHealth(Envelope):
    """The answer of ``index_health``.

    Args:
        rows: the worst kind first, then the largest.
        counters_since: since when scans were counted, ISO 8601 UTC; None when the server does not tell.
        counters_age_s: how long that is.
        examined: how many indexes were looked at.
        suggestions: those of the rows, together.
    """

    rows: tuple[IndexFinding, ...]
    suggestions: tuple[str, ...] = ()
    counters_since: str | None = None
    counters_age_s: float | None = None
    examined: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """One table, a partitioned one with all its partitions.

    Args:
        table: with its schema.
        size_bytes: with indexes and TOAST.
        heap_bytes, index_bytes, toast_bytes: its parts; MySQL keeps no TOAST.
        live_rows, dead_rows: as the server estimates them.
        bloat_bytes, bloat_share: what is neither live rows nor wanted free space, and how much of the heap that is;
            None when ``bloat_method`` is ``none``.
        bloat_method: how that was found out.
        findings: what is wrong, each with its evidence; empty for a healthy table.
        seq_scans, seq_rows_read, index_scans: since the counters began.
        last_vacuum, last_analyze: the later one of by hand and automatic, ISO 8601 UTC; of partitions the oldest.
        xid_age, xid_share: age of the oldest unfrozen row in transactions, and as a share of 2^31.
        multixact_age: the same for multixacts.
        partitions: how many tables the numbers are of; 0 for an ordinary table.
        auto_increment_share: MySQL: how much of the column's range is used up.
        storage_engine: MySQL.
    """

    table: str
    size_bytes: int
    live_rows: int | None
    dead_rows: int | None = None
    bloat_share: float | None = None
    findings: str = ""
    bloat_bytes: int | None = None
    heap_bytes: int
    index_bytes: int
    toast_bytes: int | None = None
    seq_scans: int | None = None
    seq_rows_read: int | None = None
    index_scans: int | None = None
    last_vacuum: str | None = None
    last_analyze: str | None = None
    xid_age: int | None = None
    xid_share: float | None = None
    multixact_age: int | None = None
    partitions: int = 0
    auto_increment_share: float | None = None
    storage_engine: str | None = None
    bloat_method: BloatMethod = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth(Envelope):
    """The answer of ``table_health``: the largest tables, and smaller ones with findings. Largest first."""

    rows: tuple[TableFacts, ...]
    counters_since: str | None = None
    examined: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Args:
        check: its name.
        status: ``unknown`` when it could not be looked at; ``evidence`` then says why.
        value: the number that was compared; None when there is none.
        unit: of ``value``.
        bound: what it was compared with, in words.
        evidence: what was seen.
        advice: what to do; empty when nothing is.
        grant: the exact line that lets the check, or all of it, see what it needs.
        items: single cases (sessions, slots, sequences), worst first.
    """

    status: Status
    check: str
    value: float | None
    unit: str
    bound: str
    evidence: str
    advice: str = ""
    grant: str | None = None
    items: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseHealth(Envelope):
    """The answer of ``db_health``; ``status`` is the worst of the checks' (unknown counts least)."""

    status: Status
    rows: tuple[Check, ...]
