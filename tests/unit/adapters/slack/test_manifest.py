"""The manifest, the code and Slack's schema say the same."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapters.slack import http, install
from adapters.slack.manifest import (
    BOT_EVENTS,
    BOT_SCOPES,
    EVENT_SCOPES,
    METHOD_SCOPES,
    PATH,
    REDIRECT_PATH,
    SlashCommand,
    build_manifest,
    render_manifest,
)
from adapters.slack.parse import Identity, parse_event
from adapters.surfaces import Suggestion
from bot.cli.manifest import render_slack_manifest
from scripts.write_docs import load_tools
from tests.servers.slack.model import KIND_SCOPE, METHOD_SCOPE
from tests.servers.slack.world import EVENTS

ROOT = Path(__file__).parents[4]
URL = r"^https?:\/\/"

# The rules of github.com/slackapi/manifest-schema (schemas/manifest.schema.2.0.0.json, 2026-07-21) for the parts that
# the manifest has or might have; prose: docs.slack.dev/reference/app-manifest. Unknown keys are refused everywhere.
TEXT: dict[str, Any] = {"type": str}
FLAG: dict[str, Any] = {"type": bool}
SCOPES: dict[str, Any] = {"type": list, "max": 255, "items": {"type": str, "max": 50}}
EVENT_LIST: dict[str, Any] = {"type": list, "max": 100, "unique": True, "items": {"type": str, "max": 50}}
SCHEMA: dict[str, Any] = {
    "required": {"display_information"},
    "keys": {
        "_metadata": {"keys": {"major_version": {"type": int}, "minor_version": {"type": int}}},
        "display_information": {
            "required": {"name"},
            "keys": {
                "name": {"type": str, "min": 1, "max": 35},
                "description": {"type": str, "min": 1, "max": 140},
                "long_description": {"type": str, "min": 175, "max": 4000},
                "background_color": {"type": str, "min": 4, "max": 7},
            },
        },
        "features": {
            "keys": {
                "app_home": {
                    "keys": {
                        "home_tab_enabled": FLAG,
                        "messages_tab_enabled": FLAG,
                        "messages_tab_read_only_enabled": FLAG,
                    }
                },
                "bot_user": {
                    "required": {"display_name"},
                    "keys": {"display_name": {"type": str, "min": 1, "max": 80}, "always_online": FLAG},
                },
                "slash_commands": {
                    "type": list,
                    "min": 1,
                    "max": 50,
                    "items": {
                        "required": {"command", "description"},
                        "keys": {
                            "command": {"type": str, "min": 2, "max": 32, "pattern": r"^\/"},
                            "url": {"type": str, "max": 3000, "pattern": URL},
                            "description": {"type": str, "min": 1, "max": 2000},
                            "usage_hint": {"type": str, "min": 1, "max": 1000},
                            "should_escape": FLAG,
                        },
                    },
                },
                "agent_view": {
                    "keys": {
                        "agent_description": {"type": str, "max": 300},
                        "suggested_prompts": {
                            "type": list,
                            "max": 4,
                            "items": {"required": {"title", "message"}, "keys": {"title": TEXT, "message": TEXT}},
                        },
                        "actions": {
                            "type": list,
                            "items": {"required": {"name", "description"}, "keys": {"name": TEXT, "description": TEXT}},
                        },
                    }
                },
            }
        },
        "oauth_config": {
            "keys": {
                "redirect_urls": {"type": list, "max": 1000, "unique": True, "items": {"type": str, "max": 2500}},
                "scopes": {"keys": {"bot": SCOPES, "user": SCOPES, "bot_optional": SCOPES, "user_optional": SCOPES}},
            }
        },
        "settings": {
            "keys": {
                "event_subscriptions": {
                    "keys": {
                        "request_url": {"type": str, "max": 3500, "pattern": URL},
                        "bot_events": EVENT_LIST,
                        "user_events": EVENT_LIST,
                    }
                },
                "interactivity": {
                    "required": {"is_enabled"},
                    "keys": {
                        "is_enabled": FLAG,
                        "request_url": {"type": str, "max": 3500, "pattern": URL},
                        "message_menu_options_url": {"type": str, "max": 3500, "pattern": URL},
                    },
                },
                "org_deploy_enabled": FLAG,
                "socket_mode_enabled": FLAG,
                "token_rotation_enabled": FLAG,
                "is_mcp_enabled": FLAG,
            }
        },
    },
}


def find_faults(value: Any, schema: dict[str, Any], at: str = "") -> Iterator[str]:
    """Tell what Slack would refuse."""
    kind = schema.get("type", dict)
    if type(value) is not kind:
        yield f"{at}: not a {kind.__name__}"
        return
    if kind is dict:
        yield from (f"{at}.{key}: unknown" for key in value.keys() - schema["keys"].keys())
        yield from (f"{at}.{key}: missing" for key in schema.get("required", set()) - value.keys())
        for key in value.keys() & schema["keys"].keys():
            yield from find_faults(value[key], schema["keys"][key], f"{at}.{key}")
    if kind in (str, list) and not schema.get("min", 0) <= len(value) <= schema.get("max", 10**9):
        yield f"{at}: length {len(value)}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{at}: {value!r} does not match"
    if kind is list:
        if schema.get("unique") and len(set(value)) < len(value):
            yield f"{at}: not unique"
        for n, item in enumerate(value):
            yield from find_faults(item, schema["items"], f"{at}[{n}]")


def load(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return load((ROOT / "manifest.yml").read_text(encoding="utf-8"))


def test_the_file_is_what_the_tools_and_the_code_give_today() -> None:
    written = (ROOT / "adapters/slack/manifest.yml").read_text(encoding="utf-8")
    assert written == render_slack_manifest(load_tools()), "run: python -m scripts.write_manifest"
    assert (ROOT / "manifest.yml").read_text(encoding="utf-8") == written


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prefix": "ops-"},
        {"prefix": "x" * 20},
        {"url": "https://hermod.example.com"},
        {"url": "https://example.com/hermod/", "redirect_urls": ["https://example.com/slack/oauth_redirect"]},
    ],
)
def test_slacks_schema_takes_it(options: dict[str, Any]) -> None:
    assert list(find_faults(load(render_slack_manifest(load_tools(), **options)), SCHEMA)) == []


FAULTS: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda m: m.update(icons={}), ".icons: unknown"),
    (lambda m: m.pop("display_information"), ".display_information: missing"),
    (lambda m: m["display_information"].update(name="H" * 36), "length 36"),
    (lambda m: m["features"]["agent_view"].update(agent_description="x" * 301), "length 301"),
    (lambda m: m["features"]["agent_view"]["suggested_prompts"].extend([{"title": "t", "message": "m"}] * 4), "length"),
    (lambda m: m["features"]["slash_commands"].append({"command": "x" * 33, "description": "d"}), "length 33"),
    (lambda m: m["features"]["slash_commands"].append({"command": "xy", "description": "d"}), "does not match"),
    (lambda m: m["settings"].update(socket_mode_enabled="yes"), "not a bool"),
    (lambda m: m["settings"]["event_subscriptions"]["bot_events"].append("app_mention"), "not unique"),
    (lambda m: m["settings"]["interactivity"].pop("is_enabled"), "missing"),
]


@pytest.mark.parametrize(("spoil", "fault"), FAULTS)
def test_the_schema_of_this_test_refuses_what_slack_refuses(
    manifest: dict[str, Any], spoil: Callable[[dict[str, Any]], object], fault: str
) -> None:
    spoiled = copy.deepcopy(manifest)
    spoil(spoiled)
    assert any(fault in found for found in find_faults(spoiled, SCHEMA))


# -- scopes, events and calls


METHOD = re.compile(
    r"(?:agents|api|apps|assistant|auth|bots|chat|conversations|files|oauth|reactions|team|usergroups|users|views)"
    r"(?:\.[a-zA-Z0-9]+)+"
)


def find_called_methods() -> set[str]:
    """The Web API's methods that the adapter names; it calls each by its name."""
    found = set()
    for path in (ROOT / "adapters/slack").glob("*.py"):
        if path.name in ("manifest.py", "pace.py"):  # lists of all, and rates of some
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and METHOD.fullmatch(node.value):
                found.add(node.value)
    return {name for name in found if not name.endswith(".com")}


def test_the_listed_methods_are_those_that_the_code_calls() -> None:
    assert find_called_methods() | {"api.test"} == METHOD_SCOPES.keys()


def test_every_scope_has_a_use_and_every_use_its_scope() -> None:
    history = {f"{kind}:history" for kind in KIND_SCOPE.values()}
    needed = {scope for scope in (*METHOD_SCOPES.values(), *EVENT_SCOPES.values()) if scope}
    # files:read: an attached file's own address is no method, and gives a login page without it
    # groups:read: a look at a private channel, which the listed scope of the method does not cover
    assert set(BOT_SCOPES) == needed | history | {"commands", "files:read", "groups:read"}


def test_the_local_workspace_enforces_the_same_scopes() -> None:
    by_kind = (":history", "channels:read")
    listed = {m: s for m, s in METHOD_SCOPES.items() if s and not s.endswith(by_kind)}
    assert listed == {m: METHOD_SCOPE[m] for m in listed}
    assert not [m for m, s in METHOD_SCOPES.items() if not s and m in METHOD_SCOPE]


def test_it_asks_for_exactly_the_scopes_and_events_of_the_code(manifest: dict[str, Any]) -> None:
    assert manifest["oauth_config"]["scopes"] == {"bot": sorted(BOT_SCOPES)}
    assert manifest["settings"]["event_subscriptions"]["bot_events"] == list(BOT_EVENTS)


def build_event(name: str) -> dict[str, Any]:
    kind, _, place = name.partition(".")
    event: dict[str, Any] = {
        "type": kind,
        "user": "U1",
        "channel": "C1",
        "ts": "1700000000.000100",
        "text": "hi <@UBOT>",
    }
    event |= {"event_ts": event["ts"], "tab": "home", "thread_ts": "1700000000.000100", "tokens": {"bot": ["UBOT"]}}
    if place:
        event["channel_type"] = {"channels": "channel", "groups": "group"}.get(place, place)
    return {"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event_time": 1700000000, "event": event}


def test_every_event_that_is_subscribed_is_understood_and_no_other() -> None:
    identity = Identity(team="T1", bot_user="UBOT", bot="B1")
    understood = {name for name in {*EVENTS, *BOT_EVENTS} if parse_event(build_event(name), identity) is not None}
    assert understood == set(BOT_EVENTS)


# -- how it is reached, and how it is written


def test_it_connects_by_socket_mode_unless_slack_is_told_where_to_call(manifest: dict[str, Any]) -> None:
    assert manifest["settings"]["socket_mode_enabled"] is True
    assert "request_url" not in manifest["settings"]["event_subscriptions"]
    called = load(render_slack_manifest(load_tools(), url="https://h.example.com/"))
    address = "https://h.example.com/slack/events"
    assert called["settings"]["socket_mode_enabled"] is False
    assert called["settings"]["event_subscriptions"]["request_url"] == address
    assert called["settings"]["interactivity"]["request_url"] == address
    assert {c["url"] for c in called["features"]["slash_commands"]} == {address}


@pytest.mark.parametrize("url", ["http://h.example.com", "h.example.com", "https://", "https://h x", "https://h/?a=1"])
def test_an_address_that_slack_cannot_call_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="Slack can call"):
        build_manifest([SlashCommand(name="hermod", description="d")], url=url)


@pytest.mark.parametrize("name", ["", "Hermod", "a b", "x" * 32, "/hermod"])
def test_a_name_that_slack_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="slash command"):
        build_manifest([SlashCommand(name=name, description="d")])


def test_the_addresses_are_those_that_are_served() -> None:
    assert (http.PATH, install.REDIRECT_PATH) == (PATH, REDIRECT_PATH)


def test_the_commands_are_those_of_registered_tools(manifest: dict[str, Any]) -> None:
    commands = [c["command"] for c in manifest["features"]["slash_commands"]]
    assert commands == ["/hermod", "/slowq", "/explain", "/py", "/usage", "/forget", "/jobs", "/report"]
    assert manifest["features"]["app_home"]["home_tab_enabled"] is True
    prompts = manifest["features"]["agent_view"]["suggested_prompts"]
    assert prompts[0]["message"] == "Which queries were slow in the last 30 minutes?"
    assert len(prompts) == 4


WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)


@given(WORDS, WORDS, WORDS)
def test_any_text_is_written_so_that_yaml_reads_it_back(description: str, usage: str, title: str) -> None:
    made = build_manifest(
        [SlashCommand(name="hermod", description=description, usage=usage)],
        [Suggestion(title=title, message=description)],
    )
    assert load(render_manifest(made)) == made
