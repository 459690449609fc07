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
