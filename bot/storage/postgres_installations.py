"""Where Hermod is installed, on Postgres: one row a workspace, and the nonces that were redeemed.

The verbs, for ``PostgresStore``, and their functions inside a transaction.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from bot.storage.installations import InstallationRow, NewInstallationRow
from bot.storage.postgres_connection import Connections, Tx
from bot.storage.rows import build_micros, parse_installation

_BY_KEY = "platform = %s AND workspace = %s"


class PostgresInstallations:
    """The verbs of ``bot.storage.installations.InstallationStore``; what changes is on the disk when they return."""

    _db: Connections

    async def save_installation(self, new: NewInstallationRow, *, unless_known: bool = False) -> InstallationRow | None:
        """Store where Hermod is installed."""
        return await self._db.run(partial(save_installation, new=new, unless_known=unless_known), durable=True)

    async def find_installation(self, platform: str, workspace: str) -> InstallationRow | None:
        """Return a workspace's row."""
        return await self._db.read(partial(find_installation, platform=platform, workspace=workspace))

    async def load_installations(self, platform: str) -> tuple[InstallationRow, ...]:
        """Return every workspace of a platform."""
        return await self._db.read(partial(load_installations, platform=platform))

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
        return await self._db.run(work, durable=True)

    async def replace_token(self, platform: str, workspace: str, *, before: str, after: str) -> bool:
        """Keep the same token in another form."""
        work = partial(replace_token, platform=platform, workspace=workspace, before=before, after=after)
        return await self._db.run(work, durable=True)

    async def use_nonce(self, nonce: str, *, now: datetime, expires_at: datetime) -> bool:
        """Redeem something that holds once."""
        work = partial(use_nonce, nonce=nonce, now=now, expires_at=expires_at)
        return await self._db.run(work, durable=True)


async def save_installation(tx: Tx, new: NewInstallationRow, *, unless_known: bool) -> InstallationRow | None:
    """Store an installation in place of the workspace's earlier one; a removed workspace is revived."""
    replacing = (
        "DO UPDATE SET name = excluded.name, enterprise = excluded.enterprise, org_wide = excluded.org_wide,"
        " app = excluded.app, bot_user = excluded.bot_user, bot = excluded.bot, scopes = excluded.scopes,"
        " installer = excluded.installer, token = excluded.token, installed_at = excluded.installed_at,"
        " revision = installation.revision + 1, removed_at = NULL, removed_because = ''"
    )
    row = await tx.one(
        "INSERT INTO installation (platform, workspace, name, enterprise, org_wide, app, bot_user, bot, scopes,"
        " installer, token, installed_at, revision) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 1)"
        f" ON CONFLICT (platform, workspace) {'DO NOTHING' if unless_known else replacing} RETURNING *",
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
    return None if row is None else parse_installation(row)


async def find_installation(tx: Tx, platform: str, workspace: str) -> InstallationRow | None:
    """Return a workspace's row, removed or not."""
    row = await tx.one(f"SELECT * FROM installation WHERE {_BY_KEY}", platform, workspace)
    return None if row is None else parse_installation(row)


async def load_installations(tx: Tx, platform: str) -> tuple[InstallationRow, ...]:
    """Return every row of a platform, the newest installation first."""
    rows = await tx.all(
        "SELECT * FROM installation WHERE platform = %s ORDER BY installed_at DESC, workspace", platform
    )
    return tuple(map(parse_installation, rows))


async def remove_installation(
    tx: Tx,
    platform: str,
    workspace: str,
    reason: str,
    now: datetime,
    revision: int | None,
    installed_by: datetime | None,
) -> bool:
    """Mark a workspace as removed and erase its token, unless it was installed anew meanwhile."""
    changed = await tx.do(
        "UPDATE installation SET removed_at = %s, removed_because = %s, token = '', revision = revision + 1"
        f" WHERE {_BY_KEY} AND removed_at IS NULL AND revision = coalesce(%s, revision)"
        " AND installed_at <= coalesce(%s, installed_at)",
        build_micros(now),
        reason,
        platform,
        workspace,
        revision,
        None if installed_by is None else build_micros(installed_by),
    )
    return changed > 0


async def replace_token(tx: Tx, platform: str, workspace: str, before: str, after: str) -> bool:
    """Put another form of the same token in the place of ``before``; false when that is not there any more."""
    where = f"{_BY_KEY} AND token = %s"
    return await tx.do(f"UPDATE installation SET token = %s WHERE {where}", after, platform, workspace, before) > 0


async def use_nonce(tx: Tx, nonce: str, now: datetime, expires_at: datetime) -> bool:
    """Redeem a nonce; false when it was redeemed before. Those that are over are forgotten."""
    # What somebody else is just forgetting is passed over, so that two of them never wait for each other.
    await tx.do(
        "DELETE FROM used_nonce WHERE nonce IN"
        " (SELECT nonce FROM used_nonce WHERE expires_at <= %s FOR UPDATE SKIP LOCKED)",
        build_micros(now),
    )
    added = await tx.do(
        "INSERT INTO used_nonce (nonce, expires_at) VALUES (%s, %s) ON CONFLICT (nonce) DO NOTHING",
        nonce,
        build_micros(expires_at),
    )
    return added > 0
