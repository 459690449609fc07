"""A plugin that writes how each scenario ended on each platform: ``-p tests.contract.chat.record --scenarios PATH``."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest

_ENDS: pytest.StashKey[dict[str, dict[str, str]]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the path of the file."""
    parser.addoption("--scenarios", metavar="PATH", help="write how each scenario ended on each platform, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Begin with nothing."""
    config.stash[_ENDS] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note how a scenario ended: failed when any of its cases, or what is around it, failed."""
    report = yield
    if item.get_closest_marker("feature") is not None and isinstance(item, pytest.Function):
        name = f"{item.path.name}::{item.originalname}"
        ends = item.config.stash[_ENDS].setdefault(name, {})
        way = str(item.callspec.params["place"])
        if report.failed:
            ends[way] = "failed"
        elif report.skipped:
            ends.setdefault(way, "skipped")
        elif report.when == "call":
            ends.setdefault(way, "passed")
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the file."""
    path = session.config.getoption("--scenarios")
    if path:
        Path(path).write_text(json.dumps(session.config.stash[_ENDS], indent=1), encoding="utf-8")
