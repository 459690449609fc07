"""The chat platforms that the settings name."""

from __future__ import annotations

import pytest

from bot.platforms import list_bots
from bot.settings import Settings


@pytest.mark.parametrize(("platform", "heard"), [("slack", ("B1", "B3")), ("discord", ("B1", "B2"))])
def test_another_bot_is_heard_on_its_own_platform_or_on_every_one(platform: str, heard: tuple[str, ...]) -> None:
    settings = Settings.model_validate({"access": {"bots": ["B1", "discord:B2", "Slack:B3"]}})
    assert list_bots(settings, platform) == heard
