"""Buttons under a message. Their custom ids hold a name and an opaque id, so they work after a restart too.

Limits: discord.com/developers/docs/components/reference (custom id 1 to 100 characters, unique in a message; label 80;
five buttons a row, five rows).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from adapters.chat import Button, Reply
from adapters.discord.payload import Wire

CUSTOM_ID_MAX = 100
LABEL_MAX = 80
ROW_MAX, ROWS_MAX = 5, 5

FEEDBACK = "feedback"
"""Name of the thumbs; their value is the reply's ``feedback``, a slash, and ``up`` or ``down``."""

STOP = "stop"
"""Name of the button that ends the run of the thread in which it is pressed; it has no value,
and a button of this name that has one is another button."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
_ROW, _BUTTON = 1, 2  # component types
_STYLES: Mapping[str, int] = {"primary": 1, "": 2, "danger": 4}


def build_custom_id(name: str, value: str) -> str:
    """Write a button's name and value as one custom id, ``name:value``.

    Raises:
        ValueError: the name is no word of at most 31 letters, or both together are longer than 100 characters.
    """
    custom_id = f"{name}:{value}"
    if not _NAME.fullmatch(name):
        raise ValueError(f"not a name for a button: {name!r} (lower-case letters, digits, - and _, at most 31)")
    if len(custom_id.encode("utf-16-le")) // 2 > CUSTOM_ID_MAX:
        raise ValueError(f"the value of button {name!r} is too long: Discord takes {CUSTOM_ID_MAX} characters in all")
    return custom_id


def parse_custom_id(text: str) -> tuple[str, str] | None:
    """Read what ``build_custom_id`` wrote: the name and the value; None for anything else."""
    name, colon, value = text.partition(":")
    return (name, value) if colon and _NAME.fullmatch(name) and len(text) <= CUSTOM_ID_MAX else None


def build_buttons(reply: Reply) -> tuple[Wire, ...]:
    """Build the rows under a reply: its buttons, then thumbs up and down.

    What Discord has no room for is left out, the same button twice is shown once.
    """
    thumbs = list(_thumbs(reply.feedback)) if reply.feedback else []
    room = ROW_MAX * (ROWS_MAX - bool(thumbs))
    unique: dict[str, Button] = {}
    for button in reply.buttons:
        unique.setdefault(build_custom_id(button.name, button.value), button)
    buttons = [_button(custom_id, button) for custom_id, button in unique.items()][:room]
    rows = [buttons[n : n + ROW_MAX] for n in range(0, len(buttons), ROW_MAX)]
    return tuple(_row(row) for row in (*rows, thumbs) if row)


def build_stop() -> tuple[Wire, ...]:
    """Build the row that stands under an answer while it is written."""
    button = {"type": _BUTTON, "style": _STYLES[""], "label": "Stop", "custom_id": build_custom_id(STOP, "")}
    return (_row([button]),)


def has_stop(message: Mapping[str, object]) -> bool:
    """True for a message of Discord's JSON that bears the stop button: an answer of ours that is not finished."""
    return any(parse_custom_id(custom_id) == (STOP, "") for custom_id in _custom_ids(message.get("components")))


def _custom_ids(components: object) -> Iterator[str]:
    for component in components if isinstance(components, Sequence) and not isinstance(components, str) else ():
        if isinstance(component, Mapping):
            custom_id = component.get("custom_id")
            if isinstance(custom_id, str):
                yield custom_id
            yield from _custom_ids(component.get("components"))


def _row(buttons: Sequence[Wire]) -> Wire:
    return {"type": _ROW, "components": list(buttons)}


def _button(custom_id: str, button: Button) -> Wire:
    label = " ".join(button.label.split())[:LABEL_MAX] or button.name
    return {"type": _BUTTON, "style": _STYLES[button.style], "label": label, "custom_id": custom_id}


def _thumbs(feedback: str) -> Iterator[Wire]:
    for sign, answer in (("\U0001f44d", "up"), ("\U0001f44e", "down")):
        custom_id = build_custom_id(FEEDBACK, f"{feedback}/{answer}")
        yield {"type": _BUTTON, "style": _STYLES[""], "emoji": {"name": sign}, "custom_id": custom_id}
