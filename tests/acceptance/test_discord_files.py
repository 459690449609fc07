"""Files of a Discord thread: a CSV goes into Python code in the sandbox, its plot comes back as an image."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.acceptance.on_discord import PATIENCE_S, drafts, said
from tests.acceptance.process import HermodProcess
from tests.needs import need
from tests.sandbox.sandboxes import KINDS, why_missing
from tests.servers.discord import DiscordServer
from tests.servers.openai import OpenAIServer

SALES = b"month,total\n1,10\n2,32\n3,58\n"
PLOT = """
import pandas
import matplotlib.pyplot as plt

sales = pandas.read_csv("input/sales.csv")
plt.plot(sales["month"], sales["total"])
plt.savefig("output/sales.png")
print("sum", sales["total"].sum())
"""
PATIENT = {"HERMOD_SANDBOX__TIMEOUT_S": "60", "HERMOD_SANDBOX__CPU_S": "60"}
"""For machines on which all takes ten times as long."""


@pytest.fixture
async def discord() -> AsyncIterator[DiscordServer]:
    async with DiscordServer(strict_rate_limits=True) as server:
        yield server


@pytest.fixture
async def model() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        yield server


@pytest.fixture
async def hermod(tmp_path: Path, discord: DiscordServer, model: OpenAIServer) -> AsyncIterator[HermodProcess]:
    reasons = [why_missing(kind) for kind in KINDS]
    need("" if "" in reasons else reasons[0])
    process = HermodProcess(tmp_path, model_url=model.base_url, discord=discord, sandbox=True, environ=PATIENT)
    yield process
    await process.stop()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("way", ["asked", "typed"])
async def test_a_csv_comes_back_as_a_plot_where_the_model_writes_the_code_and_where_a_person_does(
    discord: DiscordServer, model: OpenAIServer, hermod: HermodProcess, way: str
) -> None:
    model.on(user="plot", step=0).tools(("run_python", {"code": PLOT}))
    model.on(user="plot", step=1).text("here is the plot")
    await hermod.start()
    await hermod.wait_ready()
    text = "plot this, please" if way == "asked" else f"```py\n{PLOT}\n```"
    thread = await discord.mention(text, files={"sales.csv": SALES})
    await discord.wait_until(lambda: said(discord, thread) and not drafts(discord, thread), 2 * PATIENCE_S)
    (message,) = discord.bot_messages(thread)
    assert "here is the plot" in message["content"] if way == "asked" else "sum 100" in message["content"]
    assert [file["filename"] for file in message["attachments"]] == ["sales.png"]
    assert discord.blobs[message["attachments"][0]["id"]].startswith(b"\x89PNG\r\n\x1a\n")
    if way == "asked":
        assert "sum 100" in model.requests[-1].tool_results["run_python"]
    else:
        assert model.requests == []
    assert model.violations == []
    assert discord.violations == []
    assert discord.rate_violations == []
