"""``hermod manifest`` and ``hermod feedback list``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from bot.storage import open_store
from bot.storage.base import FeedbackRow, NewInboxItem, RunRow
from tests.integration.cli.command import hermod

NOW = datetime.now(UTC)
SLACK = '[slack]\nbot_token = "xoxb-not-a-token-1"\napp_token = "xapp-not-a-token-1"\n'


def test_the_manifest_is_printed_before_there_is_any_setting(tmp_path: Path) -> None:
    done = hermod(tmp_path, "manifest")
    assert (done.code, done.err) == (0, "")
    assert done.out == (Path(__file__).parents[3] / "manifest.yml").read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_follows_the_settings_and_the_options_win(tmp_path: Path) -> None:
    (tmp_path / "hermod.toml").write_text(f'{SLACK}command_prefix = "ops-"\n')
    made = yaml.safe_load(hermod(tmp_path, "manifest").out)
    commands = [c["command"] for c in made["features"]["slash_commands"]]
    assert commands == [
        "/ops-hermod",
        "/ops-slowq",
        "/ops-explain",
        "/ops-py",
        "/ops-usage",
        "/ops-forget",
        "/ops-jobs",
        "/ops-report",
    ]
    (tmp_path / "hermod.toml").write_text(f'{SLACK}command_prefix = "ops-"\n[sandbox]\nenabled = false\n')
    made = yaml.safe_load(hermod(tmp_path, "manifest").out)
    assert "/ops-py" not in [c["command"] for c in made["features"]["slash_commands"]]
    options = ("--prefix", "", "--url", "https://h.example.com")
    done = hermod(tmp_path, "manifest", *options)
    made = yaml.safe_load(done.out)
    assert made["features"]["slash_commands"][0]["command"] == "/hermod"
    assert made["settings"]["socket_mode_enabled"] is False


def test_settings_that_are_not_complete_yet_do_not_stop_it(tmp_path: Path) -> None:
    (tmp_path / "hermod.toml").write_text('[slack]\ncommand_prefix = "ops-"\n')
    done = hermod(tmp_path, "manifest")
    assert done.code == 0
    assert "command: /hermod" in done.out
    assert "the manifest without them" in done.err
    assert "bot_token: missing" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--url", "http://h.example.com"), "https://hermod.example.com"), (("--prefix", "Ops "), "slash command")],
)
def test_what_slack_would_not_take_is_refused(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    done = hermod(tmp_path, "manifest", *options)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


async def test_feedback_is_listed_with_its_totals(tmp_path: Path) -> None:
    thread = "slack:T1/C1/1700000000.000100"
    store = open_store(f"sqlite:///{tmp_path}/hermod.db")
    await store.open()
    item = NewInboxItem(event_key="e", thread_key=thread, kind="message", payload="{}", received_at=NOW)
    await store.accept(item, queue_limit=9)
    claim = await store.claim_thread("test", prefixes=[""], lease_s=30, now=NOW)
    assert claim is not None
    run = RunRow(run_id="r1", thread_key=thread, agent="a", state="init", started_at=NOW)
    await store.begin_run(claim, run, [i.id for i in claim.items])
    for author in ("slack:U1", "slack:U2"):
        row = FeedbackRow(run_id="r1", thread_key=thread, author=author, value="down", at=NOW)
        await store.save_feedback(row)
    await store.close()
    done = hermod(tmp_path, "feedback", "list", "--json")
    assert done.code == 0
    assert sorted(done.data) == ["days", "items", "schema", "totals"]
    assert done.data["totals"] == {"up": 0, "down": 2}
    items = done.data["items"]
    assert isinstance(items, list)
    assert sorted(items[0]) == ["at", "author", "run_id", "thread", "value"]
    shown = hermod(tmp_path, "feedback", "list").out
    assert "down  run r1  slack:T1/C1/1700000000.000100  slack:U1" in shown
    assert "0 helped, 2 did not" in shown
