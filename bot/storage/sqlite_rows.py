"""What SQLite writes in its own way: a condition on keys."""

from __future__ import annotations

from collections.abc import Sequence

from bot.storage.rows import LAST_CHARACTER


def build_key_filter(column: str, prefixes: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return a condition that holds where ``column`` is among ``prefixes`` as ``Store`` means them, and its values.

    There must be at least one prefix; an empty one holds for every row. The unary plus keeps SQLite from
    answering it with the column's own index, which would cost sorting.
    """
    terms: list[str] = []
    values: list[str] = []
    for prefix in prefixes:
        if prefix and prefix[-1] not in ":/":
            terms.append(f"+{column} = ?")
            values.append(prefix)
        else:
            terms.append(f"(+{column} >= ? AND +{column} < ?)")
            values += [prefix, prefix + LAST_CHARACTER]
    return f"({' OR '.join(terms)})", tuple(values)
