"""``hermod run`` as a process of its own, against local servers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import DEVNULL
from typing import IO

import aiohttp

from tests.servers.discord import DiscordServer

ROOT = Path(__file__).parents[2]

COUNTED_TOOLS = '''
import asyncio
import os
import pathlib

LOG = pathlib.Path(os.environ["TOOL_LOG"])


def register(registry):
    """Register a tool whose every run can be counted from outside."""

    async def look_at(thing: str) -> str:
        """Look at a thing.

        Args:
            thing: which one.
        """
        with LOG.open("a") as log:
            log.write(f"{thing}\\n")
        await asyncio.sleep(0.05)
        return f"{thing} is fine"

    registry.register(look_at)
'''


_MODEL = """
[[models]]
name = "main"
model = "fake-large"
base_url = "{url}"
api_key = "sk-local-key"
"""

_SLACK = """
[slack]
bot_token = "{bot_token}"
app_token = "{app_token}"
api_url = "{url}"
"""

_DISCORD = """
[discord]
token = "{token}"
api_url = "{url}"
gateway_url = "{gateway}"
"""

_OFFLINE = """
[[models]]
name = "main"
kind = "offline"
"""


PATIENCE_S = 60.0
"""How long is waited for what another process has to do; to start alone may take it ten seconds beside other work."""


async def until(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Wait for what no event tells of: what another process wrote, or which requests a server has."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)


class HermodProcess:
    """Starts, stops, freezes and kills one ``hermod run``; the settings stay between starts.

    Args:
        folder: for settings, storage and log.
        slack_url: base of the Web API; empty: not on Slack.
        model_url: endpoint of the model; None takes the offline provider.
        extra: further settings, as TOML.
        bot_token, app_token: of the Slack app.
        discord: the Discord server whose bot it is as well, or only.
        name: tells the logs of two processes on one folder apart.
        environ: further environment variables.
        sandbox: with ``run_python``; looking for a backend takes seconds of CPU beside what is tested.
        verbose: with log events of every level.
    """

    def __init__(
        self,
        folder: Path,
        *,
        slack_url: str = "",
        model_url: str | None,
        discord: DiscordServer | None = None,
        extra: str = "",
        bot_token: str = "xoxb-fake-bot",
        app_token: str = "xapp-1-fake-app",
        name: str = "hermod",
        environ: Mapping[str, str] | None = None,
        sandbox: bool = False,
        verbose: bool = False,
    ) -> None:
        self.folder = folder
        self.port = 0
        self._environ = dict(environ or {})
        self._options = ["--verbose"] if verbose else []
        self.tool_log = folder / "tools.log"
        self.tool_log.touch()
        (folder / "counted_tools.py").write_text(COUNTED_TOOLS)
        self.config = folder / "hermod.toml"
        platforms = _SLACK.format(bot_token=bot_token, app_token=app_token, url=slack_url) if slack_url else ""
        if discord is not None:
            platforms += _DISCORD.format(token=discord.token, url=discord.base_url, gateway=discord.gateway_url)
        self.config.write_text(
            textwrap.dedent(f"""
                [storage]
                url = "sqlite:///{folder}/hermod.db"
                {{models}}
                {{platforms}}
                [http]
                port = 0
                [tools]
                modules = ["counted_tools"]
                [sandbox]
                enabled = {str(sandbox).lower()}
                """)
            .replace("{models}", _OFFLINE if model_url is None else _MODEL.format(url=model_url))
            .replace("{platforms}", platforms)
            + textwrap.dedent(extra)
        )
        self._process: asyncio.subprocess.Process | None = None
        self.log_path = folder / f"{name}.log"
        self._earlier_ports = 0

    @property
    def database(self) -> Path:
        return self.folder / "hermod.db"

    async def start(self) -> None:
        """Start the process; it is not waited for until it is connected."""
        self._earlier_ports = len(self._ports())
        with self.log_path.open("ab") as log:
            self._process = await self.start_command("run", *self._options, output=log)

    async def start_command(self, *words: str, output: IO[bytes] | int = DEVNULL) -> asyncio.subprocess.Process:
        """Start another command on the same settings and storage; whoever starts it waits for its end."""
        environ = {k: v for k, v in os.environ.items() if not k.startswith("HERMOD_")}
        environ |= {"PYTHONPATH": f"{self.folder}:{ROOT}", "TOOL_LOG": str(self.tool_log)} | self._environ
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bot", *words, "--config", str(self.config)),
            env=environ,
            stderr=output,
            stdout=output,
        )

    async def find_port(self) -> int:
        """Read the HTTP port that the newest start took from its log."""
        await until(lambda: len(self._ports()) > self._earlier_ports)
        return self._ports()[-1]

    def _ports(self) -> list[int]:
        return [int(str(e["port"])) for e in self.events() if e.get("event") == "http_listening"]

    def events(self) -> list[Mapping[str, object]]:
        """The log events of all starts so far; a line that is just being written is none yet."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return [json.loads(line) for line in text.rpartition("\n")[0].splitlines() if line.startswith("{")]

    async def get(self, path: str) -> tuple[int, str]:
        """Ask the HTTP port."""
        url = f"http://127.0.0.1:{await self.find_port()}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    async def wait_ready(self) -> None:
        """Wait until every platform is connected, as ``/readyz`` tells."""
        async with asyncio.timeout(PATIENCE_S):
            while (await self.get("/readyz"))[0] != 200:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.05)

    def freeze(self) -> None:
        """SIGSTOP: the process stands still in the middle of whatever it does, until ``thaw``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def running(self) -> bool:
        """False before the start, and after the process has ended."""
        return self._process is not None and self._process.returncode is None

    async def kill(self) -> None:
        """kill -9."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """SIGTERM, and the exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, sign: signal.Signals) -> int:
        process = self._process
        if process is None or process.returncode is not None:
            return 0 if process is None else (process.returncode or 0)
        process.send_signal(sign)
        async with asyncio.timeout(45):
            return await process.wait()
