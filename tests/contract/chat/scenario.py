"""Scenarios: tests that are written once, and run on every platform."""

from __future__ import annotations

import ast
import functools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract.chat.features import CANNOT, WAYS, find_feature
from tests.contract.chat.place import Place
from tests.contract.chat.unable import Check

Test = Callable[..., Awaitable[None]]

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario that is declared: its module, the name of its test, the id of its feature."""

    module: str
    name: str
    feature: str

    @property
    def id(self) -> str:
        """Module and name, as pytest writes them."""
        return f"{self.module}::{self.name}"

    @property
    def title(self) -> str:
        """What it says, as a sentence."""
        return self.name.removeprefix("test_").replace("_", " ")


def scenario(feature: str, *, unable: Check | None = None) -> Callable[[Test], Test]:
    """Make a test a scenario of a feature; it takes ``place``, and further fixtures.

    Args:
        feature: id of one of ``FEATURES``.
        unable: runs instead where ``CANNOT`` says that the platform cannot do it; needed as soon as there is one.

    Raises:
        LookupError: there is no such feature.
        ValueError: a platform cannot do it, and nothing tries what happens then.
    """
    find_feature(feature)
    unable_ways = [way for way in WAYS if (feature, way) in CANNOT]
    if bool(unable_ways) is not (unable is not None):
        raise ValueError(f"the scenarios of {feature!r} need a check for {unable_ways or 'no platform'}")

    def wrap(test: Test) -> Test:
        @functools.wraps(test)
        async def run(*, place: Place, **fixtures: object) -> None:
            if unable is not None and (feature, place.way) in CANNOT:
                await unable(place)
            else:
                await test(place=place, **fixtures)

        marked: Test = pytest.mark.feature(feature)(run)
        return marked

    return wrap


def declared() -> Iterator[Scenario]:
    """Yield every scenario of this folder, in the order of modules and lines, as it is written; nothing is imported."""
    for path in sorted(FOLDER.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for feature in _features_of(node):
                    yield Scenario(module=path.name, name=node.name, feature=feature)


def _features_of(test: ast.AsyncFunctionDef) -> Iterator[str]:
    for mark in test.decorator_list:
        match mark:
            case ast.Call(func=ast.Name(id="scenario"), args=[ast.Constant(value=str(feature))]):
                yield feature
