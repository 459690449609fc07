"""The Slack app as data: the scopes, events and commands that it asks for, and the manifest that says so.

What the code uses is written here once; a test holds it together with the calls that the code makes and with the events
that it understands. The form is Slack's manifest schema 2.0.0 (github.com/slackapi/manifest-schema; prose:
docs.slack.dev/reference/app-manifest).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from adapters.surfaces import Suggestion

PATH = "/slack/events"
"""Where Slack calls, below the app's address: events, commands and buttons alike (``adapters.slack.http``)."""

REDIRECT_PATH = "/slack/oauth_redirect"
"""Where an installation by OAuth ends (``adapters.slack.install``)."""

BOT_SCOPES: Mapping[str, str] = MappingProxyType(
    {
        "app_mentions:read": "to hear when it is mentioned",
        "assistant:write": "to suggest questions when somebody opens its messages",
        "channels:history": "to hear follow-ups in public channels, and to look whether a post arrived",
        "channels:read": "to tell whether it can post a report in a public channel",
        "chat:write": "to answer, and to show that it works",
        "commands": "for its slash commands",
        "files:read": "to read files that are attached to a question",
        "files:write": "to post what is too wide or too long for a message as a file",
        "groups:history": "to hear follow-ups in private channels, and to look whether a post arrived",
        "groups:read": "to tell whether it can post a report in a private channel",
        "im:history": "to hear direct messages, and to look whether a post arrived",
        "mpim:history": "to hear group messages, and to look whether a post arrived",
        "reactions:write": "to show that a message was seen, or waits",
        "users:read": "to know names, guests and people of other organisations",
    }
)
"""The bot scopes that the code uses, each with its reason."""

APP_SCOPE = "connections:write"
"""The one scope of the app-level token."""

EVENT_SCOPES: Mapping[str, str] = MappingProxyType(
    {
        "agent_session_stopped": "",
        "app_home_opened": "",
        "app_mention": "app_mentions:read",
        "app_uninstalled": "",
        "message.channels": "channels:history",
        "message.groups": "groups:history",
        "message.im": "im:history",
        "message.mpim": "mpim:history",
        "tokens_revoked": "",
    }
)
"""The events that the code understands, each with the scope without which Slack does not send it."""

BOT_EVENTS = tuple(EVENT_SCOPES)

METHOD_SCOPES: Mapping[str, str] = MappingProxyType(
    {
        "agents.sessions.setStatus": "chat:write",
        "api.test": "",
        "apps.connections.open": "",
        "assistant.threads.setStatus": "chat:write",
        "assistant.threads.setSuggestedPrompts": "assistant:write",
        "auth.revoke": "",
        "auth.test": "",
        "chat.appendStream": "chat:write",
        "chat.delete": "chat:write",
        "chat.postEphemeral": "chat:write",
        "chat.postMessage": "chat:write",
        "chat.startStream": "chat:write",
        "chat.stopStream": "chat:write",
        "chat.update": "chat:write",
        "conversations.history": "channels:history",
        "conversations.info": "channels:read",
        "conversations.replies": "channels:history",
        "files.completeUploadExternal": "files:write",
        "files.getUploadURLExternal": "files:write",
        "oauth.v2.access": "",
        "reactions.add": "reactions:write",
        "reactions.remove": "reactions:write",
        "users.info": "users:read",
        "views.publish": "",
    }
)
"""The Web API's methods that the code calls, each with its bot scope. Reading a conversation needs the scope of its
kind; the other three are among ``EVENT_SCOPES``. So does looking at one: ``groups:read`` is for private channels, and
where a kind's scope is missing its history tells. ``files:read`` is for the address of a file, which is no method."""

_DESCRIPTION = "Asks your databases and services what is going on, and answers in the thread."
_AGENT = "Ask which queries are slow and why. Hermod looks at the live database, says what it rests on, and only reads."
_HEADER = """\
# The Slack app, written by `make docs`; `hermod manifest` prints it for your settings.
# Create it at https://api.slack.com/apps ("Create New App", "From a manifest"); README.md has every click.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    """A slash command; ``name`` has no slash, ``usage`` says how its arguments are written."""

    name: str
    description: str
    usage: str = ""


def build_manifest(
    commands: Sequence[SlashCommand],
    suggestions: Sequence[Suggestion] = (),
    *,
    url: str = "",
    redirect_urls: Sequence[str] = (),
) -> dict[str, object]:
    """Build the manifest.

    Args:
        commands: the slash commands.
        suggestions: at most four are taken.
        url: the address under which Slack reaches Hermod, ``https://host``; empty: Socket Mode.
        redirect_urls: where an installation by OAuth may end, if workspaces install the app by themselves.

    Raises:
        ValueError: the address, or the name of a command, is none that Slack takes.
    """
    if url and not re.fullmatch(r"https://[^\s/]+(?:/[^\s?#]*)?", url):
        raise ValueError(f"{url!r} is not an address that Slack can call; it has to be like https://hermod.example.com")
    address = f"{url.rstrip('/').removesuffix(PATH)}{PATH}" if url else ""
    called: dict[str, object] = {"request_url": address} if address else {}
    prompts = [{"title": s.title, "message": s.message} for s in suggestions[:4]]
    return {
        "_metadata": {"major_version": 2, "minor_version": 0},
        "display_information": {"name": "Hermod", "description": _DESCRIPTION, "background_color": "#1f3a4d"},
        "features": {
            "app_home": {
                "home_tab_enabled": True,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": "hermod", "always_online": True},
            "slash_commands": [_build_command(command, address) for command in commands],
            "agent_view": {"agent_description": _AGENT, **({"suggested_prompts": prompts} if prompts else {})},
        },
        "oauth_config": {
            **({"redirect_urls": list(redirect_urls)} if redirect_urls else {}),
            "scopes": {"bot": sorted(BOT_SCOPES)},
        },
        "settings": {
            "event_subscriptions": {**called, "bot_events": list(BOT_EVENTS)},
            "interactivity": {"is_enabled": True, **called},
            "org_deploy_enabled": False,
            "socket_mode_enabled": not url,
            "token_rotation_enabled": False,
        },
    }


def _build_command(command: SlashCommand, address: str) -> dict[str, object]:
    if not re.fullmatch(r"[a-z0-9_-]{1,31}", command.name):
        raise ValueError(f"/{command.name} is no name of a slash command: 1 to 31 of a-z, 0-9, _ and -")
    made: dict[str, object] = {"command": f"/{command.name}", **({"url": address} if address else {})}
    made["description"] = command.description[:2000]
    if command.usage:
        made["usage_hint"] = command.usage[:1000]
    return made | {"should_escape": True}


def render_manifest(manifest: Mapping[str, object]) -> str:
    """Write a manifest as YAML."""
    return _HEADER + "\n".join(_lines(manifest, 0)) + "\n"


def _lines(value: object, depth: int) -> Iterator[str]:
    pad = "  " * depth
    if isinstance(value, Mapping):
        for key, part in value.items():
            if isinstance(part, Mapping | list):
                yield f"{pad}{key}:"
                yield from _lines(part, depth + 1)
            else:
                yield f"{pad}{key}: {_scalar(part)}"
    elif isinstance(value, list):
        for part in value:
            if isinstance(part, Mapping):
                first, *rest = _lines(part, depth + 1)
                yield f"{pad}- {first.lstrip()}"
                yield from rest
            else:
                yield f"{pad}- {_scalar(part)}"


def _scalar(value: object) -> str:
    """Write a value so that every YAML reader takes it for the same: where there is a doubt, as JSON writes it."""
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9 ._/-]*[A-Za-z0-9]", value)
    words = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
    if plain and str(value).lower() not in words:
        return str(value)
    if isinstance(value, str) and re.fullmatch(r"[a-z_.]+:[a-z]+|/[a-z0-9_-]+|https://[A-Za-z0-9./_-]+", value):
        return value
    return json.dumps(value, ensure_ascii=False)
