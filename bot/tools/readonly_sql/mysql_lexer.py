"""MySQL and MariaDB SQL into tokens, and back into a text that can be read in one way only.

The lexical rules are those of the manual's chapter "Language Structure"
(https://dev.mysql.com/doc/refman/8.4/en/language-structure.html), with a ``sql_mode`` that ``mysql.run_on_mysql`` sees
to: no ANSI_QUOTES, no NO_BACKSLASH_ESCAPES. What the server gets is never the text that came in but ``join_tokens``:
it has no comment in it, so nothing can hide in one. What an executable comment (``/*! ... */``, ``/*M! ... */``) holds
is code here whatever version it names, and goes to the server as code, so that both judge the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent_core.errors import ToolFailed


class Kind(StrEnum):
    """What a token is. ``VARIABLE`` is ``@name`` or ``@@name``; ``QUOTED`` a name in backticks."""

    WORD = "word"
    QUOTED = "quoted"
    STRING = "string"
    NUMBER = "number"
    VARIABLE = "variable"
    SYMBOL = "symbol"


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text; ``gap``: white space or a comment stood before it."""

    kind: Kind
    text: str
    gap: bool = False

    @property
    def spelled(self) -> str:
        """A word or quoted name without its quotes; empty for other kinds."""
        if self.kind is Kind.WORD:
            return self.text
        return self.text[1:-1].replace("``", "`") if self.kind is Kind.QUOTED else ""

    @property
    def name(self) -> str:
        """As ``spelled``, in lower case."""
        return self.spelled.lower()

    def is_word(self, *words: str) -> bool:
        """True for one of these words, not quoted."""
        return self.kind is Kind.WORD and self.text.lower() in words

    def is_symbol(self, symbol: str) -> bool:
        """True for this character as a symbol."""
        return self.kind is Kind.SYMBOL and self.text == symbol


@dataclass(frozen=True, slots=True)
class Lexed:
    """The tokens; ``hints``: optimizer hints stood in the text, and are left out."""

    tokens: tuple[Token, ...]
    hints: bool = False


_SPACE = re.compile(r"[ \t\n\r\f\v]+")
_LINE_COMMENT = re.compile(r"(?:#|--(?=[\x00-\x20]|\Z))[^\n]*")
_EXECUTABLE = re.compile(r"/\*M?!(?:\d{5,6})?")
_HINT = re.compile(r"/\*\+(.*?)\*/", re.DOTALL)
_SETTING_HINT = re.compile(r"\b(SET_VAR|MAX_EXECUTION_TIME|RESOURCE_GROUP)\b", re.IGNORECASE)
_PREFIXED_STRING = re.compile(r"[xXbBnN](?=')")
_STRING = {
    "'": re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL),
    '"': re.compile(r'"(?:[^"\\]|\\.|"")*"', re.DOTALL),
}
_QUOTED = re.compile(r"`(?:[^`]|``)+`")
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|0b[01]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
# Letters of the basic plane, as the manual has it for unquoted names.
_WORD = re.compile(r"[A-Za-z_$\x80-\uffff][\w$\x80-\uffff]*")
_WORD_PART = re.compile(r"[\w$\x80-\uffff]")
_VARIABLE = re.compile(
    r"@@(?:(?:global|session|local)\s*\.\s*)?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?|@[\w$.]+", re.ASCII | re.I
)
_ODD = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")
_END = re.compile(r"\\[gG]\s*\Z")
_SYMBOLS = frozenset("()+-*/%,.;=<>!&|^~{}?")


def lex_mysql(sql: str) -> Lexed:
    """Take a text apart.

    Raises:
        ToolFailed: ``parse_failed`` where the text is cut off or can be read in two ways, ``not_read_only`` for
            an optimizer hint that sets something.
    """
    return _Reader(_END.sub("", sql)).read()


def join_tokens(tokens: Sequence[Token]) -> str:
    """Write tokens as a text without comments; ``--`` never appears outside of quotes."""
    parts: list[str] = []
    for before, token in zip((None, *tokens), tokens, strict=False):
        minus = before is not None and before.is_symbol("-") and token.is_symbol("-")
        if before is not None and (token.gap or minus):
            parts.append(" ")
        parts.append(token.text)
    return "".join(parts)


class _Reader:
    """One pass over a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._gap = False
        self._inside = False  # of an executable comment
        self._hints = False
        self._tokens: list[Token] = []

    def read(self) -> Lexed:
        if odd := _ODD.search(self._text):
            raise _unreadable(f"the character U+{ord(odd[0]):04X} has no place in a statement", "leave it out")
        while self._at < len(self._text):
            if not self._skip_gap():
                self._take_token()
        if self._inside:
            raise _unreadable("an executable comment /*! has no end", "close it with */, or leave it out")
        return Lexed(tuple(self._tokens), self._hints)

    def _skip_gap(self) -> bool:
        """Pass white space or a comment, or step into or out of an executable comment."""
        text, at = self._text, self._at
        if match := _SPACE.match(text, at) or _LINE_COMMENT.match(text, at):
            if self._inside and match[0].startswith(("#", "-")):
                raise _unreadable("a comment is inside an executable comment", "leave the comments out")
            self._at = match.end()
        elif text.startswith("*/", at):
            if not self._inside:
                raise _unreadable("*/ ends a comment that was not begun", "leave it out")
            self._inside, self._at = False, at + 2
        elif text.startswith("/*", at):
            self._open_comment()
        else:
            return False
        self._gap = True
        return True

    def _open_comment(self) -> None:
        text, at = self._text, self._at
        if self._inside:
            raise _unreadable("a comment is inside an executable comment", "leave the comments out")
        if match := _EXECUTABLE.match(text, at):
            self._inside, self._at = True, match.end()
            return
        if (hint := _HINT.match(text, at)) is not None:
            if setting := _SETTING_HINT.search(hint[1]):
                raise ToolFailed(
                    f"the optimizer hint {setting[0].upper()} would change a setting",
                    code="not_read_only",
                    fix="leave the hint out; the time limit is an argument of the tool",
                )
            self._hints = True
        end = text.find("*/", at + 2)
        if end < 0:
            raise _unreadable("a comment has no end", "close it with */, or leave it out")
        self._at = end + 2

    def _take_token(self) -> None:
        text, at = self._text, self._at
        character = text[at]
        prefixed = _PREFIXED_STRING.match(text, at)
        if character in _STRING or prefixed:
            end = at + 1 if prefixed else at
            self._take(Kind.STRING, _STRING[text[end]].match(text, end), "a text in quotes")
        elif character == "`":
            self._take(Kind.QUOTED, _QUOTED.match(text, at), "a name in backticks")
        elif character == "@":
            self._take_variable()
        elif number := _NUMBER.match(text, at):
            if _WORD_PART.match(text, number.end()):
                raise _unreadable("a name begins with a digit", "write it in backticks")
            self._take(Kind.NUMBER, number, "")
        elif word := _WORD.match(text, at):
            self._take(Kind.WORD, word, "")
        elif character == ":":
            raise ToolFailed(
                "the statement assigns with := or has a named parameter",
                code="not_read_only",
                fix="write values into the statement; a variable cannot be set here",
            )
        elif character in _SYMBOLS:
            self._add(Kind.SYMBOL, at + 1)
        else:
            raise _unreadable(f"the character {character!r} is not understood here", "put texts in quotes")

    def _take_variable(self) -> None:
        quote = self._text[self._at + 1 : self._at + 2]
        if quote == "`":
            self._take(Kind.VARIABLE, _QUOTED.match(self._text, self._at + 1), "a variable's name")
        elif quote in _STRING and quote:
            self._take(Kind.VARIABLE, _STRING[quote].match(self._text, self._at + 1), "a variable's name")
        else:
            self._take(Kind.VARIABLE, _VARIABLE.match(self._text, self._at), "a variable's name")

    def _take(self, kind: Kind, match: re.Match[str] | None, what: str) -> None:
        if match is None:
            raise _unreadable(f"{what} has no end", "pass the whole statement, with its closing quote")
        self._add(kind, match.end())

    def _add(self, kind: Kind, end: int) -> None:
        self._tokens.append(Token(kind, self._text[self._at : end], self._gap))
        self._at, self._gap = end, False


def _unreadable(said: str, fix: str) -> ToolFailed:
    return ToolFailed(f"the statement cannot be read: {said}", code="parse_failed", fix=fix)
