"""``hermod demo`` as a new user meets it: a true answer without a key, and nothing left behind however it ends."""

from __future__ import annotations

import asyncio
import re
import signal
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.terminal import Place, Terminal, open_place, open_terminal
from tests.servers.openai import Call, OpenAIServer, Reply, Request

pytestmark = [pytest.mark.service("postgres"), pytest.mark.timeout(300)]

SLOWEST = "select c.id, c.name, (select max(o.placed_at) from orders o where o.cus"
KEY = "sk-local-0123456789abcdefghij"


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with open_place() as place:
        yield place
        assert place.list_processes() == {}


def read_turns(screen: str) -> list[str]:
    """Cut a transcript into what follows each question, with the question."""
    return re.split(r"^(?:\n)?you> ", screen, flags=re.MULTILINE)[1:]


def read_table(turn: str) -> list[dict[str, str]]:
    """The rows of the table in an answer, by the names in its head."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in turn.splitlines() if line.startswith("|")]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def seconds(text: str) -> float:
    value, _, unit = text.partition(" ")
    return float(value) * {"s": 1.0, "ms": 0.001, "min": 60.0}[unit]


async def test_the_demo_prints_a_true_transcript_without_a_key_and_leaves_nothing_behind(place: Place) -> None:
    async with open_terminal(place, "demo", "--once") as terminal:
        assert await terminal.wait(240) == 0
        slow, follow_up, advice, blocked, calculation = read_turns(terminal.screen)
    assert "No model key is set (OPENAI_API_KEY), so the offline provider answers" in terminal.screen
    assert "Traceback" not in terminal.screen
    assert "Which queries were slow in the last 30 minutes?" in slow
    assert "pg_stat_statements (window between two readings)" in slow
    rows = read_table(slow)
    assert rows
    for row in rows:  # what the answer says of each is of one piece, and over the threshold that it names
        duration, total, calls = seconds(row["duration"]), seconds(row["total"]), int(row["calls"])
        assert duration >= 1.0
        assert total == pytest.approx(duration * calls, rel=0.02)
    assert SLOWEST in slow
    assert "threshold: 1 s" in slow
    # "the slowest of them" is known from the thread only
    assert follow_up.startswith("Explain the slowest of them.")
    assert "explain_query" in follow_up
    assert "an index on orders(customer_id) may help" in follow_up
    # tried on a copy, of which nothing is left either
    assert "indexes built and measured on a throw-away copy" in advice
    assert "ON public.orders (customer_id" in advice
    assert "No session waits for a lock" in blocked
    assert "1036.0" in calculation
    for turn in (slow, follow_up, advice, blocked, calculation):
        assert "No language model was used" in turn
    assert place.list_files() == []


async def test_with_a_key_the_demo_asks_that_model_and_says_which(place: Place) -> None:
    async with OpenAIServer(models=("fake-large",), api_keys=(KEY,)) as server:
        server.on(user="which queries", step=0).tools(("get_slow_queries", {"time_range": "last_30min"}))
        server.on(user="which queries", step=1).dynamic(
            lambda r: Reply(f"The shop suffers: {r.tool_results['get_slow_queries']}")
        )
        server.on(user="explain", step=0).dynamic(explain_from_memory)
        server.on(user="explain", step=1).dynamic(lambda r: Reply(f"Plan: {r.tool_results['explain_query']}"))
        server.on(user="which index", step=0).tools(("recommend_indexes", {}))
        server.on(user="which index", step=1).dynamic(lambda r: Reply(f"Add {r.tool_results['recommend_indexes']}"))
        server.on(user="who is blocking", step=0).tools(("blocking_tree", {}))
        server.on(user="who is blocking", step=1).dynamic(lambda r: Reply(f"Well: {r.tool_results['blocking_tree']}"))
        server.on(user="what is", step=0).tools(("calculator", {"expression": "2**10 + math.sqrt(144)"}))
        server.on(user="what is", step=1).dynamic(lambda r: Reply(f"It is {r.tool_results['calculator']}"))
        variables = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url, "HERMOD_MODEL": "fake-large"}
        async with open_terminal(place, "demo", "--once", **variables) as terminal:
            assert await terminal.wait(240) == 0
            slow, follow_up, advice, blocked, calculation = read_turns(terminal.screen)
        assert server.violations == []
        assert {r.body["model"] for r in server.requests} == {"fake-large"}
        assert len(server.requests) == 10
    assert "Questions go to the model fake-large." in terminal.screen
    assert "offline" not in terminal.screen
    assert "No language model" not in terminal.screen
    assert KEY not in terminal.screen
    assert "The shop suffers:" in slow
    assert SLOWEST in slow
    assert "orders(customer_id)" in follow_up
    assert "ON public.orders (customer_id" in advice
    assert "No session waits for a lock" in blocked
    assert "1036.0" in calculation
    assert place.list_files() == []


def explain_from_memory(request: Request) -> Reply:
    """A model that finds the slowest statement in what the thread remembers."""
    remembered = " ".join(str(m["content"]) for m in request.messages if m["role"] in ("tool", "assistant"))
    found = re.search(r'"sql": ?"((?:[^"\\]|\\.)*)"', remembered.replace('\\"', '"'))
    assert found is not None
    return Reply(None, [Call("explain_query", f'{{"sql": "{found[1]}", "target": "shop"}}')])


async def test_a_model_that_cannot_be_reached_ends_the_demo_with_the_reason(place: Place) -> None:
    variables = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    async with open_terminal(place, "demo", "--once", **variables) as terminal:
        assert await terminal.wait(120) == 1
    assert "I could not answer" in terminal.screen
    assert "not reachable" in terminal.screen
    assert KEY not in terminal.screen
    assert place.list_files() == []


async def test_the_console_of_the_demo_tells_what_the_database_itself_tells(place: Place) -> None:
    async with open_terminal(place, "demo") as terminal:
        shown = await terminal.wait_for("you> ")
        assert "Which queries were slow in the last 30 minutes?" in shown
        settings = tomllib.loads((await place.wait_for("hermod-demo-*/hermod.toml")).read_text())
        truth = await fetch_slow(settings["targets"]["shop"]["url"])
        terminal.type("which queries were slow in the last 30 minutes?\n")
        answer = await terminal.wait_for("No language model was used")
        truth += await fetch_slow(settings["targets"]["shop"]["url"])  # the application works on, and means move
        told = re.findall(r"`(select [^`…]*)", answer)
        assert told
        for statement in told:  # each is slow in the server's own counters
            assert [text for text in truth if text.startswith(statement)], (statement, truth)
        await terminal.wait_for("you> ")
        terminal.type("explain the slowest\n")
        assert "orders(customer_id)" in await terminal.wait_for("No language model was used")
        await terminal.wait_for("you> ")
        terminal.type("/quit\n")
        await terminal.wait_for("2 runs in this thread")
        assert await terminal.wait() == 0
    assert place.list_files() == []


async def fetch_slow(url: str) -> list[str]:
    """The statements of the shop whose mean is over a second, as the server has them, white space made plain."""
    query = (
        "select regexp_replace(query, '\\s+', ' ', 'g') from pg_stat_statements s join pg_database d on d.oid = s.dbid "
        "where d.datname = current_database() and mean_exec_time >= 1000 order by mean_exec_time desc"
    )
    async with await psycopg.AsyncConnection.connect(url) as connection:
        return [str(row[0]) for row in await (await connection.execute(query)).fetchall()]


# -- however it ends ---------------------------------------------------------------------------------


async def reach(moment: str, terminal: Terminal, place: Place) -> None:
    """Wait until the demo is in the middle of something."""
    match moment:
        case "start":
            await place.wait_for("hermod-pg-*/data/base")  # initdb is at work
        case "loading":
            await place.wait_for("hermod-pg-*/data/postmaster.pid")
        case "workload":
            await place.wait_for("hermod-demo-*/hermod.db")  # the first reading; now the application begins
        case "prompt":
            await terminal.wait_for("you> ")
        case "question":
            await terminal.wait_for("you> ")
            terminal.type("which queries were slow?\n")
            await terminal.wait_for("get_slow_queries")


MOMENTS = ("start", "loading", "workload", "prompt", "question")


@pytest.mark.parametrize("moment", MOMENTS)
async def test_ctrl_c_leaves_no_process_and_no_file(place: Place, moment: str) -> None:
    async with open_terminal(place, "demo") as terminal:
        await reach(moment, terminal, place)
        assert place.list_processes()
        terminal.type("\x03")
        if moment == "question":  # the first one stops the run, or came too late for it
            await terminal.wait_for("you> ")
            terminal.type("\x03")
        assert await terminal.wait() in (0, 130)
        assert place.list_processes() == {}
    assert place.list_files() == []
    assert "Traceback" not in terminal.screen


@pytest.mark.parametrize("moment", MOMENTS)
async def test_sigterm_leaves_no_process_and_no_file(place: Place, moment: str) -> None:
    async with open_terminal(place, "demo") as terminal:
        await reach(moment, terminal, place)
        terminal.process.send_signal(signal.SIGTERM)
        assert await terminal.wait() in (130, 143)
        assert place.list_processes() == {}
    assert place.list_files() == []
    assert "Traceback" not in terminal.screen


@pytest.mark.parametrize("moment", ["start", "workload", "prompt"])
async def test_an_impatient_ctrl_c_leaves_nothing_either(place: Place, moment: str) -> None:
    async with open_terminal(place, "demo") as terminal:
        await reach(moment, terminal, place)
        for _ in range(4):
            terminal.type("\x03")
            await asyncio.sleep(0.02)
        await terminal.wait()
        await place.wait_processes_gone()
    await wait_empty(place.temporary)
    assert place.list_files() == []


@pytest.mark.parametrize("moment", ["start", "prompt"])
async def test_kill_9_leaves_no_server(place: Place, moment: str) -> None:
    async with open_terminal(place, "demo") as terminal:
        await reach(moment, terminal, place)
        terminal.process.kill()
        await terminal.wait()
        await place.wait_processes_gone()
        assert [name for name in place.list_files() if not name.startswith("hermod-demo-")] == []


async def wait_empty(folder: Path) -> None:
    async with asyncio.timeout(60):
        while any(folder.iterdir()):  # noqa: ASYNC110, ASYNC240 (another process empties it)
            await asyncio.sleep(0.05)
