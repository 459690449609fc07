"""Which shapes are named as changed: the one that changed, and none on a steady server."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence

import pytest

from bot.tools.query_history.changes import FEWEST_CALLS, Changes, find_changes
from bot.tools.slow_queries.window import Activity


def activity(durations: Sequence[float]) -> Activity:
    return Activity(
        calls=len(durations),
        total_s=math.fsum(durations),
        mean_s=statistics.fmean(durations),
        stddev_s=statistics.pstdev(durations),
        max_s=max(durations),
        max_exact=True,
        rows=len(durations),
        temp_bytes=0,
    )


def run(dice: random.Random, *, calls: int = 200, slower: float = 1.0, flipped: float = 1.0) -> dict[str, Activity]:
    """A minute of twelve shapes with the skewed durations that databases have; ``s3`` may have another plan."""
    found = {}
    for n in range(12):
        factor = slower * (flipped if n == 3 else 1.0)
        median = 0.002 * 1.7**n
        found[f"s{n}"] = activity([factor * median * dice.lognormvariate(0, 0.8) for _ in range(calls)])
    return found


def compare(a: Mapping[str, Activity], b: Mapping[str, Activity], *, length_b_s: float = 60) -> Changes:
    return find_changes(a, b, length_before_s=60, length_after_s=length_b_s)


def test_two_hundred_steady_runs_raise_no_alarm() -> None:
    dice = random.Random(11)
    named = [
        shift for _ in range(200) for shift in compare(run(dice), run(dice, calls=dice.choice([100, 200, 400]))).shifts
    ]
    assert named == []


@pytest.mark.parametrize("flipped", [3.0, 50.0])
def test_a_flipped_plan_is_the_first_row_whatever_else_costs_more(flipped: float) -> None:
    dice = random.Random(3)
    changes = compare(run(dice), run(dice, flipped=flipped))
    assert [(shift.fingerprint, shift.change) for shift in changes.shifts] == [("s3", "regressed")]
    assert changes.shifts[0].extra_s > 0
    assert changes.tested == 12


def test_a_flipped_plan_shows_though_one_call_before_it_hung() -> None:
    a = {"q": activity([0.001] * 24 + [0.05]), "rest": activity([0.01] * 50)}
    b = {"q": activity([0.019, 0.021] * 12), "rest": activity([0.01] * 50)}
    assert [shift.change for shift in compare(a, b).shifts] == ["regressed"]


def test_a_flipped_plan_shows_though_its_clients_call_less_the_longer_they_wait() -> None:
    dice = random.Random(4)
    a = {"plan": activity([0.01 * dice.uniform(0.8, 1.2) for _ in range(1000)]), "rest": activity([0.01] * 500)}
    b = {"plan": activity([0.5 * dice.uniform(0.8, 1.2) for _ in range(20)]), "rest": activity([0.01] * 500)}
    (shift,) = compare(a, b).shifts
    assert shift.change == "regressed"
    assert shift.extra_s == pytest.approx(20 * 0.49, rel=0.1)


def test_an_index_that_helps_is_an_improvement_with_the_time_it_saved() -> None:
    dice = random.Random(3)
    (shift,) = compare(run(dice, flipped=20), run(dice)).shifts
    assert (shift.fingerprint, shift.change) == ("s3", "improved")
    assert shift.extra_s < 0


def test_a_machine_that_is_slower_as_a_whole_is_told_once_and_no_shape_is_blamed() -> None:
    dice = random.Random(8)
    changes = compare(run(dice), run(dice, slower=2.5))
    assert changes.shifts == ()
    assert changes.common_factor == pytest.approx(2.5, rel=0.2)
    both = compare(run(dice), run(dice, slower=2.5, flipped=10))
    assert [shift.fingerprint for shift in both.shifts] == ["s3"]


def test_new_and_gone_shapes_are_named_by_what_they_cost_and_small_ones_are_not() -> None:
    dice = random.Random(2)
    a, b = run(dice), run(dice)
    changes = compare(
        a | {"gone": activity([0.3] * 30), "small": activity([0.001])}, b | {"new": activity([20.0])}, length_b_s=120
    )
    assert [(s.fingerprint, s.change) for s in changes.shifts] == [("new", "new"), ("gone", "gone")]
    assert [s.extra_s for s in changes.shifts] == [20.0, pytest.approx(-18.0)]  # two minutes would have had it twice
    assert changes.shifts[0].p_value is None


def test_a_mean_of_a_few_calls_is_compared_with_nothing() -> None:
    few = FEWEST_CALLS - 1
    assert compare({"q": activity([0.1] * few)}, {"q": activity([5.0] * 100)}).tested == 0
    assert compare({"q": activity([0.1] * 100)}, {"q": activity([5.0] * few)}).shifts == ()


def test_one_slow_call_more_among_a_few_is_no_regression() -> None:
    a = {"q": activity([0.1] * 11 + [6.0]), "rest": activity([1.0] * 9)}
    b = {"q": activity([0.1] * 10 + [6.0] * 2), "rest": activity([1.0] * 9)}
    assert b["q"].mean_s > 1.5 * a["q"].mean_s
    assert compare(a, b).shifts == ()


def test_a_change_that_costs_next_to_nothing_is_not_worth_a_word() -> None:
    a = {"big": activity([1.0, 1.1] * 50), "tiny": activity([0.0010, 0.0011] * 50)}
    b = {"big": activity([1.0, 1.1] * 50), "tiny": activity([0.0030, 0.0031] * 50)}
    assert compare(a, b).shifts == ()


def test_nothing_on_either_side_is_no_change() -> None:
    assert compare({}, {}).shifts == ()
    zero = activity([0.0] * 10)
    assert compare({"q": zero}, {"q": zero}).shifts == ()
