"""The everyday programs that have to run in the sandbox, as data: a title, what is printed last, the code.

``python -m tests.sandbox.everyday_programs`` prints their table for the documentation.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "everyday"
BEGIN, END = "<!-- everyday programs -->", "<!-- end of everyday programs -->"
_HEAD = re.compile(r'\A"""(?P<title>[^"\n]+)\."""\n# prints: (?P<prints>[^\n]+)\n')


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An everyday program: the last line that it prints is ``prints``."""

    name: str
    title: str
    prints: str
    code: str

    @property
    def modules(self) -> list[str]:
        """The packages that it imports, in their order in the code."""
        found = re.findall(r"(?m)^(?:import|from) ([a-z0-9_]+)", self.code)
        return list(dict.fromkeys(found))


def load_programs() -> list[Program]:
    """Load all of them, by name."""
    programs = []
    for path in sorted(FOLDER.glob("*.txt")):
        code = path.read_text(encoding="utf-8")
        head = _HEAD.match(code)
        if head is None:
            raise ValueError(f"{path.name}: it has to begin with a title and what it prints")
        programs.append(Program(name=path.stem, title=head["title"], prints=head["prints"], code=code))
    return programs


def build_table() -> str:
    """Build the table of the documentation."""
    lines = ["| program | uses |", "|--|--|"]
    lines += [f"| {p.title} | {', '.join(f'`{name}`' for name in p.modules)} |" for p in load_programs()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(build_table() + "\n")
