"""``hermod providers``: breakers, requests and errors of every model provider."""

from __future__ import annotations

import os
from pathlib import Path

from agent_core.context import SystemClock
from bot.cli.setup import print_error, print_json, print_text, set_up
from bot.doctor import fetch_states
from bot.models import build_router, describe_state, state_as_data


async def run_providers(*, config: Path | None, as_json: bool) -> int:
    """Print the live state where a process serves on the HTTP port of the settings, else what is configured."""
    settings = set_up(config)
    states = await fetch_states(settings.http)
    live = states is not None
    if states is None:
        router = build_router(settings, settings.effective_models(os.environ), SystemClock())
        states = router.states()
        await router.aclose()
    if as_json:
        print_json({"live": live, "items": [state_as_data(state) for state in states]})
        return 0
    for state in states:
        print_text(describe_state(state))
    if not live:
        where = f"{settings.http.host}:{settings.http.port}"
        print_error(f"hermod: no running hermod answers on {where}; this is the configuration, nothing was asked")
    return 0
