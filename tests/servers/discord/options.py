"""Application commands: what may be registered, and what people can then enter.

docs.discord.com/developers/interactions/application-commands#application-command-object
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from tests.servers.discord.model import ApiError, Json, bad_length, invalid

NAME = re.compile(r"[-_'\w]{1,32}")
MAX_OF_TYPE = {1: 100, 2: 15, 3: 15}
SUB, GROUP, STRING, INTEGER, BOOLEAN, USER, CHANNEL, ROLE, MENTIONABLE, NUMBER, ATTACHMENT = range(1, 12)
WITH_CHOICES = frozenset({STRING, INTEGER, NUMBER})
WIRE: dict[int, tuple[type, ...]] = {STRING: (str,), INTEGER: (int,), NUMBER: (int, float), BOOLEAN: (bool,)}
INTEGER_MAX = 2**53 - 1


# ---------------------------------------------------------------------- registering
def check_commands(commands: list[Any], where: str = "{}") -> None:
    """Refuse a set of commands as Discord does; ``where`` is the path of the n-th in errors."""
    kinds = Counter(command.get("type", 1) for command in commands)
    for kind, most in MAX_OF_TYPE.items():
        if kinds[kind] > most:
            raise ApiError(400, 30032, f"Maximum number of application commands reached ({most}).")
    named = Counter((command.get("name"), command.get("type", 1)) for command in commands)
    if any(times > 1 for times in named.values()):
        raise invalid("", "APPLICATION_COMMANDS_DUPLICATE_NAME", "Application command names must be unique")
    for n, command in enumerate(commands):
        check_command(command, where.format(n))


def check_command(command: Json, where: str) -> None:
    kind = command.get("type", 1)
    if kind not in MAX_OF_TYPE:
        raise invalid(_in(where, "type"), "BASE_TYPE_CHOICES", "Value must be one of (1, 2, 3).")
    if kind == 1:
        _check_name(_in(where, "name"), command.get("name"))
        _check_length(_in(where, "description"), command.get("description"), 1, 100)
        check_options(_in(where, "options"), command.get("options") or [], depth=0)
        if _size(command) > 8000:
            raise invalid(where, "APPLICATION_COMMAND_TOO_LARGE", "Command exceeds maximum size (8000)")
    else:
        _check_length(_in(where, "name"), command.get("name"), 1, 32)
        if command.get("description") or command.get("options"):
            raise invalid(_in(where, "description"), "APPLICATION_COMMAND_CONTEXT_MENU_DESCRIPTION_INVALID",
                          "Context menu commands cannot have a description")  # fmt: skip
    needed = command.get("default_member_permissions")
    if needed is not None and not str(needed).isdigit():
        raise invalid(_in(where, "default_member_permissions"), "NUMBER_TYPE_COERCE", "Value is not a bit set.")


def check_options(where: str, options: list[Json], *, depth: int) -> None:
    if len(options) > 25:
        raise invalid(where, "BASE_TYPE_MAX_LENGTH", "Must be 25 or fewer in length.")
    names = [option.get("name") for option in options]
    if len(names) != len(set(names)):
        raise invalid(where, "APPLICATION_COMMAND_OPTIONS_NAME_ALREADY_EXISTS", "Option names must be unique")
    nested = [option for option in options if option.get("type") in (SUB, GROUP)]
    if nested and len(nested) < len(options):
        raise invalid(where, "APPLICATION_COMMAND_OPTIONS_TYPE_INVALID", "Sub-command and options cannot be mixed")
    optional = False
    for n, option in enumerate(options):
        if option.get("required") and optional:
            raise invalid(f"{where}.{n}", "APPLICATION_COMMAND_OPTIONS_REQUIRED_INVALID",
                          "Required options must be placed before non-required options")  # fmt: skip
        optional = optional or not option.get("required")
        _check_option(f"{where}.{n}", option, depth)


def _check_option(where: str, option: Json, depth: int) -> None:
    kind = option.get("type")
    if kind not in range(SUB, ATTACHMENT + 1):
        raise invalid(f"{where}.type", "BASE_TYPE_CHOICES", "Value must be one of (1, ..., 11).")
    _check_name(f"{where}.name", option.get("name"))
    _check_length(f"{where}.description", option.get("description"), 1, 100)
    if kind in (SUB, GROUP):
        if depth >= (1 if kind == GROUP else 2):
            raise invalid(where, "APPLICATION_COMMAND_OPTIONS_TYPE_INVALID", "Sub-commands are nested too deep")
        children = option.get("options") or []
        if kind == GROUP and any(child.get("type") != SUB for child in children):
            raise invalid(where, "APPLICATION_COMMAND_OPTIONS_TYPE_INVALID", "A group holds sub-commands only")
        check_options(f"{where}.options", children, depth=2 if kind == SUB else 1)
        return
    choices = option.get("choices") or []
    if choices and option.get("autocomplete"):
        raise invalid(where, "APPLICATION_COMMAND_OPTIONS_AUTOCOMPLETE_CHOICES", "Choices exclude autocomplete")
    if (choices or option.get("autocomplete")) and kind not in WITH_CHOICES:
        raise invalid(where, "APPLICATION_COMMAND_OPTIONS_CHOICES_INVALID", "This type of option has no choices")
    check_choices(f"{where}.choices", choices, int(kind or 0))
    for key, low, high in (("min_length", 0, 6000), ("max_length", 1, 6000)):
        if (value := option.get(key)) is not None and not low <= int(value) <= high:
            raise invalid(f"{where}.{key}", "NUMBER_TYPE_MAX", f"int value should be between {low} and {high}.")


def check_choices(where: str, choices: object, kind: int) -> None:
    """At most 25, names of 1-100 characters, values of the option's type; of autocomplete too."""
    if not isinstance(choices, list) or len(choices) > 25:
        raise invalid(where, "BASE_TYPE_MAX_LENGTH", "Must be 25 or fewer in length.")
    for n, choice in enumerate(choices):
        _check_length(f"{where}.{n}.name", choice.get("name"), 1, 100)
        value = choice.get("value")
        if not isinstance(value, WIRE.get(kind, (str, int, float))) or isinstance(value, bool):
            raise invalid(f"{where}.{n}.value", "BASE_TYPE_BAD_TYPE", "The value is not of the option's type.")
        if isinstance(value, str):
            _check_length(f"{where}.{n}.value", value, 1, 100)
    names = [choice["name"] for choice in choices]
    if len(names) != len(set(names)):
        raise invalid(where, "APPLICATION_COMMAND_OPTIONS_CHOICE_NAME_EXISTS", "Choice names must be unique")


def _in(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _check_name(where: str, name: object) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name) or name != name.lower():
        raise invalid(where, "APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid")


def _check_length(where: str, text: object, low: int, high: int) -> None:
    if not isinstance(text, str) or not low <= len(text) <= high:
        raise bad_length(where, low, high)


def _size(node: Json) -> int:
    """The characters of names, descriptions and values, through all options and choices."""
    own = sum(len(str(node.get(key) or "")) for key in ("name", "description"))
    choices = sum(len(str(c.get("name") or "")) + len(str(c.get("value") or "")) for c in node.get("choices") or [])
    return own + choices + sum(_size(option) for option in node.get("options") or [])


# ---------------------------------------------------------------------- entering
def find_leaf(command: Json, path: list[str]) -> tuple[Json, list[Json]]:
    """The (sub-)command at a path, and the options on the way to it; raises LookupError."""
    leaf, nest = command, []
    for step in path:
        leaf = next((o for o in leaf.get("options") or [] if o["name"] == step and o["type"] in (SUB, GROUP)), {})
        if not leaf:
            raise LookupError(f"/{command['name']} has no sub-command {step!r}")
        nest.append(leaf)
    if any(option["type"] in (SUB, GROUP) for option in leaf.get("options") or []):
        raise LookupError(f"/{command['name']} {' '.join(path)} needs a sub-command")
    return leaf, nest


def check_entry(option: Json, value: object) -> None:
    """Raise LookupError where Discord's client would not let a person send this value."""
    kind, name = option["type"], option["name"]
    wanted = WIRE.get(kind, (str,))
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind != BOOLEAN):
        raise LookupError(f"option {name}: {value!r} is not of its type")
    choices = option.get("choices") or []
    if choices and value not in [choice["value"] for choice in choices]:
        raise LookupError(f"option {name}: {value!r} is none of its choices")
    if isinstance(value, str) and kind == STRING:
        if not option.get("min_length", 0) <= len(value) <= option.get("max_length", 6000):
            raise LookupError(f"option {name}: the length of {value[:30]!r} is out of bounds")
    elif isinstance(value, int | float) and kind in (INTEGER, NUMBER):
        low, high = option.get("min_value", -INTEGER_MAX), option.get("max_value", INTEGER_MAX)
        if not low <= value <= high:
            raise LookupError(f"option {name}: {value!r} is out of bounds")
