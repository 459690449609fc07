"""A Postgres on a unix socket can be a target."""

from __future__ import annotations

import pytest

from bot.settings import SettingsError, load_settings


def test_a_target_on_a_unix_socket_is_accepted() -> None:
    url = "postgresql://hermod:secret-word@/shop?host=/run/postgresql&port=5432"
    settings = load_settings(None, {"HERMOD_TARGETS__SHOP__URL": url})
    assert settings.targets["shop"].build_url() == url
    assert "secret-word" in settings.secrets()


def test_a_target_without_any_host_is_refused() -> None:
    with pytest.raises(SettingsError, match="must be postgresql://user@host"):
        load_settings(None, {"HERMOD_TARGETS__SHOP__URL": "postgresql://hermod@/shop"})


def test_a_price_needs_both_of_its_numbers() -> None:
    variables = {
        "HERMOD_MODELS__0__MODEL": "m",
        "HERMOD_MODELS__0__API_KEY": "sk-some-key-123",
        "HERMOD_MODELS__0__INPUT_USD_PER_MTOK": "1.5",
    }
    with pytest.raises(SettingsError, match="a price needs both"):
        load_settings(None, variables)


def test_one_same_action_would_end_every_run() -> None:
    with pytest.raises(SettingsError, match="at least 2"):
        load_settings(None, {"HERMOD_LIMITS__MAX_SAME_ACTION": "1"})
