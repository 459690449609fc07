"""The chat platforms of the settings."""

from __future__ import annotations

from pydantic import SecretStr

from adapters.chat import ChatAdapter
from adapters.slack.installation import Installations
from bot.access import AccessPolicy, build_policy, may_install
from bot.redact import SecretRedactor
from bot.settings import Settings
from bot.settings_tree import DiscordSettings, SlackSettings


def build_adapters(settings: Settings, installations: Installations | None = None) -> dict[str, ChatAdapter]:
    """Build the adapter of every platform that is configured.

    Args:
        settings: loaded settings.
        installations: keeps where Hermod is installed; needed where many workspaces may install it.
    """
    policy = build_policy(settings.access, settings.targets)
    adapters: dict[str, ChatAdapter] = {}
    if settings.slack is not None:
        adapters["slack"] = _build_slack(settings.slack, policy, installations, list_bots(settings, "slack"))
    if settings.discord is not None:
        adapters["discord"] = _build_discord(
            settings.discord, list_bots(settings, "discord"), SecretRedactor(settings.secrets())
        )
    return adapters


def list_bots(settings: Settings, platform: str) -> tuple[str, ...]:
    """List the ids of other bots that may speak on a platform; an entry may name the platform (``slack:B1``)."""
    entries = (entry.rpartition(":") for entry in settings.access.bots)
    return tuple(bot for there, _, bot in entries if there.lower() in ("", platform))


def _build_slack(
    slack: SlackSettings, policy: AccessPolicy, installations: Installations | None, bots: tuple[str, ...]
) -> ChatAdapter:
    from adapters.slack.app import SlackAdapter
    from adapters.slack.install import Installing, OAuthApp

    installing: Installing | None = None
    if slack.client_id is not None and installations is not None:
        app = OAuthApp(
            client_id=slack.client_id,
            client_secret=reveal(slack.client_secret),
            public_url=slack.public_url or "",
        )
        installing = Installing(
            app=app,
            installations=installations,
            may_install=lambda workspace: may_install(policy, "slack", workspace),
        )
    return SlackAdapter(
        bot_token=reveal(slack.bot_token),
        app_token=reveal(slack.app_token),
        api_url=slack.api_url,
        mode=slack.mode,
        signing_secret=reveal(slack.signing_secret),
        installing=installing,
        bots=bots,
    )


def _build_discord(discord: DiscordSettings, bots: tuple[str, ...], redactor: SecretRedactor) -> ChatAdapter:
    from adapters.discord.app import DiscordAdapter

    return DiscordAdapter(
        reveal(discord.token),
        api_url=discord.api_url,
        gateway_url=discord.gateway_url,
        guild_ids=discord.guild_ids,
        shard_count=discord.shard_count,
        shard_ids=discord.shard_ids,
        processes=discord.processes,
        bots=bots,
        redact=redactor.redact,
    )


def reveal(secret: SecretStr | None) -> str:
    """Return a secret's text, empty when it is not set."""
    return "" if secret is None else secret.get_secret_value()
