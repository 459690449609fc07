"""The shipped process on a local Discord, with discord.py and a real model protocol."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.acceptance.on_discord import PATIENCE_S, drafts, is_draft, said
from tests.acceptance.process import HermodProcess
from tests.servers.discord import DiscordServer
from tests.servers.openai import Call, OpenAIServer, Reply, Request


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
    process = HermodProcess(tmp_path, model_url=model.base_url, discord=discord)
    yield process
    await process.stop()


def number_of(request: Request) -> str:
    """The number that the newest question ends with."""
    return str(re.findall(r"[0-9]+", request.last_user)[-1])


# -- the conversation --------------------------------------------------------------------------------


async def test_a_mention_opens_a_thread_that_remembers_and_an_announcement_to_all_does_not(
    discord: DiscordServer, model: OpenAIServer, hermod: HermodProcess
) -> None:
    model.on(user="which number").dynamic(lambda r: Reply(f"it was {len(r.messages)}"))
    model.on(user="look", step=0).tools(("look_at", {"thing": "disk"}))
    model.on(user="look", step=1).dynamic(lambda r: Reply(r.tool_results["look_at"]))
    await hermod.start()
    await hermod.wait_ready()
    await discord.say("@everyone the database is down")
    question = await discord.mention("look at the disk of <@" + discord.bob + ">")
    await discord.wait_until(lambda: said(discord, question), PATIENCE_S)
    assert said(discord, question) == ["disk is fine"]
    (thread,) = discord.threads()
    assert (thread["id"], thread["name"]) == (question, "look at the disk of @Bob")
    await discord.say(
        "which number of messages do you see?", channel=question
    )  # in its thread nobody has to mention it
    await discord.wait_until(lambda: len(said(discord, question)) == 2, PATIENCE_S)
    # system, question, call, result, answer, question
    assert said(discord, question)[1] == "it was 6"
    assert discord.bot_messages(discord.general) == []
    assert (await hermod.get("/readyz"))[0] == 200
    metrics = (await hermod.get("/metrics"))[1]
    assert 'hermod_runs_total{state="finished"} 2' in metrics
    assert 'hermod_adapter_connected{platform="discord"} 1' in metrics
    assert await hermod.stop() == 0
    assert len(model.requests) == 3
    assert model.violations == []
    assert discord.violations == []
    assert discord.pinged() == set()


async def test_two_messages_within_50_ms_run_one_after_another_with_both_authors_named(
    discord: DiscordServer, model: OpenAIServer, hermod: HermodProcess
) -> None:
    model.on().dynamic(lambda r: Reply(f"seen {r.last_said}", pace=0.02))
    await hermod.start()
    await hermod.wait_ready()
    thread = await discord.open_thread("incident")
    await discord.mention("alpha 1", channel=thread, user=discord.alice)
    await discord.mention("beta 2", channel=thread, user=discord.bob)
    await discord.wait_until(lambda: any("beta" in text for text in said(discord, thread)), PATIENCE_S)
    asked = [str(m["content"]) for m in model.requests[-1].messages if m["role"] == "user"]
    assert [text.split("]")[0].strip("[").lower() for text in asked[-2:]] == ["alice", "bob"]
    assert [text.rpartition(" ")[2] for text in asked[-2:]] == ["1", "2"]
    assert model.peak == 1


# -- an answer that is written -----------------------------------------------------------------------

GROWING = "\n\n".join(
    f"## Part {n}\n\nwe see {n} slow queries here, and one of them is the worst.\n\n```sql\nselect {n};\n```"
    for n in range(7)
)


async def test_an_answer_is_seen_growing_ends_as_the_model_said_it_and_is_not_edited_faster_than_allowed(
    discord: DiscordServer, model: OpenAIServer, hermod: HermodProcess
) -> None:
    model.on().text(GROWING, pace=0.04)
    await hermod.start()
    await hermod.wait_ready()
    thread = await discord.mention("what is slow?")
    await discord.wait_until(lambda: drafts(discord, thread), PATIENCE_S)
    await discord.wait_until(lambda: said(discord, thread) and not drafts(discord, thread), PATIENCE_S)
    (final,) = said(discord, thread)
    assert final.split() == GROWING.split()
    calls = discord.calls_to(rf"(POST|PATCH) /channels/{thread}/messages")
    shown = [call for call in calls if is_draft({"components": []} | call.body)]
    texts = [str(call.body["content"]) for call in shown]
    assert len(texts) >= 3
    assert all(len(before) < len(after) for before, after in itertools.pairwise(texts))
    for text in texts:
        assert final.startswith(text.removesuffix("```").rstrip("…").rstrip())
        assert text.count("```") % 2 == 0  # also a block of code that is still written is shown as one
    assert all(later.at - call.at > 1.0 for call, later in itertools.pairwise(shown))
    assert len({message["id"] for message in discord.bot_messages(thread)}) == 1
    assert discord.rate_violations == []
    assert discord.violations == []
    assert discord.pinged() == set()


async def test_a_half_answer_of_which_nobody_knows_whether_it_was_made_does_not_stay(
    discord: DiscordServer, model: OpenAIServer, hermod: HermodProcess
) -> None:
    model.on(user="long").text(WORDS, pace=0.1)
    model.on().text("ok")
    await hermod.start()
    await hermod.wait_ready()
    thread = await discord.mention("one")
    await discord.wait_until(lambda: len(said(discord, thread)) == 1, PATIENCE_S)
    await discord.say("two", channel=thread)
    await discord.wait_until(lambda: len(said(discord, thread)) == 2, PATIENCE_S)
    # with these and the last answer this is all that a channel takes in five seconds, so that nothing more can be asked
    discord.inject(r"^POST /channels/\d+/messages$", drop=True, after=True, times=2)
    await discord.say("long", channel=thread)
    await discord.wait_until(lambda: drafts(discord, thread), PATIENCE_S)
    await discord.wait_until(lambda: len(said(discord, thread)) == 3, PATIENCE_S)
    await discord.wait_until(lambda: not drafts(discord, thread), PATIENCE_S)
    assert said(discord, thread) == ["ok", "ok", WORDS]
    assert discord.rate_violations == []


# -- a long answer -----------------------------------------------------------------------------------

PEOPLE = "@everyone @here <@{alice}> <@!{bob}> <@&{role}> <#{channel}>"


def build_long_answer(size: int, people: str) -> str:
    """An answer with a bit of everything; whatever stands in a message itself is numbered through."""
    parts: list[str] = []
    while sum(map(len, parts)) < size:
        n = len(parts)
        words = " ".join(f"m{n}a{m}" for m in range(50))
        parts.append(
            f"## Part m{n}b0 {people}\n\n{words} 😀 慢查询{n}号 👨‍👩‍👧\n\n"
            f"- item m{n}c0 **{people}**\n  - 数据库 m{n}c1\n\n"
            f"```sql\nselect 'm{n}d0' from orders; -- {people}\n```\n\n"
            f"| query | 数量 | who |\n|---|--:|---|\n| m{n}e0 | {n} | {people} |\n| m{n}e1 😀 | 延迟 | @here |\n\n"
            f"> m{n}f0 said [{people}](https://ex.test/{n})"
        )
        if n % 20 == 10:
            rows = "\n".join(f"| x{n}y{m} | " + " | ".join(["a wide cell"] * 9) + f" | {people} |" for m in range(40))
            parts[-1] += "\n\n| id |" + " c |" * 10 + "\n|---|" + "---|" * 10 + "\n" + rows
    return "\n\n".join(parts)


async def test_an_answer_of_60_kb_arrives_whole_and_in_order_and_pings_nobody(
    discord: DiscordServer, model: OpenAIServer, hermod: HermodProcess
) -> None:
    role = discord.add_role("oncall", members=[discord.bob], mentionable=True)
    people = PEOPLE.format(alice=discord.alice, bob=discord.bob, role=role, channel=discord.general)
    text = build_long_answer(60_000, people)
    discord.set_role(discord.guilds[discord.guild_id].bot_role, permissions_=8)  # an administrator may ping everybody
    model.on().text(text)
    await hermod.start()
    await hermod.wait_ready()
    thread = await discord.mention("tell me all")

    def files() -> list[tuple[str, str]]:
        listed = [file for message in discord.bot_messages(thread) for file in message["attachments"]]
        return [(str(file["filename"]), discord.blobs[file["id"]].decode()) for file in listed]

    await discord.wait_until(lambda: "answer.md" in dict(files()), PATIENCE_S)
    await discord.wait_until(lambda: not drafts(discord, thread), PATIENCE_S)
    *tables, (last, tail) = files()
    assert last == "answer.md"
    assert {name.rpartition(".")[2] for name, _ in tables} == {"csv"}
    running = "\n".join([*said(discord, thread), tail])
    numbered = r"\bm\d+[a-f]\d+\b"
    assert re.findall(numbered, running) == re.findall(numbered, text)
    arrived = "\n".join([running, *(table for _, table in tables)])
    assert set(re.findall(r"\w+", text)) <= set(re.findall(r"\w+", arrived))
    assert running.count("👨‍👩‍👧") == text.count("👨‍👩‍👧")
    messages = discord.bot_messages(thread)
    assert len(messages) <= 12
    assert all(len(m["content"]) <= 2000 and m["content"].count("```") % 2 == 0 for m in messages)
    assert discord.pings == []
    assert [m["mentions"] or m["mention_roles"] or m["mention_everyone"] for m in messages] == [False] * len(messages)
    assert discord.rate_violations == []
    assert discord.violations == []


# -- ends --------------------------------------------------------------------------------------------

WORDS = " ".join(f"word{n}" for n in range(40))
KILLS = 12


def answer_to(number: int) -> str:
    return f"answer {number}: {WORDS}"


def look_then_count(*, pace: float) -> Callable[[Request], Reply]:
    """Look at the thing first; then write, at this pace where people watch it, and at once when asked for it again."""
    written: set[int] = set()

    def answer(request: Request) -> Reply:
        number = int(number_of(request))
        if not request.tool_results:
            return Reply(None, [Call("look_at", f'{{"thing": "thing{number}"}}')])
        slow = is_watched(number) and number not in written
        written.add(number)
        return Reply(answer_to(number), pace=pace if slow else 0.0)

    return answer


def is_watched(number: int) -> bool:
    return number % 3 == 0 and number < KILLS


@pytest.mark.timeout(300)
async def test_kill_9_at_12_random_moments_loses_nothing_doubles_nothing_and_repeats_no_finished_tool(
    discord: DiscordServer, model: OpenAIServer, hermod: HermodProcess
) -> None:
    model.on().dynamic(look_then_count(pace=0.25))  # ten seconds: the kill comes long before its end
    rng = random.Random(30)
    expected: dict[str, str] = {}
    finished: Counter[str] = Counter()
    seen_half = 0
    await hermod.start()
    await hermod.wait_ready()
    for number in range(KILLS):
        thread = await discord.mention(f"thing {number}")
        expected[thread] = answer_to(number)
        if is_watched(number):
            await discord.wait_until(lambda thread=thread: drafts(discord, thread), PATIENCE_S)  # type: ignore[misc]
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        await hermod.kill()
        seen_half += bool(drafts(discord, thread))
        runs = Counter(hermod.tool_log.read_text().split())
        for thing in recorded_tools(hermod.database):
            # once its result is recorded, a call is never made again
            assert finished.setdefault(thing, runs[thing]) == runs[thing]
        unheard = await discord.mention(f"thing {100 + number}")  # said while nobody listens
        expected[unheard] = answer_to(100 + number)
        await hermod.start()
        # the next kill has no old victims: a run that is killed five times without getting on is given up
        await discord.wait_until(lambda: all(said(discord, place) for place in expected), PATIENCE_S)
    await discord.wait_until(lambda: not any(drafts(discord, place) for place in expected), PATIENCE_S)
    await asyncio.sleep(2)  # anything doubled would come now
    assert {place: said(discord, place) for place in expected} == {place: [text] for place, text in expected.items()}
    assert discord.bot_messages(discord.general) == []
    runs = Counter(hermod.tool_log.read_text().split())
    assert {thing: runs[thing] for thing in finished} == dict(finished)
    assert set(runs) == {f"thing{number}" for base in (0, 100) for number in range(base, base + KILLS)}
    assert seen_half >= 3  # some kills came while people saw half an answer
    assert discord.rate_violations == []
    assert discord.violations == []
    assert model.violations == []


def recorded_tools(database: Path) -> list[str]:
    """The things whose look was recorded as done, read beside the dead process."""
    with sqlite3.connect(database) as connection:
        rows = connection.execute("SELECT result FROM step WHERE kind = 'tool' AND state = 'done'").fetchall()
    connection.close()
    return [thing for (result,) in rows for thing in re.findall(r"thing[0-9]+", result)[:1]]


async def test_sigterm_lets_what_is_written_be_finished_and_takes_nothing_more(
    discord: DiscordServer, model: OpenAIServer, hermod: HermodProcess
) -> None:
    model.on().dynamic(look_then_count(pace=0.06))
    await hermod.start()
    await hermod.wait_ready()
    thread = await discord.mention("thing 3")
    await discord.wait_until(lambda: drafts(discord, thread), PATIENCE_S)
    ending = asyncio.create_task(hermod.stop())
    await discord.wait_until(lambda: not discord.open_sessions, PATIENCE_S)
    later = await discord.mention("thing 4")
    assert await ending == 0
    assert said(discord, thread) == [answer_to(3)]
    assert drafts(discord, thread) == []
    assert said(discord, later) == []
    assert [event for event in hermod.events() if event["level"] in ("error", "critical")] == []
    await hermod.start()
    await discord.wait_until(lambda: said(discord, later) and not drafts(discord, later), PATIENCE_S)
    assert said(discord, later) == [answer_to(4)]
    assert said(discord, thread) == [answer_to(3)]
    assert discord.violations == []
