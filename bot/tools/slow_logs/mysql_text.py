"""MySQL and MariaDB statements without the data in them, and the names of their shapes.

The lexical rules are those of the manual's chapters "String Literals", "Comments" and "Schema Object Names"
(https://dev.mysql.com/doc/refman/8.4/en/language-structure.html), with the default ``sql_mode``: text in double quotes
is a literal. Under ANSI_QUOTES it would be a name; it is then hidden all the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping

from bot.tools.slow_queries.redact_sql import shorten

_LONGEST_INPUT = 200_000
_REDACTED = "<redacted>"
_ADMINISTRATOR = re.compile(r"\s*# (administrator command: [A-Za-z_ ]{1,40})")

_TOKEN = re.compile(
    r"(?P<space>\s+|--(?=[\s\x00-\x1f]|\Z)[^\n]*|\#[^\n]*|/\*(?!!).*?\*/|/\*!\d*|\*/)"
    r"|(?P<literal>(?:_\w+\s*|[xXbBnN])?(?:'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")|(?:\d|\.\d)(?:[eE][+-]?\d|[\w.])*)"
    r"|(?P<name>`(?:[^`]|``)*`)"
    r"|(?P<word>@{0,2}[A-Za-z_$\x80-\U0010ffff][\w$\x80-\U0010ffff]*)"
    r"|(?P<cut>/\*|['\"`]|\\)"
    r"|(?P<symbol>:=|<=>|[<>!]=|<>|\|\||&&|->>?|\.{3}|.)",
    re.DOTALL,
)
_LIST = re.compile(r"\( (?:\?|\.\.\.)(?: , (?:\?|\.\.\.))* \)")
# A digest writes the same for several values in a row, several rows of values, and words of one meaning.
_VALUES = re.compile(r"\?(?: , (?:\?|\.\.\.))+")
_ROWS = re.compile(r"\(\?\+\)(?: , \(\?\+\))+")
_SIGN = re.compile(r"(?<![\w$`)?] )(?<!\S)[-+] (?=\?(?: |\Z))")
_NULL = re.compile(r"(?<!is )(?<!not )\bnull\b")
_CHARSET = re.compile(r"\( _charset \) ")
_VARIABLE = re.compile(r"(?<![@\w])@(?: ?\?|[\w$.]+)")
_SAME: Mapping[str, str] = {
    "<>": "!=",
    "distinctrow": "distinct",
    "rlike": "regexp",
    "character": "char",
    "varcharacter": "varchar",
    "integer": "int",
    "system_user": "user",
    "schema": "database",
}
_SIMPLE_NAME = re.compile(r"`[A-Za-z_]\w*`", re.ASCII)


def redact_mysql(sql: str) -> str:
    """Return ``sql`` without literals and comments, with ``?`` in their place; doing it twice changes nothing more.

    What was cut off, or cannot be read, becomes ``<redacted>`` to its end.
    """
    if administrator := _ADMINISTRATOR.match(sql):
        return administrator[1]
    parts: list[str] = []
    for kind, text in _judged(sql):
        if kind == "space":
            if parts and parts[-1] != " ":
                parts.append(" ")
        else:
            parts.append(text)
    return shorten("".join(parts).strip())


def fingerprint_mysql(sql: str) -> str:
    """Name the shape of a statement: 16 hexadecimal digits, whatever its literals, letter case and white space are.

    A digest text of ``performance_schema`` (``SELECT * FROM `t` WHERE `id` = ?``) has the name of its statements.
    """
    if administrator := _ADMINISTRATOR.match(sql):
        shape = administrator[1].lower()
    else:
        words = [_SIMPLE_NAME.sub(lambda m: m[0][1:-1], text).lower() for kind, text in _judged(sql) if kind != "space"]
        shape = _unify(" ".join(_SAME.get(word, word.removeprefix("sql_tsi_")) for word in words).rstrip("; "))
    return hashlib.sha256(shape.encode(errors="replace")).hexdigest()[:16]


def _unify(shape: str) -> str:
    """The same name for a statement and for its digest, which is written with less of what does not matter."""
    shape = _CHARSET.sub("", shape).replace("( unknown )", "?").replace("@@ ", "@@")
    shape = _VARIABLE.sub("@?", _NULL.sub("?", shape))
    shape = _LIST.sub("(?+)", _SIGN.sub("", shape))
    return _ROWS.sub("(?+)", _VALUES.sub("?+", shape))


def _judged(sql: str) -> Iterator[tuple[str, str]]:
    """Yield the kinds and texts of tokens, literals as ``?``; the value of a SET is one ``<redacted>``."""
    first, in_value, value, depth = "", False, False, 0
    text = sql[:_LONGEST_INPUT]
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup or "symbol"
        if kind == "cut":
            yield "literal", _REDACTED
            return
        if kind == "space":
            if not value:
                yield kind, " "
            continue
        word = token[0].lower()
        if word == ";":
            first = ""
        elif not first:
            first = word
        if (in_value or value) and word != ";" and (depth or word != ","):
            if not value:
                yield "literal", _REDACTED
            value, in_value = True, False
            depth = max(0, depth + (word == "(") - (word == ")"))
            continue
        depth = 0
        value, in_value = False, first == "set" and word in ("=", ":=")
        yield kind, "?" if kind == "literal" else token[0]
    if len(sql) > _LONGEST_INPUT:
        yield "literal", _REDACTED
