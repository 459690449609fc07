"""Everyday programs through the tool, locked in by each backend that works on this machine."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agent_core.context import RunContext, SystemClock
from agent_core.llm.types import ToolCall
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from bot.settings_tree import SandboxSettings
from bot.tools.python_sandbox.choose import open_sandbox
from bot.tools.python_sandbox.folders import Folders
from bot.tools.python_sandbox.packages import CANDIDATES, list_packages
from bot.tools.python_sandbox.tool import PythonTool, register_python_tool
from bot.tools.python_sandbox.types import SandboxBackend, SandboxLimits, SandboxUnavailable
from bot.tools.python_sandbox.uploads import Uploads
from tests.needs import need
from tests.sandbox.everyday_programs import BEGIN, END, Program, build_table, load_programs

pytestmark = pytest.mark.asyncio(loop_scope="module")
DOCS = Path(__file__).parents[2] / "docs" / "sandbox.md"
PROGRAMS = load_programs()
LIMITS = SandboxLimits(wall_s=60.0, cpu_s=30.0)  # the machine that tests may be slow; what is allowed is not the point
KEY = "terminal:local/tools/t1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """The tool on one backend."""

    backend: SandboxBackend
    folders: Folders
    tool: PythonTool
    executor: ToolExecutor

    async def run(self, code: str, *, key: str = KEY, **arguments: object) -> dict[str, Any]:
        call = ToolCall(id="c1", name="run_python", arguments=json.dumps({"code": code, **arguments}))
        result = await self.executor.run_one(RunContext.create(key), call)
        value: dict[str, Any] = json.loads(result.content)
        return value


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["namespaces", "landlock"])
async def locked(request: pytest.FixtureRequest) -> AsyncIterator[Locked]:
    root = Path(tempfile.mkdtemp(prefix="everyday-"))
    try:
        backend = await open_sandbox(SandboxSettings(backend=request.param), state=root / "state")
    except SandboxUnavailable as error:
        shutil.rmtree(root)
        need(f"{request.param} does not work here: {error}")
        raise
    folders, registry = Folders(root / "threads", clock=SystemClock()), ToolRegistry()
    tool = register_python_tool(registry, backend, folders=folders, limits=LIMITS, clock=SystemClock(), sessions=True)
    try:
        yield Locked(backend=backend, folders=folders, tool=tool, executor=ToolExecutor(registry))
    finally:
        await backend.aclose()
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
async def test_an_everyday_program_runs_and_prints_what_it_should(locked: Locked, program: Program) -> None:
    value = await locked.run(program.code, key=f"terminal:local/everyday/{program.name}")
    assert (value["status"], value["stdout"].splitlines()[-1:]) == ("ok", [program.prints]), value


async def test_a_plot_takes_letters_that_its_font_lacks_from_a_font_of_the_machine(locked: Locked) -> None:
    plot = next(program.code for program in PROGRAMS if program.name == "plot_cjk")
    known = "import matplotlib.pyplot as plt; print(plt.rcParams['font.family'])"
    families = (await locked.run(known))["stdout"]
    value = await locked.run(plot)
    assert value["status"] == "ok"
    assert ("missing from font" in value["stderr"]) is ("CJK" not in families and "WenQuanYi" not in families)


async def test_there_are_as_many_programs_as_are_promised() -> None:
    assert len(PROGRAMS) == 32


async def test_the_documentation_lists_exactly_these_programs() -> None:
    text = DOCS.read_text(encoding="utf-8")
    listed = text.partition(BEGIN)[2].partition(END)[0].strip()
    assert listed == build_table(), "python -m tests.sandbox.everyday_programs prints the table"


async def test_files_go_in_and_come_out_and_stay_for_the_next_call(locked: Locked) -> None:
    key = "terminal:local/tools/files"
    uploads = Uploads(locked.folders)
    from adapters.chat import FileRef

    uploads.note(key, "m1", 1.0, [FileRef(id="F1", name="sales.csv")])
    uploads.save(key, uploads.list(key)[0], b"month,total\n1,10\n2,32\n")

    class Here:
        async def fetch(self, thread_key: str, names: object) -> Any:
            from bot.tools.python_sandbox.uploads import Fetched

            return Fetched(names=("sales.csv",))

    locked.tool.attached = Here()
    frame = await locked.run("import pandas as pd\npd.read_csv('input/sales.csv')", key=key)
    assert (frame["status"], frame["table"]["rows"]) == ("ok", [["1", "10"], ["2", "32"]]), frame
    assert [(f["name"], f["rows"]) for f in frame["files"]] == [("result.csv", 2)]
    again = await locked.run("print(open('output/result.csv').read().splitlines()[1])", key=key)
    assert (again["stdout"], again["files"]) == ("1,10\n", []), again
    spoilt = await locked.run("open('input/sales.csv', 'w').write('x')", key=key)
    assert (spoilt["status"], "Permission" in spoilt["stderr"] or "Read-only" in spoilt["stderr"]) == ("error", True)
    drawn = await locked.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])", key=key)
    assert [(f["name"], f["type"]) for f in drawn["files"]] == [("figure-1.png", "png")], drawn


async def test_a_traceback_names_the_lines_of_the_program_only(locked: Locked) -> None:
    value = await locked.run("x = 1\ndef half():\n    return x / 0\nhalf()")
    assert value["stderr"].splitlines() == [
        "Traceback (most recent call last):",
        '  File "program.py", line 4, in <module>',
        "    half()",
        '  File "program.py", line 3, in half',
        "    return x / 0",
        "           ~~^~~",
        "ZeroDivisionError: division by zero",
    ]


async def test_a_session_keeps_its_variables_and_its_files(locked: Locked) -> None:
    key = "terminal:local/tools/session"
    first = await locked.run("x = 41\nopen('output/a.txt', 'w').write('a')", key=key, session=True)
    assert (first["status"], first["state"]) == ("ok", "fresh"), first
    assert [f["name"] for f in first["files"]] == ["a.txt"]
    second = await locked.run("x + 1", key=key, session=True)
    assert (second["stdout"], second["state"], second["files"]) == ("42\n", "continued", []), second
    assert "__cell__" not in (await locked.run("sorted(globals())", key=key, session=True))["stdout"]
    ended = await locked.run("import os\nos._exit(0)", key=key, session=True)
    after = await locked.run("x", key=key, session=True)
    assert (ended["state"], after["state"], after["status"]) == ("continued", "lost", "error"), (ended, after)
    locked.folders.forget(key)
    assert (await locked.run("'x' in globals()", key=key, session=True))["stdout"] == "False\n"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("x = bytearray(2_000_000_000)", "memory"),
        ("while True: pass", "cpu"),
        ("import os\nos.fork()", "error"),
        ("while True: print('x' * 10_000)", "output_cap"),
        ("import ctypes\nctypes.string_at(0)", "crashed"),
        ("import time\ntime.sleep(60)", "timeout"),
        ("for n in range(40): open(f'output/{n}', 'wb').write(bytes(4_000_000))", "disk"),
    ],
)
async def test_every_limit_has_its_own_word(locked: Locked, code: str, status: str) -> None:
    locked.tool.limits = SandboxLimits(wall_s=20.0, cpu_s=2.0)
    try:
        value = await locked.run(code, timeout_s=3 if status == "timeout" else 20)
    finally:
        locked.tool.limits = LIMITS
    assert value["status"] in ((status, "error") if status == "disk" else (status,)), value


async def test_what_the_description_names_can_be_imported_and_nothing_else(locked: Locked) -> None:
    code = (
        "import importlib, json\nfound = []\n"
        f"for module, name in {CANDIDATES!r}:\n"
        "    try:\n        found.append([name, importlib.import_module(module).__version__])\n"
        "    except ImportError:\n        pass\n"
        "print(json.dumps(found))"
    )
    value = await locked.run(code)
    found = {name: version for name, version in json.loads(value["stdout"])}
    assert found == {package.name: package.version for package in list_packages()}
    assert {"numpy", "pandas", "matplotlib"} <= found.keys()
