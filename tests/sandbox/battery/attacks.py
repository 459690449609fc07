"""The attacks as values, read from ``attacks.toml`` and ``own.toml``."""

from __future__ import annotations

import platform
import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ESCAPED, BLOCKED = "@@ESCAPED", "@@BLOCKED"
ORACLES = frozenset(
    ("verdict", "canary", "hit", "intact", "bounded", "nosurvivor", "decoyalive", "collect", "clean"),
)
FILES = ("attacks.toml", "own.toml")
LEVELS = ("escape", "leak", "surface", "dos", "robust")

_VERDICT = f"""
def esc(*a):
    print("{ESCAPED}", *a, flush=True)
def blk(*a):
    print("{BLOCKED}", *[repr(x)[:120] for x in a], flush=True)
"""
_KERNEL = """
import ctypes
_libc = ctypes.CDLL(None, use_errno=True)
def sysc(nr, *a):
    r = _libc.syscall(ctypes.c_long(nr), *[ctypes.c_void_p(x) if isinstance(x, int) else x for x in a])
    return r, (ctypes.get_errno() if r == -1 else 0)
def probe(nr, *a):
    r, e = sysc(nr, *a)
    esc("ret", r) if r >= 0 else blk("errno", e)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack.

    Args:
        id, intent: what it is, and what it tries.
        level: one of ``LEVELS``.
        oracle: what has to be looked at for it; everything else is looked at too.
        code: the program, with ``@NAME@`` where the harness fills something in.
        says_verdict: the program prints ``ESCAPED`` or ``BLOCKED``, so a run without either has shown nothing.
        ends: how it may end: status and exit code; empty: in any way.
        known: why it is accepted that it gets through, by backend.
    """

    id: str
    intent: str
    level: str
    oracle: str
    code: str
    says_verdict: bool
    ends: tuple[str, ...] = ()
    known: Mapping[str, str] = field(default_factory=dict)

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the program with the names of a ground filled in."""
        code = self.code
        for name, value in values.items():
            code = code.replace(f"@{name}@", value)
        return code


def load_attacks() -> tuple[Attack, ...]:
    """Load the attacks that mean something on this architecture.

    Raises:
        ValueError: a file names a level or an oracle that does not exist, or there is one id twice.
    """
    rows = [row for name in FILES for row in _load_rows(name)]
    attacks = tuple(_read(row) for row in rows)
    for attack in attacks:
        if attack.level not in LEVELS or attack.oracle not in ORACLES:
            raise ValueError(f"{attack.id} has a level or an oracle that does not exist")
    if len({attack.id for attack in attacks}) != len(attacks):
        raise ValueError("an id stands there twice")
    here = platform.machine()
    return tuple(attack for attack, row in zip(attacks, rows, strict=True) if row.get("machine", here) == here)


def _load_rows(name: str) -> list[dict[str, object]]:
    rows = tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))["attack"]
    assert isinstance(rows, list)
    return rows


def _read(row: Mapping[str, object]) -> Attack:
    raw = bool(row.get("raw"))
    code = _read_code(row)
    if not raw:
        body = (_KERNEL if row.get("kernel") else "") + code
        code = f"{_VERDICT}try:\n{textwrap.indent(body, '    ')}except BaseException as e:\n    blk(e)\n"
    ends, known = row.get("ends", ()), row.get("known", {})
    assert isinstance(ends, list | tuple)
    assert isinstance(known, dict)
    if row["oracle"] == "collect":
        code = f"import os\nos.chdir('output')\n{code}"
    return Attack(
        id=str(row["id"]),
        intent=str(row["intent"]),
        level=str(row["level"]),
        oracle=str(row["oracle"]),
        code=code,
        says_verdict=not raw and row["oracle"] in ("verdict", "hit", "decoyalive"),
        ends=tuple(ends),
        known=known,
    )


def _read_code(row: Mapping[str, object]) -> str:
    if "repeat" in row:
        parts = row["repeat"]
        assert isinstance(parts, list)
        return "".join(text * times for text, times in parts)
    code = str(row["code"])
    return code.encode("latin-1").decode("unicode_escape") if row.get("escaped") else code
