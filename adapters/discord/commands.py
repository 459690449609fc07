"""The commands that Discord shows: built from the offers within Discord's limits, and sent only when they changed.

docs.discord.com/developers/interactions/application-commands (structure, limits, bulk overwrite). Discord allows 200
new commands a day and server, and a bot that sends them with every connection is shut out soon; so what is registered
is read first, and compared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import structlog
from discord.http import Route

from adapters.commands import MOST_CHOICES, CommandOffer, CommandOption
from adapters.discord.calls import DiscordCalls
from adapters.discord.outcome import NO_ACCESS, Failed
from adapters.discord.permissions import build_invite_url
from adapters.discord.wire import Wire, id_of, number_of, parts_of, text_of, wire_of

log = structlog.get_logger("hermod.discord")

MOST_COMMANDS = 100
MOST_OPTIONS = 25
MOST_GUILDS = 100
SUMMARY_MAX = 100
CHOICE_MAX = 100
WHOLE_MAX = 8_000
"""Characters of a command's names, summaries and choices together."""

TEXT_MAX = 6_000
NUMBER_MAX = 2**53

PATIENCE_S = 30.0
"""How long one call waits for its turn, also when Discord asks to wait; after that the next start tries again."""

KIND = "commands"
"""The lane of these calls, one for each server and one for everywhere."""

_NAME = re.compile(r"[-_\w]{1,32}")
_CHAT_INPUT, _ENTRY_POINT = 1, 4
_KINDS: Mapping[str, int] = {"text": 3, "integer": 4, "boolean": 5, "number": 10}


def build_commands(offers: Sequence[CommandOffer]) -> tuple[Wire, ...]:
    """Build Discord's JSON of the offers. What Discord would refuse is left out and told, so that the rest works."""
    built: dict[str, Wire] = {}
    for offer in offers:
        if not _is_name(offer.name) or offer.name in built or len(built) == MOST_COMMANDS:
            log.warning("discord_command_left_out", command=offer.name)
            continue
        built[offer.name] = _fit(_build_command(offer))
    return tuple(built.values())


def hash_commands(commands: Sequence[Wire]) -> str:
    """Hash what people see of commands: the same for what was sent and for what Discord makes of it."""
    seen = sorted((_see_command(command) for command in commands), key=lambda command: str(command["name"]))
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()


async def sync_commands(
    calls: DiscordCalls, offers: Sequence[CommandOffer], guild_ids: Collection[str] = (), *, application_id: str = ""
) -> bool:
    """Let Discord show exactly these commands: everywhere, or only in some servers.

    To be called once in a process, not for every connection. Everything is replaced in one call, so no command is
    missing in between. When commands are shown everywhere for the first time, those that servers have of their own go
    (they were the only ones while ``guild_ids`` was set).

    Args:
        calls: the REST API, with a token; the same that posts go through, since Discord counts all of them together.
        offers: the commands.
        guild_ids: show them in these servers only, and nowhere else, so that none is shown twice; there a change is
            seen at once.
        application_id: whose commands; asked for when it is empty.

    Returns:
        True when all is as wanted. What Discord refuses is one line in the log each, and hinders nothing else.
    """
    commands = build_commands(offers)
    if not application_id:
        told = await _call(calls, Route("GET", "/applications/@me"))
        if isinstance(told, Failed):
            log.error("discord_commands_not_synced", reason=told.said, fix="they are tried again at the next start")
            return False
        application_id = id_of(wire_of(told), "id")
    wanted: dict[str, tuple[Wire, ...]] = {"": () if guild_ids else commands} | dict.fromkeys(guild_ids, commands)
    done = [await _sync_scope(calls, application_id, guild, scope) for guild, scope in wanted.items()]
    if not guild_ids and done == ["first"]:
        joined = await _call(calls, Route("GET", "/users/@me/guilds"))
        for guild in joined[:MOST_GUILDS] if isinstance(joined, list) else ():
            await _sync_scope(calls, application_id, id_of(wire_of(guild), "id"), ())
    return "failed" not in done


async def _sync_scope(
    calls: DiscordCalls, application_id: str, guild_id: str, commands: Sequence[Wire]
) -> Literal["same", "first", "changed", "failed"]:
    """Let one server, or all of them (``guild_id`` empty), have these commands. ``first``: there were none before."""
    path = "/applications/{application_id}" + ("/guilds/{guild_id}" if guild_id else "") + "/commands"
    ids = {"application_id": application_id} | ({"guild_id": guild_id} if guild_id else {})
    place = guild_id or application_id
    registered = await _call(calls, Route("GET", path, **ids), place)
    others: list[Wire] = []
    if not isinstance(registered, Failed):
        there = [wire_of(command) for command in registered] if isinstance(registered, list) else []
        # the button that opens an app's activity cannot be removed in this way, and is none of our commands
        kept = [command for command in there if command.get("type") == _ENTRY_POINT]
        others = [command for command in there if command.get("type") != _ENTRY_POINT]
        if hash_commands(others) == hash_commands(commands):
            return "same"
        registered = await _call(calls, Route("PUT", path, **ids), place, body=[*kept, *commands])
    if isinstance(registered, Failed):
        log.error("discord_commands_not_synced", guild=guild_id, reason=registered.said, fix=_fix(registered, ids))
        return "failed"
    log.info("discord_commands_synced", guild=guild_id, commands=[text_of(command, "name") for command in commands])
    return "changed" if others else "first"


async def _call(calls: DiscordCalls, route: Route, place: str = "@me", *, body: object = None) -> object | Failed:
    """Make one call, behind the answers that wait. What replaces all may be made twice."""
    answer = await calls.call(route, KIND, place, body=body, priority=1, patience_s=PATIENCE_S)
    return answer if isinstance(answer, Failed) else answer.data


def _fix(failed: Failed, ids: Mapping[str, str]) -> str:
    if failed.code == NO_ACCESS:
        url = build_invite_url(ids["application_id"], ids.get("guild_id", ""))
        return f"add Hermod to the server, with the scope applications.commands: {url}"
    return "what was registered before stays; it is tried again at the next start"


# -- building --------------------------------------------------------------------------------------


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name == name.lower()


def _build_command(offer: CommandOffer) -> Wire:
    options = list({option.name: option for option in offer.options if _is_name(option.name)}.values())
    options.sort(key=lambda option: not option.required)
    if len(options) != len(offer.options) or len(options) > MOST_OPTIONS:
        log.warning("discord_options_left_out", command=offer.name)
    return {
        "type": _CHAT_INPUT,
        "name": offer.name,
        "description": _summary(offer.summary, offer.name),
        "options": [_build_option(option) for option in options[:MOST_OPTIONS]],
    }


def _build_option(option: CommandOption) -> Wire:
    wire: dict[str, object] = {
        "type": _KINDS[option.kind],
        "name": option.name,
        "description": _summary(option.summary, option.name),
        "required": option.required,
    }
    fitting = [choice for choice in dict.fromkeys(option.choices) if 0 < len(choice) <= CHOICE_MAX]
    if (listed := fitting[:MOST_CHOICES]) and option.kind != "boolean":
        wire["choices"] = [{"name": choice, "value": _value(option, choice)} for choice in listed]
    elif option.completes and option.kind == "text":
        wire["autocomplete"] = True
    if "choices" not in wire:
        wire |= _build_bounds(option)
    return wire


def _build_bounds(option: CommandOption) -> Wire:
    low, high = option.minimum, option.maximum
    bounds: dict[str, object] = {}
    if option.kind == "text":
        if low is not None and low > 0:
            bounds["min_length"] = min(int(low), TEXT_MAX)
        if high is not None:
            bounds["max_length"] = max(1, min(int(high), TEXT_MAX))
    elif option.kind in ("integer", "number"):
        for name, bound in (("min_value", low), ("max_value", high)):
            if bound is not None and abs(bound) <= NUMBER_MAX:
                bounds[name] = int(bound) if option.kind == "integer" else float(bound)
    return bounds


def _value(option: CommandOption, choice: str) -> object:
    try:
        return int(choice) if option.kind == "integer" else float(choice) if option.kind == "number" else choice
    except ValueError:
        return choice


def _summary(text: str, name: str) -> str:
    shown = " ".join(text.split()) or name
    return shown if len(shown) <= SUMMARY_MAX else f"{shown[: SUMMARY_MAX - 1]}…"


def _fit(command: Wire) -> Wire:
    """Take choices from the options with the most of them, until the whole command is short enough."""
    while _count(command) > WHOLE_MAX:
        options = list(parts_of(command, "options"))
        longest = max(range(len(options)), key=lambda n: _count(options[n]))
        kept = {name: value for name, value in options[longest].items() if name != "choices"}
        if kept == options[longest]:
            break  # 26 names and summaries of full length are below the limit
        options[longest] = kept
        command = {**command, "options": options}
    return command


def _count(wire: Wire) -> int:
    """Count the characters of names, descriptions and values, as Discord does."""
    own = sum(len(str(wire.get(name, ""))) for name in ("name", "description", "value"))
    return own + sum(_count(part) for name in ("options", "choices") for part in parts_of(wire, name))


# -- comparing -------------------------------------------------------------------------------------


def _see_command(command: Wire) -> Wire:
    return {
        "type": number_of(command, "type") or _CHAT_INPUT,
        "name": text_of(command, "name"),
        "description": text_of(command, "description"),
        "options": [_see_option(option) for option in parts_of(command, "options")],
    }


def _see_option(option: Wire) -> Wire:
    choices = [[text_of(choice, "name"), _see_number(choice.get("value"))] for choice in parts_of(option, "choices")]
    return {
        "type": number_of(option, "type"),
        "name": text_of(option, "name"),
        "description": text_of(option, "description"),
        "required": option.get("required") is True,
        "autocomplete": option.get("autocomplete") is True,
        "choices": choices,
        "options": [_see_option(below) for below in parts_of(option, "options")],
        "bounds": [_see_number(option.get(name)) for name in ("min_value", "max_value", "min_length", "max_length")],
    }


def _see_number(value: object) -> object:
    """Read 1 and 1.0 as the same: which of them JSON has says nothing."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
