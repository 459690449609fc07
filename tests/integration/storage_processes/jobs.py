"""Jobs that are due."""

from __future__ import annotations

from bot.storage.jobs import JobRow, JobState
from tests.contract.store.makers import T0


def new_job(n: int) -> JobRow:
    return JobRow(
        job_id=f"j{n}",
        name=f"job-{n}",
        origin="chat",
        place="slack:T1/C2",
        owner="slack:U1",
        owner_name="Ann",
        spec="{}",
        state=JobState.ACTIVE,
        reason="",
        next_at=T0,
        thread_key="",
        created_at=T0,
        updated_at=T0,
    )
