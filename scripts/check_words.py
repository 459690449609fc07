"""Fail when a tracked file names a package registry's host or a path of somebody's machine.

Run it as ``python -m scripts.check_words``. Pins without addresses stay right wherever they are installed, and a
path that exists on one machine only is a test that passes on one machine only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Put together from pieces, so that this file passes its own check.
_HOSTS = ("py" + "pi.org", "python" + "hosted.org", "npm" + "js.org", "proxy.go" + "lang.org", "cra" + "tes.io")
_PATHS = (
    r"/wo" + r"rk/",
    r"/ro" + r"ot/\w",
    r"/ho" + r"me/[a-z]",
    r"/Use" + r"rs/\w",
    r"/opt/(?:wheels|" + "py" + "pi)",
)
PATTERN = re.compile("|".join(map(re.escape, _HOSTS)) + r"|(?<![\w.*])(?:" + "|".join(_PATHS) + ")")


def find_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield line number and what was found there."""
    for number, line in enumerate(text.splitlines(), start=1):
        for match in PATTERN.finditer(line):
            yield number, match.group()


def main() -> int:
    """Print each finding; return 1 if there is any."""
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, check=False)
    if listed.returncode:
        sys.stdout.write("words: not checked, because this is not a git work tree\n")
        return 0
    paths = [Path(name) for name in listed.stdout.decode().split("\0") if name]
    found = 0
    for path in paths:
        if not path.is_file():
            continue
        for number, word in find_words(path.read_text(encoding="utf-8", errors="replace")):
            sys.stdout.write(f"{path}:{number}: error: {word} does not belong into the repository\n")
            found += 1
    sys.stdout.write(f"words: {len(paths)} files, {found} findings\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
