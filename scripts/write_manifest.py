"""Write adapters/slack/manifest.yml (manifest.yml at the root is a link to it) from the tools and what the code uses.

Run it as ``python -m scripts.write_manifest`` (``make docs``).
"""

from __future__ import annotations

import sys
from pathlib import Path

from bot.cli.manifest import render_slack_manifest
from scripts.write_docs import load_tools

MANIFEST = Path(__file__).resolve().parents[1] / "adapters" / "slack" / "manifest.yml"


def main() -> int:
    """Write the file if it changed."""
    text = render_slack_manifest(load_tools())
    if text != MANIFEST.read_text(encoding="utf-8"):
        MANIFEST.write_text(text, encoding="utf-8")
        sys.stdout.write("adapters/slack/manifest.yml written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
