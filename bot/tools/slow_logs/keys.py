"""Cheap names for statement texts, so that the lexer has to look only at texts of a kind that it has not seen.

Two texts with the same key always have the same fingerprint; the reverse need not hold. Whatever a regular expression
cannot tell for certain (a quote that may be escaped, a comment in a comment, a text that was cut off) gets a digest of
the whole text as its key, and goes to the lexer.
"""

from __future__ import annotations

import re
from hashlib import blake2b

_LONGEST_KEY = 2_000
_LIST = re.compile(rb"\(\s*+[?\1](?:\s*+,\s*+[?\1])*+\s*+\)")
_UNSURE = b"\0"
_LITERAL = b"\1"
"""No ``?``: a text may have that itself, with another word before it than a literal can have."""

# A digit begins a number unless it stands in a name: the look behind comes after the digit, so that the search for
# the next literal can skip to bytes that may begin one.
_NUMBER = rb"[0-9](?<![\w$\x80-\xff][0-9])(?:[eE][+-]?[0-9]|[\w.])*+"

# MySQL's words take letters of any alphabet.
_MY_NUMBER = rb"[0-9](?<![\w$\x80-\xff][0-9])(?:[eE][+-]?[0-9]|[\w.\x80-\xff])*+"

_PG_ODD = re.compile(rb"--|/\*|\\'|\$(?![0-9])|[\0\1]")
_PG_NAMES = re.compile(rb"""(?:[^"']++|"[A-Za-z_]\w*+"|'[^']*+')*+""")
_PG_LITERAL = re.compile(rb"'[^']*+(?:''[^']*+)*+'|" + _NUMBER + rb"|\$(?<![\w\x80-\xff]\$)[0-9]++")
_PG_CAREFUL = re.compile(
    rb"--[^\n\r]*+|/\*(?:[^*/]++|\*(?!/)|/(?!\*))*+\*/"
    rb"|\$(?<![\w$\x80-\xff]\$)((?:[A-Za-z_\x80-\xff][\w\x80-\xff]*+)?)\$.*?\$\1\$"
    rb'|"[^"]*+(?:""[^"]*+)*+"'
    rb"|[eE](?<![\w$\x80-\xff][eE])'(?:[^'\\]++|\\.|'')*+'"
    rb"|'[^'\\]*+(?:(?:\\(?!')|'')[^'\\]*+)*+'|" + _NUMBER + rb"|\$(?<![\w\x80-\xff]\$)[0-9]++|['\"\\$]|/\*|[\0\1]",
    re.DOTALL,
)

_MY_ODD = re.compile(rb"--|/\*|#|[\0\1]")
# With a plain name in every pair of quotes, and no quote left alone, no digit and no quote hides in a name.
_MY_NAMES = re.compile(
    rb"""(?:[^"'`]++|`[A-Za-z_]\w*+`|'[^'\\]*+(?:\\.[^'\\]*+)*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+""", re.DOTALL
)
_MY_LITERAL = re.compile(
    rb"'[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+'|\"[^\"\\]*+(?:(?:\\.|\"\")[^\"\\]*+)*+\"|" + _MY_NUMBER, re.DOTALL
)
_MY_CAREFUL = re.compile(
    rb"\*/|--(?=[\s\x00-\x1f]|\Z)[^\n]*+|#[^\n]*+|/\*(?!!)(?:[^*]++|\*(?!/))*+\*/|`[^`]*+`|"
    + _MY_LITERAL.pattern
    + rb"|['\"`\\]|/\*|[\0\1]",
    re.DOTALL,
)


def key_postgres(text: bytes) -> bytes:
    """Return the key of a Postgres statement."""
    if _PG_ODD.search(text) is None and (b'"' not in text or _PG_NAMES.fullmatch(text) is not None):
        key = _PG_LITERAL.sub(_LITERAL, text)
        if b"'" in key:
            return _digest(text)
    else:
        key = _PG_CAREFUL.sub(_replace_postgres, text)
        if _UNSURE in key:
            return _digest(text)
    if b"?" in key or _LITERAL in key:
        key = _LIST.sub(b"(?)", key)
    return key if len(key) <= _LONGEST_KEY else _digest(key)


def key_mysql(text: bytes) -> bytes:
    """Return the key of a MySQL or MariaDB statement."""
    if text.startswith(b"# administrator command"):
        return text[:_LONGEST_KEY]
    if _MY_ODD.search(text) is None and (b"`" not in text or _MY_NAMES.fullmatch(text) is not None):
        key = _MY_LITERAL.sub(_LITERAL, text)
        if b"'" in key or b'"' in key:
            return _digest(text)
    else:
        key = _MY_CAREFUL.sub(_replace_mysql, text)
        if _UNSURE in key:
            return _digest(text)
    if b"?" in key or _LITERAL in key:
        key = _LIST.sub(b"(?)", key)
    return key if len(key) <= _LONGEST_KEY else _digest(key)


def is_whole_mysql(text: bytes) -> bool:
    """True when a statement does not end inside a literal, a quoted name or a comment."""
    return _UNSURE not in _MY_CAREFUL.sub(_replace_mysql, text.replace(_UNSURE, b" "))


def _replace_postgres(match: re.Match[bytes]) -> bytes:
    token = match[0]
    first = token[:1]
    if first == b'"':
        return token if len(token) > 1 else _UNSURE
    if first in b"-/":
        return b" " if len(token) > 2 or first == b"-" else _UNSURE
    if len(token) == 1 and first in b"'\\$\0\1":
        return _UNSURE
    return b"E" + _LITERAL if first in b"eE" else _LITERAL


def _replace_mysql(match: re.Match[bytes]) -> bytes:
    token = match[0]
    first = token[:1]
    if first == b"`":
        return token if len(token) > 1 else _UNSURE
    if first in b"-/#*":
        return b" " if token != b"/*" else _UNSURE
    if len(token) == 1 and first in b"'\"\\\0\1":
        return _UNSURE
    return _LITERAL


def _digest(text: bytes) -> bytes:
    """Name a text without keeping it: it may hold data."""
    return blake2b(text, digest_size=16).digest()
