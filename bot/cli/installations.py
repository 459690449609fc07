"""``hermod installations``: the workspaces that installed Hermod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from agent_core.context import SystemClock
from bot.app import open_storage
from bot.cli.setup import print_error, print_json, print_text, set_up
from bot.installations import PLATFORM, TokenSeal, forget_installation, report_installations


async def run_installations_list(*, config: Path | None, as_json: bool) -> int:
    """Print every workspace, without secrets; 0."""
    settings = set_up(config)
    if not settings.security.keys:
        print_error("hermod: [security] key is missing, so no workspace can have installed Hermod")
        return 2
    async with open_storage(settings) as store:
        reports = await report_installations(store, TokenSeal(settings.security.keys), scopes=())
    if as_json:
        print_json({"items": [asdict(report) for report in reports]})
        return 0
    for report in reports:
        state = f"over: {report.removed}" if report.removed else report.problem or "installed"
        print_text(f"{PLATFORM}:{report.workspace}  {report.installed_at:%Y-%m-%d %H:%M}  {report.name}  {state}")
    return 0


async def run_installations_forget(workspaces: Sequence[str], *, config: Path | None) -> int:
    """Erase tokens; 1 when one of the workspaces is not there."""
    settings = set_up(config)
    missing = []
    async with open_storage(settings) as store:
        for workspace in workspaces:
            if await forget_installation(store, workspace, SystemClock()):
                print_text(f"{PLATFORM}:{workspace} is forgotten; a running `hermod run` follows within five minutes")
            else:
                missing.append(workspace)
                print_error(f"hermod: {workspace} is not installed; see `hermod installations list`")
    return 1 if missing else 0
