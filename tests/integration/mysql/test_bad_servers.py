"""Servers that are old, hang, or are not what they say."""

from __future__ import annotations

import asyncio
import time

import pytest

from agent_core.errors import ToolFailed
from bot.tools.mysql.connection import open_mysql
from bot.tools.targets import Target
from tests.integration.mysql.fake_server import (
    ASK_FOR_A_FILE,
    ASK_FOR_THE_PASSWORD,
    NONSENSE,
    FakeServer,
    run_fake,
)

PASSWORD = "never-in-the-clear"


async def fail_on(
    server: FakeServer, *, sslmode: str = "prefer", timeout_s: float = 30.0, connect_timeout_s: int = 30
) -> ToolFailed:
    """Connect, and return how that fails."""
    async with run_fake(server):
        url = f"mysql://someone:{PASSWORD}@127.0.0.1:{server.port}/?sslmode={sslmode}"
        with pytest.raises(ToolFailed) as caught:
            async with open_mysql(
                Target.from_url("lab", url), statement_timeout_s=timeout_s, connect_timeout_s=connect_timeout_s
            ) as db:
                await db.fetch("select 1")
    assert PASSWORD not in f"{caught.value.message}{caught.value.fix}"
    return caught.value


@pytest.mark.parametrize("version", ["5.7.44-log", "5.5.5-10.5.27-MariaDB", "5.6.51", "10.4.34-MariaDB-0+deb10u1"])
async def test_a_server_that_is_too_old_is_told_by_its_version(version: str) -> None:
    failure = await fail_on(FakeServer(version=version))
    assert failure.code == "unsupported_version"
    assert "or later is needed" in failure.message


async def test_a_server_or_proxy_that_takes_two_statements_at_once_is_refused() -> None:
    """The fake says yes to everything, as a proxy does that splits statements itself."""
    server = FakeServer()
    failure = await fail_on(server)
    assert failure.code == "multiple_statements"
    assert server.received[-1] == b"\x01" or b"DO 0; DO 0" in server.received[-1]


async def test_a_server_that_never_greets_is_not_waited_for() -> None:
    began = time.monotonic()
    failure = await fail_on(FakeServer(greet=False), connect_timeout_s=1)
    assert (failure.code, failure.retryable) == ("connect_failed", True)
    assert "did not answer in time" in failure.message
    assert time.monotonic() - began < 10


async def test_a_server_that_asks_for_the_password_itself_does_not_get_it() -> None:
    """The driver would send it, with or without TLS."""
    server = FakeServer(after_login=ASK_FOR_THE_PASSWORD)
    failure = await fail_on(server)
    assert failure.code == "auth_failed"
    assert "verify-full" in failure.fix
    assert not any(PASSWORD.encode() in packet for packet in server.received)


async def test_a_server_without_tls_is_refused_before_anything_is_sent_where_tls_is_demanded() -> None:
    server = FakeServer()
    failure = await fail_on(server, sslmode="require")
    assert (failure.code, "has no TLS" in failure.message) == ("connect_failed", True)
    assert server.received == []


async def test_a_server_that_asks_for_a_file_of_ours_gets_none() -> None:
    server = FakeServer(answer=lambda command: ASK_FOR_A_FILE)
    failure = await fail_on(server)
    assert failure.code == "connect_failed"
    with open("/etc/hostname", "rb") as file:  # noqa: ASYNC230 (a line)
        held = file.read().strip()
    assert not any(held and held in packet for packet in server.received)


async def test_a_server_that_talks_nonsense_is_a_broken_connection() -> None:
    for nonsense in (NONSENSE, b"\xff", b"\xfe\xfe\xfe", b"\x01\x05abc"):
        failure = await fail_on(FakeServer(answer=lambda command, reply=nonsense: reply))  # type: ignore[misc]
        assert failure.code in ("connect_failed", "failed")
    assert (await fail_on(FakeServer(version="no version"))).code == "connect_failed"


async def test_a_server_that_is_silent_after_the_login_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.tools.mysql.connection.GRACE_S", 0.3)
    failure = await fail_on(FakeServer(answer=lambda command: None), timeout_s=0.3)
    assert "stopped answering" in failure.message


async def test_nothing_is_left_behind_by_servers_that_fail() -> None:
    before = len(asyncio.all_tasks())
    await fail_on(FakeServer(version="5.7.1"))
    assert len(asyncio.all_tasks()) <= before + 1  # the fake's own, which ends with the connection
