"""Findings of ``preflight``, for any engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.tools.activity.answer import Check, CheckStatus

_ORDER: Mapping[CheckStatus, int] = {"missing": 0, "warning": 1, "ok": 2, "info": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check with the lines that mend it; ``lines`` are complete SQL statements."""

    name: str
    status: CheckStatus
    value: str
    message: str = ""
    lines: tuple[str, ...] = ()


def list_checks(findings: Sequence[Finding]) -> tuple[Check, ...]:
    """The rows: the missing first, otherwise in their order."""
    ordered = sorted(findings, key=lambda finding: _ORDER[finding.status])
    return tuple(Check(name=f.name, status=f.status, value=f.value, message=f.message) for f in ordered)


def list_lines(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Every line once, in the order of the rows, with what it is for as a comment."""
    lines: dict[str, str] = {}
    for finding in sorted(findings, key=lambda finding: _ORDER[finding.status]):
        for line in finding.lines:
            lines.setdefault(line, finding.name)
    return tuple(f"{line} -- {name}" for line, name in lines.items())
