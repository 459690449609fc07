"""A real PgBouncer in front of a lab's server: few server connections, handed from client to client.

``pool_mode=transaction`` is the mode that most poolers in front of Postgres run in. What a client leaves behind in a
session (a prepared statement, a setting) is met by the next one there, because nothing is reset in between
(https://www.pgbouncer.org/features.html).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from bot.demo.binaries import find_account, make_folder
from bot.tools.targets import Target, Targets
from tests.ports import free_port
from tests.servers.postgres import Lab

_START_S = 15.0


@dataclass(frozen=True, kw_only=True)
class Pooler:
    """A running PgBouncer. ``port``: on 127.0.0.1."""

    lab: Lab
    port: int

    def url(self, database: str, role: str) -> str:
        """The address of a database through the pooler, for a role made in the lab before the pooler was started."""
        return f"postgresql://{role}:{quote(self.lab.passwords[role], safe='')}@127.0.0.1:{self.port}/{database}"

    def targets(self, database: str, role: str, name: str = "pooled") -> Targets:
        """One target that is reached through the pooler."""
        return Targets([Target.from_url(name, self.url(database, role))])


@contextmanager
def run_pooler(lab: Lab, *, mode: str = "transaction", server_connections: int = 1) -> Iterator[Pooler]:
    """Start a pooler in front of ``lab``, and end it.

    Args:
        lab: its server, with the roles that are going to connect.
        mode: ``session``, ``transaction`` or ``statement``.
        server_connections: for each database and role; with one, every client meets what the last one left.
    """
    account = find_account()
    folder = make_folder(account)
    process = None
    try:
        port = free_port()
        users = folder / "users.txt"
        users.write_text("".join(f"{_quote(name)} {_quote(secret)}\n" for name, secret in lab.passwords.items()))
        config = folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = host={lab.server.folder} port={lab.server.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = plain\n"
            f"auth_file = {users}\n"
            f"pool_mode = {mode}\ndefault_pool_size = {server_connections}\nmax_client_conn = 50\n"
            f"logfile = {folder / 'pgbouncer.log'}\nlog_connections = 0\nlog_disconnections = 0\n"
        )
        for file in (users, config):
            file.chmod(0o600)
            if account is not None:
                os.chown(file, account.uid, account.gid)
        process = subprocess.Popen(
            [shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin") or "pgbouncer", config],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
        )
        _wait_listening(process, port, folder / "pgbouncer.log")
        yield Pooler(lab=lab, port=port)
    finally:
        if process is not None:
            # It keeps nothing; another signal may be ignored by what a shell has started in the background.
            process.kill()
            process.wait(timeout=10)
        shutil.rmtree(folder, ignore_errors=True)


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _wait_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > until:
                said = log.read_text()[-1000:] if log.exists() else ""
                raise RuntimeError(f"PgBouncer did not start: {said}") from error
            time.sleep(0.05)
