"""``hermod sandbox``: the runner, and what the sandbox enforces here."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import tempfile
import time
from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from agent_core.context import SystemClock
from bot import __version__
from bot.cli.setup import print_error, print_json, print_text, set_up
from bot.logs import configure_logging
from bot.redact import SecretRedactor
from bot.sandbox import UNLOCKED, PythonSandbox, build_limits
from bot.settings import Settings, load_settings
from bot.tools.python_sandbox.choose import open_sandbox
from bot.tools.python_sandbox.lazy import LazyBackend
from bot.tools.python_sandbox.process import harden_process
from bot.tools.python_sandbox.runner_folders import RunFolders
from bot.tools.python_sandbox.runner_limits import NotStarted, RunnerLimits, check_token
from bot.tools.python_sandbox.runner_server import RunnerServer
from bot.tools.python_sandbox.types import SandboxUnavailable

log = structlog.get_logger("hermod.runner")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How ``hermod sandbox serve`` was called; see its help."""

    host: str
    port: int
    token_env: str | None = None
    token_file: Path | None = None
    places: int | None = None
    most_waiting: int | None = None
    most_seconds: float = 60.0
    certificate: Path | None = None
    key: Path | None = None


async def run_sandbox_serve(options: ServeOptions, *, config: Path | None, verbose: bool) -> int:
    """Serve runs until SIGTERM or SIGINT; 0 when it ended because of these."""
    try:
        harden_process()
        token = take_token(options, os.environ)
        settings = load_settings(config, os.environ)
        if not token and settings.sandbox.runner_token is not None:
            token = settings.sandbox.runner_token.get_secret_value()
        _forget_token(token, os.environ)
        configure_logging(
            SecretRedactor([*settings.secrets(), *([token] if token else [])]),
            level=logging.DEBUG if verbose else logging.INFO,
        )
        check_token(token)
        if settings.sandbox.backend in (UNLOCKED, "runner"):
            raise NotStarted(
                f"a runner needs a backend that locks code in itself, and sandbox.backend is "
                f'"{settings.sandbox.backend}"; set it to "auto"'
            )
        return await _serve(options, settings, token)
    except (NotStarted, SandboxUnavailable) as error:
        print_error(f"hermod: {error}")
        return 2


async def _serve(options: ServeOptions, settings: Settings, token: str) -> int:
    tls = _load_certificate(options)
    folder = settings.sandbox.folder
    made = None if folder else await asyncio.to_thread(tempfile.TemporaryDirectory, prefix="hermod-runner-")
    folders = RunFolders(_make_absolute(made.name if made else str(folder)))
    await asyncio.to_thread(folders.open)
    backend = LazyBackend(
        settings.sandbox.backend,
        enforcing=True,
        find=lambda: open_sandbox(settings.sandbox, state=folders.state),
        monotonic=time.monotonic,
    )
    stop = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    server = RunnerServer(
        backend, token=token, folders=folders, limits=build_runner_limits(options, settings), version=__version__
    )
    try:
        try:
            await server.start(options.host, options.port, tls)
        except OSError as error:
            raise NotStarted(
                f"port {options.port} of {options.host} cannot be used ({error.strerror or error}); end what uses it, "
                "or name another with --host and --port"
            ) from error
        log.info("runner_listening", host=options.host, port=server.port, tls=tls is not None)
        await stop.wait()
        log.info("runner_draining")
        await server.drain()
    finally:
        await server.aclose()
        await backend.aclose()
        await asyncio.to_thread(folders.close)
        if made is not None:
            await asyncio.to_thread(made.cleanup)
        log.info("runner_stopped")
    return 0


def _make_absolute(folder: str) -> Path:
    return Path(folder).absolute()


def build_runner_limits(options: ServeOptions, settings: Settings) -> RunnerLimits:
    """Return what the runner takes: the limits of ``[sandbox]`` are its ceilings, but for the time."""
    usual = RunnerLimits()
    ceilings = replace(
        build_limits(settings.sandbox), wall_s=options.most_seconds, source_bytes=usual.ceilings.source_bytes
    )
    return replace(
        usual,
        ceilings=ceilings,
        places=options.places or usual.places,
        most_waiting=usual.most_waiting if options.most_waiting is None else options.most_waiting,
    )


def take_token(options: ServeOptions, environ: MutableMapping[str, str]) -> str:
    """Return the token that the options name, and remove it from the environment; empty where they name none.

    Raises:
        NotStarted: it is not where they say.
    """
    if options.token_env is not None and options.token_file is not None:
        raise NotStarted("name the token with --token-env or with --token-file, not with both")
    if options.token_env is not None:
        token = environ.pop(options.token_env, "").strip()
        if not token:
            raise NotStarted(f"the variable {options.token_env} is not set, or empty; it has to hold the token")
        return token
    if options.token_file is not None:
        try:
            token = options.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise NotStarted(f"the token cannot be read from {options.token_file}: {reason}") from error
        if not token:
            raise NotStarted(f"{options.token_file} is empty; it has to hold the token")
        return token
    return ""


def _forget_token(token: str, environ: MutableMapping[str, str]) -> None:
    """Remove every variable that holds the token from the environment of this process."""
    for name in [name for name, value in environ.items() if token and value.strip() == token]:
        del environ[name]


def _load_certificate(options: ServeOptions) -> ssl.SSLContext | None:
    if options.certificate is None and options.key is None:
        return None
    if options.certificate is None or options.key is None:
        raise NotStarted("TLS needs both --certificate and --key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.certificate, options.key)
    except (OSError, ssl.SSLError) as error:
        raise NotStarted(
            f"{options.certificate} and {options.key} cannot be used: {error.strerror or error}"
        ) from error
    return context


async def run_sandbox_check(*, config: Path | None, as_json: bool) -> int:
    """Run the canaries of the configured backend, and print what it enforces; 1 when code is not locked in."""
    settings = set_up(config)
    sandbox = PythonSandbox(settings, SystemClock())
    try:
        seen = await sandbox.backend.probe()
    finally:
        await sandbox.backend.aclose()
    redactor = SecretRedactor(settings.secrets())
    reason, facts = redactor.redact(seen.reason), {n: redactor.redact(fact) for n, fact in seen.facts.items()}
    if as_json:
        print_json({"ok": seen.works, "backend": seen.backend, "reason": reason, "facts": facts})
        return 0 if seen.works else 1
    if seen.works:
        print_text(f"{seen.backend}: every canary was held")
    else:
        print_error(f"hermod: {seen.backend}: code is not locked in: {reason}")
    for name, fact in facts.items():
        print_text(f"  {name}: {fact}")
    return 0 if seen.works else 1
