"""What Postgres keeps and writes in its own way.

What the columns hold, for whoever writes SQL here:

* Instants are ``bigint`` microseconds of UTC, as in SQLite: ``build_micros`` and ``parse_micros``. Yes and no is
  ``boolean``.
* Text cannot hold U+0000; ``Tx`` writes U+FFFD for it, and for half a surrogate pair (``clean``), so text that is
  hashed is cleaned first. JSON is ``text`` and stays so: ``jsonb`` refuses ``\\u0000`` and lone surrogates, which a
  message may well hold as an escape, and would reorder keys. It is changed in Python.
* A literal ``%`` in SQL is written ``%%``. A parameter whose type nothing around it tells is cast (``%s::bigint``).
* A verb that changes anything of a thread locks the thread's row first (``postgres_claims.lock_thread``, or
  ``check_claim``, which does it, too), so no two verbs wait for each other in a circle. One that changes several
  threads locks them in the order of their keys, after that of its claim.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.storage.rows import LAST_CHARACTER


def build_key_filter(column: str, prefixes: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return a condition that holds where ``column`` is among ``prefixes`` as ``Store`` means them, and its values.

    There must be at least one prefix; an empty one holds for every row.
    """
    terms: list[str] = []
    values: list[str] = []
    for prefix in prefixes:
        if prefix and prefix[-1] not in ":/":
            terms.append(f"{column} = %s")
            values.append(prefix)
        else:
            terms.append(f"({column} >= %s AND {column} < %s)")
            values += [prefix, prefix + LAST_CHARACTER]
    return f"({' OR '.join(terms)})", tuple(values)
