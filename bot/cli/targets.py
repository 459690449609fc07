"""``hermod targets``: the configured databases, the script of an account for one, and what the account may do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from agent_core.context import SystemClock
from agent_core.errors import ToolFailed
from agent_core.tools.results import render_value
from bot.cli.setup import print_error, print_failure, print_json, print_text, set_up
from bot.redact import SecretRedactor
from bot.toolbox import build_targets
from bot.tools.activity.preflight import read_preflight
from bot.tools.grants import build_grant_script
from bot.tools.readonly_sql.answer import SqlRequest
from bot.tools.readonly_sql.tools import run_readonly_sql
from bot.tools.targets import Target
from reading.layout import render_result


async def run_targets_list(*, config: Path | None, as_json: bool) -> int:
    """Print every target without its address; 0."""
    targets = build_targets(set_up(config))
    items = [
        {
            "name": target.name,
            "engine": target.engine,
            "account": target.user or None,
            "allow_sql": target.allow_sql,
            "accept_risks": sorted(target.accept_risks),
        }
        for target in targets.values()
    ]
    if as_json:
        print_json({"items": items})
        return 0
    if not items:
        print_error('hermod: no target is configured; add [targets.NAME] with url = "postgresql://hermod@host/db"')
    for target in targets.values():
        print_text(_describe(target))
    return 0


async def run_targets_grant(
    name: str, *, account: str | None, schemas: Sequence[str], config: Path | None, as_json: bool
) -> int:
    """Print the script for a target's account, and connect to nothing; 1 when there is none."""
    settings = set_up(config)
    try:
        target = build_targets(settings).resolve(name)
        script = build_grant_script(target, account=account, schemas=tuple(schemas) or ("public",))
    except ToolFailed as error:
        print_failure(_say(error), code=error.code, as_json=as_json)
        return 1
    if as_json:
        print_json({"ok": True, "target": target.name, "script": script})
    else:
        print_text(script)
    return 0


async def run_targets_check(name: str, *, config: Path | None, as_json: bool) -> int:
    """Connect and say what the account sees and what is missing; 1 when Hermod cannot work with it, or not fully."""
    settings = set_up(config)
    redactor = SecretRedactor(settings.secrets())
    targets = build_targets(settings)
    try:
        target = targets.resolve(name)
        if target.allow_sql:  # where people's own SQL is open, the account has to be fit for that as well
            await run_readonly_sql(targets, SystemClock(), SqlRequest(sql="select 1"), target=name)
        found = await read_preflight(targets, SystemClock(), target=name)
    except ToolFailed as error:
        print_failure(redactor.redact(_say(error)), code=error.code, as_json=as_json)
        return 1
    answer = redactor.redact(render_value(found))
    if as_json:
        print_json(json.loads(answer))
    else:
        print_text(render_result(answer, {}))
    return 1 if any(check.status == "missing" for check in found.rows) else 0


def _describe(target: Target) -> str:
    sql = "SQL of people: yes" if target.allow_sql else "SQL of people: no"
    risks = f"  accepted: {', '.join(sorted(target.accept_risks))}" if target.accept_risks else ""
    return f"{target.name}  {target.engine}  {target.user or '-'}  {sql}{risks}"


def _say(error: ToolFailed) -> str:
    return f"{error.message}; {error.fix}" if error.fix else error.message
