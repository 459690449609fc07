"""``hermod slowlog``: the command with the most options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from bot.cli.options import Json, check_choice

if TYPE_CHECKING:
    from bot.tools.slow_logs.answer import OrderBy
    from bot.tools.slow_logs.formats import AnyFormat


def slowlog(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Logs, also gzip; a folder; - for stdin.")],
    format: Annotated[
        str,
        typer.Option(
            help="auto, stderr, csvlog, jsonlog or mysql.",
            metavar="FORMAT",
            callback=check_choice("auto", "stderr", "csvlog", "jsonlog", "mysql"),
        ),
    ] = "auto",
    prefix: Annotated[str | None, typer.Option(help="log_line_prefix of a plain Postgres log; else guessed.")] = None,
    zone: Annotated[str | None, typer.Option(help="Time zone of the log; else as it says, else UTC.")] = None,
    since: Annotated[str | None, typer.Option(help="Only from this instant on, such as 2026-05-01T10:00:00Z.")] = None,
    until: Annotated[str | None, typer.Option(help="Only before this instant.")] = None,
    threshold: Annotated[float, typer.Option(min=0, help="Only shapes of which an execution took this many s.")] = 0.0,
    limit: Annotated[int, typer.Option(min=1, help="Most shapes to show.")] = 20,
    order_by: Annotated[
        str,
        typer.Option(
            help="total, mean, max, p95 or calls.",
            metavar="ORDER",
            callback=check_choice("total", "mean", "max", "p95", "calls"),
        ),
    ] = "total",
    csv: Annotated[Path | None, typer.Option(help="Also write every shape to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Sum up slow-query logs of Postgres, MySQL and MariaDB; exit 1: nothing could be read, 3: some lines could not."""
    from bot.cli.slowlog import SlowlogOptions, run_slowlog

    options = SlowlogOptions(
        format=cast("AnyFormat", format),
        prefix=prefix,
        zone=zone,
        since=since,
        until=until,
        threshold_s=threshold,
        order_by=cast("OrderBy", order_by),
        limit=limit,
        csv=csv,
        as_json=as_json,
    )
    raise typer.Exit(run_slowlog(files, options))
