"""Sandboxes for the tests: the real backends, with small packages loaded, so that a zygote is there in no time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.needs import need
from tests.sandbox.sandboxes import KINDS, OpenSandbox, Sandbox, why_missing


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Name each backend that this machine allows."""
    name = str(request.param)
    need(why_missing(name))
    return name


@pytest.fixture
async def open_sandbox() -> AsyncIterator[OpenSandbox]:
    """Open backends, and close them in the end."""
    opener = OpenSandbox()
    yield opener
    await opener.aclose()


@pytest.fixture
async def sandbox(kind: str, open_sandbox: OpenSandbox) -> Sandbox:
    """One warm backend."""
    return await open_sandbox(kind)
