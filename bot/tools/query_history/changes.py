"""Which statement shapes changed from one window to another, by more than chance and by enough to matter.

Three hurdles, all of which a shape has to pass, because each alone raises false alarms:

* it matters: the extra (or saved) time is at least ``NOTABLE_SHARE`` of the larger window's statement time;
* it is large: the mean changed by at least ``MIN_CHANGE``, *beyond* what all shapes changed together. On a machine that
  is busier than before everything is slower; that is told once, and no shape is blamed for it;
* it is no chance: Welch's test, with the level divided by the number of shapes tested (Bonferroni). Executions are not
  independent, which no such test knows; the other two hurdles are there for that.

The extra time of a shape is reckoned from its calls after the change. The plain difference of totals would miss a
flipped plan under clients that wait for their answers: each call takes longer, so fewer are made.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.tools.query_history.answer import Change
from bot.tools.query_history.welch import compare_means
from bot.tools.slow_queries.window import Activity

NOTABLE_SHARE = 0.01
"""Of the statement time of the larger window: what costs less is not worth a word."""

MIN_CHANGE = 1.5
"""Least factor between the means of a shape that regressed or improved."""

LEVEL = 0.001
"""Probability that *any* shape is named by chance, if the executions were independent."""

FEWEST_CALLS = 5
"""In each window; a mean of fewer says little."""

_FEWEST_FOR_FACTOR = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """One shape's change. ``extra_s`` is negative for time that was saved; ``p_value`` None where nothing is tested."""

    fingerprint: str
    change: Change
    extra_s: float
    before: Activity | None
    after: Activity | None
    p_value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All changes, the one that cost most first.

    Args:
        shifts: those that passed.
        common_factor: mean of the typical shape, after to before; 1 with too few shapes to tell.
        tested: how many shapes were compared.
    """

    shifts: tuple[Shift, ...]
    common_factor: float
    tested: int


def find_changes(
    before: Mapping[str, Activity],
    after: Mapping[str, Activity],
    *,
    length_before_s: float,
    length_after_s: float,
    deviations: bool = True,
) -> Changes:
    """Compare the activity of shapes, by fingerprint, in two windows of the given lengths in seconds.

    Without known ``deviations`` they are taken to be as large as the means.
    """
    scale = length_after_s / length_before_s
    notable_s = NOTABLE_SHARE * max(_total(after), _total(before) * scale)
    both = sorted(before.keys() & after.keys())
    tested = [shape for shape in both if min(before[shape].calls, after[shape].calls) >= FEWEST_CALLS]
    factor = _common_factor([after[s].mean_s / before[s].mean_s for s in tested if before[s].mean_s > 0])
    shifts = [
        shift
        for shape in tested
        if (shift := _compare(shape, before[shape], after[shape], factor, LEVEL / len(tested), deviations)) is not None
    ]
    shifts += [
        Shift(fingerprint=shape, change="new", extra_s=one.total_s, before=None, after=one, p_value=None)
        for shape, one in after.items()
        if shape not in before
    ]
    shifts += [
        Shift(fingerprint=shape, change="gone", extra_s=-one.total_s * scale, before=one, after=None, p_value=None)
        for shape, one in before.items()
        if shape not in after
    ]
    notable = [shift for shift in shifts if abs(shift.extra_s) >= notable_s and shift.extra_s != 0]
    notable.sort(key=lambda shift: (-shift.extra_s, shift.fingerprint))
    return Changes(shifts=tuple(notable), common_factor=factor, tested=len(tested))


def _compare(
    shape: str, before: Activity, after: Activity, factor: float, level: float, deviations: bool
) -> Shift | None:
    """Compare with what the shape would be if it had changed like all others."""
    expected_s = before.mean_s * factor
    ratio = after.mean_s / expected_s if expected_s > 0 else float("inf")
    if 1 / MIN_CHANGE < ratio < MIN_CHANGE or after.mean_s <= 0:
        return None
    p_value = compare_means(
        before.calls,
        expected_s,
        _spread(before, after, deviations) * expected_s,
        after.calls,
        after.mean_s,
        _spread(after, before, deviations) * after.mean_s,
    )
    if p_value > level:
        return None
    return Shift(
        fingerprint=shape,
        change="regressed" if after.mean_s > expected_s else "improved",
        extra_s=(after.mean_s - before.mean_s) * after.calls,
        before=before,
        after=after,
        p_value=p_value,
    )


def _spread(one: Activity, other: Activity, deviations: bool) -> float:
    """Deviation over mean of one side.

    Durations are skewed: a sample that misses the few long ones has a low mean and a low deviation at once, and would
    look certain. So the side with the lower mean is taken to be at least as spread as the other one.
    """
    if not deviations:
        return 1.0
    own = one.stddev_s / one.mean_s if one.mean_s > 0 else 0.0
    return max(own, other.stddev_s / other.mean_s) if one.mean_s < other.mean_s else own


def _common_factor(ratios: Sequence[float]) -> float:
    return statistics.median(ratios) if len(ratios) >= _FEWEST_FOR_FACTOR else 1.0


def _total(activities: Mapping[str, Activity]) -> float:
    return sum(one.total_s for one in activities.values())
