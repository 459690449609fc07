"""``hermod doctor`` on a Slack app: the whole command, against a local workspace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.slack.manifest import BOT_SCOPES
from tests.acceptance.process import HermodProcess
from tests.integration.cli.command import Done, hermod
from tests.servers.slack import SlackServer


@pytest.fixture
async def server() -> AsyncIterator[SlackServer]:
    async with SlackServer(scopes=tuple(BOT_SCOPES)) as server:
        yield server


def write_settings(folder: Path, server: SlackServer, extra: str = "", port: int = 0) -> None:
    (folder / "hermod.toml").write_text(
        f'[slack]\nbot_token = "{server.bot_token}"\napp_token = "{server.app_token}"\napi_url = "{server.base_url}"\n'
        f'[http]\nport = {port}\n[[models]]\nkind = "offline"\n{extra}'
    )


async def doctor(folder: Path) -> tuple[Done, dict[str, list[dict[str, str]]]]:
    done = await asyncio.to_thread(hermod, folder, "doctor", "--json")
    items = done.data["items"]
    assert isinstance(items, list)
    by: dict[str, list[dict[str, str]]] = {}
    for item in items:
        by.setdefault(item["part"], []).append(item)
    return done, by


async def test_an_app_that_is_as_it_should_be(tmp_path: Path, server: SlackServer) -> None:
    write_settings(tmp_path, server, '[access]\nchannels = ["slack:T0FAKE/C1OPS", "D1ALICE", "discord:1/2"]\n')
    done, found = await doctor(tmp_path)
    assert [(i["state"], i["fix"]) for i in found["slack"]] == [("ok", "")]
    assert "hermod manifest" in found["slack"][0]["text"]
    assert done.code == 0
    assert [c.args["channel"] for c in server.calls_to("conversations.history")] == ["C1OPS"]


async def test_everything_that_is_wrong_is_named_with_its_remedy(tmp_path: Path, server: SlackServer) -> None:
    server.scopes = tuple(s for s in BOT_SCOPES if s != "files:write")
    server.skew_s = 90
    server.add_channel("C2OUT", "out", bot_in=False)
    write_settings(
        tmp_path,
        server,
        '[targets.shop]\nurl = "postgresql://hermod@127.0.0.1:9/shop"\n'
        '[access]\nchannels = ["C2OUT"]\n[access.channel_targets]\n"slack:C3GONE" = ["shop"]\n"*" = []\n'
        '[reports.daily]\ncron = "0 9 * * *"\nchannel = "slack:T0FAKE/C4GONE"\ntask = "look"\n',
    )
    done, found = await doctor(tmp_path)
    assert done.code == 1
    told = "\n".join(f"{i['state']} {i['text']} -> {i['fix']}" for i in found["slack"])
    for line in (
        "warning this machine's clock is",
        "error the scope files:write is missing",
        "warning Hermod is not in the channel C2OUT of access.channels",
        "warning Hermod is not in the channel C3GONE of access.channel_targets",
        "warning Hermod is not in the channel C4GONE of reports.daily.channel",
    ):
        assert line in told
    assert all(i["fix"] for i in found["slack"])
    assert server.bot_token not in done.out + done.err
    assert server.app_token not in done.out + done.err


async def test_b077_a_second_process_is_told_and_the_own_running_one_is_none(
    tmp_path: Path, server: SlackServer
) -> None:
    process = HermodProcess(tmp_path, slack_url=server.base_url, model_url=None)
    await process.start()
    try:
        await server.wait_until(lambda: len(server.open_sockets) == 2)
        write_settings(tmp_path, server)  # with another port than the running process has: a stranger
        _, found = await doctor(tmp_path)
        assert "2 more connections use this app token" in found["slack"][0]["text"]
        write_settings(tmp_path, server, port=await process.find_port())
        _, found = await doctor(tmp_path)
        assert [i["state"] for i in found["slack"]] == ["ok"]
        assert [i["text"].split(":")[0] for i in found["running provider"]] == ["main (offline)"]
    finally:
        assert await process.stop() == 0
