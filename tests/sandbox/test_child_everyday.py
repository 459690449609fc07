"""Everyday programs run in the sandbox as they do outside of it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.tools.python_sandbox.child.policy import Policy
from bot.tools.python_sandbox.child.restrict import is_supported
from scripts.record_syscalls import NUMERIC, STANDARD, program, record
from tests.sandbox.child_process import NOBODY, python_for, run_child, scratch_folder

pytestmark = pytest.mark.skipif(bool(is_supported()), reason=is_supported() or "supported")
NUMERIC_HERE = all(importlib.util.find_spec(name) for name in ("numpy", "pandas", "matplotlib"))
NO_NUMERIC = "the extra sandbox (numpy, pandas, matplotlib) is not installed"
PROGRAMS = {**STANDARD, **NUMERIC}


@pytest.fixture
def scratch() -> Iterator[Path]:
    with scratch_folder() as folder:
        yield folder


@pytest.mark.parametrize("abi", [0, 1], ids=["newest-landlock", "landlock-1"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_everyday_program_runs(name: str, abi: int, scratch: Path) -> None:
    if name in NUMERIC and not NUMERIC_HERE:
        pytest.skip(NO_NUMERIC)
    code = program(PROGRAMS[name])
    if abi == 1:  # there a path cannot be truncated
        code = code.replace('os.truncate("c.txt", 5)', "pass")
    policy = Policy(scratch=str(scratch), input=str(scratch / "input"), cpu_s=60, landlock_abi=abi)
    done = run_child(code, policy)
    assert done.code == 0, done.err


def test_plots_use_a_font_list_that_was_made_before(scratch: Path, tmp_path: Path) -> None:
    if not NUMERIC_HERE:
        pytest.skip(NO_NUMERIC)
    make = "import matplotlib.font_manager"
    subprocess.run([sys.executable, "-I", "-c", make], env={"MPLCONFIGDIR": str(tmp_path)}, check=True, timeout=120)
    lists = list(tmp_path.glob("fontlist*.json"))
    assert lists
    code = "import os\nprint(os.listdir('.matplotlib'))\n"
    code += "import matplotlib.pyplot as p\np.plot([1]); p.savefig('output/p.png')"
    done = run_child(code, Policy(scratch=str(scratch)), fonts=str(tmp_path))
    assert (done.code, done.out) == (0, f"{[path.name for path in lists]}\n"), done.err
    assert (scratch / "output" / "p.png").read_bytes().startswith(b"\x89PNG")


def test_the_input_is_read_and_the_output_is_left(scratch: Path) -> None:
    code = "import csv, shutil\nrows = list(csv.DictReader(open('input/data.csv')))\nprint(rows)\n"
    code += "shutil.copy('input/data.csv', 'output/copy.csv'); open('own', 'w').write('x')"
    done = run_child(code, Policy(scratch=str(scratch), input=str(scratch / "input")))
    assert done.out == "[{'a': '1', 'b': '2'}]\n"
    assert (scratch / "output" / "copy.csv").read_text() == "a,b\n1,2\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_everyday_programs_run_for_an_unprivileged_bot() -> None:
    python = python_for(NOBODY)
    if not python:
        pytest.skip("no interpreter that another user can start")
    for name, text in STANDARD.items():
        with scratch_folder(owner=NOBODY) as folder:
            policy = Policy(scratch=str(folder), input=str(folder / "input"), cpu_s=60)
            done = run_child(program(text), policy, python=python, user=NOBODY)
        assert done.code == 0, (name, done.err)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_recorder_sees_the_calls_of_a_program_and_not_those_of_the_start(tmp_path: Path) -> None:
    counted = record(sys.executable, "import os\nos.link(__file__, 'x'); os.getppid()", tmp_path)
    assert counted["link"] + counted["linkat"] == 1
    assert counted["getppid"] == 1
    assert counted["execve"] == 0
