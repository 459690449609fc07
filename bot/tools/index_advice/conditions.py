"""A condition of a plan, taken apart: which table's column or expression it compares, how, and with what."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from bot.tools.index_advice.catalog import Table, write_expression
from bot.tools.slow_queries.explain_parse import ParseError, Tree, child, items, parse_tree, walk

Kind = Literal["equal", "among", "range", "prefix", "is_null", "not_null", "is_true", "is_false", "pattern"]

SUBPLAN = 32_000
"""The number of a parameter that stands for a subplan in what is parsed here."""

_SUBPLAN = re.compile(r"\((?:hashed )?(?:Sub|Init)Plan \d+\)(?:\.col\d+)?|\$0\b")
_RANGES = frozenset({"<", ">", "<=", ">="})
_PATTERNS = frozenset({"~~", "~~*", "~", "~*"})
_RELABELLED = frozenset({"varchar", "text"})
_SHORT_WORD = re.compile(r"[A-Za-z_][\w-]{0,30}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One comparison that an index on ``key`` may serve.

    Args:
        alias: of the table, as the plan has it.
        key: a column or expression without the alias.
        columns: the columns in it.
        kind: what index work it asks for; ``pattern`` is one that no B-tree serves.
        predicate: the whole comparison without aliases; empty when it has more than one table in it.
        constant: the text of what it is compared with, when that is a constant.
        parameter: the number of the parameter that it is compared with.
        other: the aliases of what it is compared with, for joins.
        arm: the number of the arm of an OR that it stands in; 0 outside of one.
    """

    alias: str
    key: str
    columns: tuple[str, ...]
    kind: Kind
    predicate: str
    constant: str | None = None
    parameter: int | None = None
    other: str = ""
    arm: int = 0


def read_condition(text: str, tables: Mapping[str, Table]) -> tuple[Comparison, ...]:
    """Return the comparisons that have to hold (arms of an OR are numbered); what is not understood is left out.

    Args:
        text: as EXPLAIN (VERBOSE) writes it, with aliases.
        tables: by alias.
    """
    try:
        trees = parse_tree("SELECT " + _SUBPLAN.sub(f"${SUBPLAN}", text))
        values = items(child(trees[0], "select_stmt"), "target_list") if trees else ()
        node = child(values[0], "res_target", "val") if values else {}
        found: list[Comparison] = []
        for part in _split(node, "AND_EXPR"):
            arms = tuple(_split(part, "OR_EXPR"))
            if len(arms) == 1:
                found += _read(part, tables, arm=0)
                continue
            each = [_read(arm, tables, arm=number) for number, arm in enumerate(arms, 1)]
            # An OR is only as good as its worst arm.
            if all(len(one) == 1 and one[0].kind != "pattern" for one in each):
                found += [one[0] for one in each]
        return tuple(found)
    except ParseError:
        return ()


def read_key(text: str, tables: Mapping[str, Table]) -> tuple[str, str, bool, bool] | None:
    """Read a sort key: (alias, key, descending, nulls first); None when it is not of one table."""
    try:
        trees = parse_tree(f"SELECT 1 ORDER BY {_SUBPLAN.sub(f'${SUBPLAN}', text)}")
        sorts = items(child(trees[0], "select_stmt"), "sort_clause") if trees else ()
        if len(sorts) != 1:
            return None
        sort = child(sorts[0], "sort_by")
        side = _side(child(sort, "node"), tables)
        if side is None:
            return None
        descending = sort.get("sortby_dir") == "SORTBY_DESC"
        nulls = sort.get("sortby_nulls")
        first = descending if nulls == "SORTBY_NULLS_DEFAULT" else nulls == "SORTBY_NULLS_FIRST"
        return side.alias, side.key, descending, first
    except ParseError:
        return None


@dataclass(frozen=True, slots=True)
class _Side:
    alias: str
    key: str
    columns: tuple[str, ...]


def _split(node: Tree, boolop: str) -> Iterator[Tree]:
    expr = child(node, "bool_expr")
    if expr.get("boolop") == boolop:
        for arg in items(expr, "args"):
            yield from _split(arg, boolop)
    else:
        yield node


def _read(node: Tree, tables: Mapping[str, Table], *, arm: int) -> list[Comparison]:
    return [replace(comparison, arm=arm) for comparison in _compare(node, tables)]


def _compare(node: Tree, tables: Mapping[str, Table]) -> list[Comparison]:
    if test := child(node, "null_test"):
        side = _side(child(test, "arg"), tables)
        kind: Kind = "is_null" if test.get("nulltesttype") == "IS_NULL" else "not_null"
        return [] if side is None else [_make(side, kind, node)]
    if child(node, "column_ref"):
        side = _side(node, tables)
        return [] if side is None else [_make(side, "is_true", node)]
    if (negated := child(node, "bool_expr")).get("boolop") == "NOT_EXPR":
        args = items(negated, "args")
        side = _side(args[0], tables) if args and child(args[0], "column_ref") else None
        return [] if side is None else [_make(side, "is_false", node)]
    expr = child(node, "a_expr")
    return _compare_sides(node, expr, tables) if expr else []


def _compare_sides(node: Tree, expr: Tree, tables: Mapping[str, Table]) -> list[Comparison]:
    operator = "".join(str(child(part, "string").get("sval", "")) for part in items(expr, "name"))
    left, right = child(expr, "lexpr"), child(expr, "rexpr")
    if "row_expr" in left and "row_expr" in right:  # (a, b) > ($1, $2): the first column decides
        lefts, rights = items(child(left, "row_expr"), "args"), items(child(right, "row_expr"), "args")
        if not (lefts and rights) or operator not in _RANGES:
            return []
        left, right = lefts[0], rights[0]
    sides = _side(left, tables), _side(right, tables)
    found: list[Comparison] = []
    for mine, value in ((sides[0], right), (sides[1], left)):
        if mine is None:
            continue
        others = _aliases(value)
        if mine.alias in others:
            continue  # compared with something of its own
        kind = _kind(operator, str(expr.get("kind")), value)
        if kind is None or (kind in ("pattern", "prefix") and mine is sides[1]):
            continue
        found.append(_make(mine, kind, node, value=value, other=" ".join(sorted(others))))
    return found


def _kind(operator: str, form: str, value: Tree) -> Kind | None:
    if form == "AEXPR_OP_ANY":
        return "among" if operator == "=" else None
    if form != "AEXPR_OP":
        return None
    if operator == "=":
        return "equal"
    if operator in _RANGES:
        return "range"
    if operator == "~~":
        constant = _constant(value)
        return "prefix" if constant and not re.match(r"[%_]", constant) else "pattern"
    return "pattern" if operator in _PATTERNS else None


def _make(side: _Side, kind: Kind, node: Tree, *, value: Tree | None = None, other: str = "") -> Comparison:
    constant = None if value is None else _constant(value)
    return Comparison(
        alias=side.alias,
        key=side.key,
        columns=side.columns,
        kind=kind,
        predicate="" if other else write_expression(_bare(node)),
        constant=constant,
        parameter=None if value is None else _parameter(value),
        other=other,
    )


def _side(node: Tree, tables: Mapping[str, Table]) -> _Side | None:
    """The node as a key of one known table; None when it is a constant, or of several."""
    aliases = _aliases(node)
    if len(aliases) != 1 or (alias := next(iter(aliases))) not in tables:
        return None
    if any(name in ("param_ref", "sub_link") for name, _ in walk(node)):
        return None
    columns = tuple(dict.fromkeys(_columns(node)))
    known = tables[alias].columns
    if any(name not in known for name in columns):
        return None
    cast = child(node, "type_cast")
    if child(cast, "arg", "column_ref"):
        # Casts that the server added, and that change nothing: an index on the column serves.
        column = known[columns[0]]
        if column.domain or (column.type_name in _RELABELLED and _casts_to_text(cast)):
            node = child(cast, "arg")
    if "column_ref" not in node and not _constants_are_plain(node):
        return None
    return _Side(alias, write_expression(_bare(node)), columns)


def _casts_to_text(cast: Tree) -> bool:
    names = [child(part, "string").get("sval") for part in items(child(cast, "type_name"), "names")]
    return names[-1:] == ["text"]


def _constants_are_plain(node: Tree) -> bool:
    """An expression's constants become part of the DDL, so they must be words of the schema (``->> 'city'``)."""
    for name, value in walk(node):
        if name != "a_const":
            continue
        text = child(value, "sval").get("sval")
        number = child(value, "ival").get("ival", 0)
        if isinstance(text, str) and not _SHORT_WORD.fullmatch(text):
            return False
        decimal = isinstance(value, Mapping) and "fval" in value
        if decimal or not isinstance(number, int) or abs(number) > 9999:
            return False
    return True


def _aliases(node: Tree) -> frozenset[str]:
    found: set[str] = set()
    for name, value in walk(node):
        if name == "column_ref":
            fields = items(value, "fields")
            found.add(str(child(fields[0], "string").get("sval", "")) if len(fields) > 1 else "")
    return frozenset(found)


def _columns(node: Tree) -> Iterator[str]:
    for name, value in walk(node):
        if name == "column_ref":
            fields = items(value, "fields")
            yield str(child(fields[-1], "string").get("sval", ""))


def _bare(node: object) -> Tree:
    """The tree without aliases in front of columns."""
    stripped = _strip(node)
    return stripped if isinstance(stripped, Mapping) else {}


def _strip(node: object) -> object:
    if isinstance(node, Mapping):
        if "column_ref" in node:
            fields = items(child(node, "column_ref"), "fields")
            return {"column_ref": {"fields": list(fields[-1:])}}
        return {key: _strip(value) for key, value in node.items()}
    return [_strip(part) for part in node] if isinstance(node, list) else node


def _uncast(node: Tree) -> Tree:
    while cast := child(node, "type_cast"):
        node = child(cast, "arg")
    return node


def _constant(node: Tree) -> str | None:
    const = child(_uncast(node), "a_const")
    if not const or const.get("isnull"):
        return None
    for kind in ("sval", "fval", "ival", "boolval", "bsval"):
        if kind in const:
            value = child(const, kind).get(kind, 0 if kind == "ival" else False if kind == "boolval" else "")
            return str(value).lower() if isinstance(value, bool) else str(value)
    return None


def _parameter(node: Tree) -> int | None:
    number = child(_uncast(node), "param_ref").get("number")
    return number if isinstance(number, int) and number != SUBPLAN else None
