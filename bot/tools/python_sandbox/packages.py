"""Which packages code can import, with their versions."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass

CANDIDATES = (
    ("numpy", "numpy"),
    ("pandas", "pandas"),
    ("matplotlib", "matplotlib"),
    ("dateutil", "python-dateutil"),
    ("yaml", "PyYAML"),
    ("scipy", "scipy"),
    ("pyarrow", "pyarrow"),
    ("openpyxl", "openpyxl"),
    ("sympy", "sympy"),
)
"""Modules that are looked for, and the names of the packages that bring them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package beside the standard library. ``version`` is empty where it does not tell."""

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """What code finds in the sandbox: the version of the interpreter, empty if unknown, and the packages."""

    python: str = ""
    packages: tuple[Package, ...] = ()


def list_packages() -> tuple[Package, ...]:
    """List what code can import beside the standard library, where it runs with Hermod's own interpreter."""
    return tuple(
        Package(name=name, version=importlib.metadata.version(name))
        for module, name in CANDIDATES
        if importlib.util.find_spec(module) is not None
    )
