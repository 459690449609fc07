"""What the declarations of commands share: options that many have, and how a command ends."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option("--config", help="Settings file; else HERMOD_CONFIG, else hermod.toml here.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, everything else on stderr.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Write log events of every level to stderr.")]


def finish(work: Coroutine[object, object, int]) -> None:
    """Run a command to its end, and leave with its exit code."""
    import asyncio  # a seventh of what `hermod --version` would take

    raise typer.Exit(asyncio.run(work))


def check_choice(*choices: str) -> Callable[[str], str]:
    """Return what refuses every value of an option but these."""

    def check(value: str) -> str:
        if value not in choices:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(choices)}")
        return value

    return check
