"""The table of features says what the declared scenarios promise, and cannot say more than a run showed."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts.write_features import (
    BEGIN,
    END,
    PAGE,
    README,
    list_missing,
    promise,
    read_ends,
    render_page,
    render_readme,
)
from tests.contract.chat.features import CANNOT, FEATURES, WAYS
from tests.contract.chat.scenario import FOLDER, declared, scenario
from tests.contract.chat.unable import no_drafts

ROOT = Path(__file__).parents[3]
SCENARIOS = tuple(declared())


def test_the_table_of_the_readme_is_up_to_date() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == render_readme(promise(), text), "run: python -m scripts.write_features"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(promise()), "run: python -m scripts.write_features"


def test_there_are_at_least_sixty_scenarios_and_each_has_a_name_of_its_own() -> None:
    assert len(SCENARIOS) >= 60
    assert [name for name, times in Counter(s.name for s in SCENARIOS).items() if times > 1] == []


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.id)
def test_a_feature_has_a_scenario(feature: object) -> None:
    assert any(s.feature == feature.id for s in SCENARIOS)  # type: ignore[attr-defined]


def test_every_test_of_the_suite_is_a_scenario() -> None:
    """But for those that try one platform by another means."""
    found = {
        f"{path.name}::{node.name}"
        for path in FOLDER.glob("test_*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name.startswith("test_")
        if path.name != "test_second_opinion.py"
    }
    assert found == {s.id for s in SCENARIOS}


def test_reasons_belong_to_features_and_platforms_that_there_are() -> None:
    known = {feature.id for feature in FEATURES}
    assert {feature for feature, _ in CANNOT} <= known
    assert {way for _, way in CANNOT} <= set(WAYS)
    assert all(reason.strip() and "|" not in reason for reason in CANNOT.values())


def test_every_platform_can_do_most_of_it_and_discord_all() -> None:
    able = {way: sum((feature.id, way) not in CANNOT for feature in FEATURES) for way in WAYS}
    assert able["discord"] == len(FEATURES)
    assert min(able["slack-socket"], able["slack-http"]) >= len(FEATURES) - 5


def test_a_scenario_whose_platform_cannot_do_it_has_to_try_what_happens_then() -> None:
    async def test_it() -> None: ...

    with pytest.raises(ValueError, match="need a check for"):
        scenario("draft")(test_it)
    with pytest.raises(ValueError, match="need a check for no platform"):
        scenario("thread", unable=no_drafts)(test_it)
    with pytest.raises(LookupError, match="no feature 'flying'"):
        scenario("flying")


def test_what_did_not_pass_is_shown_as_failing_and_named() -> None:
    ends = {name: dict(by_way) for name, by_way in promise().items()}
    one = next(s for s in SCENARIOS if s.feature == "buttons")
    ends[one.id]["discord"] = "failed"
    gone = next(s for s in SCENARIOS if s.feature == "token")
    del ends[gone.id]
    assert list_missing(ends) == [f"{one.id}[discord]", *(f"{gone.id}[{way}]" for way in WAYS)]
    table = render_readme(ends, f"x{BEGIN}stale words{END}y")
    rows = {line.split(" | ")[0].strip("| "): line for line in table.splitlines() if line.startswith("|")}
    assert rows["buttons, also after a restart"].count("yes") == 2
    assert rows["buttons, also after a restart"].count("**fails**") == 1
    assert rows["a token that is refused is told at the start"].count("**fails**") == len(WAYS)
    assert f"{len(SCENARIOS) * 4 - 5} of {len(SCENARIOS) * 4} passed" in table
    assert table.startswith("x")
    assert table.endswith("y")
    assert "stale words" not in table


def test_a_readme_without_a_place_for_the_table_is_told() -> None:
    with pytest.raises(ValueError, match="features:begin"):
        render_readme(promise(), "# Hermod")


def test_something_else_is_not_read_as_a_result() -> None:
    with pytest.raises(ValueError, match="an object is expected"):
        read_ends("[]")


ONE = """
import pytest

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")

@pytest.fixture(params=["here", "there"])
def place(request):
    yield request.param
    assert request.node.originalname != "test_ends_badly"

@pytest.mark.feature("x")
@pytest.mark.parametrize("n", range(3))
def test_one(place, n):
    assert (place, n) != ("there", 1)

@pytest.mark.feature("x")
def test_ends_badly(place):
    pass

@pytest.mark.feature("x")
def test_skipped(place):
    pytest.skip("not today")

def test_is_no_scenario():
    pass
"""


def test_a_run_is_recorded_by_scenario_and_platform(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(ONE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = feature(id): x\n")
    out = tmp_path / "ends.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:simcord"]
    plugin = ["-p", "tests.contract.chat.record", f"--scenarios={out}"]
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, *plugin, "."], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert out.is_file(), done.stdout + done.stderr
    assert json.loads(out.read_text()) == {
        "test_it.py::test_one": {"here": "passed", "there": "failed"},
        "test_it.py::test_ends_badly": {"here": "failed", "there": "failed"},
        "test_it.py::test_skipped": {"here": "skipped", "there": "skipped"},
    }
