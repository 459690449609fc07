"""An index that does not exist yet, as a value: its keys, its DDL, and what it has in common with another one."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, field

from bot.tools.slow_queries.failures import quote_name

_LONGEST_NAME = 63  # NAMEDATALEN - 1: https://www.postgresql.org/docs/current/sql-syntax-lexical.html
_NOT_NAME = re.compile(r"[^a-z0-9_]+")


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One key: a column or expression as Postgres writes it, without the table's name."""

    text: str
    descending: bool = False
    nulls_first: bool = False
    opclass: str = ""

    @property
    def is_column(self) -> bool:
        """True for a bare column."""
        return self.text.startswith('"') or self.text.replace("$", "_").isidentifier()

    def render(self) -> str:
        """The key as CREATE INDEX takes it."""
        # A function call needs no parentheses of its own, everything else does.
        call = re.fullmatch(r"[\w.]+\([^()]*\)", self.text)
        words = [self.text if self.is_column or call else f"({self.text})"]
        if self.opclass:
            words.append(self.opclass)
        if self.descending:
            words.append("DESC")
        if self.nulls_first != self.descending:
            words.append("NULLS FIRST" if self.nulls_first else "NULLS LAST")
        return " ".join(words)

    def reversed(self) -> KeyPart:
        """The same key read backwards."""
        return KeyPart(self.text, not self.descending, not self.nulls_first, self.opclass)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexShape:
    """A B-tree.

    Args:
        schema, table: what it is on.
        keys: in order.
        include: columns that are only carried along.
        where: makes it partial.
        order_only: it serves the order of rows that are filtered as well; where few pass the filter, reading in
            order reads nearly all, so one that has the filter's columns in front is preferred.
    """

    schema: str
    table: str
    keys: tuple[KeyPart, ...]
    include: tuple[str, ...] = ()
    where: str = ""
    order_only: bool = field(default=False, compare=False)

    @property
    def relation(self) -> str:
        """Schema and table as SQL has them."""
        return f"{quote_name(self.schema)}.{quote_name(self.table)}"

    @property
    def complexity(self) -> int:
        """The simpler one of two that help alike is the better one."""
        odd = sum(not key.is_column for key in self.keys)
        # One value's index serves nothing else; one of what is missing or flagged serves what it was made for.
        special = (1 if self.where.endswith(("NULL", "NOT NULL")) or "=" not in self.where else 2) if self.where else 0
        return len(self.keys) + odd + 2 * len(self.include) + special + 2 * self.order_only

    def describe(self) -> str:
        """What it is on, in short: ``orders (customer_id) WHERE flagged``."""
        words = f"{self.table} ({', '.join(key.render() for key in self.keys)})"
        words += f" INCLUDE ({', '.join(self.include)})" if self.include else ""
        return f"{words} WHERE {self.where}" if self.where else words

    def build_ddl(self, name: str = "", *, concurrently: bool = False) -> str:
        """The statement that makes it; without a name the server chooses one."""
        words = ["CREATE INDEX"]
        if concurrently:
            words.append("CONCURRENTLY")
        if name:
            words.append(quote_name(name))
        words.append(f"ON {self.relation} ({', '.join(key.render() for key in self.keys)})")
        if self.include:
            words.append(f"INCLUDE ({', '.join(self.include)})")
        if self.where:
            words.append(f"WHERE {self.where}")
        return " ".join(words)

    def build_name(self, taken: Container[str]) -> str:
        """A name that tells the keys and is not taken."""
        parts = [self.table, *(_NOT_NAME.sub("_", key.text.lower()).strip("_") for key in self.keys)]
        stem = "_".join(part for part in parts if part)
        stem = _NOT_NAME.sub("_", stem.lower()) + ("_part" if self.where else "")
        for number in range(1, 1000):
            tail = "_idx" if number == 1 else f"_idx{number}"
            name = stem[: _LONGEST_NAME - len(tail)].rstrip("_") + tail
            if name not in taken:
                return name
        raise ValueError("no free name for an index")

    def begins_like(self, keys: tuple[KeyPart, ...]) -> bool:
        """True when an index with ``keys`` can stand in wherever this one is asked for by its keys."""
        head = keys[: len(self.keys)]
        return head == self.keys or head == tuple(key.reversed() for key in self.keys)


def is_prefix(shorter: tuple[KeyPart, ...], longer: tuple[KeyPart, ...]) -> bool:
    """True when ``longer`` begins with ``shorter``, so that it can do what that does."""
    head = longer[: len(shorter)]
    return bool(shorter) and (head == shorter or head == tuple(key.reversed() for key in shorter))
