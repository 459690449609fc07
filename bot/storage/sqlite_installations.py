"""Where Hermod is installed: one row a workspace, and the nonces that were redeemed.

The verbs, for ``SqliteStore``, and their functions inside a transaction.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from bot.storage.installations import InstallationRow, NewInstallationRow
from bot.storage.rows import build_micros, parse_installation
from bot.storage.sqlite_connection import Reader, Tx, Writer

_BY_KEY = "platform = ? AND workspace = ?"


class SqliteInstallations:
    """The verbs of ``bot.storage.installations.InstallationStore``; what changes is on the disk when they return."""

    _writer: Writer
    _reader: Reader

    async def save_installation(self, new: NewInstallationRow, *, unless_known: bool = False) -> InstallationRow | None:
        """Store where Hermod is installed."""
        return await self._writer.run(partial(save_installation, new=new, unless_known=unless_known), durable=True)

    async def find_installation(self, platform: str, workspace: str) -> InstallationRow | None:
        """Return a workspace's row."""
        return await self._reader.run(partial(find_installation, platform=platform, workspace=workspace))

    async def load_installations(self, platform: str) -> tuple[InstallationRow, ...]:
        """Return every workspace of a platform."""
        return await self._reader.run(partial(load_installations, platform=platform))

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
        """Mark a workspace as removed and erase its token."""
        work = partial(
            remove_installation,
            platform=platform,
            workspace=workspace,
            reason=reason,
            now=now,
            revision=revision,
            installed_by=installed_by,
        )
        return await self._writer.run(work, durable=True)

    async def replace_token(self, platform: str, workspace: str, *, before: str, after: str) -> bool:
        """Keep the same token in another form."""
        work = partial(replace_token, platform=platform, workspace=workspace, before=before, after=after)
        return await self._writer.run(work, durable=True)

    async def use_nonce(self, nonce: str, *, now: datetime, expires_at: datetime) -> bool:
        """Redeem something that holds once."""
        work = partial(use_nonce, nonce=nonce, now=now, expires_at=expires_at)
        return await self._writer.run(work, durable=True)


def save_installation(tx: Tx, new: NewInstallationRow, *, unless_known: bool) -> InstallationRow | None:
    """Store an installation in place of the workspace's earlier one; a removed workspace is revived."""
    known = tx.one(f"SELECT revision FROM installation WHERE {_BY_KEY}", new.platform, new.workspace)
    if known is not None and unless_known:
        return None
    tx.do(
        "INSERT INTO installation (platform, workspace, name, enterprise, org_wide, app, bot_user, bot, scopes,"
        " installer, token, installed_at, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)"
        " ON CONFLICT (platform, workspace) DO UPDATE SET name = excluded.name, enterprise = excluded.enterprise,"
        " org_wide = excluded.org_wide, app = excluded.app, bot_user = excluded.bot_user, bot = excluded.bot,"
        " scopes = excluded.scopes, installer = excluded.installer, token = excluded.token,"
        " installed_at = excluded.installed_at, revision = revision + 1, removed_at = NULL, removed_because = ''",
        new.platform,
        new.workspace,
        new.name,
        new.enterprise,
        new.org_wide,
        new.app,
        new.bot_user,
        new.bot,
        ",".join(sorted(new.scopes)),
        new.installer,
        new.token,
        build_micros(new.installed_at),
    )
    return find_installation(tx, new.platform, new.workspace)


def find_installation(tx: Tx, platform: str, workspace: str) -> InstallationRow | None:
    """Return a workspace's row, removed or not."""
    row = tx.one(f"SELECT * FROM installation WHERE {_BY_KEY}", platform, workspace)
    return None if row is None else parse_installation(row)


def load_installations(tx: Tx, platform: str) -> tuple[InstallationRow, ...]:
    """Return every row of a platform, the newest installation first."""
    rows = tx.all("SELECT * FROM installation WHERE platform = ? ORDER BY installed_at DESC, workspace", platform)
    return tuple(map(parse_installation, rows))


def remove_installation(
    tx: Tx,
    platform: str,
    workspace: str,
    reason: str,
    now: datetime,
    revision: int | None,
    installed_by: datetime | None,
) -> bool:
    """Mark a workspace as removed and erase its token, unless it was installed anew meanwhile."""
    changed = tx.do(
        "UPDATE installation SET removed_at = ?, removed_because = ?, token = '', revision = revision + 1"
        f" WHERE {_BY_KEY} AND removed_at IS NULL AND revision = coalesce(?, revision)"
        " AND installed_at <= coalesce(?, installed_at)",
        build_micros(now),
        reason,
        platform,
        workspace,
        revision,
        None if installed_by is None else build_micros(installed_by),
    )
    return changed > 0


def replace_token(tx: Tx, platform: str, workspace: str, before: str, after: str) -> bool:
    """Put another form of the same token in the place of ``before``; false when that is not there any more."""
    where = f"{_BY_KEY} AND token = ?"
    return tx.do(f"UPDATE installation SET token = ? WHERE {where}", after, platform, workspace, before) > 0


def use_nonce(tx: Tx, nonce: str, now: datetime, expires_at: datetime) -> bool:
    """Redeem a nonce; false when it was redeemed before. Those that are over are forgotten."""
    tx.do("DELETE FROM used_nonce WHERE expires_at <= ?", build_micros(now))
    known = tx.one("SELECT 1 FROM used_nonce WHERE nonce = ?", nonce)
    if known is None:
        tx.do("INSERT INTO used_nonce (nonce, expires_at) VALUES (?, ?)", nonce, build_micros(expires_at))
    return known is None
