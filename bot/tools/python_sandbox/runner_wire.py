"""What goes over the wire between Hermod and a runner, in both directions, and how it is checked.

A request and an answer have the same form: four bytes with the length of a head, the head as JSON, and then the bytes
of the parts that the head announces, in its order, and nothing behind them. Sizes come first, so that either side knows
what it will have to take before it takes any of it, and there is no archive format whose names, links or compression
would have to be distrusted. Whoever reads trusts nothing: unknown keys, odd names, names that come twice, numbers out
of bounds and too many parts are refused before a byte of a part is read.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable
from dataclasses import asdict, fields
from typing import Annotated, Literal, Protocol, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from bot.tools.python_sandbox.types import KiB, MiB, RunStatus, SandboxLimits

PROTOCOL = 1
"""Rises with every change that the other side would misunderstand; both sides refuse another number."""

PROTOCOL_HEADER = "Hermod-Runner-Protocol"
MEDIA_TYPE = "application/vnd.hermod.run"
RUNS_PATH, PROBE_PATH, HEALTH_PATH = "/v1/runs", "/v1/probe", "/healthz"

HEAD_BYTES = 1 * MiB
CHUNK_BYTES = 256 * KiB
MOST_PARTS = 1200
NAME_BYTES = 255
DETAIL_CHARS = 1000
MOST_FACTS, FACT_CHARS = 30, 300
TEXT_FACTOR = 3
"""A byte that is no UTF-8 becomes the replacement character, which has three."""

_LENGTH_BYTES = 4
_MOST = 2**53
_LONGEST_S = 1e9


_Model = TypeVar("_Model", bound=BaseModel)


class BadMessage(Exception):
    """What arrived is not in this form; the message says what is wrong with it, for a log."""


class Reads(Protocol):
    """What bytes are read from: the content of a request or of an answer."""

    async def read(self, n: int = -1) -> bytes:
        """Return at most ``n`` bytes; none at the end."""
        ...


def is_safe_name(name: str) -> bool:
    """Tell whether a name may come over the wire: one component of a path, without invisible characters."""
    return (
        name not in ("", ".", "..")
        and "/" not in name
        and name.isprintable()
        and len(name.encode("utf-8", "surrogatepass")) <= NAME_BYTES
    )


def _check_name(name: str) -> str:
    if not is_safe_name(name):
        raise ValueError("a file's name is one that is not taken")
    return name


Name = Annotated[str, AfterValidator(_check_name)]
Size = Annotated[int, Field(ge=0, le=_MOST)]
Bound = Annotated[int, Field(gt=0, le=_MOST)]
Seconds = Annotated[float, Field(gt=0, le=_LONGEST_S, allow_inf_nan=False)]
Spent = Annotated[float, Field(ge=0, le=_LONGEST_S, allow_inf_nan=False)]


class _OnWire(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Part(_OnWire):
    """One file, directly in ``input/`` or ``output/``."""

    place: Literal["input", "output"]
    name: Name
    size: Size


Parts = Annotated[tuple[Part, ...], Field(max_length=MOST_PARTS, strict=False)]


class WireLimits(_OnWire):
    """``SandboxLimits``; see there."""

    wall_s: Seconds
    cpu_s: Seconds
    memory_bytes: Bound
    file_bytes: Bound
    scratch_bytes: Bound
    scratch_files: Bound
    open_files: Bound
    output_bytes: Bound
    output_read_bytes: Bound
    files_out: Size
    files_out_bytes: Size
    source_bytes: Bound


class RunHead(_OnWire):
    """One program to run; its source and the files follow as parts.

    Args:
        run: a number that is used once; a second request with it is refused, never run again.
        thread: runs with the same word wait for each other.
        session: names a kept interpreter; empty: a fresh one.
        limits: what the sender wants; the runner takes the smaller of these and its own.
        code_bytes: of the source, UTF-8 with lone surrogates as they are.
        files: what ``input/`` and ``output/`` hold before the run.
    """

    run: Annotated[str, Field(pattern=r"\A[0-9a-f]{32}\z")]
    thread: Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]
    session: Annotated[str, Field(pattern=r"\A(?:[0-9a-f]{64})?\z")] = ""
    limits: WireLimits
    code_bytes: Size
    files: Parts = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_unique((part.place, part.name) for part in self.files)
        return self

    @property
    def size_bytes(self) -> int:
        """Bytes of all parts."""
        return self.code_bytes + sum(part.size for part in self.files)


class AnswerHead(_OnWire):
    """How a run ended; its output and the new files of ``output/`` follow as parts.

    Args:
        run: the number of the request that is answered.
        gone: files that were sent with the request and are no longer there.
        left: how many entries of ``output/`` are not handed over, because they are no plain files or too much.
    """

    run: str
    status: RunStatus
    stdout_bytes: Size
    stderr_bytes: Size
    stdout_cut: bool
    stderr_cut: bool
    exit_code: Annotated[int, Field(ge=-255, le=255)]
    duration_s: Spent
    cpu_s: Spent
    peak_memory_bytes: Size
    state: Literal["fresh", "continued", "lost"]
    detail: Annotated[str, Field(max_length=DETAIL_CHARS)]
    files: Parts = ()
    gone: Annotated[tuple[Name, ...], Field(max_length=MOST_PARTS, strict=False)] = ()
    left: Size = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_unique((part.place, part.name) for part in self.files)
        if any(part.place != "output" for part in self.files):
            raise ValueError("a file does not belong into output/")
        return self


class ProbeAnswer(_OnWire):
    """What the runner's backend was seen to enforce."""

    protocol: int
    version: Annotated[str, Field(max_length=100)]
    backend: Annotated[str, Field(max_length=100)]
    enforcing: bool
    works: bool
    reason: Annotated[str, Field(max_length=4000)]
    facts: Annotated[dict[str, str], Field(max_length=MOST_FACTS)]


class Refused(BaseModel):
    """Why a request was not answered otherwise."""

    model_config = ConfigDict(frozen=True)

    error: Annotated[str, Field(max_length=40)]
    message: Annotated[str, Field(max_length=4000)]


def _check_unique(names: Iterable[tuple[str, str]]) -> None:
    seen: set[tuple[str, str]] = set()
    for name in names:
        if name in seen:
            raise ValueError("a file comes twice")
        seen.add(name)


# -- limits ----------------------------------------------------------------------------------------


def build_wire_limits(limits: SandboxLimits) -> WireLimits:
    """Return limits in the form in which they are sent."""
    return WireLimits(**asdict(limits))


def take_smaller(wanted: WireLimits, ceilings: SandboxLimits) -> SandboxLimits:
    """Return the smaller one of each limit."""
    both = {f.name: min(getattr(wanted, f.name), getattr(ceilings, f.name)) for f in fields(SandboxLimits)}
    return SandboxLimits(**both)


def count_seconds(seconds: float) -> float:
    """Return a time that can be sent."""
    return min(max(seconds, 0.0), _LONGEST_S) if math.isfinite(seconds) else 0.0


# -- framing ---------------------------------------------------------------------------------------


def build_frame(head: BaseModel) -> bytes:
    """Return a head with its length before it.

    Raises:
        BadMessage: it is longer than the other side takes.
    """
    body = head.model_dump_json().encode()
    if len(body) > HEAD_BYTES:
        raise BadMessage(f"the head has {len(body)} bytes, and {HEAD_BYTES} are the limit")
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


async def read_head(reader: Reads, kind: type[_Model], *, idle_s: float) -> _Model:
    """Read a head.

    Args:
        reader: where it comes from.
        kind: what it is to be.
        idle_s: the longest wait for more bytes.

    Raises:
        BadMessage: it is none.
        TimeoutError: the sender was silent for too long.
    """
    length = int.from_bytes(await read_exactly(reader, _LENGTH_BYTES, idle_s=idle_s), "big")
    if length > HEAD_BYTES:
        raise BadMessage(f"the head has {length} bytes, and {HEAD_BYTES} are the limit")
    return parse_json(await read_exactly(reader, length, idle_s=idle_s), kind)


def parse_json(content: bytes, kind: type[_Model]) -> _Model:
    """Read a JSON value.

    Raises:
        BadMessage: it is none of this kind; the message holds nothing of the content.
    """
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        known = where.split(".")[0] in kind.model_fields
        raise BadMessage(f"{kind.__name__}: {where if known else 'an unknown key'}: {first['type']}") from None


async def read_exactly(reader: Reads, size: int, *, idle_s: float) -> bytes:
    """Read so many bytes.

    Raises:
        BadMessage: it ends before.
        TimeoutError: the sender was silent for too long.
    """
    return b"".join([chunk async for chunk in read_part(reader, size, idle_s=idle_s)])


async def read_part(reader: Reads, size: int, *, idle_s: float) -> AsyncIterator[bytes]:
    """Read so many bytes, piece by piece; see ``read_exactly``."""
    while size:
        async with asyncio.timeout(idle_s):
            chunk = await reader.read(min(size, CHUNK_BYTES))
        if not chunk:
            raise BadMessage("it ends too early")
        size -= len(chunk)
        yield chunk


async def read_end(reader: Reads, *, idle_s: float) -> None:
    """Make sure that nothing follows.

    Raises:
        BadMessage: something does.
        TimeoutError: it does not end.
    """
    async with asyncio.timeout(idle_s):
        if await reader.read(1):
            raise BadMessage("it does not end where it should")


def clean_text(text: str, most: int) -> str:
    """Return a text of the other side for people: one line, bounded, without invisible characters."""
    shown = "".join(c if c.isprintable() else " " for c in text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
