"""SQL texts without the data in them: what may leave the database's own walls.

Literals become ``$n``, numbered after the parameters that the text already has, so that the result can still be
planned (as with pg_stat_statements' own texts). Comments go, white space is folded. Where the text was cut off,
or can be read in two ways, everything from there on becomes ``<redacted>``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from bot.tools.slow_queries.lexer import Token, TokenKind, tokenize

LONGEST_TEXT = 2_000
"""Characters of a statement that are kept for people and models."""

# Longer ones are not lexed to their end: whatever is cut off is redacted as a cut-off text is.
_LONGEST_INPUT = 200_000

# Numbers that are schema, not data: numeric(10, 2), order by 1.
_SIZED_TYPES = frozenset(
    {"numeric", "decimal", "varchar", "char", "character", "varying", "bit", "float", "bpchar"}
    | {"timestamp", "timestamptz", "time", "timetz", "interval"}
)
_SIZE_DIGITS = 4
_ORDINAL_DIGITS = 2
# Without a digit or quote in it, so that a second redaction leaves it as it is.
_REDACTED = "<redacted>"
_CUT = " ... <cut>"

_SETTING_VERBS = frozenset({"set", "alter"})
_QUOTED_PART = re.compile(r"\"((?:[^\"]|\"\")*)\"|'((?:[^']|'')*)'|«([^»]*)»|“([^”]*)”|„([^“]*)“|「([^」]*)」")


def redact_sql(sql: str) -> str:
    """Return ``sql`` without literals and comments; doing it twice changes nothing more.

    The result has at most ``LONGEST_TEXT`` characters.
    """
    return shorten("".join(_redacted_parts(sql)).strip())


def shorten(text: str, limit: int = LONGEST_TEXT) -> str:
    """Cut ``text`` to ``limit`` characters, the note that says so included."""
    return text if len(text) <= limit else text[: limit - len(_CUT)].rstrip() + _CUT


def fingerprint_sql(sql: str) -> str:
    """Name the shape of a statement: 16 hexadecimal digits, the same whatever its literals and parameters are.

    Letter case of words, white space, comments and the length of value lists do not matter.
    """
    words: list[str] = []
    for part in _redacted_parts(sql):
        word = part.strip()
        if not word:
            continue
        placeholder = word.startswith(("$", "<redacted")) or word[0].isdigit()
        words.append("?" if placeholder else word if word.startswith('"') else word.lower())
    shape = re.sub(r"\( \?(?: , \?)* \)", "(?+)", " ".join(words).rstrip("; "))
    return hashlib.sha256(shape.encode(errors="replace")).hexdigest()[:16]


def redact_message(message: str, sql: str) -> str:
    """Return a server's error message without data: quoted parts stay only if the redacted ``sql`` has them.

    An error repeats values (``invalid input syntax for type integer: "..."``) as well as names; only names
    survive the redaction of the statement, so they are told apart by that.
    """
    kept = redact_sql(sql)

    def judge(match: re.Match[str]) -> str:
        inner = next(group for group in match.groups() if group is not None)
        return match[0] if inner and inner in kept else f'"{_REDACTED}"'

    return shorten(_QUOTED_PART.sub(judge, message), 400)


def _redacted_parts(sql: str) -> Iterator[str]:
    """Yield the parts of the result, with one space for each run of white space and comments."""
    gap = False
    for part in _judged_parts(sql):
        if part != " ":
            if gap:
                yield " "
            yield part
        gap = part == " "


def _judged_parts(sql: str) -> Iterator[str]:
    text = sql[:_LONGEST_INPUT]
    tokens = list(tokenize(text))
    number = max((int(t.text[1:]) for t in tokens if t.kind is TokenKind.PARAMETER and len(t.text) < 7), default=0)
    place = _Place()
    for token in tokens:
        if place.in_setting(token):
            yield from place.skip_setting(token)
            continue
        match token.kind:
            case TokenKind.SPACE | TokenKind.COMMENT:
                yield " "
            case TokenKind.UNSURE:
                yield _REDACTED
            case TokenKind.STRING | TokenKind.QUOTED_NAME if not token.complete:
                yield _REDACTED
            case TokenKind.NUMBER if place.keeps_number(token.text):
                yield token.text
            case TokenKind.STRING | TokenKind.NUMBER:
                number += 1
                yield f"${number}"
            case TokenKind.WORD | TokenKind.QUOTED_NAME | TokenKind.PARAMETER | TokenKind.SYMBOL:
                yield token.text
        place.advance(token)
    if len(sql) > _LONGEST_INPUT:
        yield _REDACTED


class _Place:
    """Where in a statement the reader is, as far as that decides what is data."""

    def __init__(self) -> None:
        self._start_statement()

    def _start_statement(self) -> None:
        self._words: list[str] = []
        self._previous = ""
        self._sized = False
        self._ordinals = False
        self._value = False

    def advance(self, token: Token) -> None:
        """Take notice of a token that was passed on."""
        if token.kind in (TokenKind.SPACE, TokenKind.COMMENT):
            return
        text = token.text.lower()
        if text == ";":
            self._start_statement()
            return
        if token.kind is TokenKind.WORD and len(self._words) < 64:
            self._words.append(text)
        if text == "(":
            self._sized = self._previous in _SIZED_TYPES
        elif text == ")":
            self._sized = False
        if text == "by":
            self._ordinals = self._previous in ("order", "group")
        elif token.kind is not TokenKind.NUMBER and text != ",":
            self._ordinals = False
        # SET name = value takes bare words as values: what follows "=" or "to" may be anything.
        sets = bool(self._words) and self._words[0] in _SETTING_VERBS and "set" in self._words
        self._value = sets and text in ("=", "to")
        self._previous = text

    def keeps_number(self, text: str) -> bool:
        """True for a number that describes the schema or the result's columns."""
        if self._sized:
            return len(text) <= _SIZE_DIGITS
        return self._ordinals and len(text) <= _ORDINAL_DIGITS and text.isdigit()

    def in_setting(self, token: Token) -> bool:
        """True while the value of a SET is read; it ends with the statement."""
        if self._value and token.text == ";":
            self._value = False
        return self._value

    def skip_setting(self, token: Token) -> Iterator[str]:
        """Give one mark for the whole value, however many tokens it has."""
        if token.kind in (TokenKind.SPACE, TokenKind.COMMENT):
            yield " "
        elif self._previous != "<value>":
            self._previous = "<value>"
            yield _REDACTED
