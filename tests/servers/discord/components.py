"""What buttons, selects, embeds and modals must be like to be taken.

docs.discord.com/developers/components/reference and docs.discord.com/developers/resources/message#embed-object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.servers.discord.model import Json, bad_length, invalid, too_long

ROW, BUTTON, STRING_SELECT, TEXT_INPUT, SECTION, TEXT_DISPLAY = 1, 2, 3, 4, 9, 10
SELECTS = frozenset({3, 5, 6, 7, 8})
LINK, PREMIUM = 5, 6
TOP_V2 = frozenset({ROW, SECTION, TEXT_DISPLAY, 12, 13, 14, 17})
URL = re.compile(r"(https?|discord)://\S+")

#: docs.discord.com/developers/resources/message#embed-object-embed-limits
EMBED_FIELDS = {"title": 256, "description": 4096}


def flatten(tree: list[Any]) -> Iterator[Json]:
    """Every component of a tree, parents first."""
    for node in tree:
        if isinstance(node, dict):
            yield node
            yield from flatten(node.get("components") or [])
            if isinstance(accessory := node.get("accessory"), dict):
                yield accessory


def texts_of(tree: list[Any]) -> Iterator[str]:
    """The texts in which mentions count: docs.discord.com/developers/components/reference#text-display."""
    for node in flatten(tree):
        if node.get("type") == TEXT_DISPLAY:
            yield str(node.get("content") or "")


def check_components(rows: object, *, v2: bool) -> None:
    """Refuse what Discord refuses of a message's ``components``."""
    if not isinstance(rows, list):
        raise invalid("components", "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
    every = list(flatten(rows))
    if v2:
        if len(every) > 40:
            raise invalid("components", "COMPONENT_MAX_TOTAL_COMPONENTS_EXCEEDED", "Too many components (max 40)")
        if sum(len(text) for text in texts_of(rows)) > 4000:
            raise invalid("components", "COMPONENT_DISPLAYABLE_TEXT_SIZE_EXCEEDED", "Text exceeds maximum size of 4000")
    elif len(rows) > 5:
        raise bad_length("components", 1, 5)
    for n, row in enumerate(rows):
        if not isinstance(row, dict) or row.get("type") not in (TOP_V2 if v2 else {ROW}):
            raise invalid(f"components.{n}.type", "UNION_TYPE_CHOICES", "Value of field 'type' must be one of (1,).")
        if row.get("type") == ROW:
            _check_row(f"components.{n}", row)
    ids = [node["custom_id"] for node in every if "custom_id" in node]
    if len(ids) != len(set(ids)):
        raise invalid("components", "COMPONENT_CUSTOM_ID_DUPLICATED", "Component custom id cannot be duplicated")


def _check_row(where: str, row: Json) -> None:
    parts = row.get("components") or []
    if not 1 <= len(parts) <= 5:
        raise bad_length(f"{where}.components", 1, 5)
    kinds = {part.get("type") for part in parts}
    if kinds & SELECTS and len(parts) > 1:
        raise invalid(where, "COMPONENT_LAYOUT_WIDTH_EXCEEDED", "The specified component exceeds the maximum width")
    for n, part in enumerate(parts):
        if part.get("type") == BUTTON:
            _check_button(f"{where}.components.{n}", part)
        elif part.get("type") in SELECTS:
            _check_select(f"{where}.components.{n}", part)
        else:
            raise invalid(f"{where}.components.{n}.type", "UNION_TYPE_CHOICES", "Not a component of an action row.")


def _check_custom_id(where: str, part: Json) -> None:
    custom_id = part.get("custom_id")
    if not isinstance(custom_id, str):
        raise invalid(f"{where}.custom_id", "COMPONENT_CUSTOM_ID_REQUIRED", "A custom id is required")
    if not 1 <= len(custom_id) <= 100:
        raise bad_length(f"{where}.custom_id", 1, 100)


def _check_button(where: str, button: Json) -> None:
    style = button.get("style")
    if style not in range(1, 7):
        raise invalid(f"{where}.style", "BASE_TYPE_CHOICES", "Value must be one of (1, 2, 3, 4, 5, 6).")
    if len(str(button.get("label") or "")) > 80:
        raise too_long(f"{where}.label", 80)
    if style == LINK:
        if "custom_id" in button and button["custom_id"] is not None:
            raise invalid(where, "COMPONENT_CUSTOM_ID_AND_URL", "A custom id and url cannot both be specified")
        if not URL.match(url := str(button.get("url") or "")):
            raise invalid(f"{where}.url", "BUTTON_COMPONENT_INVALID_URL", "A url is required")
        if len(url) > 512:
            raise too_long(f"{where}.url", 512)
        return
    if style == PREMIUM:
        raise invalid(f"{where}.sku_id", "BASE_TYPE_REQUIRED", "This field is required")
    if button.get("url"):
        raise invalid(where, "COMPONENT_CUSTOM_ID_AND_URL", "A custom id and url cannot both be specified")
    _check_custom_id(where, button)
    if not button.get("label") and not button.get("emoji"):
        raise invalid(where, "BUTTON_COMPONENT_INVALID_CONTENT", "A button must have a label or an emoji")


def _check_select(where: str, select: Json) -> None:
    _check_custom_id(where, select)
    if len(str(select.get("placeholder") or "")) > 150:
        raise too_long(f"{where}.placeholder", 150)
    if select["type"] != STRING_SELECT:
        return
    options = select.get("options") or []
    if not 1 <= len(options) <= 25:
        raise bad_length(f"{where}.options", 1, 25)
    for n, option in enumerate(options):
        for key, low in (("label", 1), ("value", 1), ("description", 0)):
            if not low <= len(str(option.get(key) or "")) <= 100:
                raise bad_length(f"{where}.options.{n}.{key}", low, 100)
    values = [option["value"] for option in options]
    if len(values) != len(set(values)):
        raise invalid(
            f"{where}.options", "SELECT_COMPONENT_OPTION_VALUE_DUPLICATED", "The specified option value exists"
        )


def check_embeds(embeds: object) -> None:
    """Refuse more than ten embeds, 6,000 characters over all of them, and fields that are too long."""
    if not isinstance(embeds, list):
        raise invalid("embeds", "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
    if len(embeds) > 10:
        raise too_long("embeds", 10)
    total = 0
    for n, embed in enumerate(embeds):
        for key, limit in EMBED_FIELDS.items():
            total += _measure(f"embeds.{n}.{key}", embed.get(key), limit)
        total += _measure(f"embeds.{n}.footer.text", (embed.get("footer") or {}).get("text"), 2048)
        total += _measure(f"embeds.{n}.author.name", (embed.get("author") or {}).get("name"), 256)
        fields = embed.get("fields") or []
        if len(fields) > 25:
            raise too_long(f"embeds.{n}.fields", 25)
        for k, pair in enumerate(fields):
            for key, limit in (("name", 256), ("value", 1024)):
                if not pair.get(key):
                    raise invalid(f"embeds.{n}.fields.{k}.{key}", "BASE_TYPE_REQUIRED", "This field is required")
                total += _measure(f"embeds.{n}.fields.{k}.{key}", pair[key], limit)
    if total > 6000:
        raise invalid("embeds", "MAX_EMBED_SIZE_EXCEEDED", "Embed size exceeds maximum size of 6000")


def _measure(where: str, text: object, limit: int) -> int:
    if len(str(text or "")) > limit:
        raise too_long(where, limit)
    return len(str(text or ""))


def check_modal(modal: Json) -> None:
    """docs.discord.com/developers/interactions/receiving-and-responding#interaction-response-object-modal."""
    if not 1 <= len(str(modal.get("custom_id") or "")) <= 100:
        raise bad_length("data.custom_id", 1, 100)
    if not 1 <= len(str(modal.get("title") or "")) <= 45:
        raise bad_length("data.title", 1, 45)
    if not 1 <= len(modal.get("components") or []) <= 5:
        raise bad_length("data.components", 1, 5)
