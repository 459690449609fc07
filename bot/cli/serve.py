"""``hermod run``: every configured platform and the HTTP port, in one process."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import structlog

from adapters.chat import ChatAdapter
from bot.app import App, open_app
from bot.cli.setup import print_error, set_up
from bot.http import HttpServer
from bot.settings import Settings

log = structlog.get_logger("hermod.run")

DRAIN_S = 30.0
"""How long work under way may still take after SIGTERM; what takes longer is resumed by the next start."""


def build_adapters(settings: Settings) -> dict[str, ChatAdapter]:
    """Build the adapter of every platform that is configured."""
    adapters: dict[str, ChatAdapter] = {}
    slack = settings.slack
    if slack is not None and slack.bot_token is not None and slack.app_token is not None:
        from adapters.slack.app import SlackAdapter

        adapters["slack"] = SlackAdapter(
            bot_token=slack.bot_token.get_secret_value(),
            app_token=slack.app_token.get_secret_value(),
            api_url=slack.api_url,
        )
    return adapters


async def run_serve(*, config: Path | None, verbose: bool) -> int:
    """Serve until SIGTERM or SIGINT."""
    settings = set_up(config, verbose=verbose, quiet=False)
    for notice in settings.notices:
        log.warning("setting_not_used", where=notice)
    adapters = build_adapters(settings)
    if not adapters:
        print_error(
            "hermod: no chat platform is configured; add [slack] with bot_token and app_token to hermod.toml "
            "(README, Slack in five minutes), or try `hermod demo`"
        )
        return 2
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stop.set)
    async with open_app(settings, os.environ, adapters=adapters, prefixes=[f"{name}:" for name in adapters]) as app:
        await _serve(app, settings, stop)
    return 0


async def _serve(app: App, settings: Settings, stop: asyncio.Event) -> None:
    http = HttpServer(
        host=settings.http.host,
        port=settings.http.port,
        store=app.store,
        adapters=app.adapters,
        alive=lambda: app.alive,
        metrics=app.metrics,
    )
    # the port first: while the platforms connect, /readyz already says that they do not yet
    await http.start()
    log.info("http_listening", host=settings.http.host, port=http.port)
    try:
        starting = asyncio.create_task(app.start())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            log.info("connected", platforms=sorted(app.adapters), models=[m.name for m in app.models])
        await stopping
        starting.cancel()
        log.info("draining", active=app.dispatcher.active)
    finally:
        await app.stop(DRAIN_S)
        await http.stop()
        log.info("stopped")
