"""``hermod manifest``: the Slack app for these settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from adapters.slack.manifest import REDIRECT_PATH, SlashCommand, build_manifest, render_manifest
from agent_core.context import SystemClock
from agent_core.errors import ConfigError
from agent_core.tools.base import Tool
from bot.cli.setup import print_error, print_text
from bot.commands import list_slash_commands
from bot.home import choose_suggestions
from bot.settings import Settings, load_settings
from bot.storage import open_store
from bot.toolbox import build_tools


def render_slack_manifest(
    tools: Sequence[Tool], *, prefix: str = "", url: str = "", redirect_urls: Sequence[str] = ()
) -> str:
    """Write the manifest of an app with these tools.

    Args:
        tools: the registered ones.
        prefix: see ``[slack] command_prefix``.
        url: the address under which Slack reaches Hermod; empty: Socket Mode.
        redirect_urls: where an installation by OAuth may end.

    Raises:
        ValueError: the prefix or the address is none that Slack takes.
    """
    commands = list_slash_commands([tool.spec for tool in tools], prefix)
    return render_manifest(
        build_manifest(
            [SlashCommand(name=c.name, description=c.summary, usage=c.usage) for c in commands],
            choose_suggestions(tools),
            url=url,
            redirect_urls=redirect_urls,
        )
    )


def run_manifest(*, config: Path | None, url: str, prefix: str | None) -> int:
    """Print the manifest; settings that are not complete yet, as before the app exists, do not stop it."""
    try:
        settings = load_settings(config, os.environ)
    except ConfigError as e:
        settings = Settings()
        print_error(f"hermod: the settings cannot be used yet, so this is the manifest without them:\n{e}")
    slack, redirect_urls = settings.slack, []
    if prefix is None:
        prefix = "" if slack is None else slack.command_prefix
    if slack is not None and slack.public_url:
        url = url or (slack.public_url if slack.mode == "http" else "")
        if slack.client_id is not None:
            redirect_urls.append(f"{slack.public_url.rstrip('/')}{REDIRECT_PATH}")
    # never opened: naming tools needs no rows
    registry = build_tools(settings, open_store("sqlite:///never-opened.db"), SystemClock()).registry
    try:
        text = render_slack_manifest(registry.tools(), prefix=prefix, url=url, redirect_urls=redirect_urls)
    except ValueError as e:
        print_error(f"hermod: {e}")
        return 2
    print_text(text)
    return 0
