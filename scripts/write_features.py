"""Write the table of features in README.md, and docs/features.md, from a run of the conformance suite.

Run it as ``python -m scripts.write_features``: it runs ``tests/contract/chat`` on every platform (about a minute) and
writes how it ended. A cell says "yes" only where every scenario of the feature passed; where one failed it says so, and
the command ends with 1. ``tests/unit/docs/test_features.py`` fails when what is committed is not what the declared
scenarios promise, so a scenario or a reason that changes has to be run and written again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from tests.contract.chat.features import CANNOT, FEATURES, TITLES, WAYS, Feature, Way
from tests.contract.chat.scenario import FOLDER, Scenario, declared

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "features.md"
BEGIN, END = "<!-- features:begin -->", "<!-- features:end -->"

RUN_S = 900.0

Ends = Mapping[str, Mapping[str, str]]
"""By scenario (``test_drafts.py::test_...``) and platform: ``passed``, ``failed`` or ``skipped``."""


def run_suite() -> Ends:
    """Run every scenario on every platform.

    Raises:
        RuntimeError: the run itself did not work.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenarios.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.contract.chat.record", f"--scenarios={path}"]
        subprocess.run([*command, str(FOLDER)], cwd=ROOT, timeout=RUN_S, check=False)
        if not path.is_file():
            raise RuntimeError("the suite wrote no result; the lines above say why")
        return read_ends(path.read_text(encoding="utf-8"))


def read_ends(text: str) -> Ends:
    """Read what ``tests.contract.chat.record`` wrote.

    Raises:
        ValueError: it is not that.
    """
    read: object = json.loads(text)
    if not isinstance(read, dict):
        raise ValueError("not a result of the suite: an object is expected")
    return {str(name): {str(way): str(end) for way, end in ends.items()} for name, ends in read.items()}


def promise() -> Ends:
    """Return what the declared scenarios promise: that every one passes on every platform."""
    return {scenario.id: dict.fromkeys(WAYS, "passed") for scenario in declared()}


def list_missing(ends: Ends) -> list[str]:
    """List the declared scenarios that did not pass, each with its platform."""
    return [
        f"{scenario.id}[{way}]"
        for scenario in declared()
        for way in WAYS
        if ends.get(scenario.id, {}).get(way) != "passed"
    ]


def render_readme(ends: Ends, text: str) -> str:
    """Return the text of README.md with its part made anew.

    Raises:
        ValueError: it has no place for it.
    """
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"README.md has no part between {BEGIN} and {END}")
    scenarios = tuple(declared())
    lines = [_describe_run(ends, scenarios), "", *_table(ends, scenarios)]
    return "\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"])


def render_page(ends: Ends) -> str:
    """Return the text of docs/features.md: each scenario of each feature, and the reasons."""
    scenarios = tuple(declared())
    return "\n".join([*_HEAD, _describe_run(ends, scenarios), "", *_sections(ends, scenarios)])


def _describe_run(ends: Ends, scenarios: Sequence[Scenario]) -> str:
    passed = sum(ends.get(scenario.id, {}).get(way) == "passed" for scenario in scenarios for way in WAYS)
    tried = len(scenarios) * len(WAYS)
    return (
        f"{len(scenarios)} scenarios, each tried on {len(WAYS)} platforms (where one cannot do the thing, that Hermod "
        f"says so): {passed} of {tried} passed."
    )


def _table(ends: Ends, scenarios: Sequence[Scenario]) -> Iterator[str]:
    yield "| " + " | ".join(["", *(TITLES[way] for way in WAYS)]) + " |"
    yield "|--" * (len(WAYS) + 1) + "|"
    for group, features in groupby(FEATURES, lambda feature: feature.group):
        yield f"| **{group}** " + "| " * len(WAYS) + "|"
        for feature in features:
            yield "| " + " | ".join([feature.title, *(_cell(feature, way, ends, scenarios) for way in WAYS)]) + " |"


def _cell(feature: Feature, way: Way, ends: Ends, scenarios: Sequence[Scenario]) -> str:
    told = [ends.get(scenario.id, {}).get(way) for scenario in scenarios if scenario.feature == feature.id]
    if not told or any(end != "passed" for end in told):
        return "**fails**"
    reason = CANNOT.get((feature.id, way))
    return f"no: {reason}" if reason else "yes"


def _sections(ends: Ends, scenarios: Sequence[Scenario]) -> Iterator[str]:
    for group, features in groupby(FEATURES, lambda feature: feature.group):
        yield f"## {group}"
        yield ""
        for feature in features:
            yield f"### {feature.title[0].upper()}{feature.title[1:]}"
            yield ""
            for scenario in scenarios:
                if scenario.feature == feature.id:
                    yield f"- {scenario.title} (`{scenario.module}`)"
            told = [(TITLES[way], _cell(feature, way, ends, scenarios)) for way in WAYS]
            if exceptions := [f"{title}: {cell}" for title, cell in told if cell != "yes"]:
                yield ""
                yield f"{'. '.join(exceptions)}."
            yield ""


_HEAD = [
    "# What works on which platform",
    "",
    "Every sentence below is a test that is written once and runs on every platform: through the platform's official",
    "client (slack-bolt and slack-sdk, discord.py) against a local server that judges by the published rules; no real",
    "workspace has been used. Where a platform cannot do a thing the reason stands here, and the same tests try that",
    "Hermod says so in the way the [contract](../adapters/chat.py) has for it. This page is written by",
    "`python -m scripts.write_features` from a run; the platforms are described in",
    "[tests/contract/chat](../tests/contract/chat/features.py).",
    "",
]


def main() -> int:
    """Run the suite, write both, and say what did not pass; 1 when anything did not."""
    ends = run_suite()
    README.write_text(render_readme(ends, README.read_text(encoding="utf-8")), encoding="utf-8")
    PAGE.write_text(render_page(ends), encoding="utf-8")
    missing = list_missing(ends)
    for name in missing:
        sys.stdout.write(f"did not pass: {name}\n")
    sys.stdout.write(f"README.md and docs/features.md written, {len(missing)} did not pass\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
