"""What must hold across keys, and what this release does not have yet.

Each check yields ``Mistake`` values for a tree whose single values are already right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import parse_qsl, urlsplit

from bot.jobs.report_checks import check_reports
from bot.settings_sources import KeyPath, Mistake
from bot.settings_tree import (
    DiscordSettings,
    ModelSettings,
    ResearchSettings,
    SettingsTree,
    SlackSettings,
    TargetSettings,
)

Installed = Callable[[str], bool]
"""Tells whether an import name is installed."""

BUILT_IN_WORKERS = frozenset({"sql_optimizer", "report_generator", "researcher", "analyst"})
"""Names of ``agent_core/workers.toml``; written out because settings know nothing that runs."""

_KEY_MIN = 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_HOST_AND_PORT = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[1-9]\d{0,4}")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_SCHEMES = ("postgresql", "mysql", "sqlite", "slowlog")


def check_tree(tree: SettingsTree, environ: Mapping[str, str], installed: Installed) -> Iterator[Mistake]:
    """Yield every mistake that single keys cannot show."""
    yield from _check_storage(tree, installed)
    yield from _check_models(tree, environ, installed)
    if tree.router.backoff_base_s > tree.router.backoff_cap_s:
        yield Mistake(
            path=("router", "backoff_base_s"), text="must be at most backoff_cap_s; lower it, or raise the cap"
        )
    yield from _check_cache(tree, installed)
    yield from _check_workers(tree)
    yield from _check_otel(tree, installed)
    yield from _check_slack(tree, installed)
    yield from _check_discord(tree, installed)
    yield from _check_sandbox(tree)
    yield from _check_research(tree.research, installed)
    for name, target in tree.targets.items():
        yield from _check_name(("targets",), name, tree.targets)
        yield from _check_target(("targets", name), target, installed)
    yield from _check_access(tree)
    for name in tree.reports:
        yield from _check_name(("reports",), name, tree.reports)
    yield from check_reports(tree, BUILT_IN_WORKERS)
    for index, module in enumerate(tree.tools.modules):
        if not _MODULE.fullmatch(module):
            text = "not the name of a Python module; write it as in an import, such as my_ops.tools"
            yield Mistake(path=("tools", "modules", index), text=text)


def _check_storage(tree: SettingsTree, installed: Installed) -> Iterator[Mistake]:
    url, path = tree.storage.url, ("storage", "url")
    if url.startswith(("postgresql://", "postgres://")):
        if not (installed("psycopg") and installed("psycopg_pool")):
            yield _missing_extra(path, "postgres")
    elif not url.startswith("sqlite:///") or url in ("sqlite:///", "sqlite:////"):
        text = (
            "must name an SQLite file, such as sqlite:///hermod.db, or a database, postgresql://USER:PASSWORD@HOST/NAME"
        )
        yield Mistake(path=path, text=text)


def _check_models(tree: SettingsTree, environ: Mapping[str, str], installed: Installed) -> Iterator[Mistake]:
    names: set[str] = set()
    for index, model in enumerate(tree.models):
        path: KeyPath = ("models", index)
        yield from _check_model(path, model, environ, installed)
        name = model.name or model.model or model.kind
        if name in names:
            yield Mistake(path=(*path, "name"), text="another model has this name; give each its own")
        names.add(name)


def _check_model(
    path: KeyPath, model: ModelSettings, environ: Mapping[str, str], installed: Installed
) -> Iterator[Mistake]:
    given, made = model.input_usd_per_mtok, model.output_usd_per_mtok
    if (given is None) != (made is None):
        missing = "input_usd_per_mtok" if given is None else "output_usd_per_mtok"
        yield Mistake(path=(*path, missing), text="missing; a price needs both, for input and for output tokens")
    if model.kind == "offline":
        return
    if model.kind == "anthropic" and not installed("anthropic"):
        yield _missing_extra((*path, "kind"), "anthropic")
    if model.embedding_model and model.kind != "openai":
        yield Mistake(path=(*path, "embedding_model"), text="only models of the kind openai can have one; remove it")
    if not model.model:
        yield Mistake(path=(*path, "model"), text="missing; set the vendor's name of the model, such as gpt-4o-mini")
    if model.base_url is not None:
        yield from _check_http_url((*path, "base_url"), model.base_url)
    elif model.api_key is None and not environ.get(f"{model.kind.upper()}_API_KEY"):
        text = "missing; set api_key, api_key_env or api_key_file (only an endpoint with a base_url may do without)"
        yield Mistake(path=(*path, "api_key"), text=text)


def _check_cache(tree: SettingsTree, installed: Installed) -> Iterator[Mistake]:
    cache = tree.cache
    if cache.semantic and not any(model.embedding_model for model in tree.models):
        text = "needs a model with an embedding_model; set one in [[models]], or semantic = false"
        yield Mistake(path=("cache", "semantic"), text=text)
    if cache.backend == "memory":
        return
    for used, key, module in ((cache.exact, "redis_url", "redis"), (cache.semantic, "milvus_uri", "pymilvus")):
        if used and not getattr(cache, key):
            yield Mistake(path=("cache", key), text='missing; the backend "redis+milvus" needs it')
        if used and not installed(module):
            yield _missing_extra(("cache", "backend"), "cache")


def _check_workers(tree: SettingsTree) -> Iterator[Mistake]:
    names = {model.name or model.model for model in tree.models}
    for name, worker in tree.workers.items():
        yield from _check_name(("workers",), name, tree.workers)
        if not worker.description and name not in BUILT_IN_WORKERS:
            text = "missing; say what the worker finds out, so that tasks can be given to it"
            yield Mistake(path=("workers", name, "description"), text=text)
        if worker.model is not None and worker.model not in names:
            yield Mistake(path=("workers", name, "model"), text="no entry of [[models]] has this name; mend it")


def _check_otel(tree: SettingsTree, installed: Installed) -> Iterator[Mistake]:
    if tree.otel.endpoint is not None:
        yield from _check_http_url(("otel", "endpoint"), tree.otel.endpoint)
        if not installed("opentelemetry.exporter"):
            yield _missing_extra(("otel", "endpoint"), "otel")


def _check_http_url(path: KeyPath, url: str) -> Iterator[Mistake]:
    if not url.startswith(("http://", "https://")) or not _has_host(url):
        yield Mistake(path=path, text="must be a URL that starts with http:// or https://")


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _has_socket(url: str) -> bool:
    """Tell whether a URL names its server as libpq does for unix sockets: ``postgresql://user@/db?host=/run/pg``."""
    try:
        return any(name == "host" and value for name, value in parse_qsl(urlsplit(url).query))
    except ValueError:
        return False


def _check_slack(tree: SettingsTree, installed: Installed) -> Iterator[Mistake]:
    slack = tree.slack
    if slack is None:
        return
    if not installed("slack_bolt"):
        yield _missing_extra(("slack",), "slack")
    yield from _check_http_url(("slack", "api_url"), slack.api_url)
    if not re.fullmatch(r"[a-z0-9_-]*", slack.command_prefix):
        yield Mistake(path=("slack", "command_prefix"), text="may hold a-z, 0-9, _ and - only, such as dev-")
    oauth = slack.client_id is not None
    for name, prefix, other in (("bot_token", "xoxb-", "xapp-"), ("app_token", "xapp-", "xoxb-")):
        token = slack.bot_token if name == "bot_token" else slack.app_token
        needed = slack.mode == "socket" if name == "app_token" else not oauth
        if token is None and needed:
            yield Mistake(path=("slack", name), text=f"missing; set {name}, {name}_env or {name}_file ({prefix}...)")
        elif token is not None and token.get_secret_value().startswith(other):
            text = f"holds a token that starts with {other}; a {name} starts with {prefix}"
            yield Mistake(path=("slack", name), text=text)
    if slack.mode == "http" and slack.signing_secret is None:
        text = 'missing; mode = "http" needs it (api.slack.com/apps, Basic Information)'
        yield Mistake(path=("slack", "signing_secret"), text=text)
    yield from _check_installing(tree, slack, installed)


def _check_installing(tree: SettingsTree, slack: SlackSettings, installed: Installed) -> Iterator[Mistake]:
    """Check what installation in many workspaces needs, and that nothing of it stands alone."""
    if slack.client_id is None:
        for name in ("client_secret", "public_url"):
            if getattr(slack, name) is not None:
                text = f"missing; {name} has no effect without it: set it, or remove {name}"
                yield Mistake(path=("slack", "client_id"), text=text)
    else:
        if slack.client_secret is None:
            text = "missing; client_id needs it (api.slack.com/apps, Basic Information)"
            yield Mistake(path=("slack", "client_secret"), text=text)
        if slack.public_url is None:
            text = "missing; client_id needs it: where browsers reach Hermod, such as https://hermod.example.com"
            yield Mistake(path=("slack", "public_url"), text=text)
        if not tree.security.keys:
            text = "missing; tokens of workspaces are kept encrypted: set it to what `openssl rand -hex 32` prints"
            yield Mistake(path=("security", "key"), text=text)
        if not installed("cryptography"):
            yield _missing_extra(("slack", "client_id"), "slack")
    if slack.public_url is not None:
        yield from _check_public_url(("slack", "public_url"), slack.public_url)
    if any(len(key) < _KEY_MIN for key in tree.security.keys):
        text = f"every key needs at least {_KEY_MIN} random characters; take what `openssl rand -hex 32` prints"
        yield Mistake(path=("security", "key"), text=text)
    if len(set(tree.security.keys)) < len(tree.security.keys):
        yield Mistake(path=("security", "key"), text="holds the same key twice; remove one")


def _check_public_url(path: KeyPath, url: str) -> Iterator[Mistake]:
    try:
        parts = urlsplit(url)
        local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        more = parts.query or parts.fragment or parts.username is not None
    except ValueError:
        local, more = False, "yes"
    if not url.startswith("https://") and not (local and url.startswith("http://")):
        yield Mistake(
            path=path, text="must start with https://, since tokens pass there (http:// on this machine only)"
        )
    elif more or not _has_host(url) or any(c.isspace() or c in '"<>' for c in url):
        yield Mistake(path=path, text="must be an address and perhaps a path, such as https://hermod.example.com")


def _check_discord(tree: SettingsTree, installed: Installed) -> Iterator[Mistake]:
    discord = tree.discord
    if discord is None:
        return
    if not installed("discord"):
        yield _missing_extra(("discord",), "discord")
    token = "" if discord.token is None else discord.token.get_secret_value().strip()
    if not token:
        text = "missing; set token, token_env or token_file (discord.com/developers/applications, page Bot)"
        yield Mistake(path=("discord", "token"), text=text)
    elif token.lower().startswith("bot ") or any(c.isspace() for c in token):
        yield Mistake(path=("discord", "token"), text='must be the token alone, without "Bot" and without spaces')
    yield from _check_http_url(("discord", "api_url"), discord.api_url)
    gateway = discord.gateway_url
    if gateway is not None and not (gateway.startswith(("ws://", "wss://")) and _has_host(gateway)):
        yield Mistake(path=("discord", "gateway_url"), text="must be a URL that starts with ws:// or wss://")
    for index, guild in enumerate(discord.guild_ids):
        if not guild.isascii() or not guild.isdigit():
            text = "must be a guild's id, a number; in Discord: developer mode, then Copy Server ID"
            yield Mistake(path=("discord", "guild_ids", index), text=text)
    yield from _check_shards(discord)


def _check_shards(discord: DiscordSettings) -> Iterator[Mistake]:
    if discord.shard_ids and discord.shard_count is None:
        yield Mistake(path=("discord", "shard_count"), text="missing; shard_ids are out of so many")
    for index, shard in enumerate(discord.shard_ids):
        if shard < 0 or (discord.shard_count is not None and shard >= discord.shard_count):
            text = "must be at least 0 and below shard_count"
            yield Mistake(path=("discord", "shard_ids", index), text=text)
        elif shard in discord.shard_ids[:index]:
            yield Mistake(path=("discord", "shard_ids", index), text="named twice; remove one")


def _check_sandbox(tree: SettingsTree) -> Iterator[Mistake]:
    sandbox = tree.sandbox
    if sandbox.runner_url is not None:
        yield from _check_http_url(("sandbox", "runner_url"), sandbox.runner_url)
    if sandbox.backend == "runner":
        for name in ("runner_url", "runner_token"):
            if getattr(sandbox, name) is None:
                yield Mistake(path=("sandbox", name), text='missing; the backend "runner" needs it')


def _check_research(research: ResearchSettings, installed: Installed) -> Iterator[Mistake]:
    yield from _check_services(research)
    for index, host in enumerate(research.allow_hosts):
        if not _HOST_AND_PORT.fullmatch(host) or int(host.rpartition(":")[2]) > 65_535:
            text = "must be a host and a port, such as wiki.example.com:443"
            yield Mistake(path=("research", "allow_hosts", index), text=text)
    provider = research.searches_with
    if provider is None:
        text = 'say whose api_key it is: "brave" or "tavily"'
        yield Mistake(path=("research", "provider"), text=text)
    if provider == "searxng" and not research.search_url:
        text = 'missing; the provider "searxng" needs it: the address of your SearXNG'
        yield Mistake(path=("research", "search_url"), text=text)
    if provider in ("brave", "tavily") and (research.api_key is None or not research.api_key.get_secret_value()):
        yield Mistake(path=("research", "api_key"), text=f'missing; the provider "{provider}" needs it')
    unused = {"keyless": ("api_key", "search_url"), "searxng": ("api_key",)}.get(research.provider, ())
    for name in unused:
        if getattr(research, name) is not None:
            text = f'has no effect with the provider "{research.provider}"; remove it, or name another provider'
            yield Mistake(path=("research", name), text=text)
    if research.provider == "keyless" and not installed("ddgs"):
        yield _missing_extra(("research", "provider"), "research")


def _check_services(research: ResearchSettings) -> Iterator[Mistake]:
    for name in ("search_url", "arxiv_url", "semantic_scholar_url"):
        if (url := getattr(research, name)) is not None:
            yield from _check_http_url(("research", name), url)
            if _has_host(url) and "@" in urlsplit(url).netloc:
                text = "must have no user and password in it; a service that asks for them is not supported"
                yield Mistake(path=("research", name), text=text)
    for name in ("api_key", "semantic_scholar_key"):
        key = getattr(research, name)
        if key is not None and any(not "!" <= c <= "~" for c in key.get_secret_value()):
            text = "must be the key alone, without spaces, line ends and letters outside of ASCII"
            yield Mistake(path=("research", name), text=text)


def _missing_extra(path: KeyPath, extra: str) -> Mistake:
    text = f"missing extra {extra}; install it with: pip install 'hermod-bot[{extra}]'"
    return Mistake(path=path, text=text)


def _check_name(path: KeyPath, name: str, table: Mapping[str, object]) -> Iterator[Mistake]:
    if not _NAME.fullmatch(name):
        text = "a name has 1 to 63 letters, digits, _ and -, and begins with a letter or digit; rename it"
        yield Mistake(path=(*path, name), text=text)
    elif any(other != name and other.lower() == name.lower() for other in table):
        yield Mistake(path=(*path, name), text="another name differs only in its case; rename one of them")


def _check_target(path: KeyPath, target: TargetSettings, installed: Installed) -> Iterator[Mistake]:
    url = (*path, "url")
    if target.engine not in _SCHEMES or "://" not in target.url:
        yield Mistake(path=url, text="must start with postgresql://, mysql://, sqlite:/// or slowlog:///")
    elif target.engine in ("sqlite", "slowlog"):
        if not target.url.lower().startswith(f"{target.engine}:///"):
            yield Mistake(path=url, text=f"must be {target.engine}:/// and a path")
    else:
        if not _has_host(target.url) and not _has_socket(target.url):
            text = f"must be {target.engine}://user@host:port/database, with special signs of the password as %XX"
            yield Mistake(path=url, text=text)
        if target.engine == "postgresql" and not installed("psycopg"):
            yield _missing_extra(url, "postgres")


def _check_access(tree: SettingsTree) -> Iterator[Mistake]:
    access = tree.access
    for name in ("workspaces", "channels", "users", "tools"):
        entries: tuple[str, ...] = getattr(access, name)
        for index, entry in enumerate(entries):
            if not entry.strip() or any(c.isspace() for c in entry):
                yield Mistake(path=("access", name, index), text="must be an id without spaces, such as C0123ABCD")
    for channel, targets in access.channel_targets.items():
        for index, target in enumerate(targets):
            if target != "*" and target.lower() not in {name.lower() for name in tree.targets}:
                path: KeyPath = ("access", "channel_targets", channel, index)
                yield Mistake(path=path, text="no target has this name; add [targets.NAME], or mend the name")
