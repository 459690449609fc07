"""A kernel that refuses a step, or says yes and does nothing: in both cases no code is run.

Such a kernel is made with a filter around the child, which answers one system call in the kernel's place.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.tools.python_sandbox.child.policy import Policy
from bot.tools.python_sandbox.child.restrict import is_supported
from bot.tools.python_sandbox.child.seccomp import this_architecture
from bot.tools.python_sandbox.child.syscalls import numbers
from tests.sandbox.child_process import scratch_folder

pytestmark = pytest.mark.skipif(bool(is_supported()), reason=is_supported() or "supported")
ROOT = Path(__file__).parents[2]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: nobody else has capabilities to drop")

# Installs the filter, then locks itself in and runs the code, as the child does.
BEHIND_A_FILTER = """
import struct, sys
from bot.tools.python_sandbox.child import bpf
from bot.tools.python_sandbox.child.cold import close_descriptors
from bot.tools.python_sandbox.child.kernel import address_of, call, prctl
from bot.tools.python_sandbox.child.policy import Policy, default_read_paths
from bot.tools.python_sandbox.child.restrict import is_supported, restrict
seccomp, number, option, code = map(int, sys.argv[1:5])
policy, read = Policy.from_json(sys.argv[5]), default_read_paths()
answer = [(bpf.RETURN, 0, 0, bpf.errno_action(code))]
if option >= 0:
    answer = [(bpf.LOAD, 0, 0, 16), (bpf.JUMP_EQUAL, 1, 0, option), (bpf.RETURN, 0, 0, bpf.ALLOW), *answer]
program = [(bpf.LOAD, 0, 0, bpf.NUMBER), *bpf.guard(number, answer), (bpf.RETURN, 0, 0, bpf.ALLOW)]
address, kept = address_of(bpf.pack(program))
prctl(38, 1)
call(seccomp, 1, 0, struct.pack("@HP", len(program), address))
print(is_supported())
restrict(policy.replace_read(read))
print("ran")
"""


@pytest.fixture
def scratch() -> Iterator[Path]:
    with scratch_folder() as folder:
        yield folder


def refusal(scratch: Path, call: str, code: int, *, option: int = -1) -> tuple[str, str]:
    """Answer ``call`` (with this first argument) with an errno, 0 for success; return the output and the reason."""
    table = numbers(this_architecture())
    policy = Policy(scratch=str(scratch), input=str(scratch / "input"))
    arguments = [str(item) for item in (table["seccomp"], table[call], option, code)]
    command = [sys.executable, "-c", BEHIND_A_FILTER, *arguments, policy.to_json()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True, timeout=60)
    return done.stdout, done.stderr.strip().rpartition("\n")[2]


def test_behind_a_filter_that_changes_nothing_the_code_runs(scratch: Path) -> None:
    assert refusal(scratch, "swapoff", errno.EPERM) == ("\nran\n", "")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSYS, "this kernel has no Landlock: Linux 5.13 or newer is needed"),
        (errno.EOPNOTSUPP, "add landlock to the boot parameter lsm="),
        (errno.EPERM, "a seccomp profile forbids Landlock here, as Docker before 23 did"),
        (errno.EIO, "Landlock does not answer: Input/output error"),
    ],
)
def test_without_landlock_nothing_runs_and_the_reason_says_what_to_do(code: int, reason: str, scratch: Path) -> None:
    out, error = refusal(scratch, "landlock_create_ruleset", code)
    assert reason in out  # is_supported tells it before anything is tried
    assert "ran" not in out
    assert "NotEnforced" in error
    assert reason in error


@pytest.mark.parametrize(
    ("call", "option", "code", "reason"),
    [
        ("landlock_add_rule", -1, errno.ENOMSG, "landlock_add_rule failed"),
        ("landlock_restrict_self", -1, errno.E2BIG, "landlock_restrict_self failed: Argument list too long"),
        ("landlock_restrict_self", -1, 0, "Landlock was accepted, but the root folder can still be opened"),
        ("seccomp", -1, errno.EPERM, "the system call filter was not accepted: Operation not permitted"),
        ("seccomp", -1, 0, "the system call filter was accepted, but it does not refuse execve"),
        ("prlimit64", -1, errno.EPERM, "the limit as could not be set"),
        ("prctl", 4, 0, "the process could not be made not dumpable"),
        ("chdir", -1, errno.EACCES, "cannot be entered"),
    ],
)
def test_a_step_that_fails_or_does_not_hold_runs_nothing(
    call: str, option: int, code: int, reason: str, scratch: Path
) -> None:
    out, error = refusal(scratch, call, code, option=option)
    assert "ran" not in out
    assert "NotEnforced" in error
    assert reason in error


@AS_ROOT
@pytest.mark.parametrize("code", [errno.EPERM, 0])
def test_capabilities_that_stay_run_nothing(code: int, scratch: Path) -> None:
    out, error = refusal(scratch, "capset", code)
    assert "ran" not in out
    assert "the process still has capabilities" in error


def test_a_supported_machine_gives_no_reason() -> None:
    assert is_supported() == ""
    assert json.loads(Policy(scratch="/a/b").to_json())["scratch"] == "/a/b"
