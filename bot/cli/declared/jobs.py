"""``hermod jobs``: its commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from bot.cli.options import Config, Json, Verbose, check_choice, finish

if TYPE_CHECKING:
    from bot.jobs.due import CatchUp

jobs_app = typer.Typer(help="Look at the scheduled reports, and change them.", no_args_is_help=True)

JobName = Annotated[str, typer.Argument(help="The job, as `list` prints it.")]


@jobs_app.command("list")
def jobs_list(config: Config = None, as_json: Json = False) -> None:
    """List the jobs with their times, channels and next times."""
    from bot.cli.jobs import run_jobs_list

    finish(run_jobs_list(config=config, as_json=as_json))


@jobs_app.command("show")
def jobs_show(name: JobName, config: Config = None, as_json: Json = False) -> None:
    """Show all of a job, its next five times, and what became of the last ones."""
    from bot.cli.jobs import run_jobs_show

    finish(run_jobs_show(name, config=config, as_json=as_json))


@jobs_app.command("next")
def jobs_next(name: JobName, config: Config = None, as_json: Json = False) -> None:
    """Show the next five times of a job, in its own zone and in UTC."""
    from bot.cli.jobs import run_jobs_next

    finish(run_jobs_next(name, config=config, as_json=as_json))


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
        finish(run_job_dry(name, config=config, verbose=verbose))
    finish(run_job_now(name, config=config, as_json=as_json, verbose=verbose))


@jobs_app.command("stop")
def jobs_stop(name: JobName, config: Config = None, as_json: Json = False) -> None:
    """Stop the report of a job that is being made, in whichever process; its channel is told, the job goes on."""
    from bot.cli.jobs import run_jobs_stop

    finish(run_jobs_stop(name, config=config, as_json=as_json))


@jobs_app.command("pause")
def jobs_pause(
    name: JobName,
    reason: Annotated[str, typer.Option(help="Why, for those who look.")] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Let a job make no more reports until it is resumed."""
    from bot.cli.jobs import run_jobs_pause

    finish(run_jobs_pause(name, reason, config=config, as_json=as_json))


@jobs_app.command("resume")
def jobs_resume(name: JobName, config: Config = None, as_json: Json = False) -> None:
    """Let a paused job go on, from its next time on."""
    from bot.cli.jobs import run_jobs_resume

    finish(run_jobs_resume(name, config=config, as_json=as_json))


@jobs_app.command("delete")
def jobs_delete(name: JobName, config: Config = None, as_json: Json = False) -> None:
    """Delete a job that was added here or in chat; those of the settings are removed there."""
    from bot.cli.jobs import run_jobs_delete

    finish(run_jobs_delete(name, config=config, as_json=as_json))


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
        str,
        typer.Option(
            help="Which missed times are made up for: none, latest, all.",
            callback=check_choice("none", "latest", "all"),
        ),
    ] = "latest",
    grace: Annotated[float, typer.Option(help="How late a missed time may still run, in seconds.")] = 3600.0,
    overlap: Annotated[
        str, typer.Option(help="While the last one still runs: skip or queue.", callback=check_choice("skip", "queue"))
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
    finish(run_jobs_add(name, channel, spec, config=config, as_json=as_json))
