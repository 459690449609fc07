"""The tools of a process: registered, with what runs them and what they stand on."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from adapters.chat import ChatAdapter
from agent_core.context import Clock, Redactor
from agent_core.errors import ConfigError
from agent_core.tools.approval import Approver, Authorizer
from agent_core.tools.builtin import register_builtin
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from bot.access import AccessAuthorizer, build_policy
from bot.attachments import Attachments
from bot.audit import AuditedAuthorizer, AuditLog
from bot.commands import CommandRunner
from bot.jobs.building import build_keeper, load_settings_templates
from bot.jobs.desk import JobDesk
from bot.jobs.keeping import JobKeeper
from bot.redact import SecretRedactor
from bot.sandbox import PythonSandbox
from bot.settings import Settings
from bot.storage.base import Store
from bot.tools.activity.ending import NoApprovals
from bot.tools.databases import register_database_tools
from bot.tools.jobs.tools import register_job_tools
from bot.tools.python_sandbox.types import MiB
from bot.tools.python_sandbox.uploads import Uploads
from bot.tools.research.tools import register_research_tools
from bot.tools.slow_logs.tool import register_slow_log_tool
from bot.tools.targets import Target, Targets


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What can be done without any chat platform: the tools and the way to run them.

    Args:
        registry, executor, commands, targets: the tools, what runs them, and what they look at.
        authorizer, approver: who may use which, as ``executor`` asks it.
        keeper, jobs: what makes and changes scheduled jobs, and what people want of them.
        python: what ``run_python`` stands on; None where it is switched off.
        attachments: the files of threads, for it.
    """

    registry: ToolRegistry
    executor: ToolExecutor
    commands: CommandRunner
    targets: Targets
    authorizer: Authorizer
    approver: Approver
    keeper: JobKeeper
    jobs: JobDesk
    python: PythonSandbox | None = None
    attachments: Attachments | None = None

    async def aclose(self) -> None:
        """End what the tools have running."""
        if self.python is not None:
            await self.python.backend.aclose()


def build_tools(
    settings: Settings,
    store: Store,
    clock: Clock,
    *,
    adapters: Mapping[str, ChatAdapter] | None = None,
    redactor: Redactor | None = None,
    wake: Callable[[], None] = lambda: None,
) -> Tools:
    """Register every tool: the engine's, Hermod's, and those of the settings' modules. ``aclose`` ends what they use.

    Args:
        settings: loaded settings.
        store: for what the tools keep.
        clock: time.
        adapters: the platforms from which attached files are fetched.
        redactor: removes secrets from files that are posted.
        wake: called after a tool put something into the inbox.

    Raises:
        ConfigError: a module or a report's template cannot be imported, or has no ``register(registry)``.
    """
    registry = ToolRegistry()
    targets = build_targets(settings)
    register_database_tools(registry, targets, store, clock)
    register_builtin(registry)
    python, attachments = None, None
    if settings.sandbox.enabled:
        python = PythonSandbox(settings, clock)
        attachments = _build_attachments(settings, python, adapters or {}, redactor)
        python.register(registry, attachments)
    uploads = None if python is None else Uploads(python.folders)
    register_slow_log_tool(registry, targets, clock, attached=attachments, uploads=uploads)
    register_research_tools(registry, settings.research, clock)
    policy = build_policy(settings.access, settings.targets)
    keeper = build_keeper(settings, store, clock, adapters=adapters or {}, wake=wake)
    prefix = "" if settings.slack is None else settings.slack.command_prefix
    jobs = JobDesk(store, keeper, clock, policy=policy, prefix=prefix)
    register_job_tools(registry, jobs, templates=tuple(load_settings_templates(settings)))
    _register_modules(registry, settings.tools.modules)
    authorizer = AuditedAuthorizer(AccessAuthorizer(policy), AuditLog(store, clock))
    approver = NoApprovals(targets)
    executor = ToolExecutor(registry, authorizer=authorizer, approver=approver)
    return Tools(
        registry=registry,
        executor=executor,
        commands=CommandRunner(executor),
        targets=targets,
        authorizer=authorizer,
        approver=approver,
        keeper=keeper,
        jobs=jobs,
        python=python,
        attachments=attachments,
    )


def _build_attachments(
    settings: Settings, python: PythonSandbox, adapters: Mapping[str, ChatAdapter], redactor: Redactor | None
) -> Attachments:
    return Attachments(
        adapters,
        python.folders,
        redactor=redactor or SecretRedactor(settings.secrets()),
        most_bytes=settings.sandbox.files_in_mb * MiB,
        most_files_out=python.limits.files_out,
        most_bytes_out=python.limits.files_out_bytes,
    )


def _register_modules(registry: ToolRegistry, names: Sequence[str]) -> None:
    for name in names:
        try:
            register = importlib.import_module(name).register
        except (ImportError, AttributeError) as e:
            raise ConfigError(
                f"tools.modules: {name} has no register(registry) ({e}); see docs/adding-a-tool.md"
            ) from e
        register(registry)


def build_targets(settings: Settings) -> Targets:
    """Turn the settings' targets into the tools' targets."""
    return Targets(
        [
            Target.from_url(
                name,
                target.build_url(),
                sslmode=target.sslmode,
                allow_sql=target.allow_sql,
                accept_risks=target.accept_risks,
            )
            for name, target in settings.targets.items()
        ]
    )
