"""How many examples a property gets, and where they come from.

Two profiles of hypothesis:

- ``hermod``, for ``make test``: every test draws its examples from a seed of its own, made of its source. The same
  commit then always gets the same verdict, so that a red run says something about the change that it ran for, and a
  second run says nothing new.
- ``search``, for ``make fuzz``: many times as many examples, from seeds that are new each time. This is where chance
  belongs. What it finds becomes a test with a name, which ``make test`` runs from then on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

SEARCH = "search"


def register_profiles() -> None:
    """Register both, and load the one for ``make test``; pytest's ``--hypothesis-profile`` loads another."""
    # Hypothesis' own bounds in seconds say how busy a machine is, not what is right; pytest-timeout ends what hangs.
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("hermod", deadline=None, suppress_health_check=slow, derandomize=True)
    hypothesis.settings.register_profile(SEARCH, deadline=None, suppress_health_check=slow, print_blob=True)
    hypothesis.settings.load_profile("hermod")


def settle_examples(items: Iterable[pytest.Item]) -> None:
    """Make the examples of the collected tests what the loaded profile is for.

    Raises:
        pytest.UsageError: the variable ``FUZZ`` is not a whole number above 0.
    """
    if hypothesis.settings.get_current_profile_name() == SEARCH:
        _multiply_examples(items)
    else:
        # Hypothesis mixes constants from every module of the project that is imported into what it draws: a test would
        # get other examples alone than in the whole suite, and others after a change somewhere else.
        setattr(providers, "_get_local_constants", Constants)  # noqa: B010 - there is no setting for it


def _multiply_examples(items: Iterable[pytest.Item]) -> None:
    asked = os.environ.get("FUZZ", "20")
    if not asked.isdecimal() or not int(asked):
        raise pytest.UsageError(f"FUZZ={asked}: say how many times as many examples as a whole number above 0")
    tests = {
        item.obj for item in items if isinstance(item, pytest.Function) and hypothesis.is_hypothesis_test(item.obj)
    }
    for test in tests:  # all cases of a parametrized test are one object
        own: hypothesis.settings = test._hypothesis_internal_use_settings
        test._hypothesis_internal_use_settings = hypothesis.settings(own, max_examples=own.max_examples * int(asked))
