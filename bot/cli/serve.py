"""``hermod run``: every configured platform and the HTTP port, in one process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path

import structlog

from agent_core.errors import ConfigError
from bot.app import App, open_app
from bot.cli.setup import print_error, set_up
from bot.http import HttpServer
from bot.installations import open_installations
from bot.models import state_as_data
from bot.platforms import build_adapters
from bot.settings import Settings
from bot.tools.python_sandbox.process import harden_process

log = structlog.get_logger("hermod.run")

DRAIN_S = 30.0
"""How long work under way may still take after SIGTERM; what takes longer is resumed by the next start."""


async def run_serve(*, config: Path | None, verbose: bool) -> int:
    """Serve until SIGTERM or SIGINT."""
    harden_process()
    settings = set_up(config, verbose=verbose, quiet=False)
    for notice in settings.notices:
        log.warning("setting_not_used", where=notice)
    async with open_installations(settings) as installations:
        adapters = build_adapters(settings, installations)
        if not adapters:
            print_error(
                "hermod: no chat platform is configured; add [slack] with bot_token and app_token, or [discord] with "
                "token, to hermod.toml (README, sections Slack and Discord), or try `hermod demo`"
            )
            return 2
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sign, stop.set)
        async with open_app(settings, os.environ, adapters=adapters, prefixes=[f"{name}:" for name in adapters]) as app:
            await serve(app, settings, stop)
    return 0


async def serve(app: App, settings: Settings, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set, then drain.

    Raises:
        AdapterError: a platform refuses the tokens.
        ConfigError: the HTTP port cannot be used.
        Exception: whatever ended the dispatcher; the process is of no use without it, and is to be started anew.
    """
    http = HttpServer(
        host=settings.http.host,
        port=settings.http.port,
        store=app.store,
        adapters=app.adapters,
        alive=lambda: app.alive,
        metrics=app.metrics,
        providers=lambda: [state_as_data(state) for state in app.router.states()],
    )
    try:
        # the port first: while the platforms connect, /readyz already says that they do not yet
        await _listen(http, settings)
        log.info("http_listening", host=settings.http.host, port=http.port)
        if await _unless_stopped(stop, app.start()):
            waiting = sorted(name for name, adapter in app.adapters.items() if not adapter.connected)
            log.info("serving", platforms=sorted(app.adapters), waiting=waiting, models=[m.name for m in app.models])
            await _unless_stopped(stop, app.watch())
        log.info("draining", active=app.dispatcher.active)
    finally:
        await app.stop(DRAIN_S)
        await http.stop()
        log.info("stopped")


async def _listen(http: HttpServer, settings: Settings) -> None:
    try:
        await http.start()
    except OSError as e:
        raise ConfigError(
            f"the HTTP port {settings.http.port} of {settings.http.host} cannot be used ({e.strerror or e}); "
            "end what uses it, or set host and port in [http]"
        ) from e


async def _unless_stopped(stop: asyncio.Event, work: Coroutine[object, object, None]) -> bool:
    """Do ``work``, and tell whether it came to its end before ``stop`` was set; else it is cancelled."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.wait({working, stopping})
