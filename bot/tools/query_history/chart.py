"""A trend as a picture, drawn from nothing but the answer of ``query_trend``."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import UTC, datetime

_LONGEST_TITLE = 110
_FEWEST = 2


def draw_trend(answer: Mapping[str, object]) -> bytes | None:
    """Draw mean duration and calls over time as a PNG.

    Args:
        answer: of ``query_trend``, as JSON: ``target``, ``sql``, and ``rows`` with ``start`` and ``end`` (ISO 8601),
            ``calls``, ``mean_s`` (seconds; null where nothing is known, which leaves a gap).

    Returns:
        None without matplotlib (extra ``sandbox``), or with fewer than two buckets.
    """
    rows = answer.get("rows")
    buckets = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    if len(buckets) < _FEWEST:
        return None
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
        from matplotlib.figure import Figure
    except ImportError:
        return None
    starts = [_instant(row.get("start")) for row in buckets]
    widths = [(_instant(row.get("end")) - start) * 0.9 for row, start in zip(buckets, starts, strict=True)]
    figure = Figure(figsize=(9, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    means, calls = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    known = [_number(row.get("mean_s")) for row in buckets]
    means.plot(starts, known, color="#1f6feb", marker="o", markersize=3, linewidth=1.5)
    means.set_ylabel("mean duration (s)")
    means.set_ylim(bottom=0)
    calls.bar(starts, [_number(row.get("calls")) for row in buckets], width=widths, align="edge", color="#8b949e")
    calls.set_ylabel("calls")
    for axes in (means, calls):
        axes.grid(visible=True, alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    calls.xaxis.set_major_locator(locator)
    calls.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    calls.set_xlabel("UTC")
    means.set_title(_title(answer), fontsize=9, loc="left", family="monospace")
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _title(answer: Mapping[str, object]) -> str:
    text = " ".join(f"{answer.get('target', '')}: {answer.get('sql', '')}".split()).replace("$", r"\$")
    return text if len(text) <= _LONGEST_TITLE else f"{text[:_LONGEST_TITLE]}…"


def _instant(value: object) -> datetime:
    return datetime.fromisoformat(str(value).replace("Z", "+00:00"))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")
