"""What a statement for Postgres names, for the server to say what it means."""

from __future__ import annotations

from dataclasses import dataclass, replace

ANY_SETTING = "*"
"""Stands in ``Uses.settings`` for all of them."""


Name = tuple[str, str]
"""Schema (empty: where the search path finds it) and name, as the server folds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """What a tree names, to be looked up.

    Args:
        functions: called by name.
        fields: written behind a table's name; ``t.name`` calls ``name(t)`` where there is no such column.
        members: written behind an expression in parentheses; ``(x).name`` calls ``name(x)``, whatever ``x`` is.
        operators, types, relations: by name.
        tables: that a WITH of the statement defines; their names may be among the relations.
        casts: those of the types that something is cast to; the others are of columns in FROM.
        settings: names, or ``ANY_SETTING``.
    """

    functions: frozenset[Name] = frozenset()
    fields: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    operators: frozenset[Name] = frozenset()
    types: frozenset[Name] = frozenset()
    casts: frozenset[Name] = frozenset()
    relations: frozenset[Name] = frozenset()
    tables: frozenset[str] = frozenset()
    settings: frozenset[str] = frozenset()


def merge_uses(first: Uses, *others: Uses) -> Uses:
    """Everything that any of them uses."""
    for other in others:
        first = replace(
            first,
            functions=first.functions | other.functions,
            fields=first.fields | other.fields,
            members=first.members | other.members,
            operators=first.operators | other.operators,
            types=first.types | other.types,
            casts=first.casts | other.casts,
            relations=first.relations | other.relations,
            tables=first.tables | other.tables,
            settings=first.settings | other.settings,
        )
    return first
