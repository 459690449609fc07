"""``hermod sandbox``: its commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.options import Config, Json, Verbose, finish

sandbox_app = typer.Typer(help="Run code for others, or see what locks it in here.", no_args_is_help=True)


@sandbox_app.command("serve")
def sandbox_serve(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.", min=0, max=65535)] = 8485,
    token_env: Annotated[
        str | None, typer.Option(help="Variable that holds the token.", show_default=False, metavar="NAME")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="File that holds the token.", show_default=False)] = None,
    places: Annotated[
        int | None, typer.Option(help="Programs at once; else two for each core.", min=1, max=1000, show_default=False)
    ] = None,
    waiting: Annotated[int, typer.Option(help="Programs that may wait; more are refused.", min=0, max=1000)] = 16,
    seconds: Annotated[float, typer.Option(help="Longest time of a program.", min=1, max=60)] = 60,
    certificate: Annotated[
        Path | None, typer.Option(help="Certificate for TLS, with --key.", show_default=False)
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Its private key.", show_default=False)] = None,
    config: Config = None,
    verbose: Verbose = False,
) -> None:
    """Run programs for Hermod elsewhere, until SIGTERM: the service behind the sandbox backend `runner`."""
    from bot.cli.sandbox import ServeOptions, run_sandbox_serve

    options = ServeOptions(
        host=host,
        port=port,
        token_env=token_env,
        token_file=token_file,
        places=places,
        most_waiting=waiting,
        most_seconds=seconds,
        certificate=certificate,
        key=key,
    )
    finish(run_sandbox_serve(options, config=config, verbose=verbose))


@sandbox_app.command("check")
def sandbox_check(config: Config = None, as_json: Json = False) -> None:
    """Run the sandbox's canaries for real and say what it enforces; exit 1 when code is not locked in."""
    from bot.cli.sandbox import run_sandbox_check

    finish(run_sandbox_check(config=config, as_json=as_json))
