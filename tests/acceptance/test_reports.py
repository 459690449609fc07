"""The shipped process posts reports on both platforms, from a real Postgres, and answers questions in their threads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.acceptance.on_discord import PATIENCE_S, said
from tests.acceptance.process import HermodProcess, until
from tests.servers.discord import DiscordServer, Json
from tests.servers.openai import OpenAIServer, Request
from tests.servers.postgres import FIRST, Lab, start_lab, stop_lab
from tests.servers.slack import SlackServer

pytestmark = pytest.mark.timeout(240)

PASSWORD = "made-for-the-lab-1"
CHANNEL = "C1OPS"
HEADLINE_LINES = 5
THIRD = "max(customer_id)"
WORK = (
    "select pg_sleep(1.05)",
    "select pg_sleep(0.65), count(*) from orders",
    f"select pg_sleep(0.25), {THIRD} from orders",
)
"""In the order of their cost, on a busy machine too; none below the template's threshold."""

TABLES = """\
create table orders (id int primary key, customer_id int, note text);
insert into orders select n, n % 100, md5(n::text) from generate_series(1, 1000) n;
analyze orders;
"""
SETTINGS = """
[targets.shop]
url = "{url}"
[collector]
enabled = false
[reports.daily]
cron = "0 {hour} * * *"
timezone = "Europe/Berlin"
channel = "slack:T0FAKE/{channel}"
task = "What cost most on shop since yesterday?"
[reports.guild]
cron = "0 {hour} * * *"
channel = "discord:{guild}/{general}"
task = "What cost most on shop since yesterday?"
"""


@pytest.fixture(scope="module", params=[FIRST])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A server of its own: what else happens on one would be in the reports."""
    lab = start_lab(request.param)
    yield lab
    stop_lab(lab)


@dataclass(frozen=True, kw_only=True)
class Office:
    """A running Hermod, the chats that it is in, and the database that it looks at."""

    lab: Lab
    database: str
    role: str
    slack: SlackServer
    discord: DiscordServer
    hermod: HermodProcess

    async def report_on_slack(self) -> dict[str, Any]:
        """Have the report of Slack made now, from another process.

        Returns:
            Its headline, the one message of Hermod's in the channel itself, once what follows stands in its thread.
        """
        await self.work()
        await run(self.hermod, "jobs", "run", "daily")
        await self.slack.wait_until(lambda: self.headlines() and self.below(self.headlines()[0]["ts"]))
        (headline,) = self.headlines()
        return headline

    async def report_on_discord(self) -> Json:
        """The same on Discord, as somebody in the channel asks for it."""
        discord = self.discord
        await self.work()
        await discord.mention("jobs run guild")
        await discord.wait_until(lambda: discord.bot_messages(discord.general), timeout=PATIENCE_S)
        (headline,) = discord.bot_messages(discord.general)
        await discord.wait_until(lambda: self.attached(headline["id"]), timeout=PATIENCE_S)
        return headline

    def attached(self, thread: str) -> list[str]:
        """Names of the files in a Discord thread."""
        return [f["filename"] for m in self.discord.bot_messages(thread) for f in m["attachments"]]

    def headlines(self) -> list[dict[str, Any]]:
        """What Hermod said in the Slack channel itself."""
        return [m for m in self.slack.bot_messages(CHANNEL) if m.get("thread_ts", m["ts"]) == m["ts"]]

    async def work(self) -> None:
        """Let an application cost something, since whatever was counted before."""
        url = self.lab.server.url(self.database)
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as app:
            for statement in WORK:
                await app.execute(statement.encode())

    async def count_queries(self) -> int:
        """How many statements Hermod's account has run so far, as the database counts them."""
        async with self.lab.admin() as admin:
            counted = await admin.execute(
                "select coalesce(sum(s.calls), 0)::bigint from pg_stat_statements s join pg_roles r on r.oid = s.userid"
                " where r.rolname = %s",
                (self.role,),
            )
            row = await counted.fetchone()
        assert row is not None
        return int(row[0])

    def below(self, root: str) -> list[dict[str, Any]]:
        """What Hermod said in a Slack thread, its first message left out."""
        return [m for m in self.slack.replies(CHANNEL, root) if m["ts"] != root]

    def read_below(self, root: str) -> str:
        """All that is to be read of it."""
        return " ".join(words(m) for m in self.below(root))


@asynccontextmanager
async def open_office(folder: Path, lab: Lab, *, model_url: str | None) -> AsyncIterator[Office]:
    database = await lab.create_database()
    role = f"hermod_{database}"
    async with lab.admin() as admin:
        await admin.execute("create extension if not exists pg_stat_statements")
        await admin.execute(
            sql.SQL("create role {} login password {} in role pg_monitor").format(
                sql.Identifier(role), sql.Literal(PASSWORD)
            )
        )
    async with lab.admin(database) as admin:
        await admin.execute(TABLES)
    url = lab.server.url(database, user=role, password=PASSWORD)
    async with SlackServer(ack_timeout=10.0) as slack, DiscordServer() as discord:
        hour = (datetime.now(UTC).hour + 12) % 24  # far from now: only what is asked for is posted
        extra = SETTINGS.format(url=url, channel=CHANNEL, guild=discord.guild_id, general=discord.general, hour=hour)
        hermod = HermodProcess(folder, slack_url=slack.base_url, model_url=model_url, discord=discord, extra=extra)
        await hermod.start()
        try:
            await slack.wait_connected()
            await hermod.wait_ready()
            # what the reports show is what happened since a first reading of the counters
            await run(hermod, "tools", "run", "get_slow_queries", "target=shop")
            yield Office(lab=lab, database=database, role=role, slack=slack, discord=discord, hermod=hermod)
            assert slack.violations == discord.violations == []
        finally:
            assert await hermod.stop() == 0


async def run(hermod: HermodProcess, *words: str) -> None:
    """Run another command beside the process, to its good end."""
    log = hermod.folder / "command.log"
    with log.open("wb") as output:
        command = await hermod.start_command(*words, output=output)
        async with asyncio.timeout(PATIENCE_S):
            assert await command.wait() == 0, log.read_text()


def words(message: dict[str, Any]) -> str:
    """All that is to be read of a message of Slack's, text and blocks."""
    return json.dumps([message.get("text"), message.get("blocks")], ensure_ascii=False)


async def test_a_report_without_a_model_stands_in_both_chats_with_its_thread(tmp_path: Path, lab: Lab) -> None:
    async with open_office(tmp_path, lab, model_url=None) as office:
        headline = await office.report_on_slack()
        assert len(headline["text"].strip().splitlines()) <= HEADLINE_LINES
        assert "shop" in headline["text"]
        await office.slack.wait_until(lambda: THIRD in office.read_below(headline["ts"]))
        body = office.read_below(headline["ts"])
        assert "without a language model" in words(headline) + body
        await office.slack.wait_until(lambda: any(THIRD.encode() in blob for blob in office.slack.blobs.values()))
        assert any(f["name"].endswith(".csv") for f in office.slack.files.values())

        discord, posted = office.discord, await office.report_on_discord()
        assert len(posted["content"].strip().splitlines()) <= HEADLINE_LINES
        assert "shop" in posted["content"]
        assert "Slow statements" in " ".join(said(discord, posted["id"]))
        await discord.wait_until(lambda: any(THIRD.encode() in blob for blob in discord.blobs.values()))
        assert any(name.endswith(".csv") for name in office.attached(posted["id"]))

        # questions there take no mention
        asked = len(office.below(headline["ts"]))
        await office.slack.say("what can you do?", channel=CHANNEL, thread_ts=headline["ts"])
        await office.slack.wait_until(lambda: len(office.below(headline["ts"])) > asked)
        before = len(said(discord, posted["id"]))
        await discord.say("what can you do?", channel=posted["id"])
        await discord.wait_until(lambda: len(said(discord, posted["id"])) > before, timeout=PATIENCE_S)
        assert len(discord.bot_messages(discord.general)) == len(office.headlines()) == 1


def plan(*assignments: tuple[str, str, str]) -> tuple[str, object]:
    made = [{"id": i, "worker": worker, "task": task, "depends_on": []} for i, worker, task in assignments]
    return "final_answer", {"assignments": made}


async def test_a_question_about_a_report_is_answered_from_what_it_stands_on(tmp_path: Path, lab: Lab) -> None:
    async with OpenAIServer() as model:
        model.on(system="^You divide a task").tools(plan(("a1", "sql_optimizer", "What cost most on shop?")))
        model.on(system="^You are sql_optimizer|slow", user="What cost most", step=0).tools(
            ("get_slow_queries", {"target": "shop", "time_range": "24h", "threshold": 0.1})
        )
        model.on(user="explain row 3").text(f"Row 3 is {THIRD}: it sleeps for a quarter of a second.")
        model.on(system="^You write the answer").text(
            "The first nap costs most [sql_optimizer:a1].\n---\nThree statements nap [sql_optimizer:a1]."
        )
        model.on(user="What cost most").text("Three statements nap, the first the longest.")
        async with open_office(tmp_path, lab, model_url=model.base_url) as office:
            headline = await office.report_on_slack()
            assert "The first nap costs most" in words(headline)
            assert len(headline["text"].strip().splitlines()) <= HEADLINE_LINES
            await office.slack.wait_until(lambda: "Three statements nap" in office.read_below(headline["ts"]))
            asked_before, ran_before = len(model.requests), await office.count_queries()
            assert ran_before > 0

            await office.slack.say("explain row 3", channel=CHANNEL, thread_ts=headline["ts"])
            await until(lambda: any("it sleeps for a quarter" in words(m) for m in office.below(headline["ts"])))
            (request,) = model.requests[asked_before:]
            assert [THIRD in sql for sql in list_rows(request)] == [False, False, True]
            assert await office.count_queries() == ran_before
        assert model.violations == []


def list_rows(request: Request) -> list[str]:
    """The SQL of the slow statements that a request holds as evidence, in order."""
    (rows,) = [
        json.loads(line)["rows"]
        for message in request.messages
        if message["role"] == "tool"
        for line in str(message["content"]).splitlines()
        if line.startswith("{") and '"rows"' in line
    ]
    return [str(row["sql"]) for row in rows]
