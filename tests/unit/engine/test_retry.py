"""How long is waited before a request is sent again."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import ConfigError
from agent_core.llm.retry import RetryPolicy


class Extreme(random.Random):
    """Chance at one end of its range."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def random(self) -> float:
        return self.value


def test_waits_double_up_to_the_cap_and_half_of_each_is_chance() -> None:
    policy = RetryPolicy()
    longest = [policy.backoff_s(n, Extreme(1.0)) for n in range(1, 8)]
    assert longest == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert [policy.backoff_s(n, Extreme(0.0)) for n in range(1, 8)] == [s / 2 for s in longest]


@given(st.integers(1, 10_000), st.integers())
def test_no_wait_is_longer_than_the_cap_or_shorter_than_half_of_the_first(n: int, seed: int) -> None:
    assert 1.0 <= RetryPolicy().backoff_s(n, random.Random(seed)) <= 30.0


@pytest.mark.parametrize("bad", [{"max_attempts": 0}, {"backoff_base_s": -1.0}, {"backoff_cap_s": 1.0}])
def test_a_policy_that_makes_no_sense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="retry policy"):
        RetryPolicy(**bad)  # type: ignore[arg-type]
