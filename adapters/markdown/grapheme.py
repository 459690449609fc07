"""Where a text may be cut without tearing what a person sees as one character."""

from __future__ import annotations

import unicodedata

_JOINER = "\u200d"


def _extends(char: str) -> bool:
    """True for a character that belongs to the one before it (a subset of UAX 29's Extend and SpacingMark)."""
    return (
        unicodedata.category(char) in ("Mn", "Me", "Mc")
        or char == _JOINER
        or "\U0001f3fb" <= char <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= char <= "\U000e007f"  # tags of flags
        or "\u1160" <= char <= "\u11ff"  # Hangul vowels and finals
    )


def _is_regional(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def is_boundary(text: str, at: int) -> bool:
    """True when a cut before ``text[at]`` tears no grapheme."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if _extends(after) or before == _JOINER or (before == "\r" and after == "\n"):
        return False
    if _is_regional(before) and _is_regional(after):
        run = 0
        while run < at and _is_regional(text[at - 1 - run]):
            run += 1
        return run % 2 == 0
    return True


def cut_before(text: str, at: int) -> int:
    """Return the last boundary in 1..``at``; ``at`` itself when one grapheme is longer than that."""
    for n in range(at, 0, -1):
        if is_boundary(text, n):
            return n
    return at
