"""The composition root: every part of one process, built from the settings and wired together here only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

import structlog

from adapters.chat import ChatAdapter
from adapters.commands import HasCommands
from adapters.discord.permalink import parse_permalink as parse_discord_link
from adapters.slack.permalink import parse_permalink as parse_slack_link
from adapters.surfaces import HasSurfaces
from agent_core.agent import Agent
from agent_core.context import Clock, Limits, Redactor, SystemClock
from agent_core.llm.router import Router
from agent_core.llm.tokens import TokenCounter, load_counter
from agent_core.memory.summarize import Summarizer
from agent_core.prompts import Prompts
from agent_core.runtime.loop import AgentLoop
from bot.access import Access, build_policy
from bot.audit import AuditLog
from bot.collector import Collector
from bot.commands import PROVIDERS, CommandInfo, CommandRunner, Invocation, OwnCommand
from bot.dispatcher import Dispatcher
from bot.feedback import FEEDBACK, FeedbackBox
from bot.forget import ThreadMemory, build_memory_commands
from bot.home import HomeBuilder
from bot.http import Metric
from bot.inbox import Inbox
from bot.jobs.building import build_configured, load_settings_templates
from bot.jobs.commands import build_job_commands
from bot.jobs.names import JobNames
from bot.jobs.report import ReportRunner
from bot.jobs.running import RunningJobs
from bot.jobs.scheduler import JobScheduler
from bot.models import (
    build_all_workers,
    build_cache,
    build_embedder,
    build_prices,
    build_router,
    describe_state,
    find_agent,
    load_templates,
    measure_providers,
    offer_workers,
    sort_models,
)
from bot.offers import build_complete, build_offers
from bot.owners import free_dead_owners, name_owner
from bot.redact import SecretRedactor
from bot.sender import Sender
from bot.session import EventTap, Session
from bot.settings import ModelSettings, Settings
from bot.storage import open_store
from bot.storage.base import Store
from bot.telemetry import build_export
from bot.toolbox import Tools, build_tools
from bot.usage import build_usage_command
from bot.words import ThreadWords

log = structlog.get_logger("hermod.app")


class App:
    """One process. Made by ``open_app``; its parts are public for the commands that drive them."""

    def __init__(
        self,
        *,
        settings: Settings,
        models: Sequence[ModelSettings],
        store: Store,
        tools: Tools,
        router: Router,
        adapters: Mapping[str, ChatAdapter],
        prefixes: Sequence[str],
        owner: str,
        redactor: Redactor,
        clock: Clock,
        tap: EventTap | None,
        wake: asyncio.Event,
        agent: str = "",
    ) -> None:
        self.settings = settings
        self.models = tuple(models)
        self.store = store
        self.tools = tools
        self.adapters = adapters
        self.redactor = redactor
        self.clock = clock
        self.limits = build_limits(settings)
        self.policy = build_policy(settings.access, settings.targets)
        self.access = Access(self.policy)
        self.sender = Sender(store=store, adapters=adapters, clock=clock)
        self.router = router
        self._embedder = build_embedder(settings, models)
        self._cache = build_cache(settings, self._embedder, clock)
        self._export = build_export(settings, models)
        self._counter = asyncio.create_task(asyncio.to_thread(load_counter, router.model))
        self.memory = ThreadMemory(store, AuditLog(store, clock), cache=self._cache, files=tools.attachments)
        self.feedback = FeedbackBox(store, clock)
        self._job_names = JobNames(store, clock)
        own = self._build_own_commands()
        self._show_surfaces()
        self._offer_commands([command.info for command in own])
        self.session = self._build_session(own, tap, agent)
        self.dispatcher = Dispatcher(
            store=store, work=self.session, prefixes=prefixes, owner=owner, clock=clock, wake=wake
        )
        self.inbox = Inbox(
            store=store,
            clock=clock,
            redactor=redactor,
            queue_limit=settings.limits.queue_per_thread,
            wake=self.dispatcher.wake,
            erase_files=None if tools.attachments is None else tools.attachments.erase,
        )
        self.collector = Collector(
            targets=tools.targets,
            store=store,
            clock=clock,
            owner=owner,
            enabled=settings.collector.enabled,
            interval_s=settings.collector.interval_s,
            keep_s=settings.retention.snapshots_days * 86_400,
        )
        self.jobs = RunningJobs(
            build_configured(settings, store, clock),
            JobScheduler(store, clock, keeper=tools.keeper, wake=wake.set),
            adapters=adapters,
        )
        self._dispatching: asyncio.Task[None] | None = None
        self._background: tuple[asyncio.Task[None], ...] = ()

    def _build_session(self, own: Sequence[OwnCommand], tap: EventTap | None, chosen: str) -> Session:
        """Build what works on threads: the engine's loop, and everything that a turn needs around it."""
        settings, tools, prompts = self.settings, self.tools, load_templates(self.settings)
        loop = AgentLoop(
            provider=self.router,
            executor=tools.executor,
            prices=build_prices(self.models),
            summarizer=Summarizer(prompts["summary"]),
            cache=self._cache,
        )
        offer_workers(settings, prompts, tools.registry, loop, tools.executor)
        agent, prompt = _build_agent(settings, self.models), prompts["operations"]
        if chosen:
            agent, prompt = find_agent(settings, prompts, tools.registry, chosen)
        prefix = "" if settings.slack is None else settings.slack.command_prefix
        return Session(
            store=self.store,
            adapters=self.adapters,
            sender=self.sender,
            loop=loop,
            agent=agent,
            limits=self.limits,
            prompt=prompt,
            commands=CommandRunner(tools.executor, registry=tools.registry, own=own, prefix=prefix),
            words=ThreadWords(
                self.store, self._load_counter, self.router.states, self.clock, memory=self.memory, jobs=tools.jobs
            ),
            reports=self._build_reports(prompts),
            access=self.access,
            counter=self._load_counter,
            clock=self.clock,
            redactor=self.redactor,
            tap=tap,
            telemetry=None if self._export is None else self._export.telemetry,
            actions={FEEDBACK: self.feedback.take},
            attachments=tools.attachments,
        )

    def _build_reports(self, prompts: Prompts) -> ReportRunner:
        """Build what makes reports, with every worker and tool that there is by now."""
        tools = self.tools
        return ReportRunner(
            provider=self.router,
            prices=build_prices(self.models),
            registry=tools.registry,
            authorizer=tools.authorizer,
            approver=tools.approver,
            workers=build_all_workers(self.settings, prompts, tools.registry),
            prompts=prompts,
            templates=load_settings_templates(self.settings),
            targets=tools.targets,
            policy=self.policy,
            adapters=self.adapters,
            store=self.store,
            keeper=tools.keeper,
            counter=self._load_counter,
            attachments=tools.attachments,
        )

    def _show_surfaces(self) -> None:
        """Give the platforms that have pages of Hermod's own what stands on them."""
        for name, adapter in self.adapters.items():
            if isinstance(adapter, HasSurfaces):
                home = HomeBuilder(
                    name,
                    store=self.store,
                    policy=self.policy,
                    adapters=self.adapters,
                    states=self.router.states,
                    tools=self.tools.registry.tools(),
                    clock=self.clock,
                )
                adapter.show_surfaces(home)

    def _offer_commands(self, own: Sequence[CommandInfo]) -> None:
        """Tell the platforms that show commands with options which ones there are."""
        registry = self.tools.registry
        for adapter in self.adapters.values():
            if isinstance(adapter, HasCommands):
                targets = sorted(self.tools.targets)
                complete = build_complete(registry, own, targets, self.policy, jobs=self._job_names.find)
                adapter.offer_commands(build_offers(registry.specs(), own), complete)

    def _build_own_commands(self) -> tuple[OwnCommand, ...]:
        async def show_providers(asked: Invocation) -> str:
            return "\n".join(f"- {describe_state(state)}" for state in self.router.states())

        return (
            build_usage_command(self.store, self.clock),
            *build_memory_commands(self.memory, {"slack": parse_slack_link, "discord": parse_discord_link}),
            *build_job_commands(self.tools.jobs),
            OwnCommand(info=PROVIDERS, run=show_providers),
        )

    async def _load_counter(self) -> TokenCounter:
        # shielded: a run that is cancelled while it waits must not take the counter from all the others
        return await asyncio.shield(self._counter)

    @property
    def alive(self) -> bool:
        """True while the dispatcher runs: false before ``start``, and once it has ended for whatever reason."""
        return self._dispatching is not None and not self._dispatching.done()

    async def start(self) -> None:
        """Take up what an earlier process left, then connect the adapters.

        Raises:
            AdapterNotConfigured: a platform refuses the tokens.
        """
        await free_dead_owners(self.store)
        await asyncio.to_thread(self.router.prepare)
        await self._counter
        if self._cache is not None:
            await self._cache.prepare()
        self._dispatching = asyncio.create_task(self.dispatcher.run(), name="dispatcher")
        self._prepare_sandbox()
        self.collector.start()
        self.jobs.start()
        if any(isinstance(adapter, HasCommands) for adapter in self.adapters.values()):
            self._background += (asyncio.create_task(self._job_names.keep(), name="job-names"),)
        await self._connect()

    def _prepare_sandbox(self) -> None:
        """Look for what locks code in while the platforms connect; drop files of threads that are too old."""
        if (python := self.tools.python) is not None:
            self._background += (asyncio.create_task(python.prepare(), name="sandbox"),)
        if (files := self.tools.attachments) is not None:
            self._background += (asyncio.create_task(files.keep_swept(self.clock), name="thread-files"),)

    async def _connect(self) -> None:
        """Start every adapter at once: a platform that is slow or broken does not keep the others waiting."""
        starts = {asyncio.create_task(adapter.start(self.inbox.accept)) for adapter in self.adapters.values()}
        if not starts:
            return
        try:
            done, _ = await asyncio.wait(starts, return_when=asyncio.FIRST_EXCEPTION)
            for start in done:
                start.result()
        finally:
            for start in starts:
                start.cancel()
            await asyncio.wait(starts)

    async def open_quietly(self) -> None:
        """Take up what an earlier process left, without connecting anything or working by itself."""
        await free_dead_owners(self.store)

    async def watch(self) -> None:
        """Wait until the dispatcher ends. Before ``stop`` only a defect ends it, and that is raised."""
        if self._dispatching is not None:
            await asyncio.wait({self._dispatching})
            self._dispatching.result()

    async def stop(self, drain_s: float) -> None:
        """Leave what comes to the next process, let the work under way finish for ``drain_s`` seconds, then end.

        Until that work is over every platform keeps the connections by which its answers go out.
        """
        await self._tell_adapters("adapter_not_wound_down", lambda adapter: adapter.wind_down())
        await self.jobs.stop()
        await self.collector.stop()
        await self.dispatcher.drain(drain_s)
        await self._tell_adapters("adapter_not_stopped", lambda adapter: adapter.stop())
        for task in (self._counter, *self._background):
            task.cancel()
        for part in (self._cache, self._embedder):
            if part is not None:
                await part.aclose()
        ending = (self._dispatching, self._counter, *self._background)
        await asyncio.gather(*(task for task in ending if task is not None), return_exceptions=True)
        if self._export is not None:
            await self._export.aclose()  # last: the runs that were cancelled have ended their spans only now

    async def _tell_adapters(self, failed: str, tell: Callable[[ChatAdapter], Awaitable[None]]) -> None:
        """Tell every adapter at once; one that fails is an event of the log, and keeps nothing else from ending."""
        ends = await asyncio.gather(*(tell(adapter) for adapter in self.adapters.values()), return_exceptions=True)
        for name, end in zip(self.adapters, ends, strict=True):
            if isinstance(end, Exception):
                log.error(failed, platform=name, error=repr(end))

    def metrics(self) -> Iterator[Metric]:
        """The process's own counters."""
        for outcome, count in self.inbox.accepted.items():
            yield Metric(
                name="hermod_inbound_total",
                help="Messages that came in, by what became of them.",
                kind="counter",
                value=count,
                labels={"outcome": outcome},
            )
        for state, count in self.session.ended.items():
            yield Metric(
                name="hermod_runs_total", help="Ended runs.", kind="counter", value=count, labels={"state": state}
            )
        for value, presses in self.feedback.counted.items():
            yield Metric(
                name="hermod_feedback_total",
                help="Pressed thumbs under answers.",
                kind="counter",
                value=presses,
                labels={"value": value},
            )
        yield from measure_providers(self.router.states())
        yield from self.collector.metrics()
        yield from self.jobs.metrics()
        yield Metric(
            name="hermod_replies_total", help="Replies delivered.", kind="counter", value=self.sender.delivered
        )
        yield Metric(
            name="hermod_replies_failed_total", help="Replies given up.", kind="counter", value=self.sender.failed
        )


@asynccontextmanager
async def open_app(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    adapters: Mapping[str, ChatAdapter],
    prefixes: Sequence[str],
    tap: EventTap | None = None,
    clock: Clock | None = None,
    agent: str = "",
) -> AsyncIterator[App]:
    """Build an app, open its storage, and close all of it at the end. It is not started yet.

    Args:
        settings: loaded settings.
        environ: for what the settings leave to the environment (``OPENAI_API_KEY``).
        adapters: the chat platforms by name.
        prefixes: the threads that this process works on, see ``Store.claim_thread``.
        tap: follows every run's events.
        clock: time; the machine's by default.
        agent: the worker that answers in the place of the usual agent; empty: the usual one.

    Raises:
        ConfigError: a module of tools cannot be loaded, or there is no such agent.
        StoreError: the storage cannot be used.
    """
    clock = clock or SystemClock()
    redactor = SecretRedactor(settings.secrets())
    models = settings.effective_models(environ)
    async with open_storage(settings) as store:
        wake = asyncio.Event()
        tools = build_tools(settings, store, clock, adapters=adapters, redactor=redactor, wake=wake.set)
        router = build_router(settings, models, clock)
        try:
            yield App(
                settings=settings,
                models=models,
                store=store,
                tools=tools,
                router=router,
                adapters=adapters,
                prefixes=prefixes,
                owner=name_owner(),
                redactor=redactor,
                clock=clock,
                tap=tap,
                wake=wake,
                agent=agent,
            )
        finally:
            await tools.aclose()
            await router.aclose()


@asynccontextmanager
async def open_storage(settings: Settings) -> AsyncIterator[Store]:
    """Open the store of the settings, and close it at the end."""
    store = open_store(settings.storage.url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def build_limits(settings: Settings) -> Limits:
    """Turn the settings' limits into the engine's."""
    limits = settings.limits
    return Limits(
        max_steps=limits.max_steps,
        run_deadline_s=limits.run_deadline_s,
        max_same_action=limits.max_same_action,
        tool_timeout_s=limits.tool_timeout_s,
        requests=limits.requests,
        tool_calls=limits.tool_calls,
        tokens=limits.tokens,
        cost_usd=limits.cost_usd,
    )


def _build_agent(settings: Settings, models: Sequence[ModelSettings]) -> Agent:
    first = sort_models(models)[0]
    return Agent(
        name="operations",
        temperature=first.temperature,
        max_tokens=first.max_tokens,
        max_steps=settings.limits.max_steps,
        memory_tokens=settings.limits.memory_tokens,
    )
