"""``hermod sandbox``: a runner as a process, with its token, its signals and what it says where it cannot start."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bot.tools.python_sandbox.child.landlock import why_no_landlock
from tests.integration.cli.command import Done, build_environ, hermod

TOKEN = "a-token-of-the-command-0123456789"
SOON_S = 60.0

if reason := why_no_landlock():
    pytest.skip(reason, allow_module_level=True)


class Serving:
    """A runner's process."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str, token: str = "") -> tuple[int, str]:
        """Get a path; return status and body."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"{self.url}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=SOON_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait_until_well(self) -> None:
        """Wait until it takes runs."""
        end = time.monotonic() + SOON_S
        while self.get("/healthz") != (200, '{"ok": true}'):
            assert time.monotonic() < end, "it did not become well"
            time.sleep(0.05)


@contextmanager
def serve(folder: Path, *words: str, **variables: str) -> Iterator[Serving]:
    """Start ``hermod sandbox serve`` on a free port, and end it."""
    log = folder / "log"
    environ = build_environ(HERMOD_SANDBOX__BACKEND="landlock", HERMOD_SANDBOX__FOLDER=str(folder / "files"))
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "bot", "sandbox", "serve", "--port", "0", *words],
            cwd=folder,
            env=environ | variables,
            stderr=errors,
            stdout=errors,
            text=True,
        )
    try:
        yield Serving(process, _find_port(process, log))
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _find_port(process: subprocess.Popen[str], log: Path) -> int:
    end = time.monotonic() + SOON_S
    while time.monotonic() < end:
        for line in log.read_text().splitlines():
            if '"runner_listening"' in line:
                return int(json.loads(line)["port"])
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def command(folder: Path, *words: str, **variables: str) -> Done:
    """Run a command to its end."""
    return hermod(folder, *words, stdin="", timeout_s=2 * SOON_S, **variables)


def client(serving: Serving) -> dict[str, str]:
    """Return the settings of a Hermod that uses it."""
    return {
        "HERMOD_SANDBOX__BACKEND": "runner",
        "HERMOD_SANDBOX__RUNNER_URL": serving.url,
        "HERMOD_SANDBOX__RUNNER_TOKEN": TOKEN,
    }


def test_a_tool_runs_on_a_runner_and_doctor_shows_what_that_enforces(tmp_path: Path) -> None:
    with serve(tmp_path, "--token-env", "RUNNER_TOKEN", RUNNER_TOKEN=TOKEN) as serving:
        serving.wait_until_well()
        ran = command(tmp_path, "tools", "run", "run_python", "code=print(6*7)", "--json", **client(serving))
        assert (ran.code, ran.data["ok"], ran.data["stdout"]) == (0, True, "42\n")
        check = command(tmp_path, "sandbox", "check", "--json", **client(serving))
        assert (check.code, check.data["ok"], check.data["backend"]) == (0, True, "runner")
        facts = check.data["facts"]
        assert isinstance(facts, dict)
        assert (facts["backend"], facts["runner"]) == ("landlock", serving.url)
        doctor = command(tmp_path, "doctor", **client(serving))
        assert "backend landlock" in doctor.out
        assert "not encrypted" in doctor.out
    log = (tmp_path / "log").read_text()
    assert '"run_done"' in log
    for text in (log, ran.out + ran.err, check.out + check.err, doctor.out + doctor.err):
        assert TOKEN not in text


def test_the_token_can_come_from_a_file_or_from_the_settings(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    ways: list[tuple[tuple[str, ...], dict[str, str]]] = [
        (("--token-file", str(tmp_path / "token")), {}),
        ((), {"HERMOD_SANDBOX__RUNNER_TOKEN": TOKEN}),
        ((), {"HERMOD_SANDBOX__RUNNER_TOKEN_FILE": str(tmp_path / "token")}),
        (("--token-env", "HERMOD_TOKEN_OF_THE_RUNNER"), {"HERMOD_TOKEN_OF_THE_RUNNER": TOKEN}),
    ]
    for words, variables in ways:
        with serve(tmp_path, *words, **variables) as serving:
            assert serving.get("/v1/probe")[0] == 401
            assert serving.get("/v1/probe", TOKEN)[0] == 200


def test_the_process_is_closed_to_others_of_its_user(tmp_path: Path) -> None:
    with serve(tmp_path, "--token-env", "RUNNER_TOKEN", RUNNER_TOKEN=TOKEN) as serving:
        owner = os.stat(f"/proc/{serving.process.pid}/environ")
        status = Path(f"/proc/{serving.process.pid}/status").read_text()
    # a process that cannot be dumped belongs to root in /proc, whoever runs it (proc(5))
    assert owner.st_uid == 0
    assert "Name:" in status


def test_sigterm_lets_a_program_end_and_leaves_nothing(tmp_path: Path) -> None:
    with serve(tmp_path, "--token-env", "RUNNER_TOKEN", RUNNER_TOKEN=TOKEN) as serving:
        serving.wait_until_well()
        code = "code=import time; open('output/began', 'w'); time.sleep(1.5); print('ended')"
        running = subprocess.Popen(
            [sys.executable, "-m", "bot", "tools", "run", "run_python", code, "--json"],
            cwd=tmp_path,
            env=build_environ(**client(serving)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        runs = tmp_path / "files/runs"
        end = time.monotonic() + SOON_S
        while not list(runs.glob("*/run/output/began")):
            assert time.monotonic() < end, "the program did not begin"
            time.sleep(0.02)
        serving.process.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=SOON_S)
        assert json.loads(out)["stdout"] == "ended\n"
        assert serving.process.wait(SOON_S) == 0
    assert not runs.exists()
    assert '"runner_stopped"' in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("words", "variables", "text"),
    [
        ((), {}, "a runner needs a token"),
        (("--token-env", "NOT_THERE"), {}, "NOT_THERE is not set"),
        (("--token-file", "/nowhere/token"), {}, "/nowhere/token"),
        (("--token-env", "T"), {"T": "short"}, "at least 16"),
        (("--token-env", "T", "--token-file", "t"), {"T": TOKEN}, "not with both"),
        (("--token-env", "T", "--host", "203.0.113.1"), {"T": TOKEN}, "cannot be used"),
        (("--token-env", "T", "--certificate", "/nowhere/c"), {"T": TOKEN}, "--key"),
        (("--token-env", "T", "--certificate", "/nowhere/c", "--key", "/nowhere/k"), {"T": TOKEN}, "/nowhere/c"),
        (
            ("--token-env", "T"),
            {"T": TOKEN, "HERMOD_SANDBOX__BACKEND": "none-i-accept-host-code-execution"},
            "locks code in",
        ),
    ],
)
def test_a_runner_that_cannot_serve_says_why_and_does_not_start(
    tmp_path: Path, words: tuple[str, ...], variables: dict[str, str], text: str
) -> None:
    done = command(tmp_path, "sandbox", "serve", "--port", "0", *words, **variables)
    assert done.code == 2
    assert text in done.err
    assert TOKEN not in done.out + done.err


def test_check_tells_why_code_is_not_locked_in(tmp_path: Path) -> None:
    variables = {
        "HERMOD_SANDBOX__BACKEND": "runner",
        "HERMOD_SANDBOX__RUNNER_URL": "http://127.0.0.1:9",
        "HERMOD_SANDBOX__RUNNER_TOKEN": TOKEN,
    }
    done = command(tmp_path, "sandbox", "check", **variables)
    assert done.code == 1
    assert "Connection refused" in done.err


@pytest.mark.parametrize(("no_color", "before"), [("", "\033[31m"), ("1", "")])
def test_a_backend_that_locks_nothing_in_is_an_error_in_red(tmp_path: Path, no_color: str, before: str) -> None:
    shown, terminal = pty.openpty()
    variables = {"HERMOD_SANDBOX__BACKEND": "none-i-accept-host-code-execution", "NO_COLOR": no_color}
    with open(shown, "rb", buffering=0) as reading, open(terminal, "wb", buffering=0) as writing:
        done = subprocess.run(
            [sys.executable, "-m", "bot", "doctor"],
            cwd=tmp_path,
            env=build_environ(**variables),
            stdout=writing,
            timeout=SOON_S,
            check=False,
        )
        lines = reading.read(1 << 16).decode().splitlines()
    assert done.returncode == 1
    assert [line for line in lines if line.startswith(f"{before}ERROR    sandbox: NOTHING LOCKS CODE IN")]
    assert [line for line in lines if line.startswith("ok       storage")]
