"""What must hold of ``[reports]``, so that a job that cannot run stops the start and not the night."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from agent_core.errors import ConfigError
from bot.settings_sources import KeyPath, Mistake, suggest
from bot.settings_tree import AccessSettings, ReportSettings, SettingsTree

FORMS = {"slack": "slack:TEAM/CHANNEL", "discord": "discord:GUILD/CHANNEL"}
"""How the address of a channel is written in full."""

_SHORT = {"slack": re.compile(r"[CDG][A-Z0-9]+"), "discord": re.compile(r"[0-9]+")}
_WORKSPACE = {"slack": re.compile(r"[TE][A-Z0-9]+"), "discord": re.compile(r"[0-9]+")}
_EXAMPLES = {
    "slack": "slack:T0123ABCD/C0123ABCD (ids, not names; at the end of a channel's details in Slack)",
    "discord": "discord:1100000000000000001/1200000000000000002 (ids; developer mode, then Copy Channel ID)",
}


def check_reports(tree: SettingsTree, workers: frozenset[str]) -> Iterator[Mistake]:
    """Yield every mistake of ``[reports]``; ``workers`` are the built-in ones."""
    if not tree.reports:
        return
    named = {report.template for report in tree.reports.values() if report.template}
    templates, broken = _list_templates(tree) if named else ((), "")
    if broken:
        yield Mistake(path=("prompts", "folder"), text=broken)
    for name, report in tree.reports.items():
        path: KeyPath = ("reports", name)
        yield from _check_times(path, report)
        yield from _check_channel((*path, "channel"), report.channel, tree)
        yield from _check_known(path, "workers", report.workers, sorted({*workers, *tree.workers}), "worker")
        yield from _check_known(path, "targets", report.targets, sorted(tree.targets), "target")
        if report.template and not broken and report.template not in templates:
            text = f"there is no such template; {_name(report.template, templates)}"
            yield Mistake(path=(*path, "template"), text=text)


def find_named_workspace(tree: SettingsTree, platform: str) -> str | None:
    """Return the workspace of a platform that the settings themselves name; None where that is none, or several."""
    if platform == "discord" and tree.discord is not None and len(tree.discord.guild_ids) == 1:
        return tree.discord.guild_ids[0]
    named = _list_allowed(tree.access, platform)
    return named[0] if len(named) == 1 else None


def _list_allowed(access: AccessSettings, platform: str) -> tuple[str, ...]:
    found: list[str] = []
    for entry in access.workspaces:
        there, _, name = entry.rpartition(":")
        # an entry without its platform tells it by its form: a guild's id is a number, a team's is not
        if there.lower() == platform or (not there and name.isdigit() == (platform == "discord")):
            found.append(name)
    return tuple(dict.fromkeys(found))


def _check_times(path: KeyPath, report: ReportSettings) -> Iterator[Mistake]:
    from bot.jobs.calendar import BadSchedule, parse_schedule

    now = datetime.now(UTC)
    for key, cron, zone in (("cron", report.cron, "UTC"), ("timezone", "0 9 * * *", report.timezone)):
        try:
            parse_schedule(cron, zone, now=now)
        except BadSchedule as e:
            # no line about the settings repeats what somebody configured
            text = str(e).replace(f" {report.cron!r}", "").replace(f" {report.timezone[:60]!r}", " of this name")
            yield Mistake(path=(*path, key), text=text)


def _check_channel(path: KeyPath, channel: str, tree: SettingsTree) -> Iterator[Mistake]:
    platform, _, rest = channel.partition(":")
    if platform not in FORMS:
        yield Mistake(path=path, text=f"must begin with its platform, as in {_EXAMPLES['slack']}")
        return
    workspace, slash, short = rest.rpartition("/")
    if not _SHORT[platform].fullmatch(short) or (slash and not _WORKSPACE[platform].fullmatch(workspace)):
        yield Mistake(path=path, text=f"not the address of a channel; write it as in {_EXAMPLES[platform]}")
    elif getattr(tree, platform) is None:
        text = f"{platform} is not configured; add [{platform}], or name a channel of another platform"
        yield Mistake(path=path, text=text)
    elif not slash and not _has_one_workspace(tree, platform):
        text = f"{platform} may have several workspaces here; write {FORMS[platform]}"
        yield Mistake(path=path, text=text)


def _has_one_workspace(tree: SettingsTree, platform: str) -> bool:
    # a bot token is that of one workspace, which Slack names
    one_token = platform == "slack" and tree.slack is not None and tree.slack.client_id is None
    return one_token or find_named_workspace(tree, platform) is not None


def _check_known(path: KeyPath, key: str, names: tuple[str, ...], known: list[str], kind: str) -> Iterator[Mistake]:
    folded = {name.lower() for name in known}
    for index, name in enumerate(names):
        if name.lower() not in folded:
            yield Mistake(path=(*path, key, index), text=f"there is no such {kind}; {_name(name, known)}")


def _name(name: str, known: list[str] | tuple[str, ...]) -> str:
    if not known:
        return "none is configured"
    near = suggest(name, list(known))
    return f"there are {', '.join(sorted(known))}{'; ' + near if near else ''}"


def _list_templates(tree: SettingsTree) -> tuple[tuple[str, ...], str]:
    """The names of the report templates, or what is wrong with one of them."""
    from bot.jobs.templates import load_report_templates

    folder = None if tree.prompts.folder is None else Path(tree.prompts.folder).expanduser()
    try:
        return tuple(load_report_templates(folder)), ""
    except ConfigError as e:
        return (), str(e)
