"""Postgres SQL into tokens, so that no literal is taken for anything else.

The lexical rules are those of the manual's chapter "Lexical Structure". The lexer never fails: what it cannot
tell for certain becomes one ``UNSURE`` token that reaches to the end of the text, and callers treat it as secret.
Joined, the tokens' texts are the text again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class TokenKind(StrEnum):
    """What a token is. ``STRING`` covers every quoting of literals, terminated or not."""

    SPACE = "space"
    COMMENT = "comment"
    WORD = "word"
    QUOTED_NAME = "quoted_name"
    STRING = "string"
    NUMBER = "number"
    PARAMETER = "parameter"
    SYMBOL = "symbol"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text; ``complete`` is false when the text ended inside it."""

    kind: TokenKind
    text: str
    complete: bool = True


# Letters beyond ASCII belong to names; "$" may follow in one, so foo$1$ does not open a dollar quote.
_WORD = re.compile(r"[A-Za-z_\u0080-\U0010ffff][\w$\u0080-\U0010ffff]*")
_SPACE = re.compile(r"[ \t\n\r\f\v]+")
_NUMBER = re.compile(r"(?:\d|\.\d)(?:[eE][+-]?\d|[\w.])*", re.ASCII)
_PARAMETER = re.compile(r"\$\d+", re.ASCII)
_DOLLAR_TAG = re.compile(r"\$(?:[A-Za-z_\u0080-\U0010ffff][\w\u0080-\U0010ffff]*)?\$")
_LINE_COMMENT = re.compile(r"--[^\n\r]*")
_SIMPLE = (
    (TokenKind.SPACE, _SPACE),
    (TokenKind.COMMENT, _LINE_COMMENT),
    (TokenKind.NUMBER, _NUMBER),
    (TokenKind.PARAMETER, _PARAMETER),
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")
_PLAIN_STRING = re.compile(r"'[^']*(?:''[^']*)*'")
_ESCAPE_STRING = re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_QUOTED_NAME = re.compile(r'"[^"]*(?:""[^"]*)*"')


def tokenize(text: str, *, plain_backslash: bool = False) -> Iterator[Token]:
    r"""Yield the tokens of ``text``.

    Args:
        text: SQL, perhaps cut off at its end.
        plain_backslash: a backslash in '...' is known to be an ordinary character (the session has
            standard_conforming_strings on). False: it may be an escape, so '...\'...' makes the rest unsure.
    """
    position = 0
    while position < len(text):
        token = _next_token(text, position, plain_backslash)
        yield token
        position += len(token.text)


def _next_token(text: str, at: int, plain_backslash: bool) -> Token:  # noqa: PLR0911 (one a kind of token)
    for kind, pattern in _SIMPLE:
        if match := pattern.match(text, at):
            return Token(kind, match[0])
    if match := _WORD.match(text, at):
        return _prefixed(text, at, match, plain_backslash)
    match text[at]:
        case "'":
            return _plain_string(text, at, at, plain_backslash)
        case '"':
            return _to_end_or(TokenKind.QUOTED_NAME, text, at, _QUOTED_NAME.match(text, at))
        case "$":
            return _dollar(text, at)
        case "/" if text.startswith("/*", at):
            return _block_comment(text, at)
        case symbol:
            return Token(TokenKind.SYMBOL, symbol)


def _prefixed(text: str, at: int, word: re.Match[str], plain_backslash: bool) -> Token:
    """A word, or one of the letters that change how the quote right after them is read."""
    after = text[word.end() : word.end() + 3]
    prefix = word[0].lower()
    if prefix == "e" and after.startswith("'"):
        match = _ESCAPE_STRING.match(text, word.end())
        return _to_end_or(TokenKind.STRING, text, at, match)
    if prefix in ("b", "x", "n") and after.startswith("'"):
        return _plain_string(text, at, word.end(), plain_backslash)
    if prefix == "u" and after.startswith("&'"):
        return _plain_string(text, at, word.end() + 1, plain_backslash)
    if prefix == "u" and after.startswith('&"'):
        return _to_end_or(TokenKind.QUOTED_NAME, text, at, _QUOTED_NAME.match(text, word.end() + 1))
    return Token(TokenKind.WORD, word[0])


def _plain_string(text: str, at: int, quote: int, plain_backslash: bool) -> Token:
    match = _PLAIN_STRING.match(text, quote)
    if match is None:
        return Token(TokenKind.STRING, text[at:], complete=False)
    if not plain_backslash and "\\'" in match[0]:
        return Token(TokenKind.UNSURE, text[at:], complete=False)
    return Token(TokenKind.STRING, text[at : match.end()])


def _dollar(text: str, at: int) -> Token:
    tag = _DOLLAR_TAG.match(text, at)
    if tag is None:
        # A tag that was cut off in its middle looks like this; nothing else legal does.
        rest = text[at + 1 :]
        cut = not rest or _WORD.fullmatch(rest) is not None
        return Token(TokenKind.UNSURE, text[at:], complete=False) if cut else Token(TokenKind.SYMBOL, "$")
    end = text.find(tag[0], tag.end())
    if end < 0:
        return Token(TokenKind.STRING, text[at:], complete=False)
    return Token(TokenKind.STRING, text[at : end + len(tag[0])])


def _block_comment(text: str, at: int) -> Token:
    """Comments nest in Postgres."""
    depth, position = 1, at + 2
    while depth:
        edge = _BLOCK_EDGE.search(text, position)
        if edge is None:
            return Token(TokenKind.COMMENT, text[at:], complete=False)
        depth += 1 if edge[0] == "/*" else -1
        position = edge.end()
    return Token(TokenKind.COMMENT, text[at:position])


def _to_end_or(kind: TokenKind, text: str, at: int, match: re.Match[str] | None) -> Token:
    if match is None:
        return Token(kind, text[at:], complete=False)
    return Token(kind, text[at : match.end()])
