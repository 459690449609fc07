"""The battery of attacks against every backend that this machine allows, as this user and as an unprivileged one."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.tools.python_sandbox.types import Enforcement, RunStatus, SandboxOutcome, SandboxRun, SandboxUnavailable
from tests.needs import need
from tests.sandbox.battery.attacks import LEVELS, ORACLES, Attack, load_attacks
from tests.sandbox.battery.container import USER, build_config
from tests.sandbox.battery.harness import attack_in_folder, run_battery
from tests.sandbox.battery.portable import ROOT, copy_battery
from tests.sandbox.child_process import NOBODY, python_for
from tests.sandbox.sandboxes import why_missing

ATTACKS = load_attacks()
LONGEST_S = 300
HELD = {"escape", "leak"}

ESCAPES_ON_THE_HOST = {
    *(
        "file-config",
        "file-config-relative",
        "file-db",
        "file-ssh-cloud",
        "file-other-run",
        "file-tmp-scan",
        "hardlink",
    ),
    *("write-outside", "write-sitedir", "write-home", "truncate-path", "chmod-path", "utime-path", "unlink-path"),
    *("net-tcp", "net-udp", "net-unix", "net-abstract", "net-unix-dgram", "kill-bot", "daemonize", "listdir-leak"),
    *("col-symlink", "col-symlink-dir", "col-fifo", "col-socket"),
}


def test_the_battery_is_whole() -> None:
    text = Path(__file__).with_name("battery").joinpath("attacks.toml").read_text()
    assert text.count("[[attack]]") == 101
    assert len(ATTACKS) >= 120
    assert {attack.level for attack in ATTACKS} == set(LEVELS)
    assert {attack.oracle for attack in ATTACKS} == ORACLES
    assert {attack.id for attack in ATTACKS if attack.known and attack.level in HELD} == {"stat-leak"}
    assert {backend for attack in ATTACKS for backend in attack.known} == {"landlock"}


@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
async def test_no_attack_gets_through_as_this_user(kind: str, warm: bool) -> None:
    report = await attack_in_folder(kind, warm=warm, attacks=ATTACKS)
    assert not report.findings, report.describe()
    assert report.ran == len(ATTACKS)
    assert {one.attack for one in report.known} <= {"stat-leak", "dropped-so"}


@pytest.mark.timeout(LONGEST_S)
async def test_no_attack_gets_through_to_a_runner_or_to_who_asks_it() -> None:
    need(why_missing("landlock"))
    report = await attack_in_folder("runner", warm=True, attacks=ATTACKS)
    assert not report.findings, report.describe()
    assert report.ran == len(ATTACKS)


@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_no_attack_gets_through_as_an_unprivileged_user(kind: str, warm: bool, portable: Path) -> None:
    python = python_for(NOBODY)
    if not python:
        need("an interpreter that another user can start (apt-get install python3)")
    ended = subprocess.run(
        [python, "-B", "-m", "tests.sandbox.battery", kind, "--json", *(() if warm else ("--cold",))],
        cwd=portable,
        env={"PYTHONPATH": str(portable), "PATH": os.defpath},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert ended.stdout, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["findings"], ended.returncode) == ([], 0)
    assert report["ran"] == len(ATTACKS)
    assert f"user {NOBODY}" in report["backend"]


@pytest.fixture(scope="module")
def portable() -> Iterator[Path]:
    """A copy of the battery that every user can read."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; this one is unprivileged already")
    folder = Path(tempfile.mkdtemp(prefix="hermod-battery-copy-"))
    try:
        copy_battery(folder)
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.timeout(LONGEST_S)
def test_no_attack_gets_through_in_a_container_without_privileges() -> None:
    if os.geteuid() != 0 or shutil.which("runc") is None or platform.machine() != "x86_64":
        need("root, runc (apt-get install runc) and x86-64")
    ended = subprocess.run(
        ["scripts/run_battery_in_container.sh", "landlock", "--json"],
        cwd=ROOT,
        env={**os.environ, "VENV": sys.prefix, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    if not ended.stdout:
        need(f"a container, which cannot be started here: {ended.stderr.strip()[-300:]}")
    report = json.loads(ended.stdout)
    assert (report["findings"], ended.returncode) == ([], 0)
    assert report["ran"] == len(ATTACKS)
    assert f"user {USER}" in report["backend"]


def test_a_container_has_what_docker_allows_and_no_more() -> None:
    facts = tomllib.loads((ROOT / "tests/sandbox/battery/docker_default.toml").read_text())
    config = json.loads(json.dumps(build_config(facts, ["true"], ["/usr"])))
    assert config["root"]["readonly"]
    assert config["process"]["user"] == {"uid": USER, "gid": USER}
    assert config["process"]["capabilities"]["effective"] == []
    assert "CAP_SYS_ADMIN" not in config["process"]["capabilities"]["bounding"]
    allowed = {name: row for row in config["linux"]["seccomp"]["syscalls"] for name in row["names"]}
    assert {"landlock_create_ruleset", "ptrace", "seccomp"} <= allowed.keys()
    assert not {"unshare", "mount", "setns", "bpf", "io_uring_setup", "keyctl"} & allowed.keys()
    assert allowed["clone"]["args"][0]["value"] == 0x7E020000
    assert allowed["clone3"]["errnoRet"] == 38
    assert all("ro" in mount["options"] for mount in config["mounts"] if mount["type"] == "bind")


# -- that the harness sees what it should ----------------------------------------------------------


@pytest.mark.timeout(LONGEST_S)
async def test_the_harness_sees_the_attacks_get_through_where_nothing_locks_them_in() -> None:
    report = await attack_in_folder("host", warm=True, attacks=[a for a in ATTACKS if a.id in ESCAPES_ON_THE_HOST])
    assert ESCAPES_ON_THE_HOST - {found.attack for found in report.findings} == set()


class Canned:
    """A backend that runs nothing and always says the same."""

    name = "canned"
    enforcing = True

    def __init__(self, outcome: SandboxOutcome | None) -> None:
        self.outcome = outcome

    async def probe(self) -> Enforcement:
        return Enforcement(backend=self.name, works=False)

    async def run(self, run: SandboxRun) -> SandboxOutcome:
        if self.outcome is None:
            raise SandboxUnavailable("not here")
        return self.outcome

    async def aclose(self) -> None:
        pass


def find(attack_id: str) -> Attack:
    """Return one attack."""
    return next(attack for attack in ATTACKS if attack.id == attack_id)


@pytest.mark.parametrize(
    ("attack", "outcome", "what"),
    [
        ("net-tcp", SandboxOutcome(status=RunStatus.OK), "no verdict"),
        ("file-config", None, "not run"),
        ("file-config", SandboxOutcome(status=RunStatus.OK, stdout="x hermod-canary-1 x"), "secret"),
        ("rob-exit7", SandboxOutcome(status=RunStatus.OK), "not as one of error 7"),
        ("rob-surrogate-print", SandboxOutcome(status=RunStatus.OK, stdout="\ud800"), "cannot be written"),
        ("cpu-loop", SandboxOutcome(status=RunStatus.TIMEOUT, exit_code=-9, duration_s=99.0), "ran for 99.0 s"),
        (
            "err-flood",
            SandboxOutcome(status=RunStatus.OUTPUT_CAP, exit_code=-9, stderr="x" * 10**6),
            "more of its stderr",
        ),
        ("env-environ", SandboxOutcome(status=RunStatus.OK, exit_code=3), "contradicts"),
    ],
)
async def test_the_harness_sees_what_is_wrong_with_a_record(
    attack: str, outcome: SandboxOutcome | None, what: str, tmp_path: Path
) -> None:
    report = await run_battery(Canned(outcome), [find(attack)], tmp_path)
    assert [what in found.what for found in report.findings if found.attack == attack] == [True], report.describe()
    assert [found.attack for found in report.findings if found.attack != attack] == ["(all)"]
