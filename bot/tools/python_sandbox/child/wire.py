"""Messages between the parent and the sandbox's process: four bytes of length, big endian, then JSON.

The child reads JSON with the scanner that is written in C, without the ``json`` package around it, whose import takes
longer than locking the process in. The parent may use ``json`` for the same bytes.
"""

from __future__ import annotations

import os
from _json import encode_basestring_ascii, make_scanner

MAX_MESSAGE = 4 * 1024 * 1024


class _Scanning:
    """What the scanner asks its caller for; as in ``json.JSONDecoder``."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def parse_json(text: str) -> dict[str, object]:
    """Read one JSON object.

    Raises:
        ValueError: it is not JSON, or not an object.
    """
    try:
        scan = make_scanner(_Scanning)  # type: ignore[arg-type] # it reads these attributes, whatever the class
        value, end = scan(text.strip(), 0)
    except (StopIteration, SystemError) as error:
        # SystemError: without the package the scanner does not find the exception that it wants to raise (3.11, 3.12).
        raise ValueError("the message is not JSON") from error
    if not isinstance(value, dict) or end != len(text.strip()):
        raise ValueError("the message is not one JSON object")
    return value


def render_json(message: dict[str, str | int]) -> str:
    """Return a flat object as JSON."""
    items = (
        f"{encode_basestring_ascii(name)}: {encode_basestring_ascii(item) if isinstance(item, str) else int(item)}"
        for name, item in message.items()
    )
    return "{" + ", ".join(items) + "}"


def read_message(descriptor: int) -> dict[str, object]:
    """Read one message from a descriptor, which stays open.

    Raises:
        ValueError: it is missing, cut short, too long or not JSON.
        OSError: the descriptor cannot be read.
    """
    head = _read_exactly(descriptor, 4)
    length = int.from_bytes(head, "big")
    if length > MAX_MESSAGE:
        raise ValueError(f"the message has {length} bytes; at most {MAX_MESSAGE} are read")
    return parse_json(_read_exactly(descriptor, length).decode())


def write_message(descriptor: int, message: dict[str, str | int]) -> None:
    """Write one message to a descriptor.

    Raises:
        OSError: nobody reads it any more.
    """
    body = render_json(message).encode()
    left = len(body).to_bytes(4, "big") + body
    while left:
        left = left[os.write(descriptor, left) :]


def _read_exactly(descriptor: int, size: int) -> bytes:
    parts: list[bytes] = []
    missing = size
    while missing:
        part = os.read(descriptor, min(missing, 65536))
        if not part:
            raise ValueError(f"the message ends {missing} bytes early")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
