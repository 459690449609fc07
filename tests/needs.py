"""What a test needs of the machine: skipped with the reason where it is missing, failed where all of it is required."""

from __future__ import annotations

import os

import pytest


def need(reason: str) -> None:
    """Go on when there is no reason against it.

    Args:
        reason: what is missing, and how to get it; empty when nothing is. Under ``HERMOD_REQUIRE_SERVICES=1`` (CI) a
            reason fails the test, so that a run without a sandbox or a server never passes for one with it.
    """
    if reason and os.environ.get("HERMOD_REQUIRE_SERVICES") == "1":
        pytest.fail(f"a required service is missing: {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)
