"""The models of one process: providers, the router over them, prices, kept answers, and workers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent_core.agent import Agent
from agent_core.context import Clock
from agent_core.errors import ConfigError
from agent_core.llm.breaker import BreakerPolicy
from agent_core.llm.pricing import Price, PriceList
from agent_core.llm.provider import Provider
from agent_core.llm.retry import RetryPolicy
from agent_core.llm.router import ProviderState, Route, Router
from agent_core.prompts import Prompts, PromptTemplate, load_prompts
from agent_core.runtime.loop import AgentLoop
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from agent_core.workers import Worker, build_workers, load_built_in, register_call_worker
from bot.http import Metric
from bot.settings import ModelSettings, Settings
from bot.settings_tree import WorkerSettings

if TYPE_CHECKING:
    from agent_core.llm.cache import AnswerCache
    from agent_core.llm.cache.policy import ExactTier, SemanticTier
    from agent_core.llm.openai_compat import OpenAICompatible

EVERYDAY = frozenset({"calculator", "current_time", "read_output"})
"""Tools with which a worker finds nothing out."""

STATES = {"closed": 0, "half_open": 1, "open": 2}
"""A breaker's state as a number, for graphs."""


def sort_models(models: Sequence[ModelSettings]) -> list[ModelSettings]:
    """Order models by priority, then by weight; the order of the settings decides between equals."""
    return sorted(models, key=lambda m: (m.priority, -m.weight))


def build_provider(model: ModelSettings, clock: Clock) -> Provider:
    """Build the provider of one ``[[models]]`` entry."""
    if model.kind == "offline":
        from agent_core.llm.offline import OfflineProvider

        return OfflineProvider(clock, name=model.name)
    provider = _build_vendor(model)
    if model.tool_calls == "prompted":
        from agent_core.llm.prompted import PromptedActions

        return PromptedActions(provider, clock=clock)
    return provider


def _build_vendor(model: ModelSettings) -> Provider:
    key = model.api_key.get_secret_value() if model.api_key is not None else "none"
    if model.kind == "anthropic":
        from agent_core.llm.anthropic import Anthropic

        return Anthropic(
            name=model.name, model=model.model, api_key=key, base_url=model.base_url, timeout_s=model.timeout_s
        )
    from agent_core.llm.openai_compat import OpenAICompatible

    return OpenAICompatible(
        name=model.name,
        model=model.model,
        api_key=key,
        base_url=model.base_url,
        timeout_s=model.timeout_s,
        embedding_model=model.embedding_model or "",
    )


def build_router(settings: Settings, models: Sequence[ModelSettings], clock: Clock) -> Router:
    """Build the router over every configured model; the offline provider, if it is one of several, comes last."""
    policy, routes = settings.router, list[Route]()
    for model in sort_models(models):
        routes.append(
            Route(
                build_provider(model, clock),
                weight=model.weight,
                priority=model.priority,
                timeout_s=model.timeout_s,
                max_concurrency=model.max_concurrency,
                free=model.kind == "offline",
            )
        )
    return Router(
        routes,
        policy=RetryPolicy(
            max_attempts=policy.max_attempts,
            backoff_base_s=policy.backoff_base_s,
            backoff_cap_s=policy.backoff_cap_s,
        ),
        breaker=BreakerPolicy(failure_threshold=policy.failure_threshold, recovery_timeout_s=policy.recovery_timeout_s),
        clock=clock,
    )


def build_prices(models: Sequence[ModelSettings]) -> PriceList:
    """Collect the settings' own prices, by provider."""
    overrides = dict[str, Price]()
    for model in models:
        if model.input_usd_per_mtok is not None and model.output_usd_per_mtok is not None:
            overrides[model.name] = Price(input=model.input_usd_per_mtok, output=model.output_usd_per_mtok)
    return PriceList(overrides)


def load_templates(settings: Settings) -> Prompts:
    """Load the prompt templates, those of ``prompts.folder`` in the place of the shipped ones.

    Raises:
        ConfigError: a template cannot be read, or holds what it must not.
    """
    if settings.prompts.folder is None:
        return load_prompts()
    folder = Path(settings.prompts.folder).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"prompts.folder: {folder} is not a folder; name one that holds *.md files")
    try:
        # those of reports are laid out otherwise, see bot.jobs.templates
        own = [path for path in sorted(folder.glob("*.md")) if not path.name.startswith("report-")]
        return load_prompts({path.stem: path for path in own})
    except ConfigError as e:
        raise ConfigError(f"prompts.folder: {e}") from e


# -- kept answers ----------------------------------------------------------------------------------


def build_embedder(settings: Settings, models: Sequence[ModelSettings]) -> OpenAICompatible | None:
    """Build the provider of embeddings, or None where the semantic tier is switched off.

    Raises:
        ConfigError: no model has an ``embedding_model``.
    """
    if not settings.cache.semantic:
        return None
    from agent_core.llm.openai_compat import OpenAICompatible

    for model in sort_models(models):
        if model.embedding_model and isinstance(provider := _build_vendor(model), OpenAICompatible):
            return provider
    raise ConfigError("cache.semantic: no model of kind openai has an embedding_model; set one, or semantic = false")


def build_cache(settings: Settings, embedder: OpenAICompatible | None, clock: Clock) -> AnswerCache | None:
    """Build the cache of answers, or None when it is switched off."""
    cache = settings.cache
    if not cache.exact and not cache.semantic:
        return None
    from agent_core.llm.cache import AnswerCache, MemoryExact, MemorySemantic

    exact: ExactTier | None = MemoryExact() if cache.exact else None
    semantic: SemanticTier | None = MemorySemantic() if cache.semantic else None
    if cache.backend == "redis+milvus":
        from agent_core.llm.cache.milvus import MilvusSemantic
        from agent_core.llm.cache.redis import RedisExact

        exact = RedisExact(cache.redis_url or "") if cache.exact else None
        semantic = MilvusSemantic(cache.milvus_uri or "") if cache.semantic else None
    return AnswerCache(
        exact=exact,
        semantic=semantic,
        embed=None if embedder is None else embedder.embed,
        ttl_s=cache.ttl_s,
        threshold=cache.threshold,
        clock=clock,
    )


# -- workers ---------------------------------------------------------------------------------------


def offer_workers(
    settings: Settings, prompts: Prompts, registry: ToolRegistry, loop: AgentLoop, executor: ToolExecutor
) -> None:
    """Let the agent hand tasks to workers, where the settings have any.

    A built-in worker that could look nothing up, since its tools are not there, is not offered.

    Raises:
        ConfigError: a configured worker is not usable.
    """
    if settings.workers:
        workers = {
            name: worker
            for name, worker in build_all_workers(settings, prompts, registry).items()
            if name in {*settings.workers, "report_generator"} or not EVERYDAY.issuperset(worker.agent.tools or ())
        }
        register_call_worker(registry, workers, loop=loop, executor=executor)


def build_all_workers(settings: Settings, prompts: Prompts, registry: ToolRegistry) -> Mapping[str, Worker]:
    """Build the built-in workers and those of the settings. Call it when every tool is registered.

    Raises:
        ConfigError: a configured worker is not usable.
    """
    configured = [build_worker(name, worker, registry.names()) for name, worker in settings.workers.items()]
    return build_workers(configured, prompts, registry)


def find_agent(settings: Settings, prompts: Prompts, registry: ToolRegistry, name: str) -> tuple[Agent, PromptTemplate]:
    """Return a worker, built in or configured, as an agent that people talk to, and its instructions with their gaps.

    Call it when every tool is registered.

    Raises:
        ConfigError: there is no such worker (the message has the known names), or a configured one is not usable.
    """
    workers = build_all_workers(settings, prompts, registry)
    worker = workers.get(name)
    if worker is None or isinstance(worker.template, str):  # a name only before build_workers
        raise ConfigError(f"there is no agent {name!r}; known are {', '.join(sorted(workers))}")
    return replace(worker.agent, stream=True), worker.template


def build_worker(name: str, worker: WorkerSettings, registered: Collection[str]) -> Worker:
    """Build a configured worker; what is left out is taken from the built-in one of that name."""
    known = next((w for w in load_built_in() if w.name == name), None)
    tools: tuple[str, ...] | None = worker.tools or None
    max_steps, memory_tokens = worker.max_steps, worker.memory_tokens
    if known is not None:
        if tools is None:
            tools = tuple(tool for tool in known.agent.tools or () if tool in registered)
        max_steps = max_steps if "max_steps" in worker.model_fields_set else known.agent.max_steps
        memory_tokens = memory_tokens if "memory_tokens" in worker.model_fields_set else known.agent.memory_tokens
    return Worker(
        agent=Agent(
            name=name,
            tools=tools,
            model=worker.model or "",
            temperature=worker.temperature,
            max_tokens=worker.max_tokens,
            max_steps=max_steps,
            memory_tokens=memory_tokens,
        ),
        description=worker.description or (known.description if known is not None else ""),
        template=worker.template or (known.template if known is not None else "react"),
    )


# -- what people and machines look at --------------------------------------------------------------


def describe_state(state: ProviderState) -> str:
    """Say on one line how a provider is doing."""
    wait = f", asked again in {math.ceil(state.wait_s)} s" if state.wait_s > 0 else ""
    last = f"; last error: {state.last_error.removeprefix(f'{state.name}: ')}" if state.last_error else ""
    return (
        f"{state.name} ({state.model}): breaker {state.state}{wait}; {count(state.requests, 'request')}, "
        f"{count(state.errors, 'error')}, {state.under_way} under way{last}"
    )


def count(number: int, noun: str) -> str:
    """Write a number with its noun: 1 request, 2 requests."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def state_as_data(state: ProviderState) -> dict[str, object]:
    """Return how a provider is doing as JSON-ready values; ``wait_s`` in seconds."""
    return {**asdict(state), "state": str(state.state)}


def measure_providers(states: Sequence[ProviderState]) -> Iterator[Metric]:
    """Yield the numbers of every provider."""
    for state in states:
        labels = {"provider": state.name, "model": state.model}
        yield Metric(
            name="hermod_provider_breaker",
            help="0 closed, 1 half-open, 2 open.",
            value=STATES[str(state.state)],
            labels=labels,
        )
        yield Metric(
            name="hermod_provider_wait_seconds",
            help="Until the provider may be asked again.",
            value=state.wait_s,
            labels=labels,
        )
        yield Metric(name="hermod_provider_under_way", help="Requests under way.", value=state.under_way, labels=labels)
    for name, attribute in (("requests", "requests"), ("errors", "errors")):
        for state in states:
            yield Metric(
                name=f"hermod_provider_{name}_total",
                help=f"Model {name}.",
                kind="counter",
                value=getattr(state, attribute),
                labels={"provider": state.name, "model": state.model},
            )
