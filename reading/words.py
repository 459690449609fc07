"""Split English and Chinese text into tokens that carry concepts."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from reading.numbers import ENGLISH_NUMBER
from reading.vocabulary import COMPOUNDS, CONCEPTS, PHRASES, STOP_CHINESE, STOP_WORDS

_PIECE = re.compile(r"[a-z]+(?:['’][a-z]+)?|\d+(?:\.\d+)?|[\u4e00-\u9fff]+")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_IRREGULAR = {
    "indices": "index",
    "indexes": "index",
    "queries": "query",
    "querys": "query",
    "ran": "run",
    "running": "run",
    "slower": "slow",
    "slowest": "slow",
    "slowed": "slow",
    "dice": "die",
    "statuses": "status",
    "die": "die",
    "analyses": "analysis",
    "databases": "database",
    "analyzing": "analyze",
    "dragging": "drag",
    "lagging": "lag",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A word with its place in the text. ``concepts`` is empty for words without meaning of their own."""

    text: str
    start: int
    end: int
    concepts: tuple[str, ...]


def has_chinese(text: str) -> bool:
    """Tell whether the text has a Chinese character."""
    return _HAN.search(text) is not None


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """Cut English endings, so that forms of one word meet. Only equality of stems has a meaning."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls":
                word = word[:-1]
            break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def _build_english() -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {
        stem(word): (concept,) for concept, words in CONCEPTS.items() for word in words.split() if not has_chinese(word)
    }
    return table | {word: concepts for word, concepts in COMPOUNDS.items() if not has_chinese(word)}


def _build_chinese() -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {
        word: (concept,) for concept, words in CONCEPTS.items() for word in words.split() if has_chinese(word)
    }
    table |= {word: concepts for word, concepts in COMPOUNDS.items() if has_chinese(word)}
    return table | {word: () for word in STOP_CHINESE if word not in table}


_ENGLISH = _build_english()
_CHINESE = _build_chinese()
_LONGEST_CHINESE = max(map(len, _CHINESE))


@lru_cache(maxsize=8192)
def concepts_of(word: str) -> tuple[str, ...]:
    """Return what an English word means; an unknown word means its own stem, a stop word nothing."""
    word = re.sub(r"['’].*", "", word)
    if word in STOP_WORDS or word.isdigit():
        return ()
    known = _ENGLISH.get(word) or _ENGLISH.get(stem(word))
    return known or ((stem(word),) if len(word) > 1 else ())


def tokenize(text: str) -> list[Token]:
    """Split ``text``; names with underscores fall apart into their words. Numbers carry no concept."""
    lowered = text.lower()
    tokens: list[Token] = []
    for found in _PIECE.finditer(lowered):
        piece = found.group()
        if has_chinese(piece):
            tokens.extend(_split_chinese(piece, found.start()))
        elif piece[0].isdigit():
            tokens.append(Token(text=piece, start=found.start(), end=found.end(), concepts=()))
        else:
            tokens.append(Token(text=piece, start=found.start(), end=found.end(), concepts=concepts_of(piece)))
    return _join_phrases(tokens) if len(tokens) > 1 else tokens


def _join_phrases(tokens: list[Token]) -> list[Token]:
    joined: list[Token] = []
    for token in tokens:
        before = joined[-1] if joined else None
        concept = PHRASES.get((before.text, token.text)) if before else None
        if before and concept:
            text = f"{before.text} {token.text}"
            joined[-1] = Token(text=text, start=before.start, end=token.end, concepts=(concept,))
        else:
            joined.append(token)
    return joined


def _split_chinese(run: str, offset: int) -> list[Token]:
    """Cut a run of Chinese characters by the longest known word; the rest becomes pairs of characters."""
    tokens: list[Token] = []
    unknown = ""
    at = 0
    while at < len(run):
        word = _longest_known(run, at)
        if word is None:
            unknown += run[at]
            at += 1
            continue
        tokens.extend(_pairs(unknown, offset + at - len(unknown)))
        unknown = ""
        tokens.append(Token(text=word, start=offset + at, end=offset + at + len(word), concepts=_CHINESE[word]))
        at += len(word)
    tokens.extend(_pairs(unknown, offset + at - len(unknown)))
    return tokens


def _longest_known(run: str, at: int) -> str | None:
    for length in range(min(_LONGEST_CHINESE, len(run) - at), 0, -1):
        if run[at : at + length] in _CHINESE:
            return run[at : at + length]
    return None


def _pairs(run: str, offset: int) -> list[Token]:
    if len(run) < 2:
        return [Token(text=run, start=offset, end=offset + 1, concepts=(run,))] if run else []
    return [
        Token(text=run[n : n + 2], start=offset + n, end=offset + n + 2, concepts=(run[n : n + 2],))
        for n in range(len(run) - 1)
    ]


def first_sentence(text: str) -> str:
    """Return the first sentence of a description, on one line and without its full stop."""
    paragraph = " ".join(re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0].split())
    return re.split(r"(?<=[.。])\s", paragraph, maxsplit=1)[0].rstrip(".。")


def mend_spelling(text: str, lexicon: Collection[str]) -> str:
    """Replace words one slip away from a word of ``lexicon``: swapped letters, or one missing, extra or wrong one.

    Short words are only mended for swapped letters, and the first letter has to agree, since most slips happen later
    in a word. Words that are known already stay.
    """

    def mend(found: re.Match[str]) -> str:
        word = found.group().lower()
        known = (
            word in STOP_WORDS
            or word in lexicon
            or ENGLISH_NUMBER.fullmatch(word)
            or stem(word) in _ENGLISH
            or word in _ENGLISH
        )
        return found.group() if known else _nearest(word, lexicon) or found.group()

    return re.sub(r"(?<![\w/.-])[A-Za-z]{4,16}(?![\w/.-])", mend, text)


def _nearest(word: str, lexicon: Collection[str]) -> str | None:
    for n in range(len(word) - 1):
        swapped = word[:n] + word[n + 1] + word[n] + word[n + 2 :]
        if swapped in lexicon:
            return swapped
    if len(word) < 5:
        return None
    near = (known for known in lexicon if abs(len(known) - len(word)) <= 1 and len(known) > 4 and known[0] == word[0])
    return min((known for known in near if _one_slip(word, known)), default=None)


def _one_slip(a: str, b: str) -> bool:
    """Tell whether one letter was left out, added, or (in words of six letters and more) replaced."""
    if len(a) > len(b):
        a, b = b, a
    n = 0
    while n < len(a) and a[n] == b[n]:
        n += 1
    if len(a) == len(b):
        return len(a) >= 6 and a[n + 1 :] == b[n + 1 :]
    return a[n:] == b[n + 1 :]
