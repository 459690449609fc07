"""The parts of jobs, as the settings want them; for the processes and commands that need them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from adapters.chat import ChatAdapter
from agent_core.context import Clock
from bot.jobs.configured import ConfiguredJobs
from bot.jobs.keeping import JobKeeper
from bot.jobs.templates import ReportTemplate, load_report_templates
from bot.jobs.workspaces import find_workspace
from bot.owners import name_owner
from bot.settings import Settings
from bot.settings_checks import BUILT_IN_WORKERS
from bot.storage.base import Store


def load_settings_templates(settings: Settings) -> Mapping[str, ReportTemplate]:
    """Load the templates of reports, those of ``prompts.folder`` in the place of the shipped ones.

    Raises:
        ConfigError: a file is not such a template.
    """
    folder = None if settings.prompts.folder is None else Path(settings.prompts.folder).expanduser()
    return load_report_templates(folder)


def build_keeper(
    settings: Settings, store: Store, clock: Clock, *, adapters: Mapping[str, ChatAdapter], wake: Callable[[], None]
) -> JobKeeper:
    """Build what makes and changes jobs, with the targets, workers and templates that there are.

    Raises:
        ConfigError: a report template of the settings' folder is not one.
    """
    return JobKeeper(
        store,
        clock,
        adapters=adapters,
        targets=tuple(settings.targets),
        workers=sorted({*BUILT_IN_WORKERS, *settings.workers}),
        templates=tuple(load_settings_templates(settings)),
        wake=wake,
    )


def build_configured(settings: Settings, store: Store, clock: Clock) -> ConfiguredJobs:
    """Build what makes the rows of ``[reports]``."""
    find = partial(find_workspace, settings)
    return ConfiguredJobs(store, clock, settings.reports, find_workspace=find, owner=name_owner())
