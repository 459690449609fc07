"""The part of the Store protocol that keeps where Hermod is installed. ``base.Store`` has it, with the same rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInstallationRow:
    """A workspace that installed Hermod, before it is a row.

    ``workspace`` is the platform's id of the team or, ``org_wide``, of the organisation. ``token`` is encrypted: no
    plain one ever gets here.
    """

    platform: str
    workspace: str
    name: str
    bot_user: str
    bot: str
    scopes: frozenset[str]
    token: str = field(repr=False)
    installed_at: datetime
    enterprise: str = ""
    org_wide: bool = False
    app: str = ""
    installer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationRow(NewInstallationRow):
    """A workspace that installed Hermod. ``revision`` grows with each installation and removal.

    Once it is removed its ``token`` is empty.
    """

    revision: int
    removed_at: datetime | None = None
    removed_because: str = ""


class InstallationStore(Protocol):
    """Where Hermod is installed."""

    async def save_installation(self, new: NewInstallationRow, *, unless_known: bool = False) -> InstallationRow | None:
        """Store where Hermod is installed, in place of what was there; a removed workspace is revived.

        With ``unless_known`` a workspace that has a row already, removed or not, is left as it is.

        Returns:
            The row; None when it was left as it is.
        """
        ...

    async def find_installation(self, platform: str, workspace: str) -> InstallationRow | None:
        """A workspace's row, removed or not; None when it never installed Hermod."""
        ...

    async def load_installations(self, platform: str) -> tuple[InstallationRow, ...]:
        """Every workspace of a platform, removed or not, the newest installation first."""
        ...

    async def remove_installation(
        self,
        platform: str,
        workspace: str,
        *,
        reason: str,
        now: datetime,
        revision: int | None = None,
        installed_by: datetime | None = None,
    ) -> bool:
        """Mark a workspace as removed and erase its token.

        Nothing happens when it is not of this ``revision`` any more, or was installed after ``installed_by``: so news
        that come late do not end a later installation.

        Returns:
            Whether it was removed by this call.
        """
        ...

    async def replace_token(self, platform: str, workspace: str, *, before: str, after: str) -> bool:
        """Keep the same token in another form (encrypted with another key); false when it is not ``before``."""
        ...

    async def use_nonce(self, nonce: str, *, now: datetime, expires_at: datetime) -> bool:
        """Redeem something that holds once: true for the first call only. Forgotten after ``expires_at``."""
        ...
