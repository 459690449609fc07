"""The rules of tests/conftest.py, tried in a test run of their own."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

MISSING = """
import pytest
import tests.conftest

tests.conftest.SERVICES["teapot"] = lambda: "no teapot: apt-get install teapot"

@pytest.mark.service("teapot")
def test_pours():
    pass
"""


DRAWS = """
import os
from pathlib import Path
from hypothesis import given, settings, strategies as st

drawn = []

@settings(max_examples=30)
@given(st.one_of(st.integers(), st.floats(), st.text(max_size=9)))
def test_draws(value):
    drawn.append(repr(value))

@given(st.integers())
def test_draws_a_hundred_times(value):
    drawn.append(repr(value))

def test_shows():
    Path(os.environ["SHOWN"]).write_text("\\n".join(drawn))
"""


STAYS = """
import gc
import pytest

kept, left_out = [], []

@pytest.mark.parametrize("n", range(120))
def test_keeps_a_thousand_lists(n):
    kept.append([[n] for _ in range(1000)])
    left_out.append(gc.get_freeze_count())

def test_most_of_them_are_left_out_of_collections():
    assert left_out[-1] - left_out[0] > 90_000
"""


def run_pytest(folder: Path, text: str, *more: str, **environ: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text("from tests.conftest import *\nfrom tests.conftest import _guard\n")
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-c", str(ROOT / "pyproject.toml"), "."]
    command += more
    return subprocess.run(
        command,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_test_whose_service_is_missing_is_skipped_and_listed_with_the_remedy(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, MISSING)
    assert done.returncode == 0, done.stdout
    assert "skip list: 1" in done.stdout
    assert "test_it.py::test_pours: no teapot: apt-get install teapot" in done.stdout


def test_a_test_whose_service_is_missing_fails_where_services_are_required(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, MISSING, HERMOD_REQUIRE_SERVICES="1")
    assert done.returncode == 1, done.stdout
    assert "a required service is missing: no teapot" in done.stdout


def test_a_connection_that_the_code_gives_up_quietly_still_fails_its_test(tmp_path: Path) -> None:
    text = """
import socket

def test_phones_home():
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    except OSError:
        pass
"""
    done = run_pytest(tmp_path, text)
    assert done.returncode == 1, done.stdout
    assert "tests stay on this machine" in done.stdout


@pytest.mark.parametrize("host", ["192.0.2.1", "example.com", "2001:db8::1"])
def test_a_connection_to_the_outside_is_refused(blocked_attempts: list[str], host: str) -> None:
    with pytest.raises(OSError, match="tests stay on this machine"):
        socket.create_connection((host, 80), timeout=1)
    assert blocked_attempts
    blocked_attempts.clear()


def test_a_connection_to_this_machine_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5):
        pass


def draw(folder: Path, *more: str, text: str = DRAWS, **environ: str) -> list[str]:
    """Run the properties and return what they drew."""
    shown = folder / "shown"
    done = run_pytest(folder, text, *more, SHOWN=str(shown), **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return shown.read_text(encoding="utf-8", errors="surrogateescape").split("\n")


def test_a_property_gets_the_same_examples_each_time_whatever_else_is_there(tmp_path: Path) -> None:
    first = draw(tmp_path, PYTHONHASHSEED="1")
    assert 100 < len(first) <= 130
    (tmp_path / "neighbour.py").write_text("A = [1234567, 7654321, 'a neighbour', 0.123]\n" * 50)
    beside = DRAWS.replace("import os\n", "import os, neighbour\n", 1)
    assert draw(tmp_path, text=beside, PYTHONHASHSEED="2") == first


def test_a_search_draws_new_examples_and_as_many_times_more_as_it_is_told(tmp_path: Path) -> None:
    first, second = (draw(tmp_path, "--hypothesis-profile=search", FUZZ="3") for _ in range(2))
    assert 300 < min(len(first), len(second)) <= max(len(first), len(second)) <= 390
    assert first != second


def test_a_search_says_which_number_it_wants(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, DRAWS, "--hypothesis-profile=search", FUZZ="often")
    assert done.returncode == 4
    assert "FUZZ=often: say how many times" in done.stderr


def test_what_tests_leave_behind_does_not_make_collections_of_garbage_ever_longer(tmp_path: Path) -> None:
    """Late in a run of all tests one took more than a second, in whatever was timed at that moment."""
    done = run_pytest(tmp_path, STAYS)
    assert done.returncode == 0, done.stdout
