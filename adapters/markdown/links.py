"""What a link of a model or a tool may look like: only http, https and mailto, and never under another host's name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

URL_MAX = 3000
"""A longer address is shown as text; a platform may take less."""

_SCHEMES = ("http://", "https://", "mailto:")
_HOST_LIKE = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://|www\.)[^\s/?#]+|[\w-]+(?:\.[\w-]+)*\.[^\W\d_]{2,}(?![\w-])|\d{1,3}(?:\.\d{1,3}){3}", re.I
)
_BARE = re.compile(r"https?://[^\s<>|\"'`\u3000-\u303f\uff00-\uffef]+", re.I)
_TRAILING = ".,;:!?*_~)]}\u2026"


@dataclass(frozen=True, slots=True)
class Shown:
    """A link as it is shown: text, a link with a label (both may be empty), text."""

    before: str
    url: str
    label: str
    after: str


def show_link(url: str, label: str, trusted: Collection[str] | None = None, *, most: int = URL_MAX) -> Shown:
    """Decide how a link is shown.

    Args:
        url: where it leads, as written.
        label: its label without formatting; one that names another host is shown beside the address.
        trusted: hosts that may be linked to, with all below them; None for any.
        most: characters of an address; a longer one is shown as text.
    """
    label = " ".join(label.split())
    if not url.lower().startswith(_SCHEMES) or len(url) > most or not _is_trusted(url, trusted):
        return Shown(f"{label} ({url})" if url and label not in ("", url) else label or url, "", "", "")
    bare = url[7:] if url.lower().startswith("mailto:") else url
    if not label or label in (url, bare):
        return Shown("", url, bare, "")
    if any(host_of(found) != host_of(url) for found in _HOST_LIKE.findall(_as_seen(label))):
        return Shown(f"{label} (", url, bare, ")")
    return Shown("", url, label, "")


def find_bare_urls(text: str) -> list[tuple[int, int]]:
    """Return where web addresses stand in running text, without the punctuation of the sentence around them."""
    spans = []
    for found in _BARE.finditer(text):
        url = found[0]
        while url and url[-1] in _TRAILING and not (url[-1] == ")" and url.count("(") >= url.count(")")):
            url = url[:-1]
        if len(url) > len("https://"):
            spans.append((found.start(), found.start() + len(url)))
    return spans


def names_host(text: str) -> bool:
    """True for text that holds what people, and platforms, take for the address of a host."""
    return _HOST_LIKE.search(_as_seen(text)) is not None


def _as_seen(text: str) -> str:
    """Return a text as it looks: other forms of letters and dots as the usual ones, without what nobody sees."""
    if text.isascii():
        return text
    usual = unicodedata.normalize("NFKC", text).replace("\u3002", ".")
    return "".join(c for c in usual if unicodedata.category(c) not in ("Cf", "Mn"))


def host_of(url: str) -> str:
    """Return the host of an address, of a mail address or of what looks like one, without ``www.``."""
    if url.lower().startswith("mailto:"):
        return url.rpartition("@")[2].partition("?")[0].lower()
    try:
        host = urlsplit(url if "://" in url else f"http://{url}").hostname or ""
    except ValueError:  # a bracket that belongs to no IPv6 address
        return url.lower()
    return host.lower().removeprefix("www.").rstrip(".")


def _is_trusted(url: str, trusted: Collection[str] | None) -> bool:
    if trusted is None:
        return True
    host = host_of(url)
    return any(host == name or host.endswith(f".{name}") for name in (t.lower().removeprefix("www.") for t in trusted))
