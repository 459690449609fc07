"""``analyze_slow_log`` and ``get_slow_queries`` on logs: folders of targets, attached files, the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_core.context import RunContext, SystemClock
from agent_core.errors import ModelRetry, ToolFailed
from agent_core.tools.registry import ToolRegistry
from bot.storage import open_store
from bot.tools.python_sandbox.collect import LeftOut
from bot.tools.python_sandbox.uploads import Fetched
from bot.tools.slow_logs.answer import SlowLog
from bot.tools.slow_logs.tool import SlowLogArguments, SlowLogTool, register_slow_log_tool
from bot.tools.slow_queries import register_slow_query_tools
from bot.tools.targets import Target, Targets
from tests.unit.slow_logs.logs import my, only, timed

LOG = timed("select * from t where a = 's3cr3t'", 1_500)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "postgresql.log").write_text(LOG)
    (tmp_path / "outside.log").write_text(LOG * 7)
    return logs


def target(path: Path, options: str = "") -> Target:
    return Target.from_url("logs", f"slowlog://{path}{options}")


async def analyse(tool: SlowLogTool, **arguments: object) -> SlowLog:
    return await tool.analyze_slow_log(context(), SlowLogArguments.model_validate(arguments))


def context() -> RunContext:
    clock = SystemClock()
    return RunContext(run_id="r1", thread_id="t1", deadline=clock.monotonic() + 120, clock=clock)


def tool_of(*targets: Target) -> SlowLogTool:
    return SlowLogTool(targets=Targets(targets), clock=SystemClock())


async def test_the_logs_of_a_folder_are_read_and_nothing_secret_leaves(folder: Path) -> None:
    (folder / "slow.log").write_text(my("select 1") * 2)
    answer = await analyse(tool_of(target(folder)))
    assert {row.sql: row.calls for row in answer.rows} == {"select * from t where a = $1": 1, "select ?": 2}
    assert (answer.target, answer.engine, len(answer.files)) == ("logs", "postgresql+mysql", 2)
    assert "s3cr3t" not in repr(answer)


@pytest.mark.parametrize(
    "path", ["../outside.log", "/etc/passwd", "x/../../outside.log", "link.log", "down/outside.log", "."]
)
async def test_nothing_outside_of_the_folder_is_read(folder: Path, path: str) -> None:
    (folder / "link.log").symlink_to(folder.parent / "outside.log")
    (folder / "down").symlink_to(folder.parent)
    with pytest.raises(ToolFailed) as caught:
        await analyse(tool_of(target(folder)), target="logs", path=path)
    assert caught.value.code == "path_refused"
    assert only(await analyse(tool_of(target(folder)))).calls == 1


async def test_a_path_inside_of_the_folder_is_read(folder: Path) -> None:
    (folder / "old").mkdir()
    (folder / "old" / "a.log").write_text(LOG * 2)
    for path in ("old/a.log", str(folder / "old" / "a.log")):
        assert only(await analyse(tool_of(target(folder)), target="logs", path=path)).calls == 2
    with pytest.raises(ToolFailed) as caught:
        await analyse(tool_of(target(folder)), target="logs", path="nothing.log")
    assert caught.value.code == "file_missing"


async def test_a_fifo_in_the_folder_neither_hangs_nor_is_read(folder: Path) -> None:
    os.mkfifo(folder / "pipe.log")
    assert only(await analyse(tool_of(target(folder)))).calls == 1
    with pytest.raises(ToolFailed) as caught:
        await analyse(tool_of(target(folder)), target="logs", path="pipe.log")
    assert caught.value.code == "path_refused"


async def test_the_url_of_a_target_names_prefix_and_zone(folder: Path) -> None:
    (folder / "postgresql.log").write_text("7|2026-05-01 10:00:00 CET|LOG:  duration: 5.000 ms  statement: select 1\n")
    with pytest.raises(ToolFailed) as caught:
        await analyse(tool_of(target(folder)))
    assert caught.value.code == "log_format_unknown"
    answer = await analyse(tool_of(target(folder, "?prefix=%25p%7C%25t%7C&zone=Asia/Tokyo")))
    assert only(answer).first_seen == "2026-05-01T01:00:00.000Z"


async def test_get_slow_queries_answers_from_a_log(folder: Path) -> None:
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.000 UTC")
    (folder / "postgresql.log").write_text(
        LOG + timed("select 2 from t", 1_500, at=at) + timed("select 3 from u", 5, at=at)
    )
    registry = ToolRegistry()
    store = open_store(f"sqlite:///{folder.parent}/hermod.db")
    register_slow_query_tools(registry, Targets([target(folder)]), store, SystemClock())
    tool = registry.get("get_slow_queries")
    assert tool is not None
    answer = await tool.invoke(context(), tool.arguments.model_validate({"time_range": "last_2h"}))
    assert isinstance(answer, SlowLog)
    assert (only(answer).sql, only(answer).duration) == ("select $1 from t", 1.5)
    assert answer.coverage.complete


class Kept:
    """Attached files that lie in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def fetch(self, thread_key: str, names: Collection[str] | None) -> Fetched:
        here = sorted(path.name for path in self._folder.iterdir())
        unknown = tuple(name for name in names or () if name not in here)
        if unknown:
            return Fetched(unknown=unknown, known=tuple(here))
        wanted = [name for name in here if names is None or name in names]
        missing = tuple(LeftOut(name=name, reason="it has 200 MB") for name in wanted if name.startswith("huge"))
        return Fetched(names=tuple(name for name in wanted if not name.startswith("huge")), missing=missing)

    def find_path(self, thread_key: str, name: str) -> Path | None:
        return self._folder / name


async def test_an_attached_file_is_read_by_its_name_or_as_the_only_one(folder: Path) -> None:
    kept = Kept(folder)
    tool = SlowLogTool(targets=Targets(), clock=SystemClock(), attached=kept, uploads=kept)
    assert only(await analyse(tool)).calls == 1
    (folder / "slow.log").write_text(my("select 1") * 2)
    assert only(await analyse(tool, path="slow.log")).calls == 2
    with pytest.raises(ModelRetry, match=r"postgresql\.log, slow\.log"):
        await analyse(tool)
    with pytest.raises(ModelRetry, match="no attached file has this name"):
        await analyse(tool, path="other.log")
    (folder / "huge.log").write_text("")
    with pytest.raises(ToolFailed, match="200 MB") as caught:
        await analyse(tool, path="huge.log")
    assert caught.value.code == "file_missing"


async def test_the_event_loop_goes_on_while_a_large_log_is_read(folder: Path) -> None:
    (folder / "postgresql.log").write_text(LOG * 300_000)
    loop, gaps = asyncio.get_running_loop(), [0.0]
    reading = asyncio.create_task(analyse(tool_of(target(folder))))
    last = loop.time()
    while not reading.done():
        await asyncio.sleep(0.002)
        gaps.append(loop.time() - last)
        last = loop.time()
    assert only(await reading).calls == 300_000
    # Reading it here would be one gap of more than a second; single gaps are the machine's.
    assert sorted(gaps)[int(len(gaps) * 0.98)] < 0.25
    assert len(gaps) > 20


async def test_reading_that_takes_too_long_stops_and_says_how_far_it_came(folder: Path) -> None:
    (folder / "postgresql.log").write_text(LOG * 100_000)
    from bot.tools.slow_logs.target import read_target_log

    answer = await read_target_log(
        target(folder), asked=None, threshold_s=0.0, order_by="total", limit=5, deadline_s=0.001
    )
    assert not answer.coverage.complete
    assert any("stopped after" in reason for reason in answer.coverage.reasons)


async def test_a_cancelled_call_leaves_no_process(folder: Path) -> None:
    (folder / "postgresql.log").write_text(LOG * 300_000)
    reading = asyncio.create_task(analyse(tool_of(target(folder))))
    async with asyncio.timeout(60):
        while not (workers := find_workers()):  # noqa: ASYNC110 (a process has no event of ours)
            await asyncio.sleep(0.01)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not set(workers) & set(find_workers())


def find_workers() -> list[str]:
    """Our children that read logs."""
    found: list[str] = []
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if b"slow_logs.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def test_the_tool_is_registered_with_a_schema_that_a_model_can_use() -> None:
    registry = ToolRegistry()
    register_slow_log_tool(registry, Targets(), SystemClock())
    tool = registry.get("analyze_slow_log")
    assert tool is not None
    assert tool.effect.value == "read"
    assert {"path", "target", "format", "log_line_prefix", "time_range", "threshold"} <= json.loads(
        json.dumps(dict(tool.parameters))
    )["properties"].keys()
