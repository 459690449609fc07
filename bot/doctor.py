"""Check everything that Hermod stands on, and say how to mend what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import aiohttp

from adapters.chat import Problem
from agent_core.context import SystemClock
from agent_core.errors import ConfigError, ProviderError, ToolFailed
from agent_core.llm.breaker import BreakerState
from agent_core.llm.router import ProviderState
from agent_core.llm.types import ModelMessage, ModelRequest, Usage
from bot.app import open_storage
from bot.installations import InstallationReport, TokenSeal, report_installations
from bot.jobs.configured import name_job
from bot.jobs.telling import tell_instant, tell_outcome
from bot.models import (
    build_all_workers,
    build_cache,
    build_embedder,
    build_prices,
    build_provider,
    count,
    describe_state,
    load_templates,
)
from bot.platforms import reveal
from bot.sandbox import PythonSandbox
from bot.settings import ModelSettings, Settings, is_installed
from bot.settings_tree import DiscordSettings, HttpSettings, LimitSettings, SlackSettings
from bot.storage.base import StoreError
from bot.storage.jobs import JobState
from bot.toolbox import build_targets, build_tools
from bot.tools.research.search import list_missing
from bot.tools.slow_queries.preflight import preflight

CHECK_S = 15.0
"""Bound of one check."""

MOST_PAUSED = 10
"""Paused jobs that are named one by one."""

RUNNING_S = 3.0
"""Bound of asking a running process about its providers."""

CONNECTIONS = 2
"""What a running process keeps to Slack (``adapters.slack.app.SlackAdapter``, ``connections``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the doctor's report. ``fix`` is empty where nothing is wrong."""

    part: str
    state: Literal["ok", "warning", "error"]
    text: str
    fix: str = ""


class Checkup(Protocol):
    """Looks at one platform. ``fine`` is what can be said when nothing is wrong."""

    @property
    def fine(self) -> str:
        """What is as it should be."""
        ...

    async def check(self) -> tuple[Problem, ...]:
        """Tell what is wrong. Never raises."""
        ...

    async def stop(self) -> None:
        """Close every connection."""
        ...


async def examine(
    settings: Settings, environ: Mapping[str, str], checkups: Mapping[str, Checkup]
) -> AsyncIterator[Finding]:
    """Look at storage, jobs, prompts, models, cache, a running process, targets and platforms, in this order.

    Args:
        settings: loaded settings.
        environ: for keys that stand in the environment.
        checkups: of the configured platforms.
    """
    yield await _examine_storage(settings)
    for finding in await _examine_jobs(settings):
        yield finding
    if settings.prompts.folder is not None or settings.workers:
        yield await _examine_agents(settings)
    for notice in settings.notices:
        yield Finding(part="settings", state="warning", text=notice, fix="remove it, or wait for a later release")
    for model in settings.effective_models(environ):
        yield await _examine_model(model, settings.limits)
    if settings.cache.semantic or settings.cache.backend != "memory":
        yield await _examine_cache(settings, settings.effective_models(environ))
    for provider in await fetch_states(settings.http) or ():
        yield _judge_provider(provider)
    if not settings.targets:
        yield Finding(
            part="targets",
            state="warning",
            text="no database is configured",
            fix='add [targets.NAME] with url = "postgresql://hermod@host/db"',
        )
    # all at once: one that hangs takes its whole time, and the others need not wait for it
    for finding in await asyncio.gather(*(_examine_target(settings, name) for name in settings.targets)):
        yield finding
    for finding in await _examine_tools(settings):
        yield finding
    async for finding in _examine_platforms(checkups):
        yield finding
    for finding in await _examine_installations(settings):
        yield finding


async def build_checkups(settings: Settings) -> dict[str, Checkup]:
    """Build the checkup of every configured platform; asks whether a process with these settings runs."""
    checkups: dict[str, Checkup] = {}
    if settings.slack is not None:
        checkups["slack"] = await _build_slack_checkup(settings, settings.slack)
    if settings.discord is not None:
        checkups["discord"] = _build_discord_checkup(settings, settings.discord)
    return checkups


async def _build_slack_checkup(settings: Settings, slack: SlackSettings) -> Checkup:
    from adapters.slack.checkup import SlackCheckup

    runs = slack.mode == "socket" and await fetch_states(settings.http) is not None
    return SlackCheckup(
        reveal(slack.bot_token),
        reveal(slack.app_token),
        slack.api_url,
        mode=slack.mode,
        signing_secret=reveal(slack.signing_secret),
        many=slack.client_id is not None,
        channels=list_channels(settings, "slack"),
        running=CONNECTIONS if runs else 0,
    )


def _build_discord_checkup(settings: Settings, discord: DiscordSettings) -> Checkup:
    from adapters.discord.checkup import DiscordCheckup

    return DiscordCheckup(
        reveal(discord.token),
        discord.api_url,
        gateway_url=discord.gateway_url,
        guild_ids=discord.guild_ids,
        shard_count=discord.shard_count,
        channels=list_channels(settings, "discord"),
    )


def list_channels(settings: Settings, platform: str) -> dict[str, str]:
    """List the channels of a platform that the settings name, each with the setting that does."""
    named = [(entry, "access.channels") for entry in settings.access.channels]
    named += [(entry, "access.channel_targets") for entry in settings.access.channel_targets]
    named += [(report.channel, f"reports.{name}.channel") for name, report in settings.reports.items()]
    found: dict[str, str] = {}
    for entry, where in named:
        there, colon, address = entry.rpartition(":")
        channel = address.rpartition("/")[2]
        if there.lower() in ("", platform) and _is_channel(platform, channel) and (colon or channel.isalnum()):
            found.setdefault(channel, where)
    return found


def _is_channel(platform: str, entry: str) -> bool:
    """Tell whether an id may be a channel's; in Slack others are direct messages, to which nobody is invited."""
    return entry.isdigit() if platform == "discord" else entry[:1] in ("C", "G")


async def _examine_platforms(checkups: Mapping[str, Checkup]) -> AsyncIterator[Finding]:
    if not checkups:
        yield Finding(
            part="platforms",
            state="warning",
            text="no chat platform is configured",
            fix="add [slack] or [discord] to hermod.toml",
        )
    for name, checkup in checkups.items():
        try:
            problems = await checkup.check()
        finally:
            await checkup.stop()
        for problem in problems:
            state: Literal["warning", "error"] = "error" if problem.fatal else "warning"
            yield Finding(part=name, state=state, text=problem.what.removeprefix(f"{name}: "), fix=problem.fix)
        if not problems:
            yield Finding(part=name, state="ok", text=checkup.fine)


async def _examine_storage(settings: Settings) -> Finding:
    try:
        async with open_storage(settings) as store:
            counts = await store.count_rows()
    except StoreError as e:
        return Finding(part="storage", state="error", text=str(e), fix="see storage.url in docs/settings.md")
    return Finding(part="storage", state="ok", text=f"{counts.threads} threads, {counts.inbox_open} messages waiting")


async def _examine_jobs(settings: Settings) -> list[Finding]:
    """Tell which of the jobs that there are comes next, which are paused, and whose last time failed, and why."""
    try:
        async with open_storage(settings) as store:
            rows = await store.list_jobs()
            failed = {run.job_id: run for run in await store.list_last_runs() if run.state == "failed"}
    except StoreError:
        return []  # said already
    found = []
    coming = sorted((row.next_at, row.name, row) for row in rows if row.next_at and row.state is JobState.ACTIVE)
    if coming:
        at, name, row = coming[0]
        text = f"{count(len(coming), 'job')} active; the next is {name} at {tell_instant(at, row)}"
        found.append(Finding(part="jobs", state="ok", text=text))
    named = {name_job(name) for name in settings.reports}
    for row in [row for row in rows if row.origin == "settings" and row.job_id not in named][:MOST_PAUSED]:
        text = f"it is of the settings, and these have no [reports.{row.name}]"
        fix = "give every process on this database the same [reports]; once none has it, hermod run deletes the job"
        found.append(Finding(part=f"job {row.name}", state="warning", text=text, fix=fix))
    for row in [row for row in rows if row.state is JobState.PAUSED][:MOST_PAUSED]:
        fix = f"look at it with hermod jobs show {row.name}; hermod jobs resume {row.name} lets it go on"
        found.append(Finding(part=f"job {row.name}", state="warning", text=f"paused: {row.reason}", fix=fix))
    for row in [row for row in rows if row.state is JobState.ACTIVE and row.job_id in failed][:MOST_PAUSED]:
        run = failed[row.job_id]
        fix = f"look at it with hermod jobs show {row.name}; hermod jobs run {row.name} tries it again"
        text = f"its last time, {tell_instant(run.fired_at, row)}, {tell_outcome(run)}"
        found.append(Finding(part=f"job {row.name}", state="warning", text=text, fix=fix))
    return found


async def _examine_installations(settings: Settings) -> list[Finding]:
    """Tell how every workspace stands that installed Hermod."""
    slack = settings.slack
    if slack is None or slack.client_id is None:
        return []
    from adapters.slack.install import fetch_scopes
    from adapters.slack.manifest import BOT_SCOPES

    url = f"{(slack.public_url or '').rstrip('/')}/slack/install"
    try:
        async with open_storage(settings) as store:
            reports = await report_installations(
                store,
                TokenSeal(settings.security.keys),
                scopes=BOT_SCOPES,
                fetch=lambda token: fetch_scopes(slack.api_url, token),
            )
    except StoreError as e:
        return [Finding(part="slack workspaces", state="error", text=str(e), fix="see storage.url in docs/settings.md")]
    found = [_judge_installation(report, url) for report in reports]
    if not settings.access.workspaces:
        text = "every workspace that can install the app may use it, and the databases behind it"
        found.append(
            Finding(part="slack workspaces", state="warning", text=text, fix="list those that may in access.workspaces")
        )
    return found or [Finding(part="slack workspaces", state="ok", text=f"none yet; one is installed at {url}")]


def _judge_installation(report: InstallationReport, url: str) -> Finding:
    part = f"slack {report.workspace} ({report.name})"
    by = f" by {report.installer}" if report.installer else ""
    text = f"installed {report.installed_at:%Y-%m-%d %H:%M} UTC{by}"
    if report.removed:
        return Finding(part=part, state="ok", text=f"{text}; over: {report.removed}")
    if report.problem:
        what, _, fix = report.problem.partition("; ")
        return Finding(
            part=part, state="error", text=f"{text}; {what}", fix=fix or f"let it install Hermod again: {url}"
        )
    if report.missing:
        text = f"{text}; scopes missing: {', '.join(report.missing)}"
        return Finding(part=part, state="warning", text=text, fix=f"let it install Hermod again: {url}")
    return Finding(part=part, state="ok", text=text)


async def _examine_tools(settings: Settings) -> list[Finding]:
    """Look at what tools stand on that need no database."""
    found = [await _examine_sandbox(settings)] if settings.sandbox.enabled else []
    return [*found, *([_examine_research(settings)] if settings.research.enabled else [])]


async def _examine_sandbox(settings: Settings) -> Finding:
    """Run the canaries of the sandbox for real."""
    sandbox = PythonSandbox(settings, SystemClock())
    try:
        seen = await sandbox.backend.probe()
    finally:
        await sandbox.backend.aclose()
    if not sandbox.backend.enforcing:
        text = "NOTHING LOCKS CODE IN: whoever may use run_python can read, change and send whatever this account can"
        return Finding(part="sandbox", state="error", text=text, fix='set sandbox.backend = "auto"')
    if not seen.works:
        fix = "see docs/sandbox.md, or set sandbox.enabled = false"
        return Finding(part="sandbox", state="error", text=f"run_python does not run: {seen.reason}", fix=fix)
    facts = "; ".join(f"{name} {fact}" for name, fact in seen.facts.items())
    return Finding(part="sandbox", state="ok", text=f"{seen.backend} held every canary ({facts})")


def _examine_research(settings: Settings) -> Finding:
    """Tell who searches the web, and which of the tools only say that a library is not installed. Nothing is asked."""
    if missing := list_missing(settings.research, is_installed):
        text = f"the extra research is not installed, so no answer comes of {' and '.join(missing)}"
        return Finding(part="research", state="warning", text=text, fix="pip install 'hermod-bot[research]'")
    return Finding(part="research", state="ok", text=f"searches with {settings.research.searches_with}")


async def _examine_agents(settings: Settings) -> Finding:
    """Build what the settings make of prompts and workers, as a start would."""
    part = "prompts and workers"
    try:
        prompts = load_templates(settings)
        async with open_storage(settings) as store:
            registry = build_tools(settings, store, SystemClock()).registry
            build_all_workers(settings, prompts, registry)
    except (ConfigError, StoreError) as e:
        return Finding(part=part, state="error", text=str(e), fix="see [prompts] and [workers] in docs/settings.md")
    return Finding(part=part, state="ok", text=f"{len(prompts)} templates, {len(settings.workers)} workers of your own")


async def _examine_cache(settings: Settings, models: Sequence[ModelSettings]) -> Finding:
    """Look something up in every tier; at work, one that fails is left out and hardly noticed."""
    embedder = build_embedder(settings, models)
    cache = build_cache(settings, embedder, SystemClock())
    try:
        async with asyncio.timeout(CHECK_S):
            if cache is not None and cache.exact is not None:
                await cache.exact.get("0" * 64)
            if cache is not None and cache.semantic is not None and embedder is not None:
                (vector,) = await embedder.embed(["ok"])
                await cache.semantic.search("doctor", vector, SystemClock().now().timestamp(), 1)
    except (ConnectionError, ProviderError, TimeoutError) as e:
        text = f"not served, so answers are not kept: {str(e) or f'no answer within {CHECK_S:g} s'}"
        fix = "check redis_url and milvus_uri in [cache], and the embedding_model"
        return Finding(part="cache", state="warning", text=text, fix=fix)
    finally:
        if cache is not None:
            await cache.aclose()
        if embedder is not None:
            await embedder.aclose()
    return Finding(part="cache", state="ok", text=f"kept in {settings.cache.backend}")


async def _examine_model(model: ModelSettings, limits: LimitSettings) -> Finding:
    part = f"model {model.name}"
    if model.kind == "offline":
        text = "no language model: words are matched to tools; set OPENAI_API_KEY or [[models]] for a real one"
        return Finding(part=part, state="ok", text=text)
    provider = build_provider(model, SystemClock())
    request = ModelRequest(messages=(ModelMessage(role="user", content="Say ok."),), max_tokens=16, timeout_s=CHECK_S)
    try:
        response = await provider.complete(request)
    except ProviderError as e:
        return Finding(part=part, state="error", text=str(e), fix="check its base_url, model and api_key")
    finally:
        await provider.aclose()
    text = f"answers as {response.model}"
    if (
        limits.cost_usd is not None
        and build_prices([model]).cost_usd(response.model, Usage(), provider=model.name) is None
    ):
        text = f"{text}, at an unknown price: limits.cost_usd has no effect on a run that asks it"
        return Finding(part=part, state="warning", text=text, fix="set input_usd_per_mtok and output_usd_per_mtok")
    return Finding(part=part, state="ok", text=text)


async def fetch_states(http: HttpSettings) -> tuple[ProviderState, ...] | None:
    """Ask the process that serves on this HTTP port how its providers are doing; None where nobody answers."""
    if not http.port:
        return None
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(http.host, http.host)  # noqa: S104 - compared, not bound
    url = f"http://{f'[{host}]' if ':' in host else host}:{http.port}/providers"
    try:
        async with (
            asyncio.timeout(RUNNING_S),
            aiohttp.ClientSession() as client,
            client.get(url, allow_redirects=False) as response,
        ):
            items = (await response.json())["items"]
        return tuple(ProviderState(**{**item, "state": BreakerState(item["state"])}) for item in items)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError):
        return None


def _judge_provider(provider: ProviderState) -> Finding:
    """Tell what a running process has met with a provider, which one request of ours may not show."""
    fix = "" if provider.state is BreakerState.CLOSED else "see its last error; it is asked again by itself"
    return Finding(part="running provider", state="warning" if fix else "ok", text=describe_state(provider), fix=fix)


async def _examine_target(settings: Settings, name: str) -> Finding:
    part = f"target {name}"
    try:
        async with asyncio.timeout(CHECK_S):
            text = await preflight(build_targets(settings).resolve(name))
    except ToolFailed as e:
        return Finding(part=part, state="error", text=f"{e.code}: {e.message}", fix=e.fix)
    except TimeoutError:
        return Finding(part=part, state="error", text=f"no answer within {CHECK_S:g} s", fix="check host and firewall")
    return Finding(part=part, state="ok", text=text)
