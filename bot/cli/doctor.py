"""``hermod doctor``."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path

from bot.cli.setup import print_json, print_text, set_up
from bot.doctor import build_checkups, examine
from bot.redact import SecretRedactor

_RED, _PLAIN = "\033[31m", "\033[0m"
MARKS = {"ok": "ok     ", "warning": "warning", "error": "ERROR  "}


async def run_doctor(*, config: Path | None, as_json: bool) -> int:
    """Print the findings; 1 when one of them is an error."""
    settings = set_up(config)
    redactor = SecretRedactor(settings.secrets())
    findings = []
    red = sys.stdout.isatty() and not os.environ.get("NO_COLOR")  # https://no-color.org
    async for finding in examine(settings, os.environ, await build_checkups(settings)):
        findings.append(finding)
        if not as_json:
            text = redactor.redact(f"{MARKS[finding.state]}  {finding.part}: {finding.text}")
            print_text(f"{_RED}{text}{_PLAIN}" if red and finding.state == "error" else text)
            if finding.fix:
                print_text(redactor.redact(f"         fix: {finding.fix}"))
    failed = any(f.state == "error" for f in findings)
    if as_json:
        items = [{key: redactor.redact(value) for key, value in asdict(f).items()} for f in findings]
        print_json({"ok": not failed, "items": items})
    return 1 if failed else 0
