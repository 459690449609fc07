"""``hermod sessions``, ``trace``, ``usage``, ``feedback``, ``audit``: their commands, which look at what is kept."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.options import Config, Json, finish

sessions_app = typer.Typer(help="Look at the threads that Hermod remembers.", no_args_is_help=True)
feedback_app = typer.Typer(help="Look at what people thought of answers.", no_args_is_help=True)
audit_app = typer.Typer(help="Check the audit chain.", no_args_is_help=True)


@sessions_app.command("list")
def sessions_list(config: Config = None, as_json: Json = False) -> None:
    """List threads, the most recently active first."""
    from bot.cli.inspect import run_sessions_list

    finish(run_sessions_list(config=config, as_json=as_json))


@sessions_app.command("show")
def sessions_show(
    thread: Annotated[str, typer.Argument(help="The thread's key, as `sessions list` prints it.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show what a thread remembers, and its runs."""
    from bot.cli.inspect import run_sessions_show

    finish(run_sessions_show(thread, config=config, as_json=as_json))


def trace(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or its beginning.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show every step of a run: models, tools, times, tokens and cost."""
    from bot.cli.inspect import run_trace

    finish(run_trace(run_id, config=config, as_json=as_json))


def usage(
    days: Annotated[float, typer.Option(help="How far to look back.")] = 30.0,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Sum up requests, tokens and cost by model."""
    from bot.cli.inspect import run_usage

    finish(run_usage(days, config=config, as_json=as_json))


@feedback_app.command("list")
def feedback_list(
    days: Annotated[float, typer.Option(help="How far to look back.")] = 30.0,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List what people thought of answers, the newest first."""
    from bot.cli.feedback import run_feedback_list

    finish(run_feedback_list(days, config=config, as_json=as_json))


@audit_app.command("verify")
def audit_verify(config: Config = None, as_json: Json = False) -> None:
    """Recompute the audit chain; exit 1 when a line was changed, or one before the last was removed."""
    from bot.cli.inspect import run_audit_verify

    finish(run_audit_verify(config=config, as_json=as_json))
