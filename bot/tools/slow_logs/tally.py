"""What was read and what could not be: kept beside the statements while a log is read."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where damage begins. Nothing of the text is repeated: it may hold data."""

    file: str
    line: int
    bytes: int
    reason: str


@dataclass(slots=True)
class Tally:
    """Counts for all files of one reading; ``file`` is the one being read."""

    file: str = ""
    lines: int = 0
    file_lines: int = 0
    entries: int = 0
    damaged_lines: int = 0
    damaged_bytes: int = 0
    damaged_places: int = 0
    shortened: int = 0
    steps: int = 0
    steps_s: float = 0.0
    lone_durations: int = 0
    lone_durations_s: float = 0.0
    plans: int = 0
    examples: list[Place] = field(default_factory=list)

    def begin(self, file: str) -> None:
        """Go on to another file."""
        self.file = file
        self.file_lines = 0

    def pass_over(self, buffer: bytes) -> None:
        """Count the lines of a piece that was read."""
        count = buffer.count(b"\n")
        self.lines += count
        self.file_lines += count

    def damage(self, buffer: bytes, start: int, end: int, reason: str) -> None:
        """Count what cannot be read in a piece of which no line was passed over yet."""
        piece = buffer[start:end]
        if not piece.strip():
            return
        self.damaged_lines += piece.count(b"\n") + (not piece.endswith(b"\n"))
        self.damaged_bytes += len(piece)
        self.damaged_places += 1
        if len(self.examples) < MOST_EXAMPLES:
            line = self.file_lines + buffer.count(b"\n", 0, start) + 1
            self.examples.append(Place(file=self.file, line=line, bytes=len(piece), reason=reason))
