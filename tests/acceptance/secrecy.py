"""Look for secrets in everything a process leaves behind, also in the forms in which they hide."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

ADDRESS = re.compile(rb"(?:postgres(?:ql)?|mysql)://[^.\s\"'\\]|\bhost=/|\bpassword=[^\[\s\"'\\&]")
"""A database's address with anything behind the scheme; the ``postgresql://...`` of a remedy is none."""


def list_forms(secret: str) -> Iterator[bytes]:
    """Yield a secret as it is and URL-encoded, as JSON, HTML, hexadecimal and inside base64 at any offset."""
    raw = secret.encode()
    yield from (raw, raw.hex().encode(), quote(secret, safe="").encode(), quote_plus(secret).encode())
    yield from (quote(secret).encode(), html.escape(secret).encode(), html.escape(secret, quote=False).encode())
    for ascii_only in (True, False):
        yield json.dumps(secret, ensure_ascii=ascii_only)[1:-1].encode()
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            # the digits at both ends depend on what stands beside it
            yield encode(b"\0" * before + raw).rstrip(b"=")[2 if before else 0 : -2]


def find_secrets(secrets: Iterable[str], places: Mapping[str, bytes], *, addresses: bool = True) -> list[str]:
    """Name each secret, and each address unless told otherwise, in ``places``, with what stands around it."""
    found: list[str] = []
    for place, content in places.items():
        for secret in secrets:
            for form in set(list_forms(secret)):
                if (at := content.find(form)) >= 0:
                    found.append(f"{place}: {secret!r} in {content[max(0, at - 60) : at + 80]!r}")
        for match in ADDRESS.finditer(content) if addresses else ():
            found.append(f"{place}: an address in {content[max(0, match.start() - 60) : match.end() + 60]!r}")
    return found


def read_folder(folder: Path) -> dict[str, bytes]:
    """Every file that a process may have written into its folder, whole: storage, its log, further files."""
    own = (".toml", ".py", ".pyc")  # what the test itself wrote
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in own)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
