"""Run the battery from the command line; exit 1 when anything got through that should not."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from tests.sandbox.battery.attacks import LEVELS, load_attacks
from tests.sandbox.battery.harness import Report, attack_in_folder


def _write(report: Report, *, as_json: bool) -> None:
    if as_json:
        found = [f"{one.level} {one.attack}: {one.what}" for one in report.findings]
        known = [one.attack for one in report.known]
        row = {"backend": report.backend, "ran": report.ran, "findings": found, "known": known}
        sys.stdout.write(json.dumps({**row, "duration_s": round(report.duration_s, 1)}) + "\n")
    else:
        sys.stdout.write(report.describe() + "\n")


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.sandbox.battery", description=__doc__)
    parser.add_argument("backend", choices=("landlock", "namespaces", "host"))
    parser.add_argument("--cold", action="store_true", help="a new interpreter for each attack")
    parser.add_argument("--level", action="append", choices=LEVELS, help="only these (may be given again)")
    parser.add_argument("--only", action="append", help="only this attack (may be given again)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    wanted = parser.parse_args()
    levels, only = wanted.level or LEVELS, wanted.only
    attacks = [a for a in load_attacks() if a.level in levels and (not only or a.id in only)]
    report = asyncio.run(attack_in_folder(wanted.backend, warm=not wanted.cold, attacks=attacks))
    _write(report, as_json=wanted.json)
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
