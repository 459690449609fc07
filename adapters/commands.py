"""Commands that a platform can show with typed options: values that ``bot.offers`` makes of the registered tools.

What a person filled in becomes one text, as if it had been typed, so that every platform's commands are read by the
same reader (``bot.commands``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from adapters.chat import Author, ThreadRef

MOST_CHOICES = 25
"""Of an option, and suggestions at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOption:
    """One option of a command.

    Args:
        name: letters, digits, ``_``; at most 32.
        summary: what it is for, in a few words.
        kind: how a person fills it in.
        required: it has to be filled in; such options come first.
        choices: the only values, at most 25; empty: any.
        completes: suggestions for what was typed so far (``Complete``); empty: none.
        minimum, maximum: bounds of a number, or of a text's length.
    """

    name: str
    summary: str
    kind: Literal["text", "integer", "number", "boolean"] = "text"
    required: bool = False
    choices: tuple[str, ...] = ()
    completes: str = ""
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOffer:
    """A command as a platform shows it.

    Args:
        name: without a slash, lower case, at most 32.
        summary: one sentence.
        options: in the order in which they are shown.
        plain: the options' values are put one behind the other, without names and quotes (a question, a free text).
        private: only the one who gives it sees the answer.
    """

    name: str
    summary: str
    options: tuple[CommandOption, ...] = ()
    plain: bool = False
    private: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Completing:
    """Somebody types a value: what it is of (``CommandOption.completes``), what stands there so far, who and where."""

    completes: str
    typed: str
    thread: ThreadRef
    author: Author


Complete = Callable[[Completing], Sequence[str]]
"""Returns at most ``MOST_CHOICES`` suggestions that this person may see, from memory, at once."""


@runtime_checkable
class HasCommands(Protocol):
    """An adapter whose platform is told which commands there are."""

    def offer_commands(self, offers: Sequence[CommandOffer], complete: Complete) -> None:
        """Show these commands from the next ``start`` on."""
        ...


def write_text(offer: CommandOffer, values: Mapping[str, object]) -> str:
    """Write what was filled in as the text behind a command, ``limit=5 target="shop"``.

    What is no ``plain`` offer is read back exactly by ``bot.arguments``; numbers keep all their digits.

    Args:
        offer: the command.
        values: by the option's name; missing ones were left out.
    """
    given = [(option.name, values[option.name]) for option in offer.options if option.name in values]
    if offer.plain:
        return " ".join(_plain(value) for _, value in given)
    return " ".join(f"{name}={_quote(value)}" for name, value in given)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _quote(value: object) -> str:
    if not isinstance(value, str):
        return _plain(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
