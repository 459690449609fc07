"""In which workspace a channel is that the settings name without one: ``slack:C123``, ``discord:123``."""

from __future__ import annotations

from adapters.chat import AdapterError
from agent_core.errors import ConfigError
from bot.jobs.report_checks import FORMS, find_named_workspace
from bot.platforms import reveal
from bot.settings import Settings


async def find_workspace(settings: Settings, platform: str) -> str:
    """Return the one workspace that a platform is configured for.

    For Slack that is the one of the bot token, which Slack is asked about unless ``access.workspaces`` names a single
    one; for Discord the single guild of ``discord.guild_ids`` or ``access.workspaces``.

    Raises:
        ConfigError: there is none, or more than one may be meant; says to write the address in full.
        AdapterError: Slack cannot be asked; try again later, or mend the token.
    """
    if (named := find_named_workspace(settings, platform)) is not None:
        return named
    slack = settings.slack
    if platform == "slack" and slack is not None and slack.client_id is None:
        return await _ask_slack(reveal(slack.bot_token), slack.api_url)
    raise ConfigError(
        f"the channels of reports name no workspace, and {platform} may have several; "
        f"write {FORMS.get(platform, platform)} in reports.NAME.channel"
    )


async def _ask_slack(bot_token: str, api_url: str) -> str:
    from adapters.slack.client import SlackClient

    client = SlackClient(bot_token=bot_token, app_token="", api_url=api_url, timeout_s=10.0)
    try:
        identity = await client.identify()
    finally:
        await client.close()
    if not identity.team:
        raise AdapterError("slack: the bot token names no workspace; write slack:TEAM/CHANNEL in reports.NAME.channel")
    return identity.team
