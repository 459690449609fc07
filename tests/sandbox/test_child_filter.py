"""The system call filter as the kernel would walk it, on both architectures."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.tools.python_sandbox.child import bpf
from bot.tools.python_sandbox.child.seccomp import allowed_calls, answered_calls, build_filter
from bot.tools.python_sandbox.child.syscalls import AARCH64, ARCHITECTURES, NEWEST, X86_64, Architecture, numbers

TGID = 4242
I386, ARM = 0x40000003, 0x40000028
KILLED, ALLOWED = "killed", "allowed"
BOTH = pytest.mark.parametrize("architecture", [X86_64, AARCH64], ids=lambda value: value.machine)
X86_HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
GENERIC_HEADER = Path("/usr/include/asm-generic/unistd.h")

PROT_READ, PROT_WRITE, PROT_EXEC, MAP_PRIVATE, MAP_ANONYMOUS = 1, 2, 4, 2, 0x20
THREAD = 0x3D0F00


def walk(program: list[bpf.Instruction], arch: int, number: int, arguments: tuple[int, ...] = ()) -> str | int:
    """Interpret a filter over one call: "killed", "allowed" or the errno of its answer."""
    padded = [value & (1 << 64) - 1 for value in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *padded)
    accumulator = position = 0
    for _ in range(len(program) + 1):
        code, if_true, if_false, constant = program[position]
        position += 1
        match code:
            case bpf.LOAD:
                accumulator = int(struct.unpack_from("<I", data, constant)[0])
            case bpf.AND:
                accumulator &= constant
            case bpf.JUMP_EQUAL:
                position += if_true if accumulator == constant else if_false
            case bpf.JUMP_GREATER:
                position += if_true if accumulator > constant else if_false
            case bpf.JUMP_SET:
                position += if_true if accumulator & constant else if_false
            case bpf.RETURN if constant == bpf.KILL_PROCESS:
                return KILLED
            case bpf.RETURN if constant == bpf.ALLOW:
                return ALLOWED
            case bpf.RETURN if constant & 0xFFFF0000 == 0x00050000:
                return constant & 0xFFFF
            case _:
                raise AssertionError(f"unknown instruction {program[position - 1]}")
    raise AssertionError("the filter does not end")


def filter_of(architecture: Architecture, *without: str, **changed: bool) -> list[bpf.Instruction]:
    wanted = {"truncate_by_path": True, "native_libraries": True, **changed}
    return build_filter(architecture, tgid=TGID, without=without, **wanted)


def verdict(architecture: Architecture, call: str, *arguments: int, without: tuple[str, ...] = ()) -> str | int:
    return walk(filter_of(architecture, *without), architecture.audit, numbers(architecture)[call], arguments)


@BOTH
def test_the_kernel_would_accept_the_program(architecture: Architecture) -> None:
    program = filter_of(architecture)
    assert len(program) <= bpf.MAX_INSTRUCTIONS
    assert len(bpf.pack(program)) == 8 * len(program)
    for position, (code, if_true, if_false, constant) in enumerate(program):
        assert 0 <= constant <= 0xFFFFFFFF
        assert 0 <= if_true <= 255
        assert 0 <= if_false <= 255
        assert position + 1 + max(if_true, if_false) < len(program) or code == bpf.RETURN
        if code == bpf.LOAD:
            assert constant % 4 == 0
            assert constant < 64
    assert program[-1][0] == bpf.RETURN


def test_a_program_that_is_too_long_is_refused_before_the_kernel_sees_it() -> None:
    with pytest.raises(ValueError, match="4097 instructions"):
        bpf.pack([(bpf.RETURN, 0, 0, 0)] * 4097)
    with pytest.raises(ValueError, match="a jump reaches 255"):
        bpf.guard(1, [(bpf.RETURN, 0, 0, 0)] * 256)


@BOTH
def test_numbers_of_another_architecture_end_the_process(architecture: Architecture) -> None:
    program = filter_of(architecture)
    others = {X86_64.audit, AARCH64.audit, I386, ARM} - {architecture.audit}
    for other in others:
        assert {walk(program, other, number) for number in (0, 1, 102, 359, 500)} == {KILLED}
        # int 0x80: on i386 102 is socketcall, in the table of x86-64 it is getuid.
        assert walk(filter_of(X86_64, "seccomp:arch"), I386, 102) == ALLOWED


def test_the_x32_gate_ends_the_process() -> None:
    number = numbers(X86_64)["getpid"] | 0x40000000
    assert walk(filter_of(X86_64), X86_64.audit, number) == KILLED
    assert walk(filter_of(X86_64, "seccomp:x32"), X86_64.audit, number) == errno.ENOSYS


@BOTH
def test_a_call_that_is_newer_than_the_table_seems_not_to_exist(architecture: Architecture) -> None:
    for number in (NEWEST + 1, NEWEST + 30, 0x3FFFFFFF):
        assert walk(filter_of(architecture), architecture.audit, number) == errno.ENOSYS
        assert walk(filter_of(architecture, "seccomp:newest"), architecture.audit, number) == errno.EPERM


@BOTH
def test_every_call_that_is_not_listed_is_refused(architecture: Architecture) -> None:
    program = filter_of(architecture)
    known = numbers(architecture)
    listed = {known[name] for name in allowed_calls() | answered_calls() if name in known}
    for number in range(NEWEST + 1):
        if number not in listed:
            assert walk(program, architecture.audit, number) == errno.EPERM, number
    some = """
        bpf perf_event_open io_uring_setup keyctl add_key userfaultfd ptrace execve execveat process_vm_readv pidfd_open
        pidfd_getfd open_by_handle_at name_to_handle_at mount fsopen unshare setns memfd_create memfd_secret shmget
        msgget semget mq_open kill tkill rt_sigqueueinfo setpriority sched_setaffinity sched_setscheduler socket connect
        bind listen accept4 sendmsg sendmmsg recvmsg setuid setresuid chroot pivot_root seccomp personality symlinkat
        mknodat process_madvise pkey_mprotect remap_file_pages mlock2
    """
    for call in some.split():
        assert known[call] not in listed, call


@BOTH
def test_every_listed_name_is_a_call_of_some_architecture(architecture: Architecture) -> None:
    everywhere = {name for known in ARCHITECTURES.values() for name in numbers(known)}
    assert allowed_calls() | answered_calls() <= everywhere
    assert "futex" in numbers(architecture)


@BOTH
@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("clone", (THREAD,), ALLOWED),
        ("clone", (17,), errno.EPERM),  # fork
        ("clone", (THREAD & ~0x10000,), errno.EPERM),
        ("clone", (THREAD | 0x10000000,), errno.EPERM),  # CLONE_NEWUSER
        ("clone", (THREAD | 0x80,), errno.EPERM),  # CLONE_NEWTIME
        ("clone", (0x4111,), errno.EPERM),  # vfork
        ("clone3", (0,), errno.ENOSYS),
        ("socketpair", (1, 1, 0), ALLOWED),
        ("socketpair", (1, 1 | 0o2000000 | 0o4000, 0), ALLOWED),
        ("socketpair", (1, 2, 0), errno.EPERM),  # datagrams
        ("socketpair", (1, 5, 0), errno.EPERM),
        ("socketpair", (30, 1, 0), errno.EPERM),
        ("sendto", (3, 0, 1, 0, 0, 0), ALLOWED),
        ("sendto", (3, 0, 1, 0, 0x7FFF1000, 110), errno.EPERM),
        ("sendto", (3, 0, 1, 0, 0x7FFF00000000, 110), errno.EPERM),  # an address whose lower half is zero
        ("prlimit64", (0, 7), ALLOWED),
        ("prlimit64", (1, 7), errno.EPERM),
        ("tgkill", (TGID, 4243, 6), ALLOWED),
        ("tgkill", (TGID + 1, 4243, 6), errno.EPERM),
        ("ioctl", (0, 0x5401), ALLOWED),
        ("ioctl", (0, 0x5412), errno.ENOTTY),  # TIOCSTI
        ("ioctl", (0, 0x541C), errno.ENOTTY),  # TIOCLINUX
        ("ioctl", (0, 0x5412 | 1 << 32), errno.ENOTTY),  # the kernel looks at 32 bits
        ("ioctl", (0, 0x8901), errno.ENOTTY),  # FIOSETOWN
        ("fcntl", (0, 3), ALLOWED),
        ("fcntl", (0, 8, 1), errno.EPERM),  # F_SETOWN
        ("fcntl", (0, 10, 9), errno.EPERM),  # F_SETSIG
        ("prctl", (15,), ALLOWED),
        ("prctl", (4, 1), errno.EPERM),  # PR_SET_DUMPABLE
        ("mmap", (0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS), ALLOWED),
        ("mmap", (0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE), ALLOWED),  # a library
        ("mmap", (0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE), errno.EPERM),
        ("mmap", (0, 4096, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS), errno.EPERM),
        ("mprotect", (0, 4096, PROT_READ | PROT_WRITE), ALLOWED),
        ("mprotect", (0, 4096, PROT_READ | PROT_EXEC), errno.EACCES),
        ("fchmodat", (), 0),
        ("fchownat", (), 0),
        ("utimensat", (), 0),
        ("setxattr", (), 0),
        ("listxattr", (), errno.EOPNOTSUPP),
        ("truncate", (), ALLOWED),
        ("read", (), ALLOWED),
    ],
)
def test_arguments_decide(
    architecture: Architecture, call: str, arguments: tuple[int, ...], expected: str | int
) -> None:
    assert verdict(architecture, call, *arguments) == expected
    if expected != ALLOWED:
        assert verdict(architecture, call, *arguments, without=(f"seccomp:{call}",)) == ALLOWED


@BOTH
def test_without_native_libraries_nothing_is_mapped_executable(architecture: Architecture) -> None:
    program = filter_of(architecture, native_libraries=False)
    number = numbers(architecture)["mmap"]
    assert walk(program, architecture.audit, number, (0, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE)) == errno.EPERM
    assert walk(program, architecture.audit, number, (0, 1, PROT_READ, MAP_PRIVATE)) == ALLOWED


@BOTH
def test_truncating_a_path_is_refused_where_landlock_does_not_decide(architecture: Architecture) -> None:
    program = filter_of(architecture, truncate_by_path=False)
    assert walk(program, architecture.audit, numbers(architecture)["truncate"]) == errno.EPERM


@given(
    call=st.sampled_from(["clone", "socketpair", "mmap", "mprotect", "ioctl", "fcntl", "prctl", "tgkill", "prlimit64"]),
    arguments=st.lists(st.integers(min_value=0, max_value=(1 << 64) - 1), min_size=6, max_size=6).map(tuple),
)
def test_both_architectures_judge_the_same_arguments_alike(call: str, arguments: tuple[int, ...]) -> None:
    assert verdict(X86_64, call, *arguments) == verdict(AARCH64, call, *arguments)


@given(protection=st.integers(min_value=0, max_value=7), flags=st.integers(min_value=0, max_value=0xFFFF))
def test_memory_is_never_writable_and_executable(protection: int, flags: int) -> None:
    got = verdict(X86_64, "mmap", 0, 4096, protection, flags)
    executable = bool(protection & PROT_EXEC)
    assert (got == ALLOWED) == (not executable or not (protection & PROT_WRITE or flags & MAP_ANONYMOUS))


def _defined(header: Path) -> dict[str, int]:
    found = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)\s*$", header.read_text(), re.MULTILINE)
    return {name: int(number) for name, number in found}


@pytest.mark.skipif(not X86_HEADER.exists(), reason="the headers of the x86-64 kernel interface are not installed")
def test_the_numbers_of_x86_64_are_those_of_the_kernel_headers() -> None:
    header = _defined(X86_HEADER)
    table = numbers(X86_64)
    assert {name: number for name, number in table.items() if name in header} == header


@pytest.mark.skipif(not GENERIC_HEADER.exists(), reason="the kernel's generic list of system calls is not installed")
def test_the_numbers_of_aarch64_are_those_of_the_generic_list() -> None:
    header = {**_defined(GENERIC_HEADER), "newfstatat": 79}
    table = numbers(AARCH64)
    assert {name: number for name, number in table.items() if name in header} == {
        name: number for name, number in header.items() if name in table
    }
    # What is left out there: 32-bit variants, and two that are no calls.
    left_out = {name for name in header.keys() - table.keys() if not re.search(r"64$|^fstatat$", name)}
    assert left_out <= {"arch_specific_syscall", "syscalls", "sync_file_range2"}


def test_the_calls_added_since_have_one_number_everywhere() -> None:
    for name, number in numbers(AARCH64).items():
        if number >= 424:
            assert numbers(X86_64)[name] == number
    assert max(numbers(X86_64).values()) == max(numbers(AARCH64).values()) == NEWEST
