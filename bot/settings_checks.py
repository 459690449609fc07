"""What must hold across keys, and what this release does not have yet.

Each check yields ``Mistake`` values for a tree whose single values are already right.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import parse_qsl, urlsplit

from bot.settings_sources import KeyPath, Mistake
from bot.settings_tree import ModelSettings, SettingsTree, TargetSettings

Installed = Callable[[str], bool]
"""Tells whether an import name is installed."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_SCHEMES = ("postgresql", "mysql", "sqlite", "slowlog")


def check_tree(tree: SettingsTree, environ: Mapping[str, str], installed: Installed) -> Iterator[Mistake]:
    """Yield every mistake that single keys cannot show."""
    yield from _check_storage(tree)
    yield from _check_models(tree, environ)
    yield from _check_slack(tree, installed)
    if tree.discord is not None:
        yield Mistake(path=("discord",), text="this release has no Discord adapter yet; remove the table")
    for name, target in tree.targets.items():
        yield from _check_name(("targets",), name, tree.targets)
        yield from _check_target(("targets", name), target, installed)
    yield from _check_access(tree)
    yield from _check_reports(tree)
    for index, module in enumerate(tree.tools.modules):
        if not _MODULE.fullmatch(module):
            text = "not the name of a Python module; write it as in an import, such as my_ops.tools"
            yield Mistake(path=("tools", "modules", index), text=text)


def _check_storage(tree: SettingsTree) -> Iterator[Mistake]:
    url, path = tree.storage.url, ("storage", "url")
    if url.startswith(("postgresql:", "postgres:")):
        text = "Hermod's own rows cannot be kept in Postgres in this release; use sqlite:///hermod.db"
        yield Mistake(path=path, text=text)
    elif not url.startswith("sqlite:///") or url in ("sqlite:///", "sqlite:////"):
        yield Mistake(path=path, text="must name an SQLite file, such as sqlite:///hermod.db")


def _check_models(tree: SettingsTree, environ: Mapping[str, str]) -> Iterator[Mistake]:
    names: set[str] = set()
    for index, model in enumerate(tree.models):
        path: KeyPath = ("models", index)
        yield from _check_model(path, model, environ)
        name = model.name or model.model or model.kind
        if name in names:
            yield Mistake(path=(*path, "name"), text="another model has this name; give each its own")
        names.add(name)


def _check_model(path: KeyPath, model: ModelSettings, environ: Mapping[str, str]) -> Iterator[Mistake]:
    if model.kind == "anthropic":
        text = "the kind anthropic is not in this release yet; use openai with the base_url of a compatible endpoint"
        yield Mistake(path=(*path, "kind"), text=text)
    given, made = model.input_usd_per_mtok, model.output_usd_per_mtok
    if (given is None) != (made is None):
        missing = "input_usd_per_mtok" if given is None else "output_usd_per_mtok"
        yield Mistake(path=(*path, missing), text="missing; a price needs both, for input and for output tokens")
    if model.kind != "openai":
        return
    if not model.model:
        yield Mistake(path=(*path, "model"), text="missing; set the vendor's name of the model, such as gpt-4o-mini")
    if model.base_url is not None:
        yield from _check_http_url((*path, "base_url"), model.base_url)
    elif model.api_key is None and not environ.get("OPENAI_API_KEY"):
        text = "missing; set api_key, api_key_env or api_key_file (only an endpoint with a base_url may do without)"
        yield Mistake(path=(*path, "api_key"), text=text)


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
    if slack.mode == "http":
        yield Mistake(path=("slack", "mode"), text='this release speaks Socket Mode only; set "socket"')
    yield from _check_http_url(("slack", "api_url"), slack.api_url)
    for name, prefix, other in (("bot_token", "xoxb-", "xapp-"), ("app_token", "xapp-", "xoxb-")):
        token = slack.bot_token if name == "bot_token" else slack.app_token
        if token is None:
            yield Mistake(path=("slack", name), text=f"missing; set {name}, {name}_env or {name}_file ({prefix}...)")
        elif token.get_secret_value().startswith(other):
            text = f"holds a token that starts with {other}; a {name} starts with {prefix}"
            yield Mistake(path=("slack", name), text=text)


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


def _check_reports(tree: SettingsTree) -> Iterator[Mistake]:
    for name, report in tree.reports.items():
        yield from _check_name(("reports",), name, tree.reports)
        if len(report.cron.split()) != 5:
            yield Mistake(path=("reports", name, "cron"), text='must have five fields, such as "0 9 * * 1-5"')
        try:
            zoneinfo.ZoneInfo(report.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            text = "no such time zone; use a name such as Europe/Berlin or UTC"
            yield Mistake(path=("reports", name, "timezone"), text=text)
        if not report.channel.startswith(("slack:", "discord:")):
            text = "must be an address such as slack:C0123ABCD or slack:T0123/C0123ABCD"
            yield Mistake(path=("reports", name, "channel"), text=text)
