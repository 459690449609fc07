"""Which backend is taken, and what is said where none can be: with real kernels' refusals, not with pretended ones.

The machines without user namespaces or without Landlock are made by bubblewrap (``--disable-userns``, and a seccomp
filter that refuses Landlock's three calls as Docker before 23 did).
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from bot.settings_tree import SandboxSettings
from bot.tools.python_sandbox.child_files import install_child
from bot.tools.python_sandbox.choose import open_sandbox
from bot.tools.python_sandbox.interpreter import find_interpreter
from bot.tools.python_sandbox.namespaces_backend import find_bubblewrap
from bot.tools.python_sandbox.types import KiB, RunStatus, SandboxRun, SandboxUnavailable
from tests.needs import need
from tests.sandbox.sandboxes import why_missing

SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from bot.settings_tree import SandboxSettings
from bot.tools.python_sandbox.choose import open_sandbox
from bot.tools.python_sandbox.types import SandboxUnavailable
async def main():
    try:
        backend = await open_sandbox(SandboxSettings(backend=sys.argv[1]), state=Path(sys.argv[2]))
    except SandboxUnavailable as error:
        print(json.dumps({"refused": str(error)}))
        return
    print(json.dumps({"backend": backend.name, "reason": (await backend.probe()).reason}))
    await backend.aclose()
asyncio.run(main())
"""
_EPERM, _ALLOW = 0x00050001, 0x7FFF0000
_LANDLOCK = range(444, 447)


def landlock_filter() -> bytes:
    """Return a seccomp program (linux/filter.h) that answers EPERM to Landlock's calls and allows all others."""
    program = [(0x20, 0, 0, 0), *((0x15, 3 - at, 0, number) for at, number in enumerate(_LANDLOCK))]
    program += [(0x06, 0, 0, _ALLOW), (0x06, 0, 0, _EPERM)]
    return b"".join(struct.pack("=HBBI", *line) for line in program)


async def choose(
    backend: str,
    state: Path,
    *,
    namespaces: bool = True,
    landlock: bool = True,
    bubblewrap: bool = True,
    room_bytes: int | None = None,
) -> Mapping[str, str]:
    """Open a sandbox in a process for which some things are not there."""
    need(why_missing("namespaces"))
    command = [find_bubblewrap()[0], "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-user"]
    command += [] if namespaces else ["--disable-userns"]
    command += [] if room_bytes is None else ["--size", str(room_bytes), "--tmpfs", str(state)]
    if not bubblewrap:
        for program in find_bubblewrap():
            command += ["--ro-bind", "/dev/null", program]
    fds: tuple[int, ...] = ()
    with tempfile.TemporaryFile() as program_file:
        if not landlock:
            program_file.write(landlock_filter())
            program_file.flush()
            program_file.seek(0)
            fds = (program_file.fileno(),)
            command += ["--seccomp", str(fds[0])]
        ended = await asyncio.to_thread(
            subprocess.run,
            [*command, "--", sys.executable, "-c", SCRIPT, backend, str(state)],
            stdout=subprocess.PIPE,
            timeout=100,
            check=True,
            pass_fds=fds,
            text=True,
        )
    answer: Mapping[str, str] = json.loads(ended.stdout)
    return answer


async def test_auto_takes_namespaces_where_they_work(kind: str, tmp_path: Path) -> None:
    backend = await open_sandbox(SandboxSettings(), state=tmp_path)
    try:
        assert backend.name == "namespaces" or why_missing("namespaces")
        assert backend.enforcing
    finally:
        await backend.aclose()


async def test_auto_takes_landlock_where_no_namespace_can_be_made(tmp_path: Path) -> None:
    assert (await choose("auto", tmp_path, namespaces=False))["backend"] == "landlock"


async def test_auto_takes_landlock_where_there_is_no_bubblewrap(tmp_path: Path) -> None:
    assert (await choose("auto", tmp_path, bubblewrap=False))["backend"] == "landlock"


async def test_with_nothing_that_locks_code_in_there_is_no_sandbox_and_every_reason_is_told(tmp_path: Path) -> None:
    refused = (await choose("auto", tmp_path, namespaces=False, landlock=False))["refused"]
    assert "namespaces: " in refused
    assert "landlock: " in refused
    assert "seccomp profile forbids Landlock" in refused
    assert "Install bubblewrap" in refused


@pytest.mark.parametrize(("backend", "missing"), [("namespaces", "namespaces"), ("landlock", "landlock")])
async def test_a_named_backend_that_does_not_work_is_refused_and_never_replaced(
    backend: str, missing: str, tmp_path: Path
) -> None:
    answer = await choose(backend, tmp_path, **{missing: False})
    assert answer.keys() == {"refused"}
    assert answer["refused"].startswith(f"{backend}: ")


async def test_code_on_the_host_needs_to_be_asked_for_by_name(tmp_path: Path) -> None:
    backend = await open_sandbox(SandboxSettings(backend="none-i-accept-host-code-execution"), state=tmp_path)
    (tmp_path / "run").mkdir()
    outcome = await backend.run(SandboxRun(code="print(1)", folder=tmp_path / "run"))
    await backend.aclose()
    assert (backend.enforcing, outcome.status, outcome.stdout) == (False, RunStatus.OK, "1\n")


async def test_an_interpreter_that_is_none_is_named(tmp_path: Path) -> None:
    for path in ("/nowhere/python3", "/bin/true"):
        with pytest.raises(SandboxUnavailable, match=path):
            await open_sandbox(SandboxSettings(python=path), state=tmp_path)


async def test_another_interpreter_is_used_when_it_is_named(kind: str, tmp_path: Path) -> None:
    python = "/usr/bin/python3"
    if not os.access(python, os.X_OK):
        pytest.skip("no python3 of the system: apt-get install python3")
    backend = await open_sandbox(SandboxSettings.model_validate({"python": python, "backend": kind}), state=tmp_path)
    (tmp_path / "run").mkdir()
    outcome = await backend.run(SandboxRun(code="import sys; print(sys.prefix)", folder=tmp_path / "run"))
    await backend.aclose()
    assert outcome.stdout == "/usr\n"


@pytest.mark.parametrize("backend", ["auto", "landlock"])
async def test_a_full_disk_is_told_as_such_and_no_backend_is_blamed(tmp_path: Path, backend: str) -> None:
    answer = await choose(backend, tmp_path, room_bytes=256 * KiB)
    assert "No space left on device" in answer["refused"]
    assert str(tmp_path) in answer["refused"]
    assert "Install bubblewrap" not in answer["refused"]


async def test_why_an_interpreter_cannot_compile_is_told_in_its_own_last_words(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho Traceback >&2\necho 'OSError: [Errno 5] the disk is broken' >&2\nexit 1\n")
    program.chmod(0o700)
    (cache := tmp_path / "cache").mkdir()
    found = await find_interpreter(None)
    with pytest.raises(SandboxUnavailable, match=r"in .*cache: OSError: \[Errno 5\] the disk is broken$"):
        await install_child(replace(found, executable=str(program)), cache)
    assert list(cache.iterdir()) == []


async def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away: run the tests as root")
    await asyncio.to_thread(os.chown, tmp_path, 65534, 65534)
    with pytest.raises(SandboxUnavailable, match="another user"):
        await open_sandbox(SandboxSettings(), state=tmp_path)


async def test_a_runner_without_an_address_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="runner_url"):
        await open_sandbox(SandboxSettings(backend="runner", runner_token=SecretStr("x")))
