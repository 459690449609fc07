"""Run ``hermod`` as a person would: a process, its output, its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> dict[str, object]:
        """The one JSON object on stdout."""
        lines = self.out.splitlines()
        assert len(lines) == 1, self.out
        found = json.loads(lines[0])
        assert isinstance(found, dict)
        return found


def build_environ(**variables: str) -> dict[str, str]:
    """The environment without anything that would configure Hermod, and ``variables``."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HERMOD_", "OPENAI_"))}
    return kept | {"PYTHONPATH": str(ROOT), "COLUMNS": "120"} | variables


def hermod(folder: Path, *words: str, stdin: str = "", timeout_s: float = 100.0, **variables: str) -> Done:
    """Run a command in ``folder``."""
    done = subprocess.run(
        [sys.executable, "-m", "bot", *words],
        cwd=folder,
        env=build_environ(**variables),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Done(code=done.returncode, out=done.stdout, err=done.stderr)
