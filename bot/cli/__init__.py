"""The ``hermod`` command. Here and in ``declared`` commands are declared; what they do is imported when they run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bot import __version__
from bot.cli.declared.installations import installations_app
from bot.cli.declared.jobs import jobs_app
from bot.cli.declared.kept import audit_app, feedback_app, sessions_app, trace, usage
from bot.cli.declared.sandbox import sandbox_app
from bot.cli.declared.slowlog import slowlog
from bot.cli.declared.targets import targets_app
from bot.cli.declared.tools import tools_app
from bot.cli.options import Config, Json, Verbose, finish

EXIT_FAILED = 1
EXIT_SETTINGS = 2

app = typer.Typer(
    name="hermod",
    help="A chat-ops agent for Slack and Discord that diagnoses real databases and answers in the thread.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(tools_app, name="tools")
app.add_typer(jobs_app, name="jobs")
app.add_typer(sessions_app, name="sessions")
app.add_typer(feedback_app, name="feedback")
app.add_typer(installations_app, name="installations")
app.add_typer(sandbox_app, name="sandbox")
app.add_typer(audit_app, name="audit")
app.add_typer(targets_app, name="targets")


def main() -> None:
    """Run the command line; every failure becomes an exit code and lines that say what to do."""
    try:
        app()
    except SystemExit:  # every command ends so; past here the refusals are loaded
        raise
    except KeyboardInterrupt:
        sys.exit(130)
    except _load_refusals() as e:
        for line in str(e).splitlines():
            print(f"hermod: {line}", file=sys.stderr)
        sys.exit(EXIT_SETTINGS)
    except BrokenPipeError:
        sys.exit(EXIT_FAILED)
    except Exception as e:  # noqa: BLE001 - one of the four marked places: a person reads one line, the log the rest
        from bot.cli.setup import log_crash

        log_crash()
        print(f"hermod: internal error ({type(e).__name__}); please report it with the log above", file=sys.stderr)
        sys.exit(EXIT_FAILED)


def _load_refusals() -> tuple[type[Exception], ...]:
    """What says by itself how to mend it; imported only after a failure: a start that needs none of it stays quick."""
    from adapters.chat import AdapterError
    from agent_core.errors import ConfigError
    from bot.storage.base import StoreError

    return ConfigError, StoreError, AdapterError


def _print_version(value: bool) -> None:
    if value:
        print(f"hermod {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    once: Annotated[bool, typer.Option("--once", help="Ask three questions, print the transcript and end.")] = False,
    verbose: Verbose = False,
) -> None:
    """Start a Postgres with real slow queries and talk to it: no key, no settings, nothing left behind."""
    from bot.cli.demo import run_demo

    finish(run_demo(once=once, verbose=verbose))


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="What to ask.")],
    agent: Annotated[
        str, typer.Option(help="Worker that answers, such as researcher; else the usual agent.", show_default=False)
    ] = "",
    config: Config = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Ask one question; exit 0 when it was answered, 1 when the run failed, 2 on bad settings."""
    from bot.cli.ask import run_ask

    finish(run_ask(question, config=config, as_json=as_json, verbose=verbose, agent=agent))


@app.command()
def chat(
    config: Config = None,
    thread: Annotated[str, typer.Option(help="Name of the thread to go on with.")] = "main",
    verbose: Verbose = False,
) -> None:
    """Talk in the terminal: answers stream, tool calls are shown, the thread is remembered."""
    from bot.cli.chat import run_chat

    finish(run_chat(thread, config=config, verbose=verbose))


@app.command()
def run(config: Config = None, verbose: Verbose = False) -> None:
    """Connect every configured platform and serve until SIGTERM or Ctrl-C, which drain the work under way."""
    from bot.cli.serve import run_serve

    finish(run_serve(config=config, verbose=verbose))


app.command()(trace)
app.command()(usage)
app.command()(slowlog)


@app.command()
def doctor(config: Config = None, as_json: Json = False) -> None:
    """Check settings, storage, models, targets and platforms, and say how to mend what is wrong."""
    from bot.cli.doctor import run_doctor

    finish(run_doctor(config=config, as_json=as_json))


@app.command()
def providers(config: Config = None, as_json: Json = False) -> None:
    """Show how the model providers of a running `hermod run` are doing, or how they are configured."""
    from bot.cli.providers import run_providers

    finish(run_providers(config=config, as_json=as_json))


@app.command()
def manifest(
    url: Annotated[
        str, typer.Option(help="Where Slack reaches Hermod, https://HOST; else Socket Mode or what [slack] says.")
    ] = "",
    prefix: Annotated[
        str | None, typer.Option(help="Put before the names of slash commands; else what [slack] says.")
    ] = None,
    config: Config = None,
) -> None:
    """Print the Slack app manifest for these settings."""
    from bot.cli.manifest import run_manifest

    raise typer.Exit(run_manifest(config=config, url=url, prefix=prefix))
