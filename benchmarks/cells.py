"""What is measured: the same work for every contender. Standard library only, since peers import it too.

The model server reads the work off the model's name, so it keeps nothing between requests.
"""

from __future__ import annotations

import re
import resource
from dataclasses import dataclass
from pathlib import Path

INSTRUCTIONS = "be brief"
TEMPERATURE, MAX_TOKENS = 0.7, 4096
BASE = 1000
"""The second summand of every call; so a result (1000, 1001, ...) occurs nowhere else in a request."""

DONE = "All sums are done."
WORD = "chunk "
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}


async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return a + b


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One kind of work.

    Args:
        name: as the table shows it.
        model: what the server plays: ``tools-ROUNDSxCALLS`` or ``stream-CHUNKS``.
        runs: runs in one round.
        together: all at once instead of one after another.
    """

    name: str
    model: str
    runs: int
    together: bool = False

    @property
    def streams(self) -> bool:
        """True when the answer is to be streamed."""
        return self.model.startswith("stream-")

    @property
    def answer(self) -> str:
        """The right answer to every run."""
        return WORD * int(self.model.removeprefix("stream-")) if self.streams else DONE

    @property
    def requests(self) -> int:
        """Requests that one run takes."""
        return 1 if self.streams else int(self.model.removeprefix("tools-").partition("x")[0]) + 1


CELLS = (
    Cell(name="sequential, 1 call a round", model="tools-3x1", runs=20),
    Cell(name="sequential, 4 calls a round", model="tools-3x4", runs=15),
    Cell(name="200 at once", model="tools-3x1", runs=200, together=True),
    Cell(name="stream of 200 chunks", model="stream-200", runs=6),
    Cell(name="stream of 2,000 chunks", model="stream-2000", runs=2),
)
WARM_UP = 3
"""Runs before each measurement that are not counted (one, where a run is a long stream)."""


def warm_up(cell: Cell) -> int:
    """Number of runs before the measurement of ``cell``."""
    return 1 if cell.streams else WARM_UP


def peak_rss_mib() -> float:
    """Resident memory of this process at its peak, in MiB."""
    status = Path("/proc/self/status")
    if status.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(found[1]) / 1024
    # elsewhere the only figure there is; on Linux it would begin with the parent's
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
