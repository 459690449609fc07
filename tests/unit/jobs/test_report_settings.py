"""``[reports]`` is checked at the start: one line for each mistake, with the right form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bot.settings import Settings, SettingsError, load_settings

RIGHT = {
    "cron": "0 9 * * MON-FRI",
    "timezone": "Europe/Berlin",
    "channel": "slack:T0123/C0123",
    "task": "what got slower?",
}
PLATFORMS = '[slack]\nbot_token = "xoxb-1"\napp_token = "xapp-1"\n'
MANY = (
    '[slack]\napp_token = "xapp-1"\nclient_id = "1.2"\nclient_secret = "a-secret"\npublic_url = "https://h.example"\n'
    '[security]\nkey = "0123456789abcdef0123456789abcdef"\n'
)


def load(folder: Path, changes: dict[str, str], *, more: str = PLATFORMS) -> Settings:
    values = RIGHT | changes
    bare = ("deadline_s", "workers", "targets")
    lines = [f"{key} = {value if key in bare else json.dumps(value)}" for key, value in values.items()]
    path = folder / "hermod.toml"
    path.write_text("[reports.daily]\n" + "\n".join(lines) + "\n" + more, encoding="utf-8")
    return load_settings(path, {}, installed=lambda module: True)


def test_a_right_report_is_taken_and_no_key_of_it_is_unused(tmp_path: Path) -> None:
    settings = load(tmp_path, {"deadline_s": "90", "template": "weekly-regression", "workers": '["SQL_optimizer"]'})
    assert settings.notices == ()
    assert settings.reports["daily"].deadline_s == 90


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"cron": "0 9 * *"}, "reports.daily.cron: a schedule has 5 cron fields, not 4; for example '0 9 * * MON-FRI'"),
        ({"cron": "61 9 * * *"}, "reports.daily.cron: the cron fields cannot be read: bad minute"),
        (
            {"timezone": "Europe/Berln"},
            "reports.daily.timezone: there is no time zone of this name; did you mean 'Europe/Berlin'?",
        ),
        ({"channel": "C0123"}, "reports.daily.channel: must begin with its platform, as in slack:T0123ABCD/"),
        ({"channel": "slack:#ops"}, "reports.daily.channel: not the address of a channel; write it as in slack:"),
        ({"channel": "slack:ops"}, "reports.daily.channel: not the address of a channel"),
        ({"channel": "slack:T1/C1/1"}, "reports.daily.channel: not the address of a channel"),
        ({"channel": "discord:1/ops"}, "reports.daily.channel: not the address of a channel; write it as in discord:"),
        ({"channel": "discord:1/2"}, "reports.daily.channel: discord is not configured; add [discord], or name"),
        ({"workers": '["sql_optimiser"]'}, "workers[0]: there is no such worker; there are analyst, report_generator"),
        ({"targets": '["shop"]'}, "reports.daily.targets[0]: there is no such target; none is configured"),
        (
            {"template": "dayly-database"},
            "weekly-regression; did you mean daily-database?",
        ),
        ({"deadline_s": "10"}, "reports.daily.deadline_s: must be at least 30"),
        ({"task": ""}, "reports.daily.task: must not be empty"),  # and not "missing" as well
    ],
)
def test_a_mistake_is_one_line_that_says_how_to_mend_it(tmp_path: Path, changes: dict[str, str], line: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(tmp_path, changes)
    (problem,) = refused.value.problems
    assert line in problem


def test_a_short_channel_needs_a_single_workspace(tmp_path: Path) -> None:
    assert load(tmp_path, {"channel": "slack:C0123"}).reports["daily"].channel == "slack:C0123"
    with pytest.raises(SettingsError, match=r"slack may have several workspaces here; write slack:TEAM/CHANNEL"):
        load(tmp_path, {"channel": "slack:C0123"}, more=MANY)
    load(tmp_path, {"channel": "slack:C0123"}, more=MANY + '[access]\nworkspaces = ["T1"]\n')
    with pytest.raises(SettingsError, match=r"write discord:GUILD/CHANNEL"):
        load(tmp_path, {"channel": "discord:5"}, more='[discord]\ntoken = "a-token"\n')
    load(tmp_path, {"channel": "discord:5"}, more='[discord]\ntoken = "a-token"\nguild_ids = ["7"]\n')


def test_a_broken_template_of_ones_own_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "report-mine.md").write_text("nothing", encoding="utf-8")
    with pytest.raises(SettingsError) as refused:
        load(tmp_path, {"template": "mine"}, more=f'{PLATFORMS}[prompts]\nfolder = "{tmp_path}"\n')
    (problem,) = refused.value.problems
    assert "prompts.folder: report template mine: needs the headings" in problem
