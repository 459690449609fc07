"""A clock for tests that compare days, hours or minutes."""

from __future__ import annotations

from datetime import datetime, timedelta

from agent_core.context import SystemClock


class NoonClock(SystemClock):
    """The machine's clock, set ahead to tomorrow's noon when it is made; from there it runs as the machine's does.

    What a test does is all of one day and begins at a full hour, at whatever moment the test is run.
    """

    def __init__(self) -> None:
        now = super().now()
        self.ahead = now.replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=1) - now

    def now(self) -> datetime:
        return super().now() + self.ahead
