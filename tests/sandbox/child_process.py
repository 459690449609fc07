"""Real processes of the sandbox's child, for its tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from bot.tools.python_sandbox.child.policy import Policy
from bot.tools.python_sandbox.child.zygote import START_ANEW
from bot.tools.python_sandbox.child_files import CHILD_FOLDER

NOBODY = 65534
DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRun:
    """How a child ended: exit code (negative: the signal), what it wrote, and its one message to the parent."""

    code: int
    out: str
    err: str
    reply: Mapping[str, object]


@contextmanager
def scratch_folder(owner: int | None = None) -> Iterator[Path]:
    """A folder for a run with input/ and output/, in a place that every user can reach."""
    folder = Path(mkdtemp(prefix="hermod-child-"))
    try:
        (folder / "input").mkdir()
        (folder / "output").mkdir()
        (folder / "input" / "data.csv").write_text("a,b\n1,2\n")
        if owner is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, owner, owner)
        yield folder
    finally:
        (folder / "input").chmod(0o755)
        shutil.rmtree(folder)


def run_child(
    code: str,
    policy: Policy,
    *,
    python: str = sys.executable,
    user: int | None = None,
    environment: Mapping[str, str] | None = None,
    fonts: str = "",
    pass_fds: tuple[int, ...] = (),
) -> ChildRun:
    """Start the child as the parent does, and wait for its end."""
    request = json.dumps({"policy": json.loads(policy.to_json()), "code": code, "fonts": fonts}).encode()
    return run_request(
        len(request).to_bytes(4, "big") + request,
        python=python,
        user=user,
        environment=environment,
        pass_fds=pass_fds,
    )


def run_request(
    request: bytes,
    *,
    python: str = sys.executable,
    user: int | None = None,
    environment: Mapping[str, str] | None = None,
    pass_fds: tuple[int, ...] = (),
) -> ChildRun:
    """Start the child with these bytes on its request descriptor."""
    request_end, writer = os.pipe()
    reader, reply_end = os.pipe()
    command = [python, "-I", "-S", "-B", "-X", "utf8", "-c", START_ANEW, str(CHILD_FOLDER)]
    command += [str(request_end), str(reply_end), *find_paths(python)]
    process = subprocess.Popen(
        command,
        cwd="/",
        env=dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(request_end, reply_end, *pass_fds),
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    os.close(request_end)
    os.close(reply_end)
    with open(writer, "wb") as stream, open(reader, "rb") as replies:
        try:
            stream.write(request)
            stream.close()
            out, err = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.wait()
        reply = replies.read()
    message = json.loads(reply[4:]) if reply else {}
    return ChildRun(code=process.returncode, out=out.decode(), err=err.decode(), reply=message)


@cache
def find_paths(python: str) -> list[str]:
    """The prefix of an interpreter, and where it looks for modules."""
    code = "import json, sys; print(json.dumps([sys.prefix, *sys.path]))"
    done = subprocess.run([python, "-I", "-c", code], check=True, capture_output=True, env={}, cwd="/")
    paths: list[str] = json.loads(done.stdout)
    return paths


def python_for(user: int) -> str:
    """An interpreter that ``user`` can start; empty if there is none."""
    for candidate in (sys.executable, "/usr/bin/python3.13", "/usr/bin/python3.12", "/usr/bin/python3.11"):
        try:
            done = subprocess.run(
                [candidate, "-I", "-c", "import ctypes"],
                user=user,
                group=user,
                extra_groups=[],
                check=False,
                env={},
                cwd="/",
            )
        except OSError:
            continue
        if done.returncode == 0:
            return candidate
    return ""
