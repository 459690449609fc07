"""What went wrong in other tools that run untrusted Python, tried here. Each test names the reports."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import tempfile
from pathlib import Path

import pytest

from bot.tools.python_sandbox.cell import build_cell
from bot.tools.python_sandbox.child.bpf import ALLOW, KILL_PROCESS, RETURN
from bot.tools.python_sandbox.child.seccomp import build_filter
from bot.tools.python_sandbox.child.syscalls import ARCHITECTURES
from bot.tools.python_sandbox.collect import TABLE, collect_outputs
from bot.tools.python_sandbox.interpreter import check_folder
from bot.tools.python_sandbox.made import read_table
from bot.tools.python_sandbox.types import MiB, RunStatus, SandboxUnavailable
from tests.sandbox.sandboxes import OpenSandbox, Sandbox

SECRET = "canary-40fe17"


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file of the bot that must be neither read nor touched."""
    path = tmp_path / "bot.toml"
    path.write_text(SECRET)
    return path


async def test_walking_from_an_object_to_every_class_gains_nothing(sandbox: Sandbox, canary: Path) -> None:
    """CVE-2025-5120, CVE-2025-9959, CVE-2026-4963 of smolagents: a walk over dunder names out of a filter of syntax."""
    code = (
        "classes = ().__class__.__base__.__subclasses__()\n"
        "print(len(classes) > 100)\n"
        "for found in classes:\n"
        "    hidden = getattr(getattr(found, '__init__', None), '__globals__', {})\n"
        "    for name in ('os', 'sys', 'posix', 'subprocess', 'builtins', '__builtins__'):\n"
        "        module = hidden.get(name)\n"
        "        for act in ('system', 'popen', 'fork', 'open'):\n"
        "            call = getattr(module, act, None)\n"
        "            try:\n"
        f"                if act == 'open' and module is not None: print(module.open({str(canary)!r}).read())\n"
        "                elif call and act == 'fork': call() or __import__('os')._exit(3)\n"
        f"                elif call and call('cat {canary}; touch {canary}.touched') == 0: print('STARTED')\n"
        "            except (OSError, TypeError, AttributeError): pass\n"
    )
    outcome = await sandbox.run(code)
    assert (outcome.status, outcome.stdout) == (RunStatus.OK, "True\n"), outcome.stderr
    assert [path.name for path in canary.parent.iterdir()] == ["bot.toml"]


async def test_ctypes_can_be_imported_and_starts_no_program(sandbox: Sandbox, canary: Path) -> None:
    """huggingface/smolagents#2094: ctypes was not on the list of forbidden modules."""
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        f"print(libc.system(b'cat {canary} > {canary}.copy') != 0, libc.popen(b'cat {canary}', b'r'))\n"
        f"print(libc.open(b'{canary}', 0), libc.fopen(b'{canary}', b'r'), libc.fork(), libc.vfork())"
    )
    outcome = await sandbox.run(code)
    assert outcome.stdout == "True 0\n-1 0 -1 -1\n", outcome.stderr
    assert [path.name for path in canary.parent.iterdir()] == ["bot.toml"]


async def test_no_object_of_a_program_comes_back_only_its_text(sandbox: Sandbox) -> None:
    """huggingface/smolagents#2395: ``__del__`` and ``__eq__`` of a returned object ran later, in the host."""
    code = (
        "class Late:\n"
        "    def __repr__(self): return 'Late()'\n"
        "    def __reduce__(self): return (exec, ('raise SystemExit(99)',))\n"
        "    def __del__(self): pass\n"
        "    __eq__ = __hash__ = __str__ = lambda *_: 1 / 0\n"
        "Late()"
    )
    outcome = await sandbox.run(build_cell(code))
    assert (outcome.status, outcome.stdout) == (RunStatus.OK, "Late()\n"), outcome.stderr
    assert {type(value) for value in dataclasses.asdict(outcome).values()} <= {RunStatus, str, bool, int, float}
    assert json.loads(json.dumps(dataclasses.asdict(outcome)))["status"] == "ok"


async def test_code_in_the_header_of_a_table_reaches_only_the_sandbox(sandbox: Sandbox) -> None:
    """CVE-2023-39659, CVE-2023-36258, CVE-2023-44467 of LangChain; sinaptik-ai/pandas-ai#1895."""
    with tempfile.TemporaryDirectory(prefix="c-") as short:
        header = f"open('{short}/x','w')"
        folder = sandbox.new_folder(table=f'"{header}",b\n1,2\n')
        code = (
            "import csv, json\nname = next(csv.reader(open('input/table')))[0]\n"
            "try:\n    eval(name)\nexcept OSError as error:\n    print(type(error).__name__)\n"
            f"json.dump(dict(columns=[name], rows=[[name]], row_count=1, column_count=1), open('output/{TABLE}', 'w'))"
        )
        outcome = await sandbox.run(code, folder=folder)
        assert outcome.stdout in {"PermissionError\n", "FileNotFoundError\n"}, outcome.stderr
        collected = await asyncio.to_thread(collect_outputs, folder, most_files=10, most_bytes=MiB)
        table = read_table(collected.table)
        assert table is not None
        assert table.columns == (header,)
        assert os.listdir(short) == []


@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=list(ARCHITECTURES))
def test_no_decision_is_left_to_a_process_that_reads_arguments_of_another_one(architecture: object) -> None:
    """multikernel/sandlock#27, #111: a supervisor read a path that another thread changed after the check.

    So the kernel decides everything: the filter never notifies, traces or logs (seccomp(2), SECCOMP_RET_*).
    """
    known = next(one for one in ARCHITECTURES.values() if one is architecture)
    program = build_filter(known, tgid=1, truncate_by_path=True)
    verdicts = {constant & 0xFFFF0000 for code, _, _, constant in program if code == RETURN}
    assert verdicts == {ALLOW, KILL_PROCESS, 0x00050000}


async def test_the_working_folder_is_the_programs_own_and_leads_nowhere_else(sandbox: Sandbox) -> None:
    """runc, CVE-2024-21626: a descriptor and a working folder of the host were left in the container."""
    folder = sandbox.new_folder()
    code = (
        "import os\nprint(sorted(os.listdir('.')))\n"
        "for path in ('..', '../..', '../../..', '../../../..', '/'):\n"
        "    try: print(os.listdir(path))\n    except OSError: print('no')\n"
        "    try: fd = os.open(path, os.O_PATH); print(os.listdir(fd))\n    except OSError: print('no')\n"
    )
    outcome = await sandbox.run(code, folder=folder)
    assert outcome.stdout == "['input', 'output']\n" + "no\n" * 10, outcome.stderr


async def test_odd_trees_names_source_and_bytes_are_an_ordinary_result(sandbox: Sandbox) -> None:
    """python-discord/snekbox#159: RecursionError in the collector, names that are no text, NUL in source, bad UTF-8."""
    folder = sandbox.new_folder()
    code = (
        "import os\nos.write(1, b'\\xff\\xfe text \\xf0\\x9f')\n"
        "open(b'output/\\xff\\xfe.csv', 'w').write('x'); open('output/ok.txt', 'wb').write(b'\\xff')\n"
        "at = 'output'\n"
        "for n in range(300):\n    at += '/d'\n    os.mkdir(at)\n"
    )
    outcome = await sandbox.run(code, folder=folder)
    assert (outcome.status, outcome.stdout) == (RunStatus.OK, "\ufffd\ufffd text \ufffd"), outcome.stderr
    collected = await asyncio.to_thread(collect_outputs, folder, most_files=10, most_bytes=MiB)
    assert sorted(file.name for file in collected.files) == ["csv", "ok.txt"]
    for source in ("x = 1\0", "x = '\ud800'", "(" * 50_000):
        assert (await sandbox.run(source)).status in {RunStatus.ERROR, RunStatus.CRASHED, RunStatus.MEMORY}


def test_a_cache_that_belongs_to_somebody_else_is_refused(tmp_path: Path) -> None:
    """pyeryx: a compiled cache lay in one fixed folder for all; once another user owned it, no start succeeded."""
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o755)
    check_folder(mine)
    assert mine.stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(mine)
    with pytest.raises(SandboxUnavailable, match="belongs to another user"):
        check_folder(tmp_path / "link")
    if os.geteuid() == 0:
        os.chown(mine, 65534, 65534)
        with pytest.raises(SandboxUnavailable, match="belongs to another user"):
            check_folder(mine)


async def test_hostile_source_never_ends_the_bot(sandbox: Sandbox) -> None:
    """pyeryx: one line of nested brackets, or deep recursion in the guest, aborted the process that embedded it."""
    for source in (
        "x=" + "(" * 20_000 + ")" * 20_000,
        "x=" + "-" * 50_000 + "1",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nf()",
        "class A:\n    def __repr__(self): return repr(self)\nrepr(A())",
    ):
        outcome = await sandbox.run(build_cell(source), source_bytes=MiB)
        assert outcome.status in {RunStatus.ERROR, RunStatus.CRASHED, RunStatus.MEMORY, RunStatus.CPU}, outcome
    assert (await sandbox.run("print(1)")).stdout == "1\n"


async def test_the_cap_of_memory_that_is_told_is_the_one_that_is_kept(open_sandbox: OpenSandbox, kind: str) -> None:
    """gptme/gptme#3381: the documented cap was never applied. nsjail#266: a unit turned a soft limit into near zero."""
    sandbox = await open_sandbox(kind)
    code = (
        "kept = []\ntry:\n    while True: kept.append(bytearray(2**20))\n"
        "except MemoryError:\n    size = len(kept)\n    kept.clear()\n    print(size)"
    )
    for wanted in (64, 256):
        outcome = await sandbox.run(code, memory_bytes=wanted * MiB)
        assert wanted * 0.8 <= int(outcome.stdout) <= wanted, outcome
