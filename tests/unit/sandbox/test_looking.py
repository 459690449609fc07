"""Looking for a backend starts processes, and whoever stops looking leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import tempfile
from pathlib import Path

import pytest

from bot.settings_tree import SandboxSettings
from bot.tools.python_sandbox.choose import open_sandbox
from bot.tools.python_sandbox.types import SandboxUnavailable


def list_children() -> set[int]:
    """The processes that this one has started and not yet reaped."""
    tasks = Path("/proc/self/task").iterdir()
    return {int(child) for task in tasks for child in (task / "children").read_text().split()}


@pytest.mark.skipif(not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="the kernel lists no children")
@pytest.mark.parametrize("moment", ["hermod-probe-*/outside", "hermod-probe-*/run-1", "hermod-probe-*/run-2"])
async def test_a_look_for_a_backend_that_is_cancelled_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = list_children()
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    gc.disable()  # what nobody refers to any more would close its processes sooner or later
    try:
        looking = asyncio.create_task(open_sandbox(SandboxSettings(backend="landlock"), state=state))
        async with asyncio.timeout(60):
            while not any(tmp_path.glob(moment)) and not looking.done():  # noqa: ASYNC110, ASYNC240 - nothing tells
                await asyncio.sleep(0)
        if looking.done():
            with contextlib.suppress(SandboxUnavailable):
                await (await looking).aclose()
            pytest.skip("the look ended before it could be cancelled: this kernel has no Landlock")
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
        async with asyncio.timeout(30):  # a thread that compiles the child's modules comes to its end by itself
            while list_children() - before:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
        assert list(tmp_path.glob("hermod-probe-*")) == []  # noqa: ASYNC240
        gc.collect()  # a socket that was not closed fails the test now
    finally:
        gc.enable()
