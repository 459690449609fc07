"""``hermod tools``: its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.options import Config, Json, Verbose, finish

tools_app = typer.Typer(help="List the tools, or run one.", no_args_is_help=True)


@tools_app.command("list")
def tools_list(config: Config = None, as_json: Json = False) -> None:
    """List the tools with their arguments."""
    from bot.cli.tools import run_tools_list

    finish(run_tools_list(config=config, as_json=as_json))


@tools_app.command("run")
def tools_run(
    name: Annotated[str, typer.Argument(help="The tool.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments as key=value.", show_default=False)] = None,
    config: Config = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Run one tool; exit 0 when it went well, 1 when it failed."""
    from bot.cli.tools import run_tool

    finish(run_tool(name, arguments or [], config=config, as_json=as_json, verbose=verbose))
