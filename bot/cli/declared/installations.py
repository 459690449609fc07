"""``hermod installations``: its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.options import Config, Json, finish

installations_app = typer.Typer(help="Look at the workspaces that installed Hermod.", no_args_is_help=True)


@installations_app.command("list")
def installations_list(config: Config = None, as_json: Json = False) -> None:
    """List the workspaces that installed Hermod, the newest first."""
    from bot.cli.installations import run_installations_list

    finish(run_installations_list(config=config, as_json=as_json))


@installations_app.command("forget")
def installations_forget(
    workspaces: Annotated[list[str], typer.Argument(help="Ids of teams or organisations, as `list` prints them.")],
    config: Config = None,
) -> None:
    """Erase the token of workspaces; each can install Hermod again."""
    from bot.cli.installations import run_installations_forget

    finish(run_installations_forget(workspaces, config=config))
