"""Names and kinds of files that outsiders sent or untrusted code made."""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from adapters.markdown.bidi import clean_name

FileKind = Literal["png", "jpeg", "csv", "txt", "json", "md", "other"]
"""What a file is, by its content. ``other`` is handed on as a download that no platform draws."""

NAME_CHARS, NAME_BYTES = 80, 160
"""The longest name, its suffix included."""

_SUFFIX_CHARS = 12
_PLAIN = " ._-+(),="
_AT_THE_START = " .-+=,~_"
_RESERVED = re.compile(r"(?i)(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\.|\Z)")
"""Device names of Windows, where people will save it
(https://learn.microsoft.com/en-us/windows/win32/fileio/naming-a-file)."""

_MARKUP = re.compile(r"\s*<(?:!doctype|html|svg|\?xml|script|head|body|iframe|math)", re.IGNORECASE)
_TEXTS: dict[str, FileKind] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".md": "md",
    ".txt": "txt",
    ".log": "txt",
    "": "txt",
}
_SUFFIXES: dict[FileKind, tuple[str, ...]] = {
    "png": (".png",),
    "jpeg": (".jpg", ".jpeg"),
    "csv": (".csv", ".tsv"),
    "json": (".json", ".jsonl"),
    "md": (".md",),
    "txt": (".txt", ".log"),
    "other": (),
}
_MARKUP_SUFFIXES = ".svg .svgz .htm .html .xhtml .xht .shtml .mht .mhtml .xml .xsl .xslt .js .mjs .hta"
_STARTED_SUFFIXES = ".url .webloc .desktop .lnk .exe .scr .bat .cmd .com .ps1 .vbs .jar .msi .app .dmg .pkg"
_PICTURE_SUFFIXES = ".png .jpg .jpeg .gif .webp .avif .bmp .ico .tif .tiff"
_DRAWN = frozenset(
    suffix
    for line in (_MARKUP_SUFFIXES, _STARTED_SUFFIXES, _PICTURE_SUFFIXES, ".csv .tsv .json .jsonl .md .txt .log")
    for suffix in line.split()
)
"""Suffixes by which a platform or a double click would draw or run a file that is not what its name says."""

_BINARY = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeFile:
    """A file that untrusted code made.

    Args:
        name: cleaned, see ``clean_file_name``.
        content: its bytes.
        kind: by content.
        rows: of a table, its header not counted; None for what is no table.
    """

    name: str
    content: bytes
    kind: FileKind
    rows: int | None = None

    @property
    def posted_name(self) -> str:
        """The name under which people get it: its suffix never promises more than the content holds."""
        return build_posted_name(self.name, self.kind)


def clean_file_name(name: str, *, taken: Collection[str] = ()) -> str:
    """Return a name that is safe on a disk, in a prompt and in a message: one path component of plain characters.

    Letters and digits of every script stay. Path parts, control and invisible characters, marks of Markdown and
    mentions, dots and dashes at the start, and names of Windows devices do not.

    Args:
        name: as an outsider wrote it; any text, lone surrogates too.
        taken: names that are in use; compared without case.

    Returns:
        At least one character; with a number before its suffix where it was taken.
    """
    last = unicodedata.normalize("NFC", name).replace("\\", "/").rstrip("/ ").rpartition("/")[2]
    shown = "".join(c if _is_plain(c) else "_" for c in clean_name(last))
    shown = re.sub(r"\s+", " ", re.sub(r"_{2,}", "_", shown)).lstrip(_AT_THE_START).rstrip(" .")
    if _RESERVED.match(shown):
        shown = f"file-{shown}"
    used = {unicodedata.normalize("NFC", other).casefold() for other in taken}
    stem, suffix = split_suffix(shown)
    number = 1
    while True:
        mark = "" if number == 1 else f"-{number}"
        found = f"{_cut(stem or 'file', f'{mark}{suffix}')}{mark}{suffix}"
        if found.casefold() not in used:
            return found
        number += 1


def _is_plain(char: str) -> bool:
    return char in _PLAIN or unicodedata.category(char)[0] in "LN" or unicodedata.category(char) in ("Mn", "Mc")


def _cut(stem: str, tail: str) -> str:
    stem = stem[: NAME_CHARS - len(tail)]
    while stem and len(f"{stem}{tail}".encode()) > NAME_BYTES:
        stem = stem[:-1]
    return stem.rstrip(" .") or "file"


def split_suffix(name: str) -> tuple[str, str]:
    """Return the name before its suffix, and the suffix with its dot; empty where it has none that is short."""
    stem, dot, suffix = name.rpartition(".")
    if not dot or not stem or not suffix or len(suffix) > _SUFFIX_CHARS or not suffix.isascii() or " " in suffix:
        return name, ""
    return stem, f".{suffix}"


def read_kind(name: str, content: bytes) -> FileKind:
    """Tell what a file is. Pictures and text are known by their content; which text it is, by its suffix as well."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if content.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    kind = _TEXTS.get(split_suffix(name)[1].lower(), "other")
    if kind == "other" or not content:
        return "other"
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "other"
    if _BINARY.search(text) or _MARKUP.match(text):
        return "other"
    return kind


def build_posted_name(name: str, kind: FileKind) -> str:
    """Return the name under which a file is posted: ``.bin`` behind whatever a platform would draw wrongly."""
    stem, suffix = split_suffix(name)
    suffix = suffix.lower()
    if kind == "other":
        return f"{_cut(name, '.bin')}.bin" if suffix in _DRAWN else name
    if suffix in _SUFFIXES[kind]:
        return name
    right = _SUFFIXES[kind][0]
    return f"{_cut(stem if suffix in _DRAWN else name, right)}{right}"


def count_rows(kind: FileKind, content: bytes) -> int | None:
    """Count the rows of a table below its header; line breaks inside quotes end none. None for what is no table."""
    if kind != "csv":
        return None
    rows, inside = 0, False
    for line in io.BytesIO(content):
        inside ^= line.count(b'"') % 2 == 1
        rows += not inside and bool(line.strip())
    return max(0, rows - 1)


def format_size(size: int) -> str:
    """Write a size in bytes for people: ``812 B``, ``12.3 kB``, ``4.0 MB``."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} kB" if size < 999_950 else f"{size / 1_000_000:.1f} MB"
