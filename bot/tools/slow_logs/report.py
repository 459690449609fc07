"""From a reading to the answer: ranking, rounding, and what is not covered."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from bot.tools.envelope import AnswerWindow, Coverage
from bot.tools.slow_logs.answer import CancelledQuery, Damage, LeftOut, LogQuery, OrderBy, SlowLog
from bot.tools.slow_logs.reading import Reading, Wanted
from bot.tools.slow_logs.shapes import Shape, Who

_SERVERS_OWN = (
    "a log has only statements that took longer than the server's own threshold (log_min_duration_statement, "
    "long_query_time), so calls and means are of those"
)


def build_log_answer(
    reading: Reading, wanted: Wanted, *, order_by: OrderBy, limit: int | None, target: str, took_ms: float
) -> SlowLog:
    """Lay out the envelope with at most ``limit`` rows (None: all)."""
    shapes = [shape for table in reading.tables for shape in table.finish()]
    total_s = math.fsum(shape.total_s for shape in shapes) + sum(table.others.total_s for table in reading.tables)
    over = [shape for shape in shapes if shape.calls and shape.longest >= wanted.threshold_s]
    ranked = sorted(over, key=lambda shape: (-_value(shape, order_by), shape.fingerprint))
    only_cancelled = sorted((s for s in shapes if not s.calls and s.cancelled), key=lambda s: -s.cancelled)
    rows = ranked if limit is None else ranked[:limit]
    cancelled = only_cancelled if limit is None else only_cancelled[:limit]
    seen = [shape for shape in shapes if shape.first <= shape.last]
    start = _iso(min((shape.first for shape in seen), default=math.inf))
    end = _iso(max((shape.last for shape in seen), default=-math.inf))
    reasons = tuple(_reasons(reading, wanted))
    return SlowLog(
        target=target,
        engine="+".join(
            name for name, table in zip(("postgresql", "mysql"), reading.tables, strict=True) if table.calls
        )
        or ("mysql" if any(file.format == "mysql" for file in reading.files) else "postgresql"),
        engine_version=reading.version,
        source=f"slow log ({', '.join(dict.fromkeys(file.format for file in reading.files)) or 'nothing to read'})",
        window=AnswerWindow(
            asked_start=_iso(wanted.since) or start or "",
            asked_end=_iso(wanted.until) or end or "",
            start=start,
            end=end or "",
        ),
        coverage=Coverage(complete=not reasons, reasons=reasons, snapshots=0),
        threshold_s=wanted.threshold_s,
        rows=tuple(_row(shape, total_s) for shape in rows),
        cancelled=tuple(
            CancelledQuery(sql=s.sql, fingerprint=s.fingerprint, cancelled=s.cancelled, last_seen=_iso(s.last))
            for s in cancelled
        ),
        truncated=LeftOut(rows=len(ranked) - len(rows), cancelled=len(only_cancelled) - len(cancelled)),
        files=tuple(reading.files),
        lines=reading.tally.lines,
        entries=reading.tally.entries,
        damaged=Damage(
            lines=reading.tally.damaged_lines,
            bytes=reading.tally.damaged_bytes,
            places=reading.tally.damaged_places,
            examples=tuple(reading.tally.examples),
        ),
        warnings=tuple(_warnings(reading)),
        took_ms=round(took_ms, 1),
    )


def _value(shape: Shape, order_by: OrderBy) -> float:
    match order_by:
        case "total":
            return shape.total_s
        case "mean":
            return shape.mean
        case "max":
            return shape.longest
        case "p95":
            return shape.sketch.read(0.95)[0]
        case "calls":
            return shape.calls


def _row(shape: Shape, total_s: float) -> LogQuery:
    # A percentile lies between the shortest and the longest execution, whatever its bucket's middle is.
    p50, p95, p99 = (min(max(value, shape.least), shape.longest) for value in shape.sketch.read(0.5, 0.95, 0.99))
    user, db, app = (_most_frequent(shape.who, part) for part in range(3))
    return LogQuery(
        sql=shape.sql,
        duration=round(shape.longest, 6),
        fingerprint=shape.fingerprint,
        calls=shape.calls,
        calls_over_threshold=shape.over,
        total_s=round(shape.total_s, 6),
        mean_s=round(shape.mean, 6),
        stddev_s=round(shape.stddev_s, 6),
        min_s=round(shape.least, 6),
        max_s=round(shape.longest, 6),
        p50_s=round(p50, 6),
        p95_s=round(p95, 6),
        p99_s=round(p99, 6),
        rows=shape.rows if shape.rows_known else None,
        share_of_total=round(shape.total_s / total_s, 4) if total_s > 0 else None,
        first_seen=_iso(shape.first),
        last_seen=_iso(shape.last),
        db=db,
        user=user,
        app=app,
        prepare_s=round(shape.steps_s, 6),
        cancelled=shape.cancelled,
        example_plan=shape.plan or None,
    )


def _most_frequent(who: Mapping[Who, int], part: int) -> str | None:
    counts: Counter[str] = Counter()
    for names, count in who.items():
        if name := names[part]:
            counts[name.decode("utf-8", "replace")[:80]] += count
    return counts.most_common(1)[0][0] if counts else None


def _iso(at: float) -> str | None:
    if not math.isfinite(at):
        return None
    try:
        text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None
    return text.replace("+00:00", "Z")


def _reasons(reading: Reading, wanted: Wanted) -> Sequence[str]:
    reasons: list[str] = []
    tally = reading.tally
    if reading.stopped:
        reasons.append(reading.stopped)
    if math.isfinite(wanted.since) and not any(table.before for table in reading.tables):
        reasons.append("the log has nothing from before the asked range, so it may begin inside it")
    if tally.damaged_lines:
        reasons.append(f"{tally.damaged_lines:,} lines could not be read")
    if timeless := sum(table.timeless for table in reading.tables):
        reasons.append(f"{timeless:,} executions without a time were left out")
    if tally.lone_durations:
        reasons.append(
            f"{tally.lone_durations:,} durations ({tally.lone_durations_s:,.3f} s) have no statement in the log"
        )
    for table in reading.tables:
        if table.others.shapes:
            reasons.append(
                f"{table.others.shapes:,} shapes with {table.others.calls:,} calls and {table.others.total_s:,.1f} s "
                f"were summed up together, as more than {table.most_shapes:,} came up"
            )
    return reasons


def _warnings(reading: Reading) -> Sequence[str]:
    tally, times = reading.tally, reading.times
    warnings = [_SERVERS_OWN, *reading.skipped[:5]]
    if len(reading.skipped) > 5:
        warnings.append(f"{len(reading.skipped) - 5} further files were passed over")
    if guessed := {file.log_line_prefix for file in reading.files if file.prefix_guessed}:
        warnings.append(f"log_line_prefix was guessed: {', '.join(sorted(repr(text) for text in guessed))}")
    if times.unknown_zones:
        warnings.append(f"unknown time zones were taken as UTC: {', '.join(sorted(times.unknown_zones))}")
    if times.assumed_utc:
        warnings.append("the log does not name the zone of its times; they were taken as UTC")
    if tally.steps:
        warnings.append(f"{tally.steps:,} parse and bind steps took {tally.steps_s:,.3f} s; they are in prepare_s only")
    if tally.shortened:
        warnings.append(f"{tally.shortened:,} entries longer than 4 MiB were shortened")
    if cancelled := sum(s.cancelled for table in reading.tables for s in table.finish()):
        warnings.append(
            f"{cancelled:,} executions were cancelled (timeout or by a person); they have no duration and are in no "
            "statistics of the server either"
        )
    return warnings
