"""Log files as pieces of bytes: plain or gzip (also several members in one file), bounded, in one pass."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from bot.tools.slow_logs.tally import Tally

CHUNK = 256 * 1024
MOST_ENTRY = 4 * 1024 * 1024
"""An entry with more bytes is kept up to ``KEPT_OF_LONG``, and its middle is skipped."""

KEPT_OF_LONG = 256 * 1024
_TAIL = 64
_HEAD = 64 * 1024
_GZIP = b"\x1f\x8b"


class OutOfTime(Exception):
    """The time for reading is up. It is no failure: what was read until then is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file to read.

    Args:
        name: how it is called in answers.
        open: opens it at its beginning; called once for a look at it and once to read it.
        size_bytes: as it lies on the disk; 0 where that is not known (a pipe).
        head: what was read of a stream that cannot be read twice; it comes before what ``open`` gives.
    """

    name: str
    open: Callable[[], BinaryIO]
    size_bytes: int = 0
    head: bytes = b""

    def look(self, size: int = CHUNK) -> bytes:
        """Return the beginning, decompressed; empty when it cannot be decompressed."""
        piece = self.head
        if not piece:
            with self.open() as stream:
                piece = stream.read(size)
        if piece[:2] != _GZIP:
            return piece
        try:
            return zlib.decompressobj(31).decompress(piece, size)
        except zlib.error:
            return b""


def open_pipe(name: str, stream: BinaryIO) -> Source:
    """Make a source of a stream that can be read only once, such as standard input; waits for its beginning."""
    head = b""
    while len(head) < _HEAD and (piece := stream.read(_HEAD - len(head))):
        head += piece
    return Source(name=name, open=lambda: stream, head=head)


def read_chunks(source: Source, tally: Tally, progress: Callable[[int], None]) -> Iterator[bytes]:
    """Yield a file's bytes, decompressed where it is gzip. Damage in the compression is counted, never fatal.

    Args:
        source: what to read.
        tally: takes note of damage.
        progress: is told how many bytes of the file came with each piece, before decompression.
    """
    with source.open() as stream:
        piece = source.head or stream.read(CHUNK)
        if piece[:2] == _GZIP:
            yield from _inflate(piece, stream, tally, progress)
            return
        while piece:
            progress(len(piece))
            yield piece
            piece = stream.read(CHUNK)


def _inflate(piece: bytes, stream: BinaryIO, tally: Tally, progress: Callable[[int], None]) -> Iterator[bytes]:
    inflater = zlib.decompressobj(31)
    begun = True  # inside a member
    while piece:
        progress(len(piece))
        while piece:
            if not begun:
                piece = piece.lstrip(b"\0")  # padding between members, as gzip itself allows
                if not piece:
                    break
                inflater, begun = zlib.decompressobj(31), True
            try:
                out = inflater.decompress(piece, CHUNK)
            except zlib.error:
                tally.damage(piece, 0, len(piece), "the gzip data is broken from here on")
                return
            if out:
                yield out
            if inflater.eof:
                piece, begun = inflater.unused_data, False
            else:
                piece = inflater.unconsumed_tail
        piece = stream.read(CHUNK)
    if begun:
        tail = inflater.flush()
        if tail:
            yield tail
        if not inflater.eof:
            tally.damage(b"\0", 0, 1, "the gzip file was cut off here")


def cut_at_entries(chunks: Iterator[bytes], last_start: Callable[[bytes], int], tally: Tally) -> Iterator[bytes]:
    """Yield the same bytes in pieces that begin and end between two entries.

    An entry of more than ``MOST_ENTRY`` loses its middle, so memory is bounded whatever a log holds.

    Args:
        chunks: the bytes.
        last_start: tells where the last entry of a piece begins; 0 or less when none begins after its first byte.
        tally: takes note of entries that were shortened.
    """
    rest, shortened = b"", False
    for chunk in chunks:
        buffer = rest + chunk if rest else chunk
        start = last_start(buffer)
        if start > 0:
            yield buffer[:start]
            rest, shortened = buffer[start:], False
        else:
            rest = buffer
        if len(rest) > MOST_ENTRY or shortened:
            tally.shortened += not shortened
            shortened = True
            rest = shorten_entry(rest)
    if rest:
        yield rest


def shorten_entry(entry: bytes) -> bytes:
    """Take the middle out of an entry that is too long to be kept."""
    return entry[:KEPT_OF_LONG] + entry[KEPT_OF_LONG:][-_TAIL:]
