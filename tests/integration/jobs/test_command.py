"""``hermod jobs`` as a process: what it prints, keeps and refuses. Nothing of Slack answers here."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.storage import open_store
from tests.contract.store.makers import T0, begin, claim, new_firing, outcome
from tests.integration.cli.command import Done, hermod

SETTINGS = """
[slack]
bot_token = "xoxb-1"
app_token = "xapp-1"
api_url = "http://127.0.0.1:9/api/"
[reports.Daily]
cron = "0 9 * * MON-FRI"
timezone = "Europe/Berlin"
channel = "slack:T1/C1"
task = "what got slower?"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hermod.toml").write_text(SETTINGS, encoding="utf-8")
    return tmp_path


def item(done: Done) -> dict[str, object]:
    assert done.code == 0, done.err
    assert done.data["schema"] == 1
    items = done.data["items"]
    assert isinstance(items, list)
    (only,) = items
    assert isinstance(only, dict)
    return only


def test_the_data_of_a_job_has_these_fields(folder: Path) -> None:
    shown = item(hermod(folder, "jobs", "list", "--json"))
    assert str(shown.pop("next_at")).endswith(":00:00Z")
    assert shown == {
        "name": "daily",
        "state": "active",
        "reason": "",
        "origin": "settings",
        "channel": "slack:T1/C1",
        "owner": "",
        "owner_name": "hermod.toml",
        "cron": "0 9 * * MON-FRI",
        "timezone": "Europe/Berlin",
        "task": "what got slower?",
        "template": "",
        "workers": [],
        "targets": [],
        "catch_up": "latest",
        "grace_s": 3600.0,
        "overlap": "skip",
        "deadline_s": 600.0,
        "last": None,
    }


def test_a_job_is_paused_shown_and_resumed_by_name(folder: Path) -> None:
    paused = item(hermod(folder, "jobs", "pause", "daily", "--reason", "too loud", "--json"))
    assert (paused["state"], paused["reason"], paused["next_at"]) == ("paused", "too loud", None)
    done = hermod(folder, "jobs", "next", "daily")
    assert (done.code, len(done.out.splitlines())) == (0, 5)
    assert "the job is paused (too loud)" in done.err
    assert "paused: too loud" in hermod(folder, "jobs", "list").out
    assert item(hermod(folder, "jobs", "resume", "DAILY", "--json"))["state"] == "active"


def test_one_of_the_settings_is_not_deleted_and_an_unknown_one_is_named(folder: Path) -> None:
    done = hermod(folder, "jobs", "delete", "daily")
    assert (done.code, done.out) == (1, "")
    assert "remove it in [reports.daily] of hermod.toml" in done.err
    done = hermod(folder, "jobs", "show", "dayly", "--json")
    assert done.code == 1
    assert "did you mean 'daily'?" in str(done.data["error"])


def test_a_job_is_added_with_its_next_times_and_deleted(folder: Path) -> None:
    words = ("--cron", "30 2 * * *", "--timezone", "europe/berlin", "--channel", "slack:T1/C2", "--task", "look")
    done = hermod(folder, "jobs", "add", *words, "--json")
    added = item(done)
    assert (added["name"], added["timezone"], added["channel"]) == ("report", "Europe/Berlin", "slack:T1/C2")
    assert isinstance(added["next"], list)
    assert len(added["next"]) == 5
    assert "could not be looked up" in done.err
    assert hermod(folder, "jobs", "delete", "report").out == "report is deleted\n"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("--cron", "0 9 * *"), "5 cron fields, not 4; for example '0 9 * * MON-FRI'"),
        (("--channel", "discord:1/2"), "discord is not configured; there are: slack"),
        (("--worker", "sql_optimiser"), "did you mean 'sql_optimizer'?"),
    ],
)
def test_a_wrong_job_is_refused_with_the_right_form(folder: Path, changes: tuple[str, ...], said: str) -> None:
    words = ("--cron", "0 9 * * *", "--channel", "slack:T1/C2", "--task", "look", *changes)
    done = hermod(folder, "jobs", "add", *words)
    assert (done.code, done.out) == (1, "")
    assert said in done.err


def test_the_doctor_names_the_next_job_and_every_paused_one(folder: Path) -> None:
    added = hermod(
        folder, "jobs", "add", "evening", "--cron", "0 18 * * *", "--channel", "slack:T1/C1", "--task", "locks"
    )
    assert added.code == 0, added.err
    hermod(folder, "jobs", "pause", "daily", "--reason", "holidays")
    done = hermod(folder, "doctor", "--json", HERMOD_SANDBOX__ENABLED="false")
    items = done.data["items"]
    assert isinstance(items, list)
    told = {i["part"]: i for i in items if i["part"].startswith("job")}
    assert set(told) == {"jobs", "job daily"}
    assert told["jobs"]["state"] == "ok"
    assert told["jobs"]["text"].startswith("1 job active; the next is evening at ")
    assert told["job daily"]["state"] == "warning"
    assert told["job daily"]["text"] == "paused: holidays"
    assert "hermod jobs resume daily" in told["job daily"]["fix"]


async def fail(folder: Path, name: str) -> None:
    """Have a job's report fail, as a process does that makes it."""
    store = open_store(f"sqlite:///{folder / 'hermod.db'}")
    await store.open()
    try:
        job = await store.load_job(name)
        assert job is not None
        fired = await store.fire_job(job, [new_firing(job, "1")], next_at=job.next_at, now=T0, overlap="skip")
        assert fired == ("fired",)
        claimed = await claim(store)
        await begin(store, claimed, "r1")
        await store.finish_run(claimed, "r1", outcome(error="deadline", reason="it took longer than 600 s"))
        await store.release_claim(claimed)
    finally:
        await store.close()


def test_the_doctor_names_a_job_of_other_settings(folder: Path) -> None:
    hermod(folder, "jobs", "list")
    (folder / "hermod.toml").write_text(SETTINGS.replace("[reports.Daily]", "[reports.weekly]"), encoding="utf-8")
    items = hermod(folder, "doctor", "--json", HERMOD_SANDBOX__ENABLED="false").data["items"]
    assert isinstance(items, list)
    (told,) = (i for i in items if i["part"] == "job daily")
    assert told["text"] == "it is of the settings, and these have no [reports.daily]"
    assert "the same [reports]" in told["fix"]


def test_a_report_that_failed_is_told_with_when_and_why(folder: Path) -> None:
    hermod(folder, "jobs", "list")
    asyncio.run(fail(folder, "daily"))
    listed = hermod(folder, "jobs", "list").out
    assert listed.rstrip().endswith("  last 2026-03-01T12:00:00Z failed: it took longer than 600 s")
    last = item(hermod(folder, "jobs", "list", "--json"))["last"]
    assert isinstance(last, dict)
    assert (last["state"], last["error"], last["reason"]) == ("failed", "deadline", "it took longer than 600 s")
    shown = hermod(folder, "jobs", "show", "daily").out.splitlines()
    assert shown[-1] == "failed     2026-03-01T12:00:00Z  1  hermod trace r1  it took longer than 600 s"
    items = hermod(folder, "doctor", "--json", HERMOD_SANDBOX__ENABLED="false").data["items"]
    assert isinstance(items, list)
    (told,) = (i for i in items if i["part"] == "job daily")
    assert told["state"] == "warning"
    assert told["text"] == "its last time, 2026-03-01 13:00 +01:00, failed: it took longer than 600 s"
    assert "hermod jobs run daily" in told["fix"]
