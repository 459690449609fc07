"""A real MariaDB for tests: started once a session, one database a test.

The server listens on a Unix socket in its private folder and on a free port of 127.0.0.1. Whatever ends the tests
(Ctrl-C, kill -9), no server and no folder stays: a small shell process holds the read end of a pipe whose write end
only we have, and cleans up when that end closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlencode

import asyncmy
import asyncmy.errors
import pytest

from bot.tools.targets import Target, Targets
from tests.ports import free_port

_numbers = itertools.count(1)
_START_S = 90.0
_POLL_S = 0.05

FIRST = pytest.param("first", marks=pytest.mark.service("mariadb"))

READER_GRANTS = (
    "process on *.*",
    "select on performance_schema.*",
    "select on sys.*",
)
"""What the documentation advises for a read-only account; the data of a database comes on top."""

_SETTINGS: Mapping[str, str] = {
    "performance-schema": "ON",
    "performance-schema-instrument": "statement/%=ON",
    # Without events_statements_current the histories stay empty, whatever they are set to.
    "performance-schema-consumer-events-statements-current": "ON",
    "performance-schema-consumer-events-statements-history-long": "ON",
    "performance-schema-consumer-statements-digest": "ON",
    # Nothing here outlives the process, so nothing has to survive a power cut.
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-flush-method": "nosync",
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "16M",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
    "max-connections": "60",
    "skip-name-resolve": "ON",
    "slow-query-log": "ON",
    "long-query-time": "0.25",
}

_WATCHDOG = """\
trap '' INT TERM HUP
if read -r word; then exit 0; fi
pid=$(cat "$1/server.pid" 2>/dev/null)
case "$pid" in '' | *[!0-9]*) ;; *) kill -KILL "$pid" 2>/dev/null ;; esac
sleep 0.3
rm -rf "$1" || { sleep 2; rm -rf "$1"; }
"""


class MariaDBServer:
    """One throw-away server. ``start`` and ``stop`` block: call them outside an event loop.

    Args:
        settings: further options of mariadbd without the dashes in front, for example ``{"max-connections": "5"}``.
        files: options whose values are files; each is copied to where the server may read it.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, files: Mapping[str, Path] | None = None) -> None:
        self._settings = {**_SETTINGS, **(settings or {})}
        self._files = dict(files or {})
        self._account = pwd.getpwnam("mysql") if os.geteuid() == 0 else None
        self._server: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self.folder = Path()
        self.port = 0
        self.password = secrets.token_urlsafe(18)

    @property
    def socket_path(self) -> str:
        """The Unix socket."""
        return str(self.folder / "my.sock")

    @property
    def pid(self) -> int:
        """Process id of mariadbd."""
        if self._server is None:
            raise RuntimeError("the server was not started")
        return self._server.pid

    def start(self) -> None:
        """Make a data folder and start; cleans up after itself when that fails."""
        self.folder = Path(tempfile.mkdtemp(prefix="hermod-my-", dir="/tmp"))
        try:
            # Its own: servers that share /tmp clear away each other's temporary tables when they start.
            (self.folder / "tmp").mkdir()
            if self._account is not None:
                for place in (self.folder, self.folder / "tmp"):
                    os.chown(place, self._account.pw_uid, self._account.pw_gid)
            self._watchdog = self._spawn(["/bin/sh", "-c", _WATCHDOG, "hermod-watchdog", str(self.folder)], piped=True)
            self._install()
            self._bring_files()
            self.port = free_port()
            self._run()
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """Stop cleanly and start again on the same data and port, as an operator would."""
        self._end(signal.SIGTERM)
        self._run()

    def stop(self) -> None:
        """Stop the server and remove its folder; safe to call twice."""
        self._end(signal.SIGKILL)
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None and watchdog.stdin is not None:
            watchdog.stdin.write(b"done\n")
            watchdog.stdin.close()
            watchdog.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _install(self) -> None:
        """System tables, the sys schema, and a root account with a password and nobody else."""
        setup = self.folder / "setup.sql"
        lines = (
            "FLUSH PRIVILEGES;",
            f"ALTER USER root@localhost IDENTIFIED BY '{self.password}';",
            "DELETE FROM mysql.global_priv WHERE User = '' OR (User = 'root' AND Host <> 'localhost');",
            "FLUSH PRIVILEGES;",
            "CREATE USER IF NOT EXISTS root@'127.0.0.1' IDENTIFIED BY '" + self.password + "';",
            "GRANT ALL PRIVILEGES ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;",
        )
        setup.touch(mode=0o600)
        setup.write_text("\n".join(lines) + "\n")
        if self._account is not None:
            os.chown(setup, self._account.pw_uid, self._account.pw_gid)
        command = [_program("mariadb-install-db"), "--no-defaults", f"--datadir={self.folder / 'data'}"]
        command += ["--auth-root-authentication-method=normal", "--skip-test-db", f"--extra-file={setup}"]
        command += [f"--tmpdir={self.folder / 'tmp'}"]
        done = self._spawn(command, log="install.log")
        if done.wait(_START_S) != 0:
            raise RuntimeError(f"mariadb-install-db failed: {(self.folder / 'install.log').read_text()[-500:]}")
        setup.unlink()

    def _bring_files(self) -> None:
        for name, path in self._files.items():
            copy = self.folder / f"{name}{path.suffix}"
            shutil.copyfile(path, copy)
            copy.chmod(0o600)
            if self._account is not None:
                os.chown(copy, self._account.pw_uid, self._account.pw_gid)
            self._settings[name] = str(copy)

    def _run(self) -> None:
        options = {
            **self._settings,
            "datadir": str(self.folder / "data"),
            "tmpdir": str(self.folder / "tmp"),
            "socket": self.socket_path,
            "pid-file": str(self.folder / "server.pid"),
            "bind-address": "127.0.0.1",
            "port": str(self.port),
            "slow-query-log-file": str(self.folder / "slow.log"),
        }
        command = [_program("mariadbd"), "--no-defaults", *(f"--{name}={value}" for name, value in options.items())]
        self._server = self._spawn(command, log="server.log")
        deadline = time.monotonic() + _START_S
        while not self._is_ready():
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"mariadbd did not come up: {(self.folder / 'server.log').read_text()[-800:]}")
            time.sleep(_POLL_S)

    def _is_ready(self) -> bool:
        """A server that takes connections greets them."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                return bool(connection.recv(1))
        except OSError:
            return False

    def _spawn(self, command: Sequence[str], *, log: str = "", piped: bool = False) -> subprocess.Popen[bytes]:
        output = (self.folder / log).open("ab") if log else None
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=output if output is not None else subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={"PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin", "LC_ALL": "C", "TZ": "UTC"},
                start_new_session=True,
                user=None if self._account is None else self._account.pw_uid,
                group=None if self._account is None else self._account.pw_gid,
                extra_groups=None if self._account is None else [],
            )
        finally:
            if output is not None:
                output.close()

    def _end(self, first: signal.Signals) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.send_signal(signal.SIGCONT)  # a test may have stopped it
        server.send_signal(first)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(10)


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise RuntimeError(f"no {name}")
    return found


class Session:
    """A plain connection in autocommit, as an application has one; nothing of Hermod is in it."""

    def __init__(self, connection: asyncmy.Connection) -> None:
        self.connection = connection

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Run one statement and return its rows; ``%s`` are the placeholders if there are parameters."""
        async with self.connection.cursor() as cursor:
            await cursor.execute(statement, tuple(parameters) or None)
            return [tuple(row) for row in await cursor.fetchall()]

    async def value(self, statement: str, parameters: Sequence[object] = ()) -> object:
        """The first column of the first row."""
        return (await self.execute(statement, parameters))[0][0]


@dataclass(frozen=True, kw_only=True)
class MariaLab:
    """A running server. ``passwords`` are all that ever exist on it; no output may hold one."""

    server: MariaDBServer
    passwords: dict[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def admin(self, database: str = "mysql") -> AsyncIterator[Session]:
        """Root's connection in autocommit."""
        async with self.connect(database, "root") as session:
            yield session

    async def create_database(self) -> str:
        """Make an empty database."""
        name = f"lab_{next(_numbers)}"
        async with self.admin() as admin:
            await admin.execute(f"create database {name}")
        return name

    async def create_role(self, *grants: str) -> str:
        """Make an account with a password of its own; ``grants`` as in ``create_role("select on shop.*")``."""
        name = f"role_{next(_numbers)}"
        secret = self.passwords[name] = f"s3cret-{name}-pass"
        async with self.admin() as admin:
            await admin.execute(f"create user {name}@'%%' identified by %s", [secret])
            for grant in grants:
                await admin.execute(f"grant {grant} to {name}@'%'")
        return name

    async def create_reader(self, *databases: str) -> str:
        """Make an account as the documentation advises, which may also read the tables of ``databases``."""
        return await self.create_role(*READER_GRANTS, *(f"select, show view on {name}.*" for name in databases))

    def url(self, database: str, role: str, *, tcp: bool = True) -> str:
        """The address for a role made here."""
        account = f"{quote(role, safe='')}:{quote(self.passwords[role], safe='')}"
        if tcp:
            return f"mysql://{account}@127.0.0.1:{self.server.port}/{quote(database, safe='')}"
        return f"mysql://{account}@/{quote(database, safe='')}?{urlencode({'unix_socket': self.server.socket_path})}"

    def target(self, database: str, role: str, name: str = "lab", *, accept_risks: Sequence[str] = ()) -> Target:
        """A target for a role made here."""
        return Target.from_url(name, self.url(database, role), accept_risks=accept_risks)

    def targets(self, database: str, role: str, name: str = "lab") -> Targets:
        """One target for a role made here."""
        return Targets([self.target(database, role, name)])

    @asynccontextmanager
    async def connect(self, database: str, role: str) -> AsyncIterator[Session]:
        """A role's connection in autocommit; at its end all that it ran has been counted.

        The server sends an answer before it counts the statement, and takes the next command after that.
        """
        connection = await asyncmy.connect(
            unix_socket=self.server.socket_path,
            user=role,
            password=self.passwords[role],
            database=database or None,
            autocommit=True,
            program_name="lab-app",
        )
        try:
            yield Session(connection)
            # A test may have ended it on the server.
            with contextlib.suppress(asyncmy.errors.MySQLError, OSError):
                async with asyncio.timeout(10):
                    await connection.ping(reconnect=False)
        finally:
            connection.close()


def start_mariadb(settings: Mapping[str, str] | None = None, *, files: Mapping[str, Path] | None = None) -> MariaLab:
    """Start a server from outside an event loop; stop it with ``stop_mariadb``. See ``MariaDBServer``."""
    server = MariaDBServer(settings, files)
    server.start()
    return MariaLab(server=server, passwords={"root": server.password})


def stop_mariadb(lab: MariaLab) -> None:
    """Stop the server and remove what it wrote."""
    lab.server.stop()


@pytest.fixture(scope="session", params=[FIRST])
def mariadb() -> Iterator[MariaLab]:
    """A server with performance_schema, its digests and its long history of statements switched on."""
    lab = start_mariadb()
    yield lab
    stop_mariadb(lab)
