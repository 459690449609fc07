"""A run's trace, as data and as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from agent_core.llm.types import Usage
from agent_core.runtime.state import RunRecord, Step

DETAIL_CHARS = 160


def trace_as_data(record: RunRecord) -> dict[str, object]:
    """Return the run and its steps as JSON-ready values.

    Durations are seconds, instants ISO 8601 in UTC with ``Z``; ``cost_usd`` is null where no price is known.
    """
    return {
        "run_id": record.run_id,
        "agent": record.agent,
        "template": record.template,
        "state": record.state.value,
        "query": record.query,
        "plan": list(record.plan),
        "answer": record.answer,
        "error": None if record.error is None else {"kind": record.error.kind, "message": str(record.error)},
        "started_at": _instant(record.started_at),
        "ended_at": _instant(record.ended_at),
        "usage": usage_as_data(record.usage, record.cost_usd),
        "steps": [step_as_data(step) for step in record.steps],
    }


def step_as_data(step: Step) -> dict[str, object]:
    """Return one step as JSON-ready values."""
    data: dict[str, object] = {
        "n": step.n,
        "kind": step.kind,
        "name": step.name,
        "started_at": _instant(step.started_at),
        "duration_s": round(step.duration_s, 6),
        "ok": step.ok,
        "error": step.error,
        "detail": step.detail,
        "replayed": step.replayed,
    }
    if step.kind == "tool":
        data["arguments"] = step.arguments
        data["attempts"] = step.attempts
    else:
        data["provider"] = step.provider
        data["purpose"] = step.purpose
        data["attempts"] = step.attempts
        data["failures"] = list(step.failures)
        data["first_chunk_s"] = None if step.first_chunk_s is None else round(step.first_chunk_s, 6)
    if step.usage is not None:
        data["usage"] = usage_as_data(step.usage, step.cost_usd)
    return data


def usage_as_data(usage: Usage, cost_usd: float | None) -> dict[str, object]:
    """Return usage and cost as JSON-ready values."""
    return {
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "exact": usage.exact,
        "cost_usd": cost_usd,
    }


def trace_as_text(data: Mapping[str, object]) -> str:
    """Lay out what ``trace_as_data`` returned (also after a trip through JSON), one step a line."""
    usage = data["usage"]
    assert isinstance(usage, Mapping)
    agent = f"{data['agent']} ({data['template']})" if data["template"] else data["agent"]
    lines = [f"run {data['run_id']}  {data['state']}  agent {agent}  started {data['started_at']}"]
    steps = data["steps"]
    for step in steps if isinstance(steps, list) else []:
        what = f"{step['name']}({step['arguments']})" if step["kind"] == "tool" else _name_model(step)
        mark = "ok" if step["ok"] else f"failed: {step['error']}"
        again = " (from the journal)" if step["replayed"] else ""
        lines.append(
            f"  {step['n']:>2}. {step['kind']:<5} {_one_line(what)}  {step['duration_s'] * 1000:.0f} ms  {mark}{again}"
        )
        lines += [f"      before it: {_one_line(said)}" for said in step.get("failures", ())]
        if step["detail"]:
            lines.append(f"      {_one_line(step['detail'])}")
    if error := data["error"]:
        assert isinstance(error, Mapping)
        lines.append(f"  ended by {error['kind']}: {error['message']}")
    cost = usage["cost_usd"]
    price = "cost unknown" if cost is None else f"${cost:.6f}"
    lines.append(f"  {usage['requests']} requests, {usage['total_tokens']} tokens, {price}")
    return "\n".join(lines)


def _name_model(step: Mapping[str, object]) -> str:
    """Say who answered, as people have configured it, and what for."""
    name, provider, purpose = step["name"], step["provider"], step["purpose"]
    if purpose == "cache":
        return f"kept answer ({name} match)"
    what = f"{name}" if provider in ("", name) else f"{name} by {provider}"
    return what if purpose in ("answer", "") else f"{what} for {purpose}"


def _one_line(text: object) -> str:
    flat = " ".join(str(text).split())
    return flat if len(flat) <= DETAIL_CHARS else f"{flat[: DETAIL_CHARS - 1]}…"


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
