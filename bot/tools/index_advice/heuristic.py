"""Advice from nothing but the look of a plan, where nothing can be tried: few, and marked as what it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from bot.tools.index_advice.candidates import Move
from bot.tools.index_advice.choose import Built, Chosen, Effect, Limits
from bot.tools.index_advice.shape import IndexShape, is_prefix
from bot.tools.index_advice.study import Studied
from bot.tools.index_advice.uses import TableUse

# An entry of a B-tree: 8 bytes of head, 4 of its pointer, keys in steps of 8; pages are filled to 90 %.
_ENTRY_BYTES = 12
_FILL = 0.9
_KEY_BYTES = 16


def guess_indexes(studied: Sequence[Studied], limits: Limits) -> tuple[Chosen, ...]:
    """One index for each large sequential scan that keeps few rows; costs are not known, so they stay as they are."""
    found: dict[IndexShape, Chosen] = {}
    for one in studied:
        for use in one.uses:
            move = _first_move(use, one.query.moves)
            if move is None:
                continue
            effect = Effect(query=one.query, before=one.cost, after=one.cost)
            known = found.get(move)
            effects = (effect,) if known is None else (*known.effects, effect)
            built = Built(shape=move, name="", handle="", size_bytes=_estimate_size(move, use))
            found[move] = Chosen(built=(built,), effects=effects)
    within = [one for one in _merge(found) if _fits(one, limits)]
    within.sort(key=lambda one: -sum(effect.before * effect.query.weight for effect in one.effects))
    return tuple(within[: limits.max_indexes])


def _merge(found: Mapping[IndexShape, Chosen]) -> Iterator[Chosen]:
    """Leave out an index whose keys a longer one begins with, and say of that one that it helps both."""
    serving = {
        shape: max(
            (other for other in found if other.relation == shape.relation and is_prefix(shape.keys, other.keys)),
            key=lambda other: len(other.keys),
        )
        for shape in found
    }
    for shape, one in found.items():
        if serving[shape] == shape:
            others = [found[other] for other in found if other != shape and serving[other] == shape]
            effects = {effect.query.fingerprint: effect for chosen in (one, *others) for effect in chosen.effects}
            yield replace(one, effects=tuple(effects.values()))


def _first_move(use: TableUse, moves: Sequence[Move]) -> IndexShape | None:
    """The most specific plain index on columns; expressions may not be immutable, which nobody checks here."""
    if not use.begs:
        return None
    asked = {c.key for c in use.comparisons if c.kind in ("equal", "among", "range", "prefix") and not c.arm}
    for move in moves:
        shape = move[0]
        mine = (shape.schema, shape.table) == (use.table.schema, use.table.name) and len(move) == 1
        plain = not shape.where and not shape.include and all(key.is_column for key in shape.keys)
        if mine and plain and shape.keys[0].text in asked:
            return shape
    return None


def _estimate_size(shape: IndexShape, use: TableUse) -> int:
    widths = [
        column.width if (column := use.table.columns.get(key.text.strip('"'))) is not None else _KEY_BYTES
        for key in shape.keys
    ]
    entry = _ENTRY_BYTES + sum(-(-width // 8) * 8 for width in widths)
    return round(use.table.rows * entry / _FILL)


def _fits(one: Chosen, limits: Limits) -> bool:
    size = sum(built.size_bytes for built in one.built)
    return limits.size_budget_bytes is None or size <= limits.size_budget_bytes
