"""The probe finds what a backend does not hold, and nothing where it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bot.tools.python_sandbox.forking import Tuning
from bot.tools.python_sandbox.host_backend import HostBackend
from bot.tools.python_sandbox.interpreter import find_interpreter
from bot.tools.python_sandbox.namespaces_backend import NamespacesBackend
from bot.tools.python_sandbox.probe import Probe
from bot.tools.python_sandbox.types import RunStatus, SandboxOutcome, SandboxRun, SandboxUnavailable
from tests.sandbox.sandboxes import OpenSandbox, Sandbox


class Watched:
    """A backend whose runs are counted, and whose facts and outcomes a test can set."""

    name = "watched"

    def __init__(self, sandbox: Sandbox | None, facts: Mapping[str, str]) -> None:
        self.sandbox, self.facts = sandbox, facts
        self.runs = 0
        self.outcome: SandboxOutcome | None = None

    async def run(self, run: SandboxRun) -> SandboxOutcome:
        self.runs += 1
        if self.outcome is not None:
            return self.outcome
        if self.sandbox is None:
            raise SandboxUnavailable("there is nothing to run it")
        return await self.sandbox.backend.run(run)

    async def describe(self) -> Mapping[str, str]:
        return self.facts


class Unlocked(HostBackend):
    """The host backend, as something that can be probed."""

    async def describe(self) -> Mapping[str, str]:
        return {}


async def test_a_backend_that_holds_everything_passes_and_tells_what_it_is(sandbox: Sandbox) -> None:
    verdict = await sandbox.backend.probe()
    assert (verdict.works, verdict.reason) == (True, "")
    assert verdict.backend == sandbox.backend.name
    assert {"kernel", "landlock", "python", "numpy"} <= verdict.facts.keys()
    assert ("bubblewrap" in verdict.facts) == (sandbox.backend.name == "namespaces")


async def test_the_verdict_is_kept_until_something_about_the_backend_changes(open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox("landlock")
    watched = Watched(sandbox, {"kernel": "6.1", "version": "1"})
    probe = Probe(watched, sandbox.backend.interpreter)
    assert (await probe.run()).works
    once = watched.runs
    assert (await probe.run()).works
    assert watched.runs == once > 1
    watched.facts = {"kernel": "6.2", "version": "1"}
    assert (await probe.run()).works
    assert watched.runs == 2 * once


async def test_code_that_nothing_holds_is_found_at_everything(tmp_path: Path) -> None:
    interpreter = await find_interpreter(None)
    backend = Unlocked(interpreter, Tuning(cache=tmp_path))
    verdict = await Probe(backend, interpreter).run()
    assert not verdict.works
    for what in (
        "a port of this machine",
        "a socket in the file system",
        "another process's environment",
        "start a process",
        "write outside its folder",
        "end another process",
    ):
        assert what in verdict.reason


@pytest.mark.parametrize(
    ("without", "what"),
    [
        (("landlock",), "write outside its folder"),
        (("landlock", "seccomp"), "a port of this machine"),
        (("seccomp",), "start a process"),
    ],
)
async def test_each_missing_layer_is_found(open_sandbox: OpenSandbox, without: tuple[str, ...], what: str) -> None:
    sandbox = await open_sandbox("landlock", without=without)
    verdict = await sandbox.backend.probe()
    assert not verdict.works
    assert what in verdict.reason


async def test_another_interpreter_than_the_wanted_one_is_found(open_sandbox: OpenSandbox) -> None:
    sandbox = await open_sandbox("landlock")
    other = replace(sandbox.backend.interpreter, prefix="/opt/other")
    verdict = await Probe(Watched(sandbox, {}), other).run()
    assert not verdict.works
    assert "/opt/other" in verdict.reason


async def test_a_backend_that_cannot_run_anything_is_no_pass(open_sandbox: OpenSandbox) -> None:
    interpreter = await find_interpreter(None)
    nothing = Watched(None, {})
    verdict = await Probe(nothing, interpreter).run()
    assert (verdict.works, verdict.reason) == (False, "there is nothing to run it")
    nothing.outcome = SandboxOutcome(status=RunStatus.OK)
    assert "ordinary program" in (await Probe(nothing, interpreter).run()).reason


FAKE_BUBBLEWRAP = """#!/bin/sh
[ "$1" = --version ] && echo "bubblewrap 9.9.9" && exit 0
echo "setting up uid map: Permission denied" >&2
exit 1
"""


async def test_a_bubblewrap_that_only_tells_its_version_is_no_backend(tmp_path: Path) -> None:
    # As on Ubuntu 23.10 and later (https://github.com/anthropic-experimental/sandbox-runtime/issues/74).
    fake = tmp_path / "bwrap"
    fake.write_text(FAKE_BUBBLEWRAP)
    fake.chmod(0o755)
    interpreter = await find_interpreter(None)
    backend = NamespacesBackend(interpreter, Tuning(cache=tmp_path), str(fake))
    verdict = await backend.probe()
    await backend.aclose()
    assert not verdict.works
    assert "setting up uid map: Permission denied" in verdict.reason
