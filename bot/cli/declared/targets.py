"""``hermod targets``: its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.options import Config, Json, finish

targets_app = typer.Typer(help="Look at the configured databases, and make an account for one.", no_args_is_help=True)


@targets_app.command("list")
def targets_list(config: Config = None, as_json: Json = False) -> None:
    """List the configured databases, without their addresses."""
    from bot.cli.targets import run_targets_list

    finish(run_targets_list(config=config, as_json=as_json))


@targets_app.command("grant")
def targets_grant(
    name: Annotated[str, typer.Argument(help="The target, as `list` prints it.")],
    account: Annotated[
        str | None, typer.Option(help="Name of the account; else the one of the target's url.", show_default=False)
    ] = None,
    schema: Annotated[list[str] | None, typer.Option(help="Postgres schemas to read; else public.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Print the SQL that makes an account with the rights Hermod needs and no more. It is not run."""
    from bot.cli.targets import run_targets_grant

    finish(run_targets_grant(name, account=account, schemas=schema or [], config=config, as_json=as_json))


@targets_app.command("check")
def targets_check(
    name: Annotated[str, typer.Argument(help="The target, as `list` prints it.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Connect, and say what the account sees and what is missing; exit 1 when something is."""
    from bot.cli.targets import run_targets_check

    finish(run_targets_check(name, config=config, as_json=as_json))
