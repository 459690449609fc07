"""What an attack achieved, seen from outside. Its own word counts only against it."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from bot.tools.python_sandbox.collect import Collected, collect_outputs
from bot.tools.python_sandbox.files import clean_file_name
from bot.tools.python_sandbox.types import MiB, RunStatus, SandboxLimits, SandboxOutcome
from tests.sandbox.battery.attacks import BLOCKED, ESCAPED, Attack
from tests.sandbox.battery.ground import CANARY, Ground

FILES_OUT, FILES_OUT_BYTES = 10, 8 * MiB
DEADLINE_SLACK_S = 20.0
"""How late a run may end on a machine that has much else to do; the time limit itself has tests of its own."""
DISK_SLACK = 8
"""How many times its quota a program may fill between two looks at its folder, the parent being busy."""
_LOOKED_AT_BYTES, _LOOKED_AT_FILES = 256 * 1024, 2000
_PATH_BYTES = 4000
_FAKED = ("intact",)
"""Oracles of calls that are answered with success and do nothing: what counts is that nothing changed."""
_LIMITED = frozenset(RunStatus) - {RunStatus.OK, RunStatus.ERROR}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that an attack achieved, or that the run of it did not do properly."""

    attack: str
    level: str
    what: str


def judge_run(attack: Attack, ground: Ground, outcome: SandboxOutcome, limits: SandboxLimits) -> list[Finding]:
    """Look at everything that one run could have done. It blocks: call it in a thread, when the run has ended."""
    found = [*_judge_words(attack, outcome), *_judge_outside(ground), *_judge_outcome(attack, outcome, limits)]
    try:
        collected = collect_outputs(ground.run_folder, most_files=FILES_OUT, most_bytes=FILES_OUT_BYTES)
        found += _judge_collected(attack, collected)
    except OSError as error:
        found.append(f"what it left cannot be collected: {error}")
    found += _judge_folder(ground.run_folder, limits)
    return [Finding(attack=attack.id, level=attack.level, what=what) for what in found]


def _judge_words(attack: Attack, outcome: SandboxOutcome) -> Iterator[str]:
    said = outcome.stdout + outcome.stderr + outcome.detail
    if CANARY in said:
        yield "a secret is in its output"
    if ESCAPED in said and attack.oracle not in _FAKED:
        told = said[said.index(ESCAPED) + len(ESCAPED) :].partition("\n")[0][:120]
        yield f"it says that it got through:{told}"
    elif attack.says_verdict and BLOCKED not in said and outcome.status not in _LIMITED:
        yield f"it came to no verdict, so nothing was shown: {outcome.status}, {outcome.stderr[-200:]!r}"


def _judge_outside(ground: Ground) -> Iterator[str]:
    for what in ground.find_hits():
        yield f"it reached {what}"
    for path in ground.find_changes():
        yield f"it changed {path} outside"
    if harm := ground.find_harm_to_decoy():
        yield f"the process outside was touched: {harm}"


def _judge_outcome(attack: Attack, outcome: SandboxOutcome, limits: SandboxLimits) -> Iterator[str]:
    try:
        json.dumps(dataclasses.asdict(outcome), allow_nan=False).encode("utf-8")
        (outcome.stdout + outcome.stderr + outcome.detail).encode("utf-8")
    except (TypeError, ValueError) as error:
        yield f"its record cannot be written down: {error}"
    for name, text in (("stdout", outcome.stdout), ("stderr", outcome.stderr)):
        # Each byte that is no UTF-8 becomes a replacement character of three.
        if len(text.encode("utf-8", "replace")) > 3 * limits.output_bytes:
            yield f"more of its {name} was kept than the limit allows"
    if outcome.duration_s > limits.wall_s + DEADLINE_SLACK_S:
        yield f"it ran for {outcome.duration_s:.1f} s, and its limit is {limits.wall_s:g} s"
    well = outcome.exit_code == 0
    # a runner says in the detail of a good run which files it could not hand back
    ok = outcome.status is RunStatus.OK
    if (ok and not well) or (well and not ok and not outcome.detail):
        yield f"its record contradicts itself: {outcome.status} with exit code {outcome.exit_code}"
    ended = {str(outcome.status), f"{outcome.status} {outcome.exit_code}"}
    if attack.ends and not ended & set(attack.ends):
        yield f"it ended as {outcome.status} {outcome.exit_code}, not as one of {', '.join(attack.ends)}"


def _judge_folder(folder: Path, limits: SandboxLimits) -> Iterator[str]:
    """Look at what is left on the disk."""
    size_bytes = entries = 0
    for path, status in _walk(folder):
        kind = status.st_mode
        size_bytes, entries = size_bytes + status.st_blocks * 512, entries + 1
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            yield f"it left something that is neither file nor folder: {oct(kind)}"
        if kind & (stat.S_ISUID | stat.S_ISGID) and kind & (stat.S_IXGRP | stat.S_IXOTH):
            yield "it left a file with a setuid or setgid bit that others can start"
        if stat.S_ISREG(kind) and entries < _LOOKED_AT_FILES and CANARY.encode() in _read_head(path):
            yield "a secret is in a file of its folder"
    if size_bytes > DISK_SLACK * limits.scratch_bytes or entries > DISK_SLACK * limits.scratch_files:
        yield f"it left {entries} files with {size_bytes // MiB} MiB"


def _walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    waiting = [str(folder)]
    while waiting:
        path = waiting.pop()
        for name in os.listdir(path):
            whole = os.path.join(path, name)
            if len(os.fsencode(whole)) > _PATH_BYTES:
                return  # the rest is nested too deeply for anyone to look at it by its path
            status = os.lstat(whole)
            yield whole, status
            if stat.S_ISDIR(status.st_mode):
                os.chmod(whole, 0o700)
                waiting.append(whole)


def _read_head(path: str) -> bytes:
    os.chmod(path, 0o600)
    with open(path, "rb") as file:
        return file.read(_LOOKED_AT_BYTES)


def _judge_collected(attack: Attack, collected: Collected) -> Iterator[str]:
    size = sum(len(file.content) for file in collected.files)
    if len(collected.files) > FILES_OUT or size > FILES_OUT_BYTES:
        yield f"{len(collected.files)} files with {size} bytes are handed back"
    for file in collected.files:
        if CANARY.encode() in file.content or CANARY in file.name:
            yield "a secret is in a file that is handed back"
        if clean_file_name(file.name) != file.name:
            yield f"a file is handed back under the name {file.name!r}"
    if attack.oracle == "collect" and any(CANARY in left.name + left.reason for left in collected.left_out):
        yield "a secret is in what is told about a file that is not handed back"
