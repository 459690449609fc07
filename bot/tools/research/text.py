"""Texts of strangers, made fit to be shown: one line, or lines, without what nobody sees."""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Iterator

_TAG = re.compile(
    r"</?(?:a|b|br|code|em|font|i|mark|p|span|strong|sub|sup|u|wbr)\b[^<>]{0,200}>|<https?:[^<>]{0,2000}>",
    re.IGNORECASE,
)
"""What services put around words that were found, and links as chat platforms write them."""

_SPACES = re.compile(r"[^\S\n]+")
_BLANK_LINES = re.compile(r"\n{3,}")

_UNSEEN = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f"  # controls, less tab and line feed
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\U0001d173-\U0001d17a"
    "\ufe00-\ufe0f\U000e0000-\U000e0fff]"  # variation selectors and tags can carry a whole hidden text
)
"""Characters without a shape, except the joiners U+200C and U+200D, which scripts and emoji need
(https://www.unicode.org/reports/tr36/, https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point)."""

_META = re.compile(rb"<meta[^>]{0,500}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_META_WITHIN = 4_096
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_ENCODINGS = frozenset(
    {
        *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "ascii", "koi8-r", "koi8-u", "mac-roman", "cp866", "cp874"),
        *("gbk", "gb2312", "gb18030", "big5", "big5hkscs", "euc_jp", "shift_jis", "iso2022_jp", "euc_kr", "cp949"),
        *(f"cp{number}" for number in range(1250, 1259)),
        *(f"iso8859-{number}" for number in range(1, 17) if number != 12),
    }
)
"""Python's names of the encodings of https://encoding.spec.whatwg.org/#names-and-labels. Not every codec of Python is
one of a page, and some cost more than they should."""


def clean_line(text: str, most: int) -> str:
    """Return a text on one line, with at most ``most`` characters, that is no link of Markdown.

    Tags, entities and what nobody sees are left out.
    """
    plain = html.unescape(_TAG.sub("", text[: most * 8]))
    line = " ".join(_UNSEEN.sub("", plain).split()).replace("](", "] (")
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def clean_lines(text: str) -> str:
    """Return a text of several lines without what nobody sees."""
    plain = _UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    lines = [line.rstrip() for line in plain.split("\n")]
    lines = [line if line.startswith((" ", "\t")) else _SPACES.sub(" ", line) for line in lines]  # code keeps its shape
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip("\n")


def decode(body: bytes, declared: str, *, cut: bool) -> str:
    """Decode a page; never fails: what cannot be read becomes U+FFFD.

    A byte order mark wins; then UTF-8, if the bytes are that beyond doubt; then what the server, and then the page,
    declares; else windows-1252. Bytes that are UTF-8 by chance are far rarer than wrong declarations.

    Args:
        body: as it came.
        declared: by the server; may be empty or nonsense.
        cut: it ends in its middle, perhaps inside of a character.
    """
    for bom, encoding in _BOMS:
        if body.startswith(bom):
            return body[len(bom) :].decode(encoding, "replace")
    if not body.isascii():
        try:
            return codecs.getincrementaldecoder("utf-8")().decode(body, not cut)
        except UnicodeDecodeError:
            pass
    for name in _declared(body, declared):
        return body.decode(name, "replace")
    return body.decode("utf-8" if body.isascii() else "cp1252", "replace")


def _declared(body: bytes, declared: str) -> Iterator[str]:
    found = _META.search(body[:_META_WITHIN])
    meta = "" if found is None else found[1].decode("ascii")
    for name in (declared.strip(), "" if meta.lower().startswith("utf-16") else meta):  # such a page could not say so
        try:
            known = codecs.lookup(name).name if name.isascii() and name else ""
        except (LookupError, ValueError):
            continue
        if known in _ENCODINGS:
            # a latin-1 of the web is windows-1252, says the standard
            yield "cp1252" if known in ("ascii", "iso8859-1") else known
