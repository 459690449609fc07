"""The page and the suggestions: what a person may see, and no more."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from adapters.chat import Author, Opened
from adapters.surfaces import HomePage
from agent_core.context import SystemClock
from agent_core.llm.breaker import BreakerState
from agent_core.llm.router import Router
from agent_core.llm.scripted import ScriptedProvider
from agent_core.tools.base import Tool
from agent_core.tools.registry import ToolRegistry
from bot.access import AccessPolicy
from bot.home import HomeBuilder, choose_suggestions
from bot.jobs.job import JobSpec, dump_spec
from bot.storage import open_store
from bot.storage.base import NewInboxItem, RunOutcome, RunRow, Store, UsageRow
from bot.storage.jobs import JobRow, JobState
from bot.tools.slow_queries import register_slow_query_tools
from bot.tools.targets import Target, Targets
from scripts.write_docs import load_tools
from tests.unit.bot.recording import ALICE, MemoryChat

NOW = datetime(2026, 5, 2, 12, tzinfo=UTC)
OPENED = Opened(workspace="W1", author=ALICE, tab="home", channel="D1")


class Noon(SystemClock):
    def now(self) -> datetime:
        return NOW


def build_tools(*targets: str) -> tuple[Tool, ...]:
    registry = ToolRegistry()
    known = Targets([Target.from_url(name, f"postgresql://u@h/{name}") for name in targets])
    register_slow_query_tools(registry, known, open_store("sqlite:///never-opened.db"), SystemClock())
    return registry.tools()


def build(store: Store, policy: AccessPolicy | None = None, tools: tuple[Tool, ...] = ()) -> HomeBuilder:
    return HomeBuilder(
        "memory",
        store=store,
        policy=policy or AccessPolicy(),
        adapters={"memory": MemoryChat()},
        states=Router([ScriptedProvider([])]).states,
        tools=tools,
        clock=Noon(),
    )


async def work(store: Store, run_id: str, thread: str, *, author: str = "memory:U1", at: datetime = NOW) -> None:
    """Let a run end in a thread that used a model for somebody."""
    item = NewInboxItem(event_key=run_id, thread_key=thread, kind="message", payload="{}", received_at=at)
    await store.accept(item, queue_limit=9)
    claim = await store.claim_thread("test", prefixes=[""], lease_s=30, now=at)
    assert claim is not None
    run = RunRow(run_id=run_id, thread_key=thread, agent="a", state="init", started_at=at)
    await store.begin_run(claim, run, [i.id for i in claim.items])
    usage = UsageRow(
        run_id=run_id, thread_key=thread, author=author, provider="p", model="m", requests=1, input_tokens=90,
        output_tokens=10, cost_usd=0.5, at=at,
    )  # fmt: skip
    outcome = RunOutcome(state="finished", error="", record="{}", ended_at=at, usage=(usage,))
    await store.finish_run(claim, run_id, outcome)
    await store.release_claim(claim)


def lines(page: HomePage) -> dict[str, list[str]]:
    return {section.title: [line.text for line in section.lines] for section in page.sections}


async def test_the_page_has_state_threads_jobs_and_usage_of_the_one_who_looks(store: Store) -> None:
    await work(store, "r1", "memory:W1/C1/1", at=NOW - timedelta(days=3))
    await work(store, "r2", "memory:W1/C2/2", at=NOW)
    await work(store, "r3", "memory:W1/C1/3", author="memory:U2")
    page = await build(store).build_home(OPENED)
    found = lines(page)
    assert found["State"] == ["Memory: connected", "Model `scripted`: answers"]
    assert found["Your last threads"] == [
        "2026-05-02 12:00 UTC: 0 messages, 1 run",
        "2026-04-29 12:00 UTC: 0 messages, 1 run",
    ]
    threads = [line.thread.key for line in page.sections[1].lines if line.thread is not None]
    assert threads == ["memory:W1/C2/2", "memory:W1/C1/1"]
    assert found["Your scheduled reports"] == [
        "None. In a channel, `jobs` said to me lists those that are posted there."
    ]
    assert found["Your usage"] == [
        "Today (UTC): 1 request, 100 tokens, $0.5000",
        "Last 30 days: 2 requests, 200 tokens, $1.0000",
    ]


async def test_the_page_lists_the_jobs_of_the_one_who_looks_in_that_workspace_only(store: Store) -> None:
    spec = dump_spec(JobSpec(cron="0 9 * * MON-FRI", zone="Europe/Berlin", task="what got slower?"))
    for name, place, owner, state in (
        ("daily", "memory:W1/C1", "memory:U1", JobState.ACTIVE),
        ("paused", "memory:W1/C1", "memory:U1", JobState.PAUSED),
        ("elsewhere", "memory:W2/C1", "memory:U1", JobState.ACTIVE),
        ("of-bob", "memory:W1/C1", "memory:U2", JobState.ACTIVE),
    ):
        row = JobRow(
            job_id=name, name=name, origin="chat", place=place, owner=owner, owner_name="", spec=spec, state=state,
            reason="paused by bob" if state is JobState.PAUSED else "", next_at=NOW, thread_key="", created_at=NOW,
            updated_at=NOW,
        )  # fmt: skip
        assert await store.save_job(row, expected=None)
    page = await build(store).build_home(OPENED)
    assert lines(page)["Your scheduled reports"] == [
        "`daily` in memory:W1/C1: `0 9 * * MON-FRI` Europe/Berlin, active, next 2026-05-02 14:00 +02:00",
        "`paused` in memory:W1/C1: `0 9 * * MON-FRI` Europe/Berlin, paused (paused by bob)",
    ]


async def test_threads_where_the_person_may_not_speak_and_of_other_workspaces_are_left_out(store: Store) -> None:
    for n, thread in enumerate(("memory:W1/C1/1", "memory:W1/C2/2", "memory:W2/C1/3", "slack:W1/C1/4")):
        await work(store, f"r{n}", thread)
    page = await build(store, AccessPolicy(channels=("C1",))).build_home(OPENED)
    assert [line.thread.key for line in page.sections[1].lines if line.thread] == ["memory:W1/C1/1"]


@pytest.mark.parametrize(
    ("author", "policy", "said"),
    [
        (replace(ALICE, external=True), AccessPolicy(), "people of this organisation"),
        (replace(ALICE, guest=True), AccessPolicy(), "guest accounts"),
        (ALICE, AccessPolicy(users=("U9",)), "not open to you"),
        (ALICE, AccessPolicy(workspaces=("W9",)), "not open to this workspace"),
        (replace(ALICE, unknown=True), AccessPolicy(), "could not find out who you are"),
    ],
)
async def test_who_may_not_ask_sees_why_and_nothing_else(
    store: Store, author: Author, policy: AccessPolicy, said: str
) -> None:
    await work(store, "r1", "memory:W1/C1/1")
    home = build(store, policy, build_tools("shop"))
    page = await home.build_home(replace(OPENED, author=author))
    assert list(lines(page)) == ["Not open to you"]
    assert said in page.sections[0].lines[0].text
    assert await home.suggest(replace(OPENED, author=author, tab="messages")) == ()


async def test_a_model_that_fails_is_told_by_name_without_its_error(store: Store) -> None:
    home = build(store)
    (state,) = Router([ScriptedProvider([])]).states()
    broken = replace(state, state=BreakerState.OPEN, last_error="refused by http://10.0.0.7")
    home = HomeBuilder(
        "memory", store=store, policy=AccessPolicy(), adapters={}, states=lambda: (broken,), tools=(), clock=Noon()
    )
    assert lines(await home.build_home(OPENED))["State"] == [
        "Model `scripted`: does not answer; I ask it again in a while"
    ]


async def test_only_what_the_person_may_use_is_suggested(store: Store) -> None:
    tools = build_tools("shop", "crm")
    everything = await build(store, tools=tools).suggest(OPENED)
    assert [s.message for s in everything][:2] == [
        "Which queries were slow in the last 30 minutes?",
        "Show yesterday's statements on crm that were slower than 500 ms",
    ]
    policy = AccessPolicy(channel_targets={"D1": ("shop",)}, targets=("shop", "crm"))
    narrow = await build(store, policy, tools).suggest(OPENED)
    assert narrow == (), "without a name the question would be about a target that is not open here"
    policy = AccessPolicy(channel_targets={"D1": ("crm",)}, targets=("crm",))
    assert "crm" in [s.message for s in await build(store, policy, build_tools("crm")).suggest(OPENED)][1]
    assert await build(store, AccessPolicy(tools=("calculator",)), tools).suggest(OPENED) == ()
    assert await build(store, AccessPolicy(channels=("C1",)), tools).suggest(OPENED) == ()


def test_suggestions_name_nothing_that_need_not_exist() -> None:
    messages = [s.message for s in choose_suggestions(load_tools())]
    assert len(messages) == 4
    assert not any("select" in m or "shop" in m or not m.isascii() for m in messages)
    assert all(len(s.title) <= 60 for s in choose_suggestions(load_tools()))
