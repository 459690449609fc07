"""Reports that a model server plans and writes, over workers whose tools are real calls."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_core.agent import Agent
from agent_core.context import RunContext
from agent_core.llm.offline import OfflineProvider
from agent_core.llm.openai_compat import OpenAICompatible
from agent_core.llm.router import Router
from agent_core.memory.validity import is_sendable
from agent_core.runtime.loop import AgentLoop
from agent_core.tools.executor import ToolExecutor
from bot.access import AccessPolicy
from bot.answer import find_reason
from bot.jobs.evidence import HISTORY_TOKENS
from bot.redact import SecretRedactor
from bot.storage.sqlite import SqliteStore
from tests.integration.reports.stage import (
    DIVIDES,
    SLOW,
    WRITES,
    Desk,
    Stage,
    Wish,
    open_sequel,
    plan_call,
    read_body,
    remember,
)
from tests.servers.openai import OpenAIServer

OPTIMIZER = "^You are sql_optimizer"
TWO = plan_call(
    ("a1", "sql_optimizer", "slow statements of shop"),
    ("a2", "sql_optimizer", "health of crm"),
    ("a3", "report_generator", "write the body", ["a1", "a2"]),
)
WRITTEN = """\
Orders are slow on shop: 2.5 s a call [sql_optimizer:a1].
crm is as usual [sql_optimizer:a2].

---

## shop

| # | statement | a call |
| --- | --- | --- |
| 1 | `select * from orders` | 2.5 s |

An index would help [sql_optimizer:a1]."""


def play(server: OpenAIServer, written: str = WRITTEN) -> None:
    """Two workers look, one writes, and the supervisor writes."""
    server.on(system=DIVIDES).tools(TWO)
    server.on(system=OPTIMIZER, user="slow statements", step=0).tools(("get_slow_queries", {"target": "shop"}))
    server.on(system=OPTIMIZER, user="health of crm", step=0).tools(
        ("index_health", {"target": "crm"}), ("db_health", {"target": "crm"})
    )
    server.on(system=OPTIMIZER).text("looked")
    server.on(system="^You are report_generator").text("the body [sql_optimizer:a1]")
    server.on(system=WRITES).text(written)


async def test_workers_look_and_a_headline_and_a_body_are_written(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    play(server)
    answer = await Stage(store, model).run()
    assert answer.text.splitlines() == [
        "**Daily database report: morning** · shop, crm · 2026-03-01 09:00 to 2026-03-02 09:00 (Europe/Berlin)",
        "Orders are slow on shop: 2.5 s a call [sql_optimizer:a1].",
        "crm is as usual [sql_optimizer:a2].",
    ]
    body, _ = read_body(answer)
    assert body.startswith("## shop\n\n| # | statement | a call |")
    sources = body.partition("**Sources**")[2].strip().splitlines()
    assert sources == [
        "- [sql_optimizer:a1]: `get_slow_queries` shop, statements `abc1`",
        "- [sql_optimizer:a2]: `index_health` crm; `db_health` crm",
        "- [report_generator:a3]: written from [sql_optimizer:a1] [sql_optimizer:a2]",
    ]
    assert answer.error == ""
    assert answer.author == "slack:U1"
    assert answer.record is not None
    assert answer.record.usage.requests == len(server.requests) == 7


async def test_the_supervisor_is_told_targets_times_and_assignments(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    play(server)
    await Stage(store, model).run("Watch the orders.")
    asked = server.requests[0].last_user
    assert "What was asked for: Watch the orders." in asked
    assert "2026-03-01T08:00:00Z/2026-03-02T08:00:00Z" in asked
    assert "2026-02-22T08:00:00Z/2026-02-23T08:00:00Z" in asked
    assert "- sql_optimizer: On the target crm, find the statements" in asked
    assert "- report_generator, last: Write the body" in asked
    assert "{" not in asked


async def test_a_worker_that_fails_is_a_gap_with_its_reason(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    server.on(system=OPTIMIZER, user="health of crm").fail(400, message="no such model")
    play(server)
    answer = await Stage(store, model).run()
    assert answer.reason.startswith("1 of 3 parts came to nothing, or not to all: ")
    assert "no such model" in answer.reason
    assert answer.text.splitlines()[-1] == "1 of 3 parts came to nothing; the thread says why."
    assert len(answer.text.splitlines()) <= 5
    gaps = read_body(answer)[0].partition("**Not found out**")[2].partition("**Sources**")[0]
    assert "health of crm: " in gaps
    assert "no such model" in gaps
    assert "[sql_optimizer:a2]" in gaps


async def test_a_worker_all_of_whose_calls_failed_is_a_gap_whatever_it_says(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    play(server)
    stage = Stage(store, model)
    stage.desk.down.add("crm")
    answer = await stage.run()
    assert "1 of 3 parts came to nothing" in answer.text
    assert (
        "- **crm** `index_health`, `db_health`: cannot connect to target 'crm' [sql_optimizer:a2]"
        in read_body(answer)[0]
    )


async def test_a_headline_that_is_too_long_is_cut_and_no_line_is_lost(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    lines = [f"Point {n} about the database [sql_optimizer:a1]." for n in range(9)]
    play(server, "\n".join(["# A title", *lines, "---", "The body."]))
    answer = await Stage(store, model).run()
    assert len(answer.text.splitlines()) == 5
    assert "in the thread" in answer.text.splitlines()[-1]
    everything = answer.text + read_body(answer)[0]
    assert all(line in everything for line in [*lines, "**A title**", "The body."])


async def test_a_report_with_nothing_to_say_is_one_line_and_its_thread_knows_why(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    play(server, "Nothing needs attention [sql_optimizer:a1] [sql_optimizer:a2].")
    answer = await Stage(store, model).run()
    (line,) = answer.text.splitlines()
    assert line.endswith("(Europe/Berlin): Nothing needs attention [sql_optimizer:a1] [sql_optimizer:a2].")
    opening = open_sequel(answer)
    assert opening.outbox == ()
    assert any("abc1" in message.body for message in opening.messages)


async def test_marks_of_nobody_are_removed_and_that_is_said(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    play(server, "Slow [sql_optimizer:a9].\n---\nMore [sql_optimizer:a1].")
    answer = await Stage(store, model).run()
    assert answer.text.splitlines()[1] == "Slow."
    assert "(Marks that name no finding were removed: sql_optimizer:a9.)" in read_body(answer)[0]


# -- without a model -----------------------------------------------------------------------------------


async def test_without_a_model_the_templates_own_requests_are_run_and_that_is_said(store: SqliteStore) -> None:
    stage = Stage(store, OfflineProvider())
    answer = await stage.run(targets=("shop",))
    title, found, note = answer.text.splitlines()
    assert title.startswith("**Daily database report: morning** · shop · ")
    assert found == f"- **shop**: 1 slow statement, the slowest 2.5 s a call `{SLOW}` [sql_optimizer:a1]"
    assert note == "Written without a language model: these are numbers that nobody has weighed."
    assert sorted(stage.desk.asked) == sorted(
        [
            ("get_slow_queries", "shop"),
            ("compare_windows", "shop"),
            ("compare_windows", "shop"),
            ("index_health", "shop"),
            ("table_health", "shop"),
            ("db_health", "shop"),
        ]
    )
    body, _ = read_body(answer)
    assert "### Slow statements [sql_optimizer:a1]" in body
    assert "select \\* from orders" in body or "select * from orders" in body
    assert "Indexes [sql_optimizer:a4], Tables [sql_optimizer:a5], Server [sql_optimizer:a6]: nothing unusual" in body


async def test_without_a_model_and_with_nothing_to_say_the_report_is_one_line(store: SqliteStore) -> None:
    stage = Stage(store, OfflineProvider())
    stage.desk.rows["get_slow_queries"] = []
    answer = await stage.run()
    (line,) = answer.text.splitlines()
    assert line.endswith(": nothing to report (tool calls: 12; written without a language model)")
    assert open_sequel(answer).outbox == ()


async def test_without_a_model_the_jobs_workers_do_what_their_tools_allow(store: SqliteStore) -> None:
    stage = Stage(store, OfflineProvider())
    answer = await stage.run(targets=("shop",), workers=("analyst",))
    assert "[analyst:a1]" in answer.text
    assert ("table_health", "shop") in stage.desk.asked
    assert ("index_health", "shop") not in stage.desk.asked  # the analyst has no such tool


async def test_a_template_without_requests_leaves_the_words_of_the_task(store: SqliteStore, tmp_path: Path) -> None:
    text = "# Free: {job}\n\nPeriod: 1 d\n\n## Assignments\n\n- analyst, once: Look.\n\n## Text\n\n{task}\n"
    (tmp_path / "report-free.md").write_text(text, encoding="utf-8")
    stage = Stage(store, OfflineProvider(), folder=tmp_path)
    answer = await stage.run("db_health target=shop", template="free")
    assert answer.text.startswith("**Free: morning** · shop, crm · ")
    assert set(stage.desk.asked) == {("db_health", "shop")}
    secret = SecretRedactor(["hunter2hunter2"])
    hidden = await stage.run("db_health target=shop hunter2hunter2", template="free", redactor=secret)
    assert "hunter2hunter2" not in hidden.text + hidden.sequel


async def test_where_nothing_could_be_looked_at_the_report_says_why_and_no_more(store: SqliteStore) -> None:
    stage = Stage(store, OfflineProvider())
    stage.desk.down |= {"shop", "crm"}
    answer = await stage.run()
    assert "- **shop**: cannot connect to target 'shop'" in answer.text.splitlines()
    assert "12 of 12 parts came to nothing" in answer.text
    assert read_body(answer)[0].startswith("**Not found out**")


async def test_when_every_model_is_down_the_last_link_makes_a_plain_report(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    server.on().fail(400, message="down")
    stage = Stage(store, Router([model, OfflineProvider()]))
    answer = await stage.run(targets=("shop",))
    assert "Written without a language model" in answer.text
    assert ("db_health", "shop") in stage.desk.asked


async def test_a_model_that_is_gone_before_the_text_leaves_the_findings_as_they_are(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    server.on(system=WRITES).fail(400, message="gone")
    play(server)
    answer = await Stage(store, model).run()
    assert "The findings are listed as they are" in answer.text
    assert "gone" in answer.text
    assert "**[sql_optimizer:a1]**\n\nlooked" in read_body(answer)[0]


async def test_no_model_at_all_is_said_with_the_reason(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    server.on().fail(400, message="no credit")
    answer = await Stage(store, model).run()
    assert answer.text.startswith("**Daily database report: morning**")
    assert "no credit" in find_reason(answer)
    assert "The report could not be made: " in answer.text
    assert "no credit" in answer.text
    assert answer.error == "model_failed"


# -- languages -----------------------------------------------------------------------------------------


async def test_a_chinese_task_gets_a_chinese_report(store: SqliteStore) -> None:
    stage = Stage(store, OfflineProvider())
    stage.desk.down.add("crm")
    answer = await stage.run("每天早上的数据库报告")
    title, crm, shop, note = answer.text.splitlines()
    assert title == "**数据库日报：morning** · shop, crm · 2026-03-01 09:00 至 2026-03-02 09:00 (Europe/Berlin)"
    assert crm == "- **crm**: cannot connect to target 'crm'"
    assert shop == f"- **shop**: 1 条慢语句，最慢的每次 2.5 s `{SLOW}` [sql_optimizer:a1]"
    assert note == "以下内容未使用语言模型：仅列出数字，未经评估。 12 项中有 6 项没有结果，原因见线程。"
    body, _ = read_body(answer)
    assert "**未能查明**" in body
    assert "**来源**" in body


# -- rights --------------------------------------------------------------------------------------------


async def test_a_worker_reaches_no_target_but_the_jobs(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    server.on(system=DIVIDES).tools(plan_call(("a1", "sql_optimizer", "look")))
    server.on(system=OPTIMIZER, step=0).tools(
        ("db_health", {"target": "crm"}), ("index_health", {}), ("table_health", {"target": "SHOP"})
    )
    server.on(system=OPTIMIZER).text("looked")
    server.on(system=WRITES).text("Fine [sql_optimizer:a1].")
    stage = Stage(store, model)
    await stage.run(targets=("shop",))
    assert stage.desk.asked == [("table_health", "SHOP")]
    results = server.requests[2].tool_results
    assert "not one of this report" in results["db_health"]
    assert "has to name the one" in results["index_health"]


async def test_targets_that_are_not_open_to_the_channel_are_not_looked_at(store: SqliteStore) -> None:
    policy = AccessPolicy(targets=("shop", "crm"), channel_targets={"C1": ("crm",)})
    stage = Stage(store, OfflineProvider(), policy=policy)
    answer = await stage.run()
    assert {target for _, target in stage.desk.asked} == {"crm"}
    assert " · crm · " in answer.text
    closed = Stage(
        store, OfflineProvider(), policy=AccessPolicy(targets=("shop", "crm"), channel_targets={"C2": ("crm",)})
    )
    assert "no target is open to this channel" in (await closed.run()).text
    named = await closed.run(targets=("shop",))
    assert closed.desk.asked == []
    assert "not open to this channel" in named.text


async def test_a_report_has_no_tool_whose_rows_are_private(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    play(server)
    await Stage(store, model).run()
    offered = {tool for request in server.requests for tool in request.tools}
    assert {"get_slow_queries", "db_health"} <= offered
    assert "run_readonly_sql" not in offered
    assert "call_worker" not in offered


async def test_secrets_reach_neither_headline_nor_body_nor_history(store: SqliteStore) -> None:
    stage = Stage(store, OfflineProvider())
    stage.desk.rows["get_slow_queries"] = [{"sql": "set password to 'hunter2hunter2'", "duration": 2.0}] * 30
    answer = await stage.run("Report, with hunter2hunter2.", redactor=SecretRedactor(["hunter2hunter2"]))
    assert "hunter2hunter2" not in answer.text + answer.sequel
    assert any(file.name.endswith(".csv") for reply in read_body(answer)[1] for file in reply.files)


async def test_a_secret_that_a_model_writes_is_removed_everywhere(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    play(server, "It is hunter2hunter2 [sql_optimizer:a1].\n---\nhunter2hunter2 again.")
    answer = await Stage(store, model).run(redactor=SecretRedactor(["hunter2hunter2"]))
    assert "hunter2hunter2" not in answer.text + answer.sequel
    assert "again." in read_body(answer)[0]


@pytest.mark.parametrize("wish", ["template", "workers"])
async def test_a_name_that_is_gone_since_is_said_with_those_that_are_there(store: SqliteStore, wish: str) -> None:
    spec: Wish = {"template": "monthly"} if wish == "template" else {"workers": ("poet",)}
    answer = await Stage(store, OfflineProvider()).run(**spec)
    assert "was not made" in answer.text
    assert "daily-database" in answer.text if wish == "template" else "sql_optimizer" in answer.text
    assert answer.reason == ("there is no template 'monthly'" if wish == "template" else "none of its workers is there")
    assert answer.sequel == ""


async def test_only_the_jobs_workers_are_asked(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    server.on(system=DIVIDES).tools(plan_call(("a1", "analyst", "look")))
    server.on(system="^You are analyst").text("42")
    server.on(system=WRITES).text("42 [analyst:a1].")
    await Stage(store, model).run(workers=("analyst",))
    assert "- analyst: " in server.requests[0].system
    assert "- sql_optimizer: " not in server.requests[0].system
    assert "- researcher: " not in server.requests[0].system


# -- the thread afterwards -----------------------------------------------------------------------------


async def test_explain_row_3_is_answered_from_the_evidence_without_a_new_query(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    rows = [
        {"sql": f"select {n} from big_table where x = $1", "duration": 9.0 - n, "fingerprint": f"fp{n}"}
        for n in range(1, 7)
    ]
    stage = Stage(store, model)
    stage.desk.rows["get_slow_queries"] = list(rows)
    play(server)
    answer = await stage.run()
    conversation, before = remember(answer), len(stage.desk.asked)
    assert is_sendable(conversation.messages)
    server.on(user="explain row 3").text("Row 3 is fp3.")
    loop = AgentLoop(provider=model, executor=ToolExecutor(stage.desk.registry()))
    record = await loop.run(Agent(memory_tokens=8_000), RunContext.create(), conversation, "explain row 3")
    assert record.answer == "Row 3 is fp3."
    assert len(stage.desk.asked) == before
    seen = server.requests[-1]
    evidence = next(str(m["content"]) for m in seen.messages if m["role"] == "tool" and "fp3" in str(m["content"]))
    assert evidence.index("fp1") < evidence.index("fp2") < evidence.index("fp3")
    assert any("2.5 s" in str(m["content"]) for m in seen.messages if m["role"] == "assistant")


async def test_long_results_are_kept_whole_for_read_output_and_the_history_stays_small(store: SqliteStore) -> None:
    stage = Stage(store, OfflineProvider())
    rows = [{"sql": f"select {n}, " + "a" * 300, "duration": float(n), "fingerprint": f"fp{n}"} for n in range(400)]
    stage.desk.rows["get_slow_queries"] = list(rows)
    answer = await stage.run()
    opening, conversation = open_sequel(answer), remember(answer)
    assert conversation.total_tokens <= HISTORY_TOKENS
    outputs = dict(opening.outputs)
    assert "fp399" in outputs["a1_1"]
    shortened = next(m.content for m in conversation.messages if m.tool_call_id == "a1_1")
    assert '"rows_left_out"' in shortened
    assert 'read_output(output_id=\\"a1_1\\")' in shortened
    assert "fp0" in shortened
    assert len(read_body(answer)[0]) < 60_000


# -- bounds --------------------------------------------------------------------------------------------


async def test_the_jobs_deadline_ends_a_worker_and_the_report_says_so(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    server.on(system=OPTIMIZER, user="health of crm").hang()
    play(server)
    async with asyncio.timeout(90):
        answer = await Stage(store, model).run(deadline_s=6.0)
    assert "parts came to nothing" in answer.text
    assert "deadline" in read_body(answer)[0]


async def test_workers_that_do_not_need_each_other_overlap_in_the_trace(
    server: OpenAIServer, model: OpenAICompatible, store: SqliteStore
) -> None:
    barrier, ids = asyncio.Barrier(4), ("a1", "a2", "a3", "a4")

    async def meet() -> None:
        async with asyncio.timeout(60):
            await barrier.wait()

    server.on(system=DIVIDES).tools(plan_call(*((id, "sql_optimizer", f"look {id}") for id in ids)))
    server.on(system=OPTIMIZER, step=0).tools(("db_health", {"target": "shop"}))
    server.on(system=OPTIMIZER).text("looked")
    server.on(system=WRITES).text("Fine [sql_optimizer:a1].")
    answer = await Stage(store, model, desk=Desk(gate=meet)).run()
    assert answer.record is not None
    spans = [
        s for s in answer.record.steps if s.purpose in {f"sql_optimizer:{id}" for id in ids} and s.name == "call_worker"
    ]
    assert len(spans) == 4
    ends = [s.started_at.timestamp() + s.duration_s for s in spans]
    assert max(s.started_at.timestamp() for s in spans) < min(ends)


async def test_the_period_of_a_week_and_of_a_summer_night_is_read_in_the_jobs_zone(store: SqliteStore) -> None:
    at = datetime(2026, 3, 29, 7, 0, tzinfo=UTC)
    answer = await Stage(store, OfflineProvider()).run(template="weekly-regression", at=at)
    assert "2026-03-22 08:00 to 2026-03-29 09:00 (Europe/Berlin)" in answer.text
