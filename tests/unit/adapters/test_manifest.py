"""The manifest and the code say the same, and Slack's schema (2.0.0) accepts it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapters.slack.app import BOT_EVENTS, BOT_SCOPES
from tests.servers.slack.model import KIND_SCOPE, METHOD_SCOPE

ROOT = Path(__file__).parents[3]

EVENT_SCOPE = {
    "app_mention": "app_mentions:read",
    "message.channels": "channels:history",
    "message.groups": "groups:history",
    "message.im": "im:history",
    "message.mpim": "mpim:history",
}

SCOPELESS_EVENTS = {"agent_session_stopped", "app_home_opened", "app_uninstalled", "tokens_revoked"}

KEYS = {
    "": {"_metadata", "display_information", "features", "oauth_config", "settings"},
    "_metadata": {"major_version", "minor_version"},
    "display_information": {"name", "description", "long_description", "background_color"},
    "features": {"bot_user", "app_home", "slash_commands", "agent_view", "shortcuts", "unfurl_domains"},
    "features.bot_user": {"display_name", "always_online"},
    "features.app_home": {"home_tab_enabled", "messages_tab_enabled", "messages_tab_read_only_enabled"},
    "oauth_config": {"scopes", "redirect_urls"},
    "oauth_config.scopes": {"bot", "user", "bot_optional", "user_optional"},
    "settings": {
        "event_subscriptions",
        "interactivity",
        "org_deploy_enabled",
        "socket_mode_enabled",
        "token_rotation_enabled",
    },
    "settings.event_subscriptions": {"bot_events", "user_events", "request_url"},
    "settings.interactivity": {"is_enabled", "request_url", "message_menu_options_url"},
}


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((files("adapters.slack") / "manifest.yml").read_text(encoding="utf-8"))
    return loaded


def test_the_file_at_the_root_is_the_same() -> None:
    assert (ROOT / "manifest.yml").read_bytes() == (ROOT / "adapters/slack/manifest.yml").read_bytes()


def test_scopes_and_events_are_those_of_the_code(manifest: dict[str, Any]) -> None:
    assert manifest["oauth_config"]["scopes"]["bot"] == sorted(BOT_SCOPES)
    assert manifest["settings"]["event_subscriptions"]["bot_events"] == list(BOT_EVENTS)


def test_every_scope_has_a_use_and_every_use_its_scope() -> None:
    """The integration tests run with exactly these scopes, which the local workspace enforces."""
    used_methods = {"chat.postMessage", "assistant.threads.setStatus", "users.info", "reactions.add"}
    used_methods |= {"files.getUploadURLExternal", "files.completeUploadExternal"}
    history = {f"{kind}:history" for kind in KIND_SCOPE.values()}
    heard = {EVENT_SCOPE[e] for e in BOT_EVENTS if e not in SCOPELESS_EVENTS}
    # files:read: an attached file's own address is no method, and gives a login page without it
    needed = {METHOD_SCOPE[m] for m in used_methods} | history | heard | {"commands", "files:read"}
    assert set(BOT_SCOPES) == needed


def test_no_key_is_unknown_to_slack(manifest: dict[str, Any]) -> None:
    for path, allowed in KEYS.items():
        node: Any = manifest
        for key in path.split(".") if path else ():
            node = node[key]
        assert set(node) <= allowed, path


def test_texts_are_short_enough(manifest: dict[str, Any]) -> None:
    assert len(manifest["display_information"]["name"]) <= 35
    assert len(manifest["display_information"]["description"]) <= 140
    assert len(manifest["features"]["bot_user"]["display_name"]) <= 80
    for command in manifest["features"]["slash_commands"]:
        assert set(command) <= {"command", "description", "usage_hint", "should_escape", "url"}
        assert command["command"].startswith("/")
        assert 2 <= len(command["command"]) <= 32
        assert len(command["description"]) <= 2000
        assert len(command["usage_hint"]) <= 1000


def test_it_connects_by_socket_mode(manifest: dict[str, Any]) -> None:
    assert manifest["settings"]["socket_mode_enabled"] is True
    assert manifest["settings"]["interactivity"]["is_enabled"] is True
    assert [c["command"] for c in manifest["features"]["slash_commands"]] == ["/hermod"]
