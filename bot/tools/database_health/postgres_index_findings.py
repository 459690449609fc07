"""From all indexes of a Postgres database to those that deserve a look. No database here: values in, values out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.tools.database_health.answer import IndexFinding, IndexKind
from bot.tools.database_health.postgres_indexes import IndexEntry
from bot.tools.database_health.postgres_server import PostgresServer
from bot.tools.database_health.redundancy import IndexShape, Redundancy, find_redundant
from bot.tools.database_health.wording import say_age, say_count, say_number, write_size
from bot.tools.slow_queries.redact_sql import redact_sql

# They change how fast an index is, not what it can answer.
_TUNING = (
    "fillfactor=",
    "fastupdate=",
    "deduplicate_items=",
    "buffering=",
    "gin_pending_list_limit=",
    "autosummarize=",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came out.

    Args:
        findings: not yet filtered by size.
        warnings: what could not be judged.
    """

    findings: tuple[IndexFinding, ...]
    warnings: tuple[str, ...]


def judge_indexes(entries: Sequence[IndexEntry], server: PostgresServer, *, enough_s: float) -> Judged:
    """Find invalid, duplicate, prefix-redundant and unused indexes; each index is named once, in this order.

    Args:
        entries: all indexes.
        server: for the age of the counters and for standbys.
        enough_s: how long counters have to have counted before an index is called unused. Younger ones are told, but
            nothing is suggested on their ground.
    """
    units = _fold_partitions(entries)
    invalid, warnings = _find_invalid(entries, server)
    redundancies = find_redundant(_shape(unit) for unit in units if unit.valid)
    by_oid = {unit.oid: unit for unit in units}
    redundant = {item.index.key: item for item in redundancies}
    covering: defaultdict[str, list[str]] = defaultdict(list)
    for item in redundancies:
        covering[item.covered_by.key].append(by_oid[item.index.key].index)
    unused = [
        _unused(unit, server, enough_s=enough_s, covers=covering.get(unit.oid, []))
        for unit in units
        if _is_unused(unit) and unit.oid not in redundant
    ]
    doubled = [_redundant(item, redundant, by_oid, server) for item in redundancies]
    return Judged(findings=(*invalid, *doubled, *unused), warnings=warnings)


def _fold_partitions(entries: Sequence[IndexEntry]) -> list[IndexEntry]:
    """Give a partitioned index the size and the scans of all its parts; the parts stay, as they may cover others."""
    size: defaultdict[str, int] = defaultdict(int)
    scans: defaultdict[str, int] = defaultdict(int)
    writes: defaultdict[str, int] = defaultdict(int)
    for entry in entries:
        if not entry.partitioned:
            size[entry.root] += entry.size_bytes
            scans[entry.root] += entry.scans
            writes[entry.root] += entry.writes
    return [
        replace(entry, size_bytes=size[entry.oid], scans=scans[entry.oid], writes=writes[entry.oid])
        if entry.partitioned and not entry.parent
        else entry
        for entry in entries
    ]


def _shape(entry: IndexEntry) -> IndexShape:
    pinned = entry.primary or entry.exclusion or entry.replident or entry.referenced
    tuning = entry.method == "btree"
    return IndexShape(
        key=entry.oid,
        table=entry.table_oid,
        method=entry.method,
        parts=entry.parts,
        included=entry.included,
        predicate=entry.predicate,
        parameters=() if tuning else tuple(sorted(p for p in entry.parameters if not p.startswith(_TUNING))),
        unique=entry.unique,
        nulls_not_distinct=entry.nulls_not_distinct,
        deferrable=entry.deferrable,
        constraint=bool(entry.constraint),
        pinned=pinned,
        droppable=not entry.parent,
        rank=(
            int(entry.primary),
            int(pinned),
            int(bool(entry.constraint)),
            int(bool(entry.parent)),
            int(entry.clustered),
            entry.scans,
            -int(entry.oid),
        ),
        size_bytes=entry.size_bytes,
    )


def _find_invalid(entries: Iterable[IndexEntry], server: PostgresServer) -> tuple[list[IndexFinding], tuple[str, ...]]:
    found: list[IndexFinding] = []
    warnings: list[str] = []
    for entry in entries:
        if entry.valid:
            continue
        if entry.building or (entry.table_busy and not server.sees_all):
            warnings.append(
                f"{entry.index} is not valid yet; a session seems to be building it just now. Ask again when it is done"
            )
            continue
        found.append(_invalid(entry, server))
    return found, tuple(warnings)


def _invalid(entry: IndexEntry, server: PostgresServer) -> IndexFinding:
    notes: tuple[str, ...] = _standby_note(server)
    if entry.partitioned:
        finding = "the partitioned index is not valid: not every partition has a valid part of it"
        suggestion = (
            "-- on each partition that lacks it: CREATE INDEX CONCURRENTLY ...; "
            f"ALTER INDEX {entry.index} ATTACH PARTITION ...;"
        )
    elif entry.parent or entry.constraint:
        finding = "not valid: no statement uses it, every write still keeps it up"
        suggestion = f"REINDEX INDEX CONCURRENTLY {entry.index};"
        notes += ("it cannot be dropped by itself: a constraint or a partitioned index needs it",)
    else:
        finding = (
            f"not valid: no statement uses it, every write still keeps it up ({say_count(entry.writes)} since the "
            "counters began); a CREATE or REINDEX INDEX CONCURRENTLY was broken off"
        )
        suggestion = f"DROP INDEX CONCURRENTLY {entry.index};"
        notes += (f"or, if it is wanted: REINDEX INDEX CONCURRENTLY {entry.index};",)
    if entry.unique and not entry.partitioned:
        notes += ("as it is, it does not guarantee that values are unique",)
    return _finding(entry, "invalid", finding, suggestion, notes)


def _redundant(
    item: Redundancy, others: Mapping[str, Redundancy], by_oid: Mapping[str, IndexEntry], server: PostgresServer
) -> IndexFinding:
    entry, cover = by_oid[item.index.key], by_oid[item.covered_by.key]
    if item.kind == "duplicate":
        more = " and is unique besides" if cover.unique and not entry.unique else ""
        finding = f"{cover.index} has the same columns in the same way{more}"
    else:
        times = cover.size_bytes / entry.size_bytes if entry.size_bytes else 1.0
        size = f", at {times:.1f} times its size" if times >= 1.1 else ""
        finding = f"{cover.index} begins with the same columns{size}"
    finding += f"; {_say_scans(entry)} here, {say_count(cover.scans)} there"
    notes = _drop_notes(entry, server)
    if in_turn := others.get(item.covered_by.key):
        notes += (f"{cover.index} is redundant itself: {by_oid[in_turn.covered_by.key].index} does the work of both",)
    if entry.scans and item.kind == "prefix_redundant" and cover.size_bytes > 3 * entry.size_bytes:
        notes += ("it is in use and much smaller than the other one: compare plans before dropping it",)
    suggestion = None if server.standby else _drop_line(entry)
    return _finding(entry, item.kind, finding, suggestion, notes, covered_by=cover.index)


def _is_unused(entry: IndexEntry) -> bool:
    enforces = entry.unique or entry.primary or entry.exclusion or bool(entry.constraint) or entry.referenced
    return entry.valid and entry.scans == 0 and not (enforces or entry.replident or entry.parent)


def _unused(entry: IndexEntry, server: PostgresServer, *, enough_s: float, covers: Sequence[str]) -> IndexFinding:
    age_s = server.counters_age_s
    writes = f"; the table was written {say_count(entry.writes)} times meanwhile" if entry.writes else ""
    notes = _drop_notes(entry, server)
    sure = age_s is not None and age_s >= enough_s and not server.standby and not covers
    if age_s is None:
        finding = f"no scan is counted, but it is not known since when{writes}"
    elif age_s < enough_s:
        finding = (
            f"not scanned in the {say_age(age_s)} since the counters began; too short to call it unused "
            f"(at least {say_age(enough_s)}){writes}"
        )
    else:
        finding = f"not scanned in the {say_age(age_s)} since the counters began{writes}"
    if covers:
        notes += (f"it stands in for {', '.join(covers)}: drop one of them, not both",)
    if server.standby:
        notes += ("this is a standby with counters of its own: ask the primary as well",)
    else:
        seen = f"{say_number(server.standbys, 'standby')} streaming from here: " if server.standbys else ""
        notes += (f"{seen}an index that is unused here may be in use on a standby, which counts for itself",)
    if entry.foreign_keys:
        names = ", ".join(entry.foreign_keys)
        notes += (f"it serves the foreign key {names}: without it, deletes on the other side read this whole table",)
    if entry.clustered:
        notes += ("CLUSTER uses it to sort the table",)
    return _finding(entry, "unused", finding, _drop_line(entry) if sure else None, notes)


def _finding(
    entry: IndexEntry,
    kind: IndexKind,
    finding: str,
    suggestion: str | None,
    notes: tuple[str, ...],
    *,
    covered_by: str | None = None,
) -> IndexFinding:
    return IndexFinding(
        table=entry.table,
        index=entry.index,
        kind=kind,
        size_bytes=entry.size_bytes,
        finding=finding,
        suggestion=suggestion,
        covered_by=covered_by,
        scans=entry.scans,
        backs_constraint=bool(entry.constraint),
        notes=notes,
        definition=redact_sql(entry.definition),
    )


def _drop_line(entry: IndexEntry) -> str:
    if entry.constraint:
        return f"ALTER TABLE {entry.table} DROP CONSTRAINT {entry.constraint};"
    if entry.partitioned:
        return f"DROP INDEX {entry.index};"
    return f"DROP INDEX CONCURRENTLY {entry.index};"


def _drop_notes(entry: IndexEntry, server: PostgresServer) -> tuple[str, ...]:
    notes = _standby_note(server)
    if entry.partitioned:
        notes += ("a partitioned index cannot be dropped CONCURRENTLY: the table is locked for a moment",)
    if entry.constraint:
        notes += (f"the constraint {entry.constraint} goes with it; ON CONFLICT clauses may name it",)
    return notes


def _standby_note(server: PostgresServer) -> tuple[str, ...]:
    return ("a standby is read-only: such a line runs on the primary",) if server.standby else ()


def _say_scans(entry: IndexEntry) -> str:
    return f"{write_size(entry.size_bytes)}, {say_number(entry.scans, 'scan')}"
