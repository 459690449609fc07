"""Keeps where Hermod is installed in its own database, with every token encrypted.

AES-256-GCM of ``cryptography``. Weighed against Fernet of the same library: Fernet binds a ciphertext to nothing, so a
row's token could be put into another workspace's row unnoticed, and it does not tell which of several keys it needs.
Here the workspace is authenticated with the token, and the key's id stands before it, so that a wrong key is told from
a changed row. Nonces are random; a key seals some thousand tokens at most, far from the 2^32 of NIST SP 800-38D.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import structlog

from adapters.chat import AdapterError, AdapterNotConfigured
from adapters.slack.installation import Installation, NewInstallation
from agent_core.context import Clock, SystemClock
from bot.audit import AuditLog
from bot.settings import Settings
from bot.storage import open_store
from bot.storage.base import Store, StoreError
from bot.storage.installations import InstallationRow, NewInstallationRow

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

log = structlog.get_logger("hermod.installations")

PLATFORM = "slack"
_FORM = "1"
_NONCE_BYTES = 12
_ID_BYTES = 4


class SealBroken(Exception):
    """A token cannot be read. ``key_id`` is the key that it needs, empty when the key is there and the row changed."""

    def __init__(self, key_id: str) -> None:
        super().__init__(key_id)
        self.key_id = key_id


class TokenSeal:
    """Encrypts and decrypts tokens. Immutable, safe to share.

    Args:
        keys: the newest first; it encrypts, all decrypt. Each a random text.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        if not keys:
            raise ValueError("at least one key is needed")
        self._ciphers = dict(_derive(key) for key in keys)
        self.newest = next(iter(self._ciphers))

    def __repr__(self) -> str:
        return f"TokenSeal({', '.join(self._ciphers)})"

    def seal(self, token: str, *, place: str) -> str:
        """Encrypt a token that belongs to ``place``, with the newest key."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._ciphers[self.newest].encrypt(nonce, token.encode(), _bind(self.newest, place))
        return f"{_FORM}.{self.newest}.{base64.urlsafe_b64encode(nonce + sealed).decode('ascii')}"

    def unseal(self, sealed: str, *, place: str) -> str:
        """Decrypt a token.

        Raises:
            SealBroken: its key is not there, or it was changed, or it belongs to another place.
        """
        from cryptography.exceptions import InvalidTag

        form, _, rest = sealed.partition(".")
        key_id, _, body = rest.partition(".")
        if form != _FORM:
            raise SealBroken("")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise SealBroken(key_id)
        try:
            raw = base64.b64decode(body, altchars=b"-_", validate=True)
            return cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _bind(key_id, place)).decode()
        except (InvalidTag, binascii.Error, ValueError):
            raise SealBroken("") from None

    def is_newest(self, sealed: str) -> bool:
        """Tell whether the newest key encrypted it."""
        return sealed.startswith(f"{_FORM}.{self.newest}.")


def _derive(key: str) -> tuple[str, AESGCM]:
    """Derive a key's public id and its cipher from the text of the settings (RFC 5869)."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    def derive(length: int, purpose: bytes) -> bytes:
        return HKDF(algorithm=SHA256(), length=length, salt=None, info=b"hermod installation " + purpose).derive(
            key.encode("utf-8", "surrogatepass")
        )

    return derive(_ID_BYTES, b"key id").hex(), AESGCM(derive(32, b"token"))


def _bind(key_id: str, place: str) -> bytes:
    return f"{_FORM} {key_id} {place}".encode("utf-8", "surrogatepass")


def build_installations(settings: Settings, store: Store) -> StoredInstallations | None:
    """Build what keeps installations in ``store``; None where no workspaces can install Hermod."""
    if settings.slack is None or settings.slack.client_id is None:
        return None
    return StoredInstallations(store, TokenSeal(settings.security.keys), SystemClock())


@asynccontextmanager
async def open_installations(settings: Settings) -> AsyncIterator[StoredInstallations | None]:
    """Open what keeps installations, on connections of its own; None where no workspaces can install Hermod."""
    store = open_store(settings.storage.url)
    installations = build_installations(settings, store)
    if installations is not None:
        await store.open()
    try:
        yield installations
    finally:
        await store.close()


class StoredInstallations:
    """Keeps installations in the store (``adapters.slack.installation.Installations``). Safe to call concurrently.

    Args:
        store: where the rows are.
        seal: encrypts their tokens.
        clock: time.
    """

    def __init__(self, store: Store, seal: TokenSeal, clock: Clock) -> None:
        self._store = store
        self._seal = seal
        self._clock = clock
        self._audit = AuditLog(store, clock)

    async def prepare(self) -> None:
        """Check that every token can be read, and encrypt those of older keys with the newest one.

        Raises:
            AdapterNotConfigured: some cannot be read; nothing was changed.
        """
        with _as_adapter_error():
            rows = [row for row in await self._store.load_installations(PLATFORM) if row.removed_at is None]
            if problem := describe_unreadable(rows, self._seal):
                raise AdapterNotConfigured(problem)
            for row in rows:
                if not self._seal.is_newest(row.token):
                    after = self._seal.seal(self._unseal(row), place=_place_of(row))
                    done = await self._store.replace_token(PLATFORM, row.workspace, before=row.token, after=after)
                    log.info("token_key_changed", workspace=row.workspace, key=self._seal.newest, done=done)

    async def find(self, workspace: str) -> Installation | None:
        """Return the installation of a workspace; None when there is none, or it was removed."""
        with _as_adapter_error():
            row = await self._store.find_installation(PLATFORM, workspace)
        return None if row is None or row.removed_at is not None else self._read(row)

    async def load_all(self, *, most: int) -> tuple[Installation, ...]:
        """Return the newest installations that were not removed."""
        with _as_adapter_error():
            rows = await self._store.load_installations(PLATFORM)
        return tuple(self._read(row) for row in [row for row in rows if row.removed_at is None][:most])

    async def save(self, new: NewInstallation, *, unless_known: bool = False) -> Installation | None:
        """Keep an installation in place of the workspace's earlier one."""
        values = asdict(new) | {"token": self._seal.seal(new.token, place=_place_of(new))}
        with _as_adapter_error():
            row = await self._store.save_installation(
                NewInstallationRow(platform=PLATFORM, **values), unless_known=unless_known
            )
            if row is None:
                return None
            actor = f"{PLATFORM}:{new.workspace}/{new.installer}" if new.installer else "settings"
            await self._audit.record(
                "workspace.installed", actor=actor, detail={"workspace": new.workspace, "revision": row.revision}
            )
        return self._read(row)

    async def remove(
        self, workspace: str, *, reason: str, revision: int | None = None, installed_by: datetime | None = None
    ) -> bool:
        """Forget the token of a workspace, unless it was installed anew."""
        with _as_adapter_error():
            removed = await self._store.remove_installation(
                PLATFORM,
                workspace,
                reason=reason,
                now=self._clock.now(),
                revision=revision,
                installed_by=installed_by,
            )
            if removed:
                detail = {"workspace": workspace, "reason": reason}
                await self._audit.record("workspace.removed", actor=f"{PLATFORM}:{workspace}/", detail=detail)
        return removed

    async def use_nonce(self, nonce: str, *, expires_at: datetime) -> bool:
        """Redeem something that holds once."""
        with _as_adapter_error():
            return await self._store.use_nonce(nonce, now=self._clock.now(), expires_at=expires_at)

    def _read(self, row: InstallationRow) -> Installation:
        return Installation(
            workspace=row.workspace,
            name=row.name,
            enterprise=row.enterprise,
            org_wide=row.org_wide,
            app=row.app,
            token=self._unseal(row),
            bot_user=row.bot_user,
            bot=row.bot,
            scopes=row.scopes,
            installer=row.installer,
            installed_at=row.installed_at,
            revision=row.revision,
        )

    def _unseal(self, row: InstallationRow) -> str:
        try:
            return self._seal.unseal(row.token, place=_place_of(row))
        except SealBroken:
            raise AdapterError(describe_unreadable([row], self._seal)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationReport:
    """How an installation stands, without secrets.

    ``missing`` are scopes that the code uses and that were not granted; ``problem`` says why it cannot be used, and
    ``removed`` why it is over. Both are empty where all is well.
    """

    workspace: str
    name: str
    installed_at: datetime
    installer: str
    missing: tuple[str, ...] = ()
    problem: str = ""
    removed: str = ""


FetchScopes = Callable[[str], Awaitable[frozenset[str] | None]]
"""Asks the platform what a token may do, None when it does not tell; raises ``AdapterError`` when it is refused."""

MOST_ASKED = 50
"""Tokens that a report tries out; of the others it tells what is kept."""


async def report_installations(
    store: Store, seal: TokenSeal, *, scopes: Collection[str], fetch: FetchScopes | None = None
) -> tuple[InstallationReport, ...]:
    """Tell how every installation stands, the newest first.

    Args:
        store: where the rows are.
        seal: decrypts their tokens.
        scopes: those that the code uses.
        fetch: tries the tokens out; None: only what is kept is told.

    Raises:
        StoreError: the storage cannot be used.
    """
    rows = await store.load_installations(PLATFORM)
    return tuple(
        [
            await _report(row, seal, scopes, fetch if n < MOST_ASKED and row.removed_at is None else None)
            for n, row in enumerate(rows)
        ]
    )


async def _report(
    row: InstallationRow, seal: TokenSeal, scopes: Collection[str], fetch: FetchScopes | None
) -> InstallationReport:
    granted, problem, removed = row.scopes, "", ""
    if row.removed_at is not None:
        removed = f"{row.removed_because} at {row.removed_at:%Y-%m-%d %H:%M} UTC"
    else:
        problem = describe_unreadable([row], seal)
    if fetch is not None and not problem:
        try:
            granted = await fetch(seal.unseal(row.token, place=_place_of(row))) or granted
        except AdapterError as error:
            problem = str(error)
    return InstallationReport(
        workspace=row.workspace,
        name=row.name,
        installed_at=row.installed_at,
        installer=row.installer,
        missing=() if removed else tuple(sorted(set(scopes) - granted)),
        problem=problem,
        removed=removed,
    )


async def forget_installation(store: Store, workspace: str, clock: Clock) -> bool:
    """Erase the token of a workspace, readable or not; false when there is none.

    Raises:
        StoreError: the storage cannot be used.
    """
    now, reason = clock.now(), "forgotten by the operator"
    removed = await store.remove_installation(PLATFORM, workspace, reason=reason, now=now)
    if removed:
        detail = {"workspace": workspace, "reason": reason}
        await AuditLog(store, clock).record("workspace.removed", actor="operator", detail=detail)
    return removed


def describe_unreadable(rows: Sequence[InstallationRow], seal: TokenSeal) -> str:
    """Say which tokens cannot be read, why, and what to do; empty when all can."""
    missing: dict[str, list[str]] = {}
    for row in rows:
        try:
            seal.unseal(row.token, place=_place_of(row))
        except SealBroken as broken:
            missing.setdefault(broken.key_id, []).append(row.workspace)
    return "\n".join(_describe(key_id, workspaces) for key_id, workspaces in missing.items())


def _describe(key_id: str, workspaces: Sequence[str]) -> str:
    names = ", ".join(workspaces[:10]) + (f" and {len(workspaces) - 10} more" if len(workspaces) > 10 else "")
    lost = f"run `hermod installations forget {workspaces[0]}` and let it install Hermod again"
    if not key_id:
        return f"slack: the token of {names} was changed in the database, or belongs to another workspace; {lost}"
    return (
        f"slack: the token of {names} was encrypted with the key {key_id}, which [security] key does not have; "
        f"put that key behind the newest one, after a comma (nothing was changed). If it is lost, {lost}"
    )


def _place_of(what: NewInstallation | InstallationRow) -> str:
    return f"{PLATFORM}:{what.workspace}"


@contextmanager
def _as_adapter_error() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise AdapterError(f"slack: the installations cannot be used now ({error})") from error
