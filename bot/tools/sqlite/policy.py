"""What a statement on an SQLite file may do: a list of allowed actions, for ``sqlite3.set_authorizer``.

SQLite asks the authorizer for every action of a statement while it compiles it, also inside views, triggers and
subqueries, so nothing has to be parsed here (https://www.sqlite.org/c3ref/set_authorizer.html). Standard library only.
"""

from __future__ import annotations

import sqlite3


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FUNCTIONS = _words(
    """
    -> ->> abs acos acosh asin asinh atan atan2 atanh auxiliary avg bm25 ceil ceiling changes char coalesce concat
    concat_ws cos cosh count cume_dist current_date current_time current_timestamp date datetime degrees dense_rank
    exp first_value floor format geopoly_area geopoly_bbox geopoly_blob geopoly_contains_point geopoly_json
    geopoly_overlap geopoly_within glob group_concat hex highlight ifnull iif instr json json_array
    json_array_length json_error_position json_extract json_group_array json_group_object json_insert json_object
    json_patch json_quote json_remove json_replace json_set json_type json_valid jsonb jsonb_array jsonb_extract
    jsonb_group_array jsonb_group_object jsonb_insert jsonb_object jsonb_patch jsonb_remove jsonb_replace jsonb_set
    julianday lag last_insert_rowid last_value lead length like likelihood likely ln log log10 log2 lower ltrim
    match matchinfo max median min mod nth_value ntile nullif octet_length offsets optimize_hint percent_rank
    percentile percentile_cont percentile_disc pi pow power printf quote radians random randomblob rank regexp
    replace round row_number rtrim sign sin sinh snippet soundex sqlite_source_id sqlite_version sqrt strftime
    string_agg substr substring subtype sum tan tanh time timediff total total_changes trim trunc typeof unhex
    unicode unixepoch unlikely upper zeroblob
    """
)
"""Built-in functions that only compute; load_extension, fts3_tokenizer and what a program adds are not among them."""

# These take the name of a table or index, or how much to check; none sets anything.
_PRAGMAS_OF_NAMES = _words(
    "table_info table_xinfo table_list index_list index_info index_xinfo foreign_key_list foreign_key_check"
    " integrity_check quick_check"
)
# These tell something without an argument, and would set it with one.
_PRAGMAS = _words(
    "application_id auto_vacuum collation_list compile_options data_version encoding foreign_keys freelist_count"
    " function_list journal_mode module_list page_count page_size pragma_list schema_version synchronous"
    " user_version"
)
_CHECKS = _words("integrity_check quick_check foreign_key_check")
TABLE_FUNCTIONS = (
    "json_each('[]')",
    "json_tree('[]')",
    "dbstat",
    *(f"pragma_{name}" for name in sorted((_PRAGMAS | _PRAGMAS_OF_NAMES) - _CHECKS)),
)
"""Tables that SQLite makes when they are first read, by a CREATE TABLE that the authorizer would see as a write."""

_ACTIONS = {
    sqlite3.SQLITE_INSERT: "INSERT",
    sqlite3.SQLITE_UPDATE: "UPDATE",
    sqlite3.SQLITE_DELETE: "DELETE",
    sqlite3.SQLITE_TRANSACTION: "BEGIN, COMMIT or ROLLBACK",
    sqlite3.SQLITE_SAVEPOINT: "SAVEPOINT",
    sqlite3.SQLITE_ATTACH: "ATTACH (or VACUUM)",
    sqlite3.SQLITE_DETACH: "DETACH",
    sqlite3.SQLITE_ALTER_TABLE: "ALTER TABLE",
    sqlite3.SQLITE_REINDEX: "REINDEX",
    sqlite3.SQLITE_ANALYZE: "ANALYZE",
}
_WRITES = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})


class Authorizer:
    """Answers SQLite's questions, and keeps what it said no to first.

    Args:
        planning: the statement is only explained, so it may be one that writes.
    """

    def __init__(self, *, planning: bool = False) -> None:
        self._planning = planning
        self.refused = ""
        self.tables: list[str] = []

    def __call__(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """The callback of ``set_authorizer``."""
        if action == sqlite3.SQLITE_READ and first:
            self.tables.append(first)
        if self._allows(action, (first or "").lower(), second):
            return sqlite3.SQLITE_OK
        if not self.refused:
            self.refused = self._name(action, first or "", second or "")
        return sqlite3.SQLITE_DENY

    def _allows(self, action: int, first: str, second: str | None) -> bool:
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE):
            return True
        if action == sqlite3.SQLITE_FUNCTION:
            return (second or "").lower() in _FUNCTIONS
        if action == sqlite3.SQLITE_PRAGMA:
            return first in _PRAGMAS_OF_NAMES or (first in _PRAGMAS and second is None)
        return self._planning and action in _WRITES and not first.startswith("sqlite_")

    @staticmethod
    def _name(action: int, first: str, second: str) -> str:
        if action == sqlite3.SQLITE_FUNCTION:
            return f"the function {second[:60]}"
        if action == sqlite3.SQLITE_PRAGMA:
            return f"PRAGMA {first[:60]}" + (" with a value" if second else "")
        return _ACTIONS.get(action, "CREATE or DROP")
