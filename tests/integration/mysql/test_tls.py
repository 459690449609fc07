"""TLS by the words of ``sslmode``, against a MariaDB with a certificate of our own authority, and one without."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_core.errors import ToolFailed
from bot.tools.mysql.connection import open_mysql
from bot.tools.targets import Target
from tests.servers.mariadb import FIRST, MariaLab, start_mariadb, stop_mariadb


@dataclass(frozen=True)
class Tls:
    """A server that only takes TLS, an account, and the authority's certificate beside one of a stranger."""

    lab: MariaLab
    role: str
    authority: Path
    stranger: Path

    def target(self, sslmode: str, authority: Path | None = None, host: str = "127.0.0.1") -> Target:
        root = "" if authority is None else f"&sslrootcert={authority}"
        account = f"{self.role}:{self.lab.passwords[self.role]}"
        return Target.from_url("lab", f"mysql://{account}@{host}:{self.lab.server.port}/?sslmode={sslmode}{root}")


def make_authority(folder: Path, name: str) -> Path:
    """A self-signed certificate with its key beside it."""
    made = folder / f"{name}.pem"
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", f"/CN={name}", "-keyout", f"{folder / name}.key", "-out", str(made))  # fmt: skip
    return made


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module", params=[FIRST])
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    folder = tmp_path_factory.mktemp("tls")
    authority, stranger = make_authority(folder, "authority"), make_authority(folder, "stranger")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=database",
            "-keyout", f"{folder}/server.key", "-out", f"{folder}/server.csr")  # fmt: skip
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl("x509", "-req", "-in", f"{folder}/server.csr", "-CA", str(authority), "-CAkey", f"{folder}/authority.key",
            "-CAcreateserial", "-days", "2", "-extfile", f"{folder}/names", "-out", f"{folder}/server.pem")  # fmt: skip
    # The server runs as another user where the tests run as root, and may not enter their folder.
    files = {"ssl-cert": folder / "server.pem", "ssl-key": folder / "server.key"}
    lab = start_mariadb({"require-secure-transport": "ON"}, files=files)
    yield Tls(lab, asyncio.run(lab.create_reader()), authority, stranger)
    stop_mariadb(lab)


async def cipher(target: Target) -> object:
    """What the connection is encrypted with; empty for plain."""
    async with open_mysql(target) as db:
        row = await db.fetch_one("show session status like 'Ssl_cipher'")
        return None if row is None else row["Value"]


async def fail(target: Target) -> ToolFailed:
    with pytest.raises(ToolFailed) as caught:
        await cipher(target)
    return caught.value


@pytest.mark.parametrize("mode", ["prefer", "require", "allow"])
async def test_a_connection_is_encrypted_where_the_server_can(tls: Tls, mode: str) -> None:
    assert await cipher(tls.target(mode))


async def test_a_certificate_is_verified_against_the_authority_that_is_named(tls: Tls) -> None:
    assert await cipher(tls.target("verify-ca", tls.authority))
    assert await cipher(tls.target("verify-full", tls.authority, host="localhost"))
    for target in (
        tls.target("verify-ca", tls.stranger),
        tls.target("verify-ca"),
        tls.target("require", tls.stranger),
        tls.target("verify-full", tls.authority, host="127.0.0.1"),  # the certificate names localhost only
    ):
        failure = await fail(target)
        assert (failure.code, "no TLS connection" in failure.message) == ("connect_failed", True)


async def test_a_server_that_takes_tls_only_says_so_to_a_plain_connection(tls: Tls) -> None:
    """MariaDB says no more than it says to a wrong password."""
    failure = await fail(tls.target("disable"))
    assert failure.code == "auth_failed"
    assert 'sslmode = "require"' in failure.fix


async def test_what_is_cancelled_over_tls_leaves_nothing_running(tls: Tls) -> None:
    async with tls.lab.admin() as admin:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0), open_mysql(tls.target("require"), statement_timeout_s=60.0) as db:
                await db.fetch("select sleep(50) as over_tls")
        query = "select count(*) from information_schema.processlist where info like 'select sleep(50) as over_tls%'"
        async with asyncio.timeout(30):
            while await admin.value(query) != 0:  # noqa: ASYNC110 (the server sends no event)
                await asyncio.sleep(0.02)


async def test_a_server_without_tls_is_plain_under_prefer_and_refused_under_require(mariadb: MariaLab) -> None:
    role = await mariadb.create_reader()
    url = mariadb.url("", role)
    assert await cipher(Target.from_url("lab", url)) == ""
    failure = await fail(Target.from_url("lab", url, sslmode="require"))
    assert "has no TLS" in failure.message
