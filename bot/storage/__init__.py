"""Rows first: the Store protocol and its implementations.

``open_store`` is the one place that knows which implementation serves which address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bot.storage.base import Store

_HINT = (
    "use for example sqlite:///hermod.db (beside the working directory), sqlite:////var/lib/hermod/hermod.db, or"
    " postgresql://hermod:PASSWORD@db.example.com/hermod"
)


def open_store(url: str) -> Store:
    """Return the Store that ``[storage] url`` names, not connected yet (``await store.open()`` connects).

    ``sqlite:///hermod.db`` is relative to the working directory, ``sqlite:////var/lib/hermod.db`` absolute;
    ``postgresql://`` (or ``postgres://``) is an address as libpq reads it.

    Raises:
        StoreError: the address is not one that Hermod can use, or an extra is missing. The address itself is not
            repeated beyond its scheme, because it may hold a password.
    """
    from bot.storage.base import StoreError

    scheme, found, rest = url.partition("://")
    if scheme in ("postgresql", "postgres"):
        from bot.storage.postgres import PostgresStore

        return PostgresStore(url)
    if scheme != "sqlite" or not rest.startswith("/"):
        named = f"{scheme}:// is" if found else "this is"
        raise StoreError(f"[storage] url: {named} not an address of a storage; {_HINT}")
    path = rest[1:]
    if not path or path == ":memory:" or path.endswith("/"):
        raise StoreError(f"[storage] url: Hermod keeps its rows in a file; {_HINT}")

    from bot.storage.sqlite import SqliteStore

    return SqliteStore(path)
