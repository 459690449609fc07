"""Removes secrets from text: the values that the settings know, and strings that look like credentials.

One ``SecretRedactor`` is made at the start and handed to everything that lets text out (model, chat, log,
trace, cache), through the protocol ``agent_core.context.Redactor``.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

MARK = "[redacted]"
MIN_LENGTH = 6
"""Shorter values are not searched for: they would blank ordinary words."""

# Needle, pattern. The needle is looked for first, because that is a hundred times faster. A pattern's group, if it
# has one, is what is blanked. Each pattern is linear: its repeats are bounded or possessive, or cannot be entered
# at more than one place. References: the vendors' pages on token formats; RFC 7468 for PEM; RFC 3986 for URLs.
_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("xox", re.compile(r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{8,}+")),
    ("xapp-", re.compile(r"xapp-[A-Za-z0-9-]{8,}+")),
    ("hooks.slack.com/", re.compile(r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]{8,}+)")),
    # docs.discord.com/developers/reference#authentication: the id in base64, the time, a signature
    (".", re.compile(r"(?<![A-Za-z0-9_-])[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}+")),
    ("/webhooks/", re.compile(r"discord(?:app)?\.com/api/(?:v\d{1,3}/)?webhooks/\d{1,20}/([A-Za-z0-9_-]{8,}+)")),
    ("sk-", re.compile(r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{16,}+")),
    ("AKIA", re.compile(r"AKIA[0-9A-Z]{16}")),
    ("ASIA", re.compile(r"ASIA[0-9A-Z]{16}")),
    ("AIza", re.compile(r"AIza[0-9A-Za-z_-]{35}")),
    ("gh", re.compile(r"gh[pousr]_[A-Za-z0-9]{16,}+")),
    ("github_pat_", re.compile(r"github_pat_[A-Za-z0-9_]{16,}+")),
    ("glpat-", re.compile(r"glpat-[A-Za-z0-9_-]{16,}+")),
    ("eyJ", re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+")),
    # A word after "Bearer" counts when it has a digit or is long, so that prose about bearers stays readable.
    (
        "earer",
        re.compile(
            r"[Bb]earer[ \t]{1,8}((?=[A-Za-z._~+/=-]{0,64}[0-9])[A-Za-z0-9._~+/=-]{6,}+|[A-Za-z0-9._~+/=-]{20,}+)"
        ),
    ),
    ("uthorization", re.compile(r"[Aa]uthorization[\"']?[ \t]{0,8}[:=][ \t]{0,8}[\"']?Basic[ \t]{1,8}([\w+/=-]{4,}+)")),
    ("://", re.compile(r"://[^\s:/?#@\"'<>]{0,128}+:([^\s/\"'<>]{1,256})@")),
    # The value stops at a double quote or backslash, so that JSON around it stays JSON.
    ("password=", re.compile(r"password=('[^'\"\\\n]{1,256}+'|\\\"[^\"\n]{1,256}?\\\"|[^\s&;,\"'\\)\]}]{1,256}+)")),
    (
        "PRIVATE KEY-----",
        # not possessive: before Python 3.11.5 a possessive group can lose what it matched (cpython gh-106052)
        re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----))*(?:-----END [A-Z0-9 ]{0,40}-----)?"),
    ),
)


def _encoded_shapes(start: bytes) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield what base64 (at its three offsets) and hexadecimal show of a credential that begins with ``start``."""
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + start).decode("ascii")
        needle = whole[(before * 8 + 5) // 6 : (before + len(start)) * 8 // 6]
        yield needle, re.compile(re.escape(needle) + r"[A-Za-z0-9+/_-]{8,}+={0,2}")
    for digits in (start.hex(), start.hex().upper()):
        yield digits, re.compile(digits + r"[0-9A-Fa-f]{16,}+")


# The tokens of workspaces that installed Hermod are many, and come and go. They all have one shape, which is found by
# itself in plain text and, through these, inside base64 and hexadecimal; URLs, JSON and HTML leave them as they are.
_SHAPES += tuple(_encoded_shapes(b"xoxb-"))


class SecretRedactor:
    """Replaces every secret by ``[redacted]``.

    Args:
        secrets: known values (``Settings.secrets()``). Those of fewer than 6 characters are left alone. Each is
            also found URL-encoded, JSON-escaped, HTML-escaped, and inside base64 at any offset.

    It is immutable, linear in the length of the text, and safe to share.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in _build_forms(secret.strip())}
        self._forms = tuple(sorted(form for form in forms if form not in MARK))

    def __repr__(self) -> str:
        return f"SecretRedactor({len(self._forms)} forms)"

    def redact(self, text: str) -> str:
        """Return ``text`` with every secret replaced; calling it twice changes nothing more."""
        # Replacing can uncover another match at its edge, so it goes on until nothing changes. Each round blanks
        # characters that were not blank, and text without secrets takes one round.
        while (clean := self._replace(text)) != text:
            text = clean
        return text

    def _replace(self, text: str) -> str:
        spans = sorted(self._find(text))
        if not spans:
            return text
        spans += [(match.start(), match.end()) for match in re.finditer(re.escape(MARK), text)]
        parts, done = [], 0
        for start, end in _merge(sorted(spans)):
            parts += [text[done:start], MARK]
            done = end
        return "".join(parts) + text[done:]

    def _find(self, text: str) -> Iterator[tuple[int, int]]:
        for form in self._forms:
            at = text.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = text.find(form, at + 1)
        for needle, pattern in _SHAPES:
            if needle in text:
                for match in pattern.finditer(text):
                    group = 1 if pattern.groups else 0
                    if match.group(group) != MARK:
                        yield match.span(group)


def _merge(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join overlapping spans; the input is sorted."""
    current: tuple[int, int] | None = None
    for start, end in spans:
        if current is None:
            current = (start, end)
        elif start < current[1]:
            current = (current[0], max(current[1], end))
        else:
            yield current
            current = (start, end)
    if current is not None:
        yield current


def _build_forms(secret: str) -> Iterator[str]:
    """Yield the ways in which a secret may be written."""
    if len(secret) < MIN_LENGTH:
        return
    yield secret
    raw = secret.encode("utf-8", "surrogatepass")  # the environment may hold bytes that are no text
    for encoded in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield encoded
        yield re.sub(r"%[0-9A-F]{2}", lambda match: match.group().lower(), encoded)
    for ascii_only in (True, False):
        once = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield json.dumps(once, ensure_ascii=ascii_only)[1:-1]
    yield html.escape(secret, quote=False)
    yield html.escape(secret)
    yield from _build_base64(raw)


def _build_base64(raw: bytes) -> Iterator[str]:
    """Yield what base64 of any text that holds ``raw`` contains: three offsets, two alphabets, edges cut off."""
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + raw).decode("ascii")
        first = (before * 8 + 5) // 6  # before it, digits depend on what stands before the secret
        last = (before + len(raw)) * 8 // 6  # from it on, digits depend on what comes after
        yield whole[first:last]
        yield whole[first:last].replace("+", "-").replace("/", "_")
    yield base64.b64encode(raw).decode("ascii")
    yield base64.urlsafe_b64encode(raw).decode("ascii")
