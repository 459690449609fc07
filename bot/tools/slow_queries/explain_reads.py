"""Whether a statement only reads, by its parse tree."""

from __future__ import annotations

from agent_core.errors import ToolFailed
from bot.tools.slow_queries.explain_parse import ParseError, parse_tree, walk

_WRITING = frozenset({"insert_stmt", "update_stmt", "delete_stmt", "merge_stmt", "into_clause", "locking_clause"})


def only_reads(statement: str) -> bool:
    """True for one SELECT or VALUES that locks no rows, makes no table, and has no writing part in a WITH.

    Functions in it may still write; the READ ONLY transaction is the guard against those.

    Raises:
        ToolFailed: ``missing_extra``, or ``parse_failed`` when it cannot be parsed.
    """
    try:
        trees = parse_tree(statement)
        if len(trees) != 1 or "select_stmt" not in trees[0]:
            return False
        return not any(name in _WRITING for name, _ in walk(trees[0]))
    except ParseError as error:
        raise ToolFailed(
            str(error),
            code="parse_failed",
            fix="correct the statement; explain_query without a mode says where the mistake is",
        ) from None
