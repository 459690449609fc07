"""Which packages code can really import: asked of the sandbox itself, with their versions."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace

import structlog

from bot.tools.python_sandbox.folders import Folders, remove_tree
from bot.tools.python_sandbox.types import SandboxBackend, SandboxLimits, SandboxRun, SandboxUnavailable

log = structlog.get_logger("hermod.sandbox")

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
import importlib, json, platform
print(json.dumps(["python", platform.python_version()]), flush=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """What code finds in the sandbox: the version of the interpreter, empty if unknown, and the packages."""

    python: str = ""
    packages: tuple[Package, ...] = ()


async def find_packages(backend: SandboxBackend, folders: Folders, limits: SandboxLimits) -> Available:
    """Import every candidate inside the sandbox once; what cannot be imported there is not offered.

    Args:
        backend: that will run the code.
        folders: where runs have their folders.
        limits: of ordinary runs.

    Returns:
        Nothing also where the sandbox cannot run now: what is wrong is told by the first run that somebody wants.
    """
    patient = replace(limits, wall_s=max(limits.wall_s, 30.0), cpu_s=max(limits.cpu_s, 20.0))
    try:
        folder = await asyncio.to_thread(folders.new_run, "packages")
        try:
            code = _LOOK.format(candidates=CANDIDATES)
            outcome = await backend.run(SandboxRun(code=code, folder=folder, limits=patient))
        finally:
            await asyncio.to_thread(remove_tree, folder)
    except (SandboxUnavailable, OSError) as error:
        log.warning("packages_not_found", reason=str(error))
        return Available()
    return _read_lines(outcome.stdout)


def _read_lines(text: str) -> Available:
    known = {name for _, name in CANDIDATES}
    python, found = "", list[Package]()
    for line in text.splitlines():
        try:
            name, version = json.loads(line)
        except (ValueError, TypeError):
            continue
        if name == "python":
            python = str(version)[:40]
        elif name in known:
            found.append(Package(name=name, version=str(version)[:40]))
    return Available(python=python, packages=tuple(found))
