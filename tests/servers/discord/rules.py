"""What a message must be like to be taken."""

from __future__ import annotations

import json

from tests.servers.discord.model import ApiError, Json, _invalid


def _check(body: Json, has_files: bool, *, partial: bool) -> None:
    content, embeds = body.get("content"), body.get("embeds") or []
    if content is not None and len(str(content)) > 2000:
        raise _invalid("content", "BASE_TYPE_MAX_LENGTH", "Must be 2000 or fewer in length.")
    if len(embeds) > 10 or sum(len(json.dumps(e)) for e in embeds) > 60_000:
        raise _invalid("embeds", "BASE_TYPE_MAX_LENGTH", "Must be 10 or fewer in length.")
    for i, e in enumerate(embeds):
        if len(e.get("description") or "") > 4096 or len(e.get("fields") or []) > 25 or len(e.get("title") or "") > 256:
            raise _invalid(f"embeds.{i}", "BASE_TYPE_MAX_LENGTH", "Must be 4096 or fewer in length.")
    rows = body.get("components") or []
    ids = [c["custom_id"] for c in _components(rows) if "custom_id" in c]
    if len(ids) != len(set(ids)):
        raise _invalid("components", "COMPONENT_CUSTOM_ID_DUPLICATED", "Component custom id cannot be duplicated")
    if any(r.get("type") == 1 and not 1 <= len(r.get("components", [])) <= 5 for r in rows):
        raise _invalid("components", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 5 in length.")
    if not partial and not (content or embeds or rows or has_files or body.get("sticker_ids") or body.get("poll")):
        raise ApiError(400, 50006, "Cannot send an empty message")


def _components(tree: list[Json]) -> list[Json]:
    flat: list[Json] = []
    for node in tree:
        flat += [node, *_components(node.get("components", [])), *([node["accessory"]] if "accessory" in node else [])]
    return flat
