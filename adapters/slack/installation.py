"""Where Hermod is installed: the values, and what the adapter needs of whoever keeps them.

This module imports nothing of Slack's, so that the keeper can use it without the extra.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from adapters.chat import AdapterError


class NotInstalled(AdapterError):
    """The workspace never installed Hermod, or removed it; somebody there has to install it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInstallation:
    """What a workspace granted when it installed Hermod.

    Args:
        workspace: the team's id or, ``org_wide``, the organisation's: what ``ThreadRef.workspace`` holds.
        name: of the team or organisation, for people.
        enterprise: the organisation's id, empty for a workspace on its own.
        org_wide: installed in a whole organisation.
        app: Slack's id of the app.
        token: the bot token; a secret.
        bot_user, bot: who we are there.
        scopes: as granted.
        installer: the person's id.
        installed_at: aware UTC.
    """

    workspace: str
    name: str
    enterprise: str = ""
    org_wide: bool = False
    app: str = ""
    token: str = field(repr=False)
    bot_user: str
    bot: str
    scopes: frozenset[str]
    installer: str = ""
    installed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation(NewInstallation):
    """A kept installation. ``revision`` grows whenever the workspace installs Hermod anew."""

    revision: int


class Installations(Protocol):
    """Keeps installations, for all processes. Safe to call concurrently.

    Every method raises ``AdapterError`` when what is kept cannot be used now (the storage fails, or a token was
    encrypted with a key that is not there); nothing is lost then.
    """

    async def prepare(self) -> None:
        """Look at everything once, before work begins.

        Raises:
            AdapterNotConfigured: tokens cannot be read with the configured keys; the message names the remedy.
        """
        ...

    async def find(self, workspace: str) -> Installation | None:
        """The installation of a workspace; None when there is none, or it was removed."""
        ...

    async def load_all(self, *, most: int) -> tuple[Installation, ...]:
        """The newest ``most`` installations that were not removed."""
        ...

    async def save(self, new: NewInstallation, *, unless_known: bool = False) -> Installation | None:
        """Keep an installation in place of the workspace's earlier one.

        With ``unless_known`` a workspace that is known, removed or not, is left as it is, and None comes back.
        """
        ...

    async def remove(
        self, workspace: str, *, reason: str, revision: int | None = None, installed_by: datetime | None = None
    ) -> bool:
        """Forget the token of a workspace, unless it was installed anew: after ``revision``, after ``installed_by``."""
        ...

    async def use_nonce(self, nonce: str, *, expires_at: datetime) -> bool:
        """Redeem something that holds once: true for the first call only."""
        ...
