"""The shipped process, installed in two workspaces by people with a browser; kept, removed and installed anew."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.process import PATIENCE_S, HermodProcess, until
from tests.acceptance.secrecy import find_secrets
from tests.ports import free_port
from tests.servers.openai import OpenAIServer, Reply
from tests.servers.slack import SlackServer

PEOPLE = {"C1OPS": "U1ALICE", "C2TWO": "U2TINA"}
KEY, NEW_KEY = "a-key-of-the-acceptance-0123456789", "a-newer-key-of-the-acceptance-01234"


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with SlackServer(bot_token="xoxb-not-installed-yet", ack_timeout=2.0, retry_delays=(0.2,) * 50) as server:
        server.home.installed = False
        server.add_workspace("T2", "Second", installed=False)
        server.add_user("U2TINA", "tina", team_id="T2")
        server.add_channel("C2TWO", "two", team="T2", members={"U2TINA"})
        yield server


@pytest.fixture
async def model() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        server.on().dynamic(lambda request: Reply(f"answer to {request.last_user.rpartition(' ')[2]}"))
        yield server


def read_all(folder: Path) -> dict[str, bytes]:
    """Everything that the processes left in their folder: database, logs, outputs."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


class Deployment:
    """One folder, one address; its processes come and go with different keys."""

    def __init__(self, folder: Path, slack: SlackServer, model: OpenAIServer, mode: str) -> None:
        self.folder, self.slack, self.model, self.mode, self.port = folder, slack, model, mode, free_port()
        self.url = f"http://localhost:{self.port}"
        self.processes: list[HermodProcess] = []
        if mode == "http":
            slack.request_url = f"{self.url}/slack/events"

    def build(self, *keys: str) -> HermodProcess:
        process = HermodProcess(
            self.folder,
            slack_url=self.slack.base_url,
            model_url=self.model.base_url,
            bot_token="",
            environ={
                "HERMOD_SLACK__MODE": self.mode,
                "HERMOD_SLACK__SIGNING_SECRET": self.slack.signing_secret,
                "HERMOD_SLACK__CLIENT_ID": self.slack.client_id,
                "HERMOD_SLACK__CLIENT_SECRET": self.slack.client_secret,
                "HERMOD_SLACK__PUBLIC_URL": self.url,
                "HERMOD_SECURITY__KEY": ",".join(keys),
                "HERMOD_HTTP__PORT": str(self.port),
            },
        )
        self.processes.append(process)
        return process

    async def start(self, *keys: str) -> HermodProcess:
        process = self.build(*keys)
        await process.start()
        async with asyncio.timeout(PATIENCE_S):
            while not await self._ready(process):
                assert process.running, process.log_path.read_text()
                await asyncio.sleep(0.05)
        return process

    async def _ready(self, process: HermodProcess) -> bool:
        try:
            return (await process.get("/readyz"))[0] == 200
        except OSError:
            return False

    async def install(self, team: str = "") -> tuple[int, str]:
        return await self.slack.install(f"{self.url}/slack/install", team=team)

    async def ask(self, word: str, channel: str) -> str:
        """A person asks in a channel; returns the answer in its thread."""
        root = await self.say(word, channel)
        await self.slack.wait_until(lambda: self.slack.replies(channel, root))
        return str(self.slack.replies(channel, root)[0]["text"])

    async def say(self, word: str, channel: str) -> str:
        return await self.slack.mention(f"tell me {word}", channel=channel, user=PEOPLE[channel])

    async def wait_failed(self, root: str) -> str:
        """Wait until a reply in a thread was given up; returns the reason."""
        await until(lambda: self.failures(root))
        return self.failures(root)[0]

    def failures(self, root: str) -> list[str]:
        """Why replies in a thread were given up."""
        with closing(sqlite3.connect(self.folder / "hermod.db")) as rows:
            sql = "SELECT reason FROM outbox WHERE thread_key LIKE ? AND state = 'failed' ORDER BY id"
            return [str(row[0]) for row in rows.execute(sql, (f"%/{root}",))]


@pytest.fixture(params=["socket", "http"])
async def deployment(
    request: pytest.FixtureRequest, tmp_path: Path, slack: SlackServer, model: OpenAIServer
) -> AsyncIterator[Deployment]:
    deployment = Deployment(tmp_path, slack, model, request.param)
    yield deployment
    for process in deployment.processes:
        await process.stop()


async def run_command(process: HermodProcess, folder: Path, *words: str) -> tuple[int, str]:
    path = folder / "command.out"
    with path.open("wb") as output:
        done = await process.start_command(*words, output=output)
        async with asyncio.timeout(PATIENCE_S):
            code = await done.wait()
    return code, path.read_text()


@pytest.mark.timeout(300)
async def test_two_workspaces_are_installed_served_left_and_come_back(deployment: Deployment, tmp_path: Path) -> None:
    slack = deployment.slack
    process = await deployment.start(KEY)
    assert (await deployment.install())[0] == 200
    assert (await deployment.install("T2"))[0] == 200
    assert await deployment.ask("one", "C1OPS") == "answer to one"
    assert await deployment.ask("two", "C2TWO") == "answer to two"
    posted = {call.args["channel"]: call.token for call in slack.calls if call.method.startswith("chat.")}
    assert posted == {"C1OPS": slack.home.bot_token, "C2TWO": slack.workspaces["T2"].bot_token}
    old = [space.bot_token for space in slack.workspaces.values()]

    # asked, and gone before the answer: the answer stays undelivered with a reason, and nothing is tried again
    late, gone = deployment.model.on(user="three").text("too late"), asyncio.Event()
    late.wait = gone
    deployment.model.rules.insert(0, late)  # before the rule for every question
    root = await deployment.say("three", "C2TWO")
    await slack.wait_until(lambda: slack.shown_status(root, channel="C2TWO"))
    await until(lambda: late.used)
    await slack.uninstall("T2")
    gone.set()
    assert "install" in await deployment.wait_failed(root)
    assert slack.bot_messages("C2TWO", root) == []
    assert await deployment.ask("four", "C1OPS") == "answer to four"
    assert (await deployment.install("T2"))[0] == 200
    assert await deployment.ask("five", "C2TWO") == "answer to five"
    assert await process.stop() == 0

    # a new key takes over, a wrong one stops the start and costs nothing
    process = await deployment.start(NEW_KEY, KEY)
    assert await deployment.ask("six", "C2TWO") == "answer to six"
    assert await process.stop() == 0
    wrong = deployment.build(KEY)
    code, said = await run_command(wrong, tmp_path, "run")
    assert code == 2
    assert "put that key behind the newest one" in said.replace("\n", " ")
    process = await deployment.start(NEW_KEY)
    assert await deployment.ask("seven", "C1OPS") == "answer to seven"

    code, said = await run_command(process, tmp_path, "doctor", "--json")
    findings = {item["part"]: item for item in json.loads(said.splitlines()[-1])["items"]}
    assert findings["slack T2 (Second)"]["state"] == "ok"
    assert "by U1ALICE" in findings["slack T2 (Second)"]["text"]
    assert findings["slack T0FAKE (Fake)"]["state"] == "ok"
    assert "access.workspaces" in findings["slack workspaces"]["fix"]
    assert (await run_command(process, tmp_path, "installations", "forget", "T2"))[0] == 0
    code, listed = await run_command(process, tmp_path, "installations", "list")
    assert "slack:T2" in listed
    assert "forgotten by the operator" in listed

    new = [space.bot_token for space in slack.workspaces.values()]
    secrets = [*old, *new, KEY, NEW_KEY, slack.client_secret]
    places = read_all(tmp_path) | {"doctor": said.encode(), "list": listed.encode()}
    assert find_secrets(secrets, places, addresses=False) == []
    assert slack.violations == []
