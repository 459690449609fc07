"""The ``hermod`` command. This module only declares commands; what they do is imported when they run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from bot import __version__

if TYPE_CHECKING:
    from bot.jobs.due import CatchUp
    from bot.tools.slow_logs.answer import OrderBy
    from bot.tools.slow_logs.formats import AnyFormat

EXIT_FAILED = 1
EXIT_SETTINGS = 2

app = typer.Typer(
    name="hermod",
    help="A chat-ops agent for Slack and Discord that diagnoses real databases and answers in the thread.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
tools_app = typer.Typer(help="List the tools, or run one.", no_args_is_help=True)
jobs_app = typer.Typer(help="Look at the scheduled reports, and change them.", no_args_is_help=True)
sessions_app = typer.Typer(help="Look at the threads that Hermod remembers.", no_args_is_help=True)
feedback_app = typer.Typer(help="Look at what people thought of answers.", no_args_is_help=True)
installations_app = typer.Typer(help="Look at the workspaces that installed Hermod.", no_args_is_help=True)
sandbox_app = typer.Typer(help="Run code for others, or see what locks it in here.", no_args_is_help=True)
audit_app = typer.Typer(help="Check the audit chain.", no_args_is_help=True)
targets_app = typer.Typer(help="Look at the configured databases, and make an account for one.", no_args_is_help=True)
app.add_typer(tools_app, name="tools")
app.add_typer(jobs_app, name="jobs")
app.add_typer(sessions_app, name="sessions")
app.add_typer(feedback_app, name="feedback")
app.add_typer(installations_app, name="installations")
app.add_typer(sandbox_app, name="sandbox")
app.add_typer(audit_app, name="audit")
app.add_typer(targets_app, name="targets")

Config = Annotated[
    Path | None,
    typer.Option("--config", help="Settings file; else HERMOD_CONFIG, else hermod.toml here.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, everything else on stderr.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Write log events of every level to stderr.")]


def main() -> None:
    """Run the command line; every failure becomes an exit code and lines that say what to do."""
    from adapters.chat import AdapterError
    from agent_core.errors import ConfigError
    from bot.storage.base import StoreError

    try:
        app()
    except (ConfigError, StoreError, AdapterError) as e:
        for line in str(e).splitlines():
            print(f"hermod: {line}", file=sys.stderr)
        sys.exit(EXIT_SETTINGS)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(EXIT_FAILED)
    except Exception as e:  # noqa: BLE001 - one of the four marked places: a person reads one line, the log the rest
        from bot.cli.setup import log_crash

        log_crash()
        print(f"hermod: internal error ({type(e).__name__}); please report it with the log above", file=sys.stderr)
        sys.exit(EXIT_FAILED)


def _finish(work: Coroutine[object, object, int]) -> None:
    raise typer.Exit(asyncio.run(work))


def _print_version(value: bool) -> None:
    if value:
        print(f"hermod {__version__}")
        raise typer.Exit


def _check_format(value: str) -> str:
    return _check_choice(value, ("auto", "stderr", "csvlog", "jsonlog", "mysql"))


def _check_order(value: str) -> str:
    return _check_choice(value, ("total", "mean", "max", "p95", "calls"))


def _check_catch_up(value: str) -> str:
    return _check_choice(value, ("none", "latest", "all"))


def _check_overlap(value: str) -> str:
    return _check_choice(value, ("skip", "queue"))


def _check_choice(value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(choices)}")
    return value


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

    _finish(run_demo(once=once, verbose=verbose))


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

    _finish(run_ask(question, config=config, as_json=as_json, verbose=verbose, agent=agent))


@app.command()
def chat(
    config: Config = None,
    thread: Annotated[str, typer.Option(help="Name of the thread to go on with.")] = "main",
    verbose: Verbose = False,
) -> None:
    """Talk in the terminal: answers stream, tool calls are shown, the thread is remembered."""
    from bot.cli.chat import run_chat

    _finish(run_chat(thread, config=config, verbose=verbose))


@app.command()
def run(config: Config = None, verbose: Verbose = False) -> None:
    """Connect every configured platform and serve until SIGTERM or Ctrl-C, which drain the work under way."""
    from bot.cli.serve import run_serve

    _finish(run_serve(config=config, verbose=verbose))


@tools_app.command("list")
def tools_list(config: Config = None, as_json: Json = False) -> None:
    """List the tools with their arguments."""
    from bot.cli.tools import run_tools_list

    _finish(run_tools_list(config=config, as_json=as_json))


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

    _finish(run_tool(name, arguments or [], config=config, as_json=as_json, verbose=verbose))


JobName = Annotated[str, typer.Argument(help="The job, as `list` prints it.")]


@jobs_app.command("list")
def jobs_list(config: Config = None, as_json: Json = False) -> None:
    """List the jobs with their times, channels and next times."""
    from bot.cli.jobs import run_jobs_list

    _finish(run_jobs_list(config=config, as_json=as_json))


@jobs_app.command("show")
def jobs_show(name: JobName, config: Config = None, as_json: Json = False) -> None:
    """Show all of a job, its next five times, and what became of the last ones."""
    from bot.cli.jobs import run_jobs_show

    _finish(run_jobs_show(name, config=config, as_json=as_json))


@jobs_app.command("next")
def jobs_next(name: JobName, config: Config = None, as_json: Json = False) -> None:
    """Show the next five times of a job, in its own zone and in UTC."""
    from bot.cli.jobs import run_jobs_next

    _finish(run_jobs_next(name, config=config, as_json=as_json))


@jobs_app.command("run")
def jobs_run(
    name: JobName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the report here; nothing is posted.")] = False,
    config: Config = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Have a report made and delivered now; exit 0 when it is delivered, 1 when that failed."""
    from bot.cli.run_job import run_job_dry, run_job_now

    if dry_run and as_json:
        raise typer.BadParameter("--dry-run prints the report for people; leave --json out")
    if dry_run:
        _finish(run_job_dry(name, config=config, verbose=verbose))
    _finish(run_job_now(name, config=config, as_json=as_json, verbose=verbose))


@jobs_app.command("stop")
def jobs_stop(name: JobName, config: Config = None, as_json: Json = False) -> None:
    """Stop the report of a job that is being made, in whichever process; its channel is told, the job goes on."""
    from bot.cli.jobs import run_jobs_stop

    _finish(run_jobs_stop(name, config=config, as_json=as_json))


@jobs_app.command("pause")
def jobs_pause(
    name: JobName,
    reason: Annotated[str, typer.Option(help="Why, for those who look.")] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Let a job make no more reports until it is resumed."""
    from bot.cli.jobs import run_jobs_pause

    _finish(run_jobs_pause(name, reason, config=config, as_json=as_json))


@jobs_app.command("resume")
def jobs_resume(name: JobName, config: Config = None, as_json: Json = False) -> None:
    """Let a paused job go on, from its next time on."""
    from bot.cli.jobs import run_jobs_resume

    _finish(run_jobs_resume(name, config=config, as_json=as_json))


@jobs_app.command("delete")
def jobs_delete(name: JobName, config: Config = None, as_json: Json = False) -> None:
    """Delete a job that was added here or in chat; those of the settings are removed there."""
    from bot.cli.jobs import run_jobs_delete

    _finish(run_jobs_delete(name, config=config, as_json=as_json))


@jobs_app.command("add")
def jobs_add(
    cron: Annotated[str, typer.Option(help="When, as five cron fields, such as '0 9 * * MON-FRI'.")],
    channel: Annotated[str, typer.Option(help="slack:TEAM/CHANNEL, discord:GUILD/CHANNEL, or slack:CHANNEL.")],
    task: Annotated[str, typer.Option(help="What the report is to find out.")],
    name: Annotated[str, typer.Argument(help="Its name; else one is made up.")] = "",
    timezone: Annotated[str, typer.Option(help="Zone in which the times are read, such as Europe/Berlin.")] = "UTC",
    template: Annotated[str, typer.Option(help="Template of the report.")] = "",
    worker: Annotated[list[str] | None, typer.Option(help="A worker that looks into it; else all.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="A target that it may use; else all.")] = None,
    catch_up: Annotated[
        str, typer.Option(help="Which missed times are made up for: none, latest, all.", callback=_check_catch_up)
    ] = "latest",
    grace: Annotated[float, typer.Option(help="How late a missed time may still run, in seconds.")] = 3600.0,
    overlap: Annotated[
        str, typer.Option(help="While the last one still runs: skip or queue.", callback=_check_overlap)
    ] = "skip",
    deadline: Annotated[float, typer.Option(help="How long making the report may take, in seconds.")] = 600.0,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Add a job of the operator, and show its next five times."""
    from bot.cli.jobs import run_jobs_add
    from bot.jobs.job import JobSpec

    spec = JobSpec(
        cron=cron,
        zone=timezone,
        task=task,
        template=template,
        workers=tuple(worker or ()),
        targets=tuple(target or ()),
        catch_up=cast("CatchUp", catch_up),
        grace_s=grace,
        overlap=cast("Literal['skip', 'queue']", overlap),
        deadline_s=deadline,
    )
    _finish(run_jobs_add(name, channel, spec, config=config, as_json=as_json))


@sessions_app.command("list")
def sessions_list(config: Config = None, as_json: Json = False) -> None:
    """List threads, the most recently active first."""
    from bot.cli.inspect import run_sessions_list

    _finish(run_sessions_list(config=config, as_json=as_json))


@sessions_app.command("show")
def sessions_show(
    thread: Annotated[str, typer.Argument(help="The thread's key, as `sessions list` prints it.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show what a thread remembers, and its runs."""
    from bot.cli.inspect import run_sessions_show

    _finish(run_sessions_show(thread, config=config, as_json=as_json))


@app.command()
def trace(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or its beginning.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show every step of a run: models, tools, times, tokens and cost."""
    from bot.cli.inspect import run_trace

    _finish(run_trace(run_id, config=config, as_json=as_json))


@app.command()
def usage(
    days: Annotated[float, typer.Option(help="How far to look back.")] = 30.0,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Sum up requests, tokens and cost by model."""
    from bot.cli.inspect import run_usage

    _finish(run_usage(days, config=config, as_json=as_json))


@feedback_app.command("list")
def feedback_list(
    days: Annotated[float, typer.Option(help="How far to look back.")] = 30.0,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List what people thought of answers, the newest first."""
    from bot.cli.feedback import run_feedback_list

    _finish(run_feedback_list(days, config=config, as_json=as_json))


@installations_app.command("list")
def installations_list(config: Config = None, as_json: Json = False) -> None:
    """List the workspaces that installed Hermod, the newest first."""
    from bot.cli.installations import run_installations_list

    _finish(run_installations_list(config=config, as_json=as_json))


@installations_app.command("forget")
def installations_forget(
    workspaces: Annotated[list[str], typer.Argument(help="Ids of teams or organisations, as `list` prints them.")],
    config: Config = None,
) -> None:
    """Erase the token of workspaces; each can install Hermod again."""
    from bot.cli.installations import run_installations_forget

    _finish(run_installations_forget(workspaces, config=config))


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
    _finish(run_sandbox_serve(options, config=config, verbose=verbose))


@sandbox_app.command("check")
def sandbox_check(config: Config = None, as_json: Json = False) -> None:
    """Run the sandbox's canaries for real and say what it enforces; exit 1 when code is not locked in."""
    from bot.cli.sandbox import run_sandbox_check

    _finish(run_sandbox_check(config=config, as_json=as_json))


@audit_app.command("verify")
def audit_verify(config: Config = None, as_json: Json = False) -> None:
    """Recompute the audit chain; exit 1 when a line was changed, or one before the last was removed."""
    from bot.cli.inspect import run_audit_verify

    _finish(run_audit_verify(config=config, as_json=as_json))


@targets_app.command("list")
def targets_list(config: Config = None, as_json: Json = False) -> None:
    """List the configured databases, without their addresses."""
    from bot.cli.targets import run_targets_list

    _finish(run_targets_list(config=config, as_json=as_json))


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

    _finish(run_targets_grant(name, account=account, schemas=schema or [], config=config, as_json=as_json))


@targets_app.command("check")
def targets_check(
    name: Annotated[str, typer.Argument(help="The target, as `list` prints it.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Connect, and say what the account sees and what is missing; exit 1 when something is."""
    from bot.cli.targets import run_targets_check

    _finish(run_targets_check(name, config=config, as_json=as_json))


@app.command()
def slowlog(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Logs, also gzip; a folder; - for stdin.")],
    format: Annotated[
        str, typer.Option(help="auto, stderr, csvlog, jsonlog or mysql.", metavar="FORMAT", callback=_check_format)
    ] = "auto",
    prefix: Annotated[str | None, typer.Option(help="log_line_prefix of a plain Postgres log; else guessed.")] = None,
    zone: Annotated[str | None, typer.Option(help="Time zone of the log; else as it says, else UTC.")] = None,
    since: Annotated[str | None, typer.Option(help="Only from this instant on, such as 2026-05-01T10:00:00Z.")] = None,
    until: Annotated[str | None, typer.Option(help="Only before this instant.")] = None,
    threshold: Annotated[float, typer.Option(min=0, help="Only shapes of which an execution took this many s.")] = 0.0,
    limit: Annotated[int, typer.Option(min=1, help="Most shapes to show.")] = 20,
    order_by: Annotated[
        str, typer.Option(help="total, mean, max, p95 or calls.", metavar="ORDER", callback=_check_order)
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


@app.command()
def doctor(config: Config = None, as_json: Json = False) -> None:
    """Check settings, storage, models, targets and platforms, and say how to mend what is wrong."""
    from bot.cli.doctor import run_doctor

    _finish(run_doctor(config=config, as_json=as_json))


@app.command()
def providers(config: Config = None, as_json: Json = False) -> None:
    """Show how the model providers of a running `hermod run` are doing, or how they are configured."""
    from bot.cli.providers import run_providers

    _finish(run_providers(config=config, as_json=as_json))


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
