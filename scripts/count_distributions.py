"""Count what a base install of Hermod brings along, in an environment of its own; fail over 50.

Run it as ``python -m scripts.count_distributions``. It installs with the pins of ``constraints.txt``, so it needs
what pip needs. pip and setuptools, which the environment itself brings, do not count; Hermod does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

MOST = 50


def list_distributions(folder: Path) -> list[str]:
    """Install Hermod without extras into a new environment in ``folder`` and return what is there."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "-c", "constraints.txt", "."], check=True)
    listed = subprocess.run([*pip, "list", "--format=json"], check=True, capture_output=True)
    return [f"{item['name']} {item['version']}" for item in json.loads(listed.stdout)]


def main() -> int:
    """Print the list; return 1 if it is too long."""
    with tempfile.TemporaryDirectory() as folder:
        names = [name for name in list_distributions(Path(folder)) if name.split()[0] not in ("pip", "setuptools")]
    sys.stdout.write("\n".join([*names, f"distributions: {len(names)}, at most {MOST}", ""]))
    return 1 if len(names) > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
