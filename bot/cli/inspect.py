"""Commands that look into the storage: sessions, traces, usage, audit; and the manifest."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent_core.llm.wire import load_message
from agent_core.observe import trace_as_text
from bot.app import open_storage
from bot.cli.setup import print_failure, print_json, print_text, set_up
from bot.storage.base import RunRow, StepRow, SummaryRow, UsageRow


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds").replace("+00:00", "Z")


async def run_sessions_list(*, config: Path | None, as_json: bool) -> int:
    """``hermod sessions list``."""
    async with open_storage(set_up(config)) as store:
        rows = await store.list_sessions()
    if as_json:
        items = [
            {
                "thread": r.thread_key,
                "messages": r.messages,
                "runs": r.runs,
                "tokens": r.tokens,
                "last_at": _instant(r.last_at),
                "busy": r.busy,
            }
            for r in rows
        ]
        print_json({"items": items})
        return 0
    for r in rows:
        busy = "  working" if r.busy else ""
        print_text(
            f"{_instant(r.last_at)}  {r.thread_key}  {r.messages} messages, {r.runs} runs, {r.tokens} tokens{busy}"
        )
    if not rows:
        print_text("no threads yet")
    return 0


async def run_sessions_show(thread: str, *, config: Path | None, as_json: bool) -> int:
    """``hermod sessions show``."""
    async with open_storage(set_up(config)) as store:
        if not await store.knows_thread(thread):
            text = f"there is no thread {thread!r}; `hermod sessions list` names them"
            print_failure(text, code="unknown_thread", as_json=as_json)
            return 1
        messages = await store.load_messages(thread)
        runs = await store.list_runs(thread_key=thread, limit=100)
        summary = await store.load_summary(thread)
    history = [(row, load_message(row.body)) for row in messages]
    if as_json:
        items = [
            {
                "seq": row.seq,
                "role": message.role,
                "speaker": message.speaker,
                "content": message.content,
                "tool_calls": [{"name": c.name, "arguments": c.arguments} for c in message.tool_calls],
                "tokens": row.tokens,
                "run_id": row.run_id,
                "at": _instant(row.created_at),
            }
            for row, message in history
        ]
        about = {"thread": thread, "summary": _summary_as_data(summary)}
        print_json({**about, "items": items, "runs": [_run_as_data(r) for r in runs]})
        return 0
    if summary is not None:
        said = summary.text or "(dropped; the messages up to there are not sent any more)"
        print_text(f"summary up to {summary.through_seq}, by {summary.author}: {said}")
    for row, message in history:
        calls = " ".join(f"{c.name}({c.arguments})" for c in message.tool_calls)
        text = f"{message.content} {calls}".strip()
        print_text(f"{row.seq:>4}  {message.speaker or message.role:<10} {text}")
    for r in reversed(runs):
        print_text(f"run {r.run_id}  {r.state}  {_instant(r.started_at)}  {r.error}".rstrip())
    return 0


def _summary_as_data(summary: SummaryRow | None) -> dict[str, object] | None:
    if summary is None or not summary.text:
        return None
    return {
        "text": summary.text,
        "through_seq": summary.through_seq,
        "author": summary.author,
        "tokens_before": summary.tokens_before,
        "tokens_after": summary.tokens_after,
    }


def _run_as_data(run: RunRow) -> dict[str, object]:
    return {
        "run_id": run.run_id,
        "agent": run.agent,
        "state": run.state,
        "error": run.error,
        "attempt": run.attempt,
        "started_at": _instant(run.started_at),
        "ended_at": _instant(run.ended_at),
    }


async def run_trace(run_id: str, *, config: Path | None, as_json: bool) -> int:
    """``hermod trace``."""
    async with open_storage(set_up(config)) as store:
        found = await store.load_run(run_id)
    if found is None:
        text = f"no run, or more than one, begins with {run_id!r}; `hermod sessions show THREAD` lists them"
        print_failure(text, code="unknown_run", as_json=as_json)
        return 1
    run, steps = found
    record = json.loads(run.record) if run.record else None
    if as_json:
        print_json({"run": {**_run_as_data(run), "record": record}, "steps": [_step_as_data(s) for s in steps]})
        return 0
    if record is not None:
        print_text(trace_as_text(record))
        if run.attempt > 1:
            print_text(f"  begun {run.attempt} times, as the process ended in between; this is the last time")
        return 0
    head = f"run {run.run_id}  {run.state}  agent {run.agent}  started {_instant(run.started_at)}  {run.error}"
    print_text(head.rstrip())
    for step in steps:
        print_text(f"  {step.n:>2}. {step.entry.kind:<5} {step.entry.name}  {step.entry.state}")
    return 0


def _step_as_data(step: StepRow) -> dict[str, object]:
    return {
        "n": step.n,
        "key": step.entry.key,
        "kind": step.entry.kind,
        "name": step.entry.name,
        "effect": step.entry.effect,
        "state": step.entry.state.value,
        "begun_at": _instant(step.begun_at),
        "ended_at": _instant(step.ended_at),
    }


async def run_usage(days: float, *, config: Path | None, as_json: bool) -> int:
    """``hermod usage``."""
    async with open_storage(set_up(config)) as store:
        rows = await store.load_usage(since=datetime.now(UTC) - timedelta(days=days))
    totals = _sum_usage(list(rows))
    by: dict[str, list[UsageRow]] = {}
    for row in rows:
        by.setdefault(row.model, []).append(row)
    sums = {model: _sum_usage(found) for model, found in sorted(by.items())}
    if as_json:
        print_json({"days": days, "totals": totals, "by": sums})
        return 0
    for name, numbers in [*sums.items(), ("total", totals)]:
        cost = numbers["cost_usd"]
        price = "cost unknown" if cost is None else f"${cost:.4f}"
        cached = numbers["cached_input_tokens"]
        kept = f" ({cached} of them from the provider's cache)" if cached else ""
        print_text(f"{name}: {numbers['requests']} requests, {numbers['total_tokens']} tokens{kept}, {price}")
    return 0


def _sum_usage(rows: list[UsageRow]) -> dict[str, int | float | None]:
    given, made = sum(r.input_tokens for r in rows), sum(r.output_tokens for r in rows)
    costs = [r.cost_usd for r in rows]
    return {
        "requests": sum(r.requests for r in rows),
        "input_tokens": given,
        "output_tokens": made,
        "total_tokens": given + made,
        "cached_input_tokens": sum(r.cached_input_tokens for r in rows),
        "cache_write_tokens": sum(r.cache_write_tokens for r in rows),
        "cost_usd": None if None in costs else sum(c for c in costs if c is not None),
    }


async def run_audit_verify(*, config: Path | None, as_json: bool) -> int:
    """``hermod audit verify``."""
    async with open_storage(set_up(config)) as store:
        lines, broken = await store.verify_audit()
    if as_json:
        print_json({"ok": broken is None, "lines": lines, "first_broken": broken})
    elif broken is None:
        print_text(f"{lines} lines, the chain is whole")
    else:
        print_text(f"line {broken} of {lines} does not fit the chain: it, or a line before it, was changed or removed")
    return 0 if broken is None else 1
