"""Which packages code can really import: asked of the sandbox itself, with their versions."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from bot.tools.python_sandbox.types import SandboxBackend, SandboxLimits, SandboxRun, SandboxUnavailable

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

_LOOK = """\
import importlib, json
for module, name in {candidates!r}:
    try:
        found = importlib.import_module(module)
    except Exception:
        continue
    print(json.dumps([name, str(getattr(found, "__version__", ""))]), flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package beside the standard library. ``version`` is empty where it does not tell."""

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


async def find_packages(backend: SandboxBackend, folder: Path, limits: SandboxLimits) -> tuple[Package, ...]:
    """Import every candidate inside the sandbox once; what cannot be imported there is not offered.

    Args:
        backend: that will run the code.
        folder: empty and private, with ``input`` and ``output``.
        limits: of ordinary runs.

    Returns:
        An empty tuple also where the sandbox cannot run now.
    """
    code = _LOOK.format(candidates=CANDIDATES)
    patient = replace(limits, wall_s=max(limits.wall_s, 30.0), cpu_s=max(limits.cpu_s, 20.0))
    try:
        outcome = await backend.run(SandboxRun(code=code, folder=folder, limits=patient))
    except SandboxUnavailable:
        return ()
    known = {name for _, name in CANDIDATES}
    found: list[Package] = []
    for line in outcome.stdout.splitlines():
        try:
            name, version = json.loads(line)
        except ValueError:
            continue
        if name in known and isinstance(version, str):
            found.append(Package(name=name, version=version[:40]))
    return tuple(found)
