"""The scheduler over a real store: what is due is fired once, whoever looks, and nothing holds up the rest."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.integration.jobs.desk import Desk


async def test_a_job_fires_at_its_time_with_its_owners_rights_in_a_thread_of_its_own(desk: Desk) -> None:
    row = await desk.make()
    await desk.scheduler.tick()
    assert desk.woken == 0
    desk.clock.at = datetime(2026, 3, 29, 7, 0, 3, tzinfo=UTC)  # nine o'clock, and the clocks went forward that night
    await desk.scheduler.tick()
    assert desk.woken == 1
    (firing,) = await desk.fired()
    assert (firing.author.id, firing.author.name) == ("U1", "Anna")
    assert (firing.job_id, firing.job, firing.local) == (row.job_id, "report", "2026-03-29 09:00 +02:00")
    assert firing.sent_at == datetime(2026, 3, 29, 7, tzinfo=UTC)
    assert firing.thread.key.startswith("slack:T1/C1/command-report-")
    assert (await desk.load()).next_at == datetime(2026, 3, 30, 7, tzinfo=UTC)
    await desk.scheduler.tick()
    assert await desk.fired() == []
