"""A copy of all that the battery needs, for another user, another interpreter, or a container."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_OURS = ("bot", "adapters")
_LIST = """
import json, os, sys, sysconfig
import tests.sandbox.battery.harness
libraries = [os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("purelib", "platlib")]
found = set()
for name, module in list(sys.modules.items()):
    path = getattr(module, "__file__", None)
    if path and "." not in name and not name.startswith("_") and os.path.realpath(path).startswith(tuple(libraries)):
        found.add(os.path.dirname(path) if os.path.basename(path) == "__init__.py" else path)
print(json.dumps(sorted(found)))
"""


def list_libraries() -> list[Path]:
    """Return the installed packages that the harness imports, found by importing it."""
    listed = subprocess.run([sys.executable, "-B", "-c", _LIST], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(path) for path in json.loads(listed.stdout)]


def copy_battery(target: Path) -> None:
    """Copy the battery with its libraries to a folder, readable for everybody."""
    leave_out = shutil.ignore_patterns("__pycache__", "*.so")
    for name in _OURS:
        shutil.copytree(ROOT / name, target / name, ignore=leave_out)
    shutil.copytree(ROOT / "tests/sandbox/battery", target / "tests/sandbox/battery", ignore=leave_out)
    for package in ("tests", "tests/sandbox"):
        (target / package / "__init__.py").touch()
    for library in list_libraries():
        if library.is_dir():
            shutil.copytree(library, target / library.name, ignore=leave_out)
        else:
            shutil.copy(library, target / library.name)
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


if __name__ == "__main__":
    copy_battery(Path(sys.argv[1]))
