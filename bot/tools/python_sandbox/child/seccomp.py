"""Which system calls the code may make: a list of the allowed ones, and an answer for every other.

The list is what numpy, pandas, matplotlib and the standard library were seen to need (``scripts/record_syscalls.py``).
Default deny: a call that is not named here is answered EPERM, one newer than ``syscalls.NEWEST`` ENOSYS, as an older
kernel would. Only a foreign architecture's gate ends the process (SIGSYS), because its numbers mean other calls.
"""

from __future__ import annotations

import errno
import os
import struct
import sys

from . import bpf
from .bpf import Condition, Instruction
from .kernel import CallFailed, address_of, call, prctl
from .policy import Policy
from .refused import NotEnforced
from .syscalls import ARCHITECTURES, NEWEST, Architecture, numbers

# Not from typing: what is imported here is paid at every cold start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_ALLOWED_TEXT = """
    # Memory, threads, the process's own end.
    brk munmap mremap msync futex set_robust_list rseq set_tid_address sched_yield getcpu
    membarrier exit exit_group restart_syscall wait4
    # Descriptors and what is behind them.
    read write readv writev pread64 pwrite64 preadv pwritev lseek close dup dup2 dup3 pipe
    pipe2 fsync fdatasync flock ftruncate fadvise64 sendfile copy_file_range
    # Paths; Landlock decides which. Metadata (stat, access) is not its to decide.
    open openat creat stat lstat fstat newfstatat statx access faccessat faccessat2 getdents getdents64 getcwd
    chdir fchdir mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 link linkat fstatfs
    # Waiting, clocks, timers.
    poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 nanosleep
    gettimeofday time times getitimer setitimer alarm pause
    # Signals within the process.
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack
    # What the process may know about itself and the machine.
    getpid getppid gettid getuid geteuid getgid getegid getresuid getresgid getgroups getpgrp getrusage getrlimit
    sysinfo uname getrandom
    # The two ends of a socketpair, which is the only socket there is.
    recvfrom getsockname getpeername shutdown
"""
# Not covered by Landlock. Refusing would break shutil, zipfile and sqlite, so they are told that it worked. The mask
# stays as it is, so that no file with a setuid bit that others can start is left behind.
_FAKED_TEXT = """
    chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat utime utimes futimesat utimensat setxattr lsetxattr
    fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr umask
"""
# shutil knows the answer "not supported" and goes on.
_NO_XATTR_TEXT = """
    getxattr lgetxattr fgetxattr getxattrat listxattr llistxattr flistxattr listxattrat file_getattr
"""
# Nor is where a link points to, and that would tell names of the machine. The code's own folder can have no links, and
# realpath() of libc takes the answer "not a link" as it is; for Python's see ``source.forgive_links``.
_NO_LINK_TEXT = """
    readlink readlinkat
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(name for line in text.splitlines() if "#" not in line for name in line.split())


_ALLOWED = _names(_ALLOWED_TEXT)
_ANSWERED: Mapping[str, int] = {
    "clone3": errno.ENOSYS,  # its flags are behind a pointer; libc then takes clone
    **dict.fromkeys(_names(_FAKED_TEXT), 0),
    **dict.fromkeys(_names(_NO_XATTR_TEXT), errno.EOPNOTSUPP),
    **dict.fromkeys(_names(_NO_LINK_TEXT), errno.EINVAL),
}

# pthread_create of glibc, and of musl (with CLONE_DETACHED).
_THREAD_FLAGS = (0x003D0F00, 0x007D0F00)
_AF_UNIX, _SOCK_STREAM, _SOCK_FLAGS = 1, 1, 0o2004000
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX; so neither TIOCSTI, TIOCLINUX nor FIOSETOWN."""
_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
"""Duplicates, flags, locks, F_GETPIPE_SZ; not F_SETOWN and F_SETSIG, with which the kernel signals any process."""
_PRCTLS = (3, 15, 16, 21, 39, 0x53564D41)
"""PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_GET_SECCOMP, PR_GET_NO_NEW_PRIVS, PR_SET_VMA."""
_WRITE, _EXEC, _ANONYMOUS = 2, 4, 0x20
_ADVICE = (0, 1, 2, 3, 4, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19, 22, 23, 102, 103)
"""Not MADV_MERGEABLE, which shares equal pages with other programs and tells by the time of a write that there were
some; not MADV_COLD and MADV_PAGEOUT, which push what Hermod itself runs from out of memory; not those that poison."""
_CLOSE_ON_EXEC = 4
"""Of ``close_range``; with CLOSE_RANGE_UNSHARE a thread would have descriptors that the parent does not look at."""
_FIXED_CLOCKS = ~0xF & 0xFFFFFFFF
"""The others are made of a process's number: they tell whether it is there, and what it has used of the processor."""

_SET_MODE_FILTER, _TSYNC, _PR_GET_SECCOMP, _MODE_FILTER = 1, 1, 21, 2


def allowed_calls() -> frozenset[str]:
    """Return the names of the calls that are allowed, some of them only with certain arguments."""
    return _ALLOWED | _checks(tgid=1, native_libraries=True).keys() | {"truncate"}


def answered_calls() -> frozenset[str]:
    """Return the names of the calls that do nothing and get an answer that programs cope with."""
    return frozenset(_ANSWERED)


def _checks(*, tgid: int, native_libraries: bool) -> dict[str, list[Instruction]]:
    def only(otherwise: int, *conditions: Condition) -> list[Instruction]:
        return bpf.allow_only((conditions,), bpf.errno_action(otherwise))

    not_executable = (Condition(2, 0, mask=_EXEC),)
    from_a_file = (Condition(2, _EXEC, mask=_WRITE | _EXEC), Condition(3, 0, mask=_ANONYMOUS))
    mappings = (not_executable, from_a_file) if native_libraries else (not_executable,)
    stream_pair = (Condition(0, _AF_UNIX), Condition(1, _SOCK_STREAM, mask=~_SOCK_FLAGS & 0xFFFFFFFF), Condition(2, 0))
    return {
        "clone": only(errno.EPERM, Condition(0, *_THREAD_FLAGS)),
        "socketpair": only(errno.EPERM, *stream_pair),
        # No destination, that is: send() to the other end.
        "sendto": only(errno.EPERM, Condition(4, 0), Condition(4, 0, upper_half=True)),
        "prlimit64": only(errno.EPERM, Condition(0, 0)),
        "tgkill": only(errno.EPERM, Condition(0, tgid)),
        "ioctl": only(errno.ENOTTY, Condition(1, *_IOCTLS)),
        "fcntl": only(errno.EPERM, Condition(1, *_FCNTLS)),
        "prctl": only(errno.EPERM, Condition(0, *_PRCTLS)),
        "mmap": bpf.allow_only(mappings, bpf.errno_action(errno.EPERM)),
        "mprotect": only(errno.EACCES, *not_executable),
        "madvise": only(errno.EINVAL, Condition(2, *_ADVICE)),
        **dict.fromkeys(
            ("clock_gettime", "clock_getres", "clock_nanosleep"),
            only(errno.EINVAL, Condition(0, 0, mask=_FIXED_CLOCKS)),
        ),
        # Of other processes it tells whether they are there; libc copes with a kernel that has no such call.
        "sched_getaffinity": only(errno.ENOSYS, Condition(0, 0, tgid)),
        "close_range": only(errno.EINVAL, Condition(2, 0, _CLOSE_ON_EXEC)),
        # FALLOC_FL_KEEP_SIZE takes room on the disk beyond RLIMIT_FSIZE, and all at once.
        "fallocate": only(errno.EOPNOTSUPP, Condition(1, 0)),
        # RWF_NOWAIT tells which pages of a file others have read lately.
        **dict.fromkeys(("preadv2", "pwritev2"), only(errno.EOPNOTSUPP, Condition(5, 0))),
    }


def build_filter(
    architecture: Architecture,
    *,
    tgid: int,
    truncate_by_path: bool,
    native_libraries: bool = True,
    without: tuple[str, ...] = (),
) -> list[Instruction]:
    """Build the filter.

    Args:
        architecture: which numbers it is for.
        tgid: the process that may signal its own threads.
        truncate_by_path: allow ``truncate``; only where Landlock decides about it (ABI 3).
        native_libraries: see ``Policy``.
        without: rules of tests that are left out: ``seccomp:arch``, ``seccomp:x32``, ``seccomp:newest``,
            ``seccomp:default``, or ``seccomp:`` and the name of a call, which is then allowed whatever its arguments.
    """
    program: list[Instruction] = []
    if "seccomp:arch" not in without:
        program += [(bpf.LOAD, 0, 0, bpf.ARCHITECTURE), (bpf.JUMP_EQUAL, 1, 0, architecture.audit)]
        program += [(bpf.RETURN, 0, 0, bpf.KILL_PROCESS)]
    program += [(bpf.LOAD, 0, 0, bpf.NUMBER)]
    if architecture.x32_bit and "seccomp:x32" not in without:
        program += [(bpf.JUMP_SET, 0, 1, architecture.x32_bit), (bpf.RETURN, 0, 0, bpf.KILL_PROCESS)]
    if "seccomp:newest" not in without:
        program += [(bpf.JUMP_GREATER, 0, 1, NEWEST), (bpf.RETURN, 0, 0, bpf.errno_action(errno.ENOSYS))]

    allow = [(bpf.RETURN, 0, 0, bpf.ALLOW)]
    verdicts: dict[str, list[Instruction]] = dict.fromkeys(_ALLOWED, allow)
    verdicts |= {name: [(bpf.RETURN, 0, 0, bpf.errno_action(code))] for name, code in _ANSWERED.items()}
    verdicts |= _checks(tgid=tgid, native_libraries=native_libraries)
    if truncate_by_path:
        verdicts["truncate"] = allow
    verdicts |= {rule.removeprefix("seccomp:"): allow for rule in without if rule.startswith("seccomp:")}
    for name, number in numbers(architecture).items():
        if name in verdicts:
            program += bpf.guard(number, verdicts[name])
    last = bpf.ALLOW if "seccomp:default" in without else bpf.errno_action(errno.EPERM)
    return [*program, (bpf.RETURN, 0, 0, last)]


def this_architecture() -> Architecture:
    """Return the architecture of this process.

    Raises:
        NotEnforced: there is no table for it.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES or sys.maxsize <= 2**32 or sys.byteorder != "little":
        known = " and ".join(sorted(ARCHITECTURES))
        raise NotEnforced(f"there is no list of system calls for {machine} ({known} with 64-bit Python have one)")
    return ARCHITECTURES[machine]


def why_no_seccomp() -> str:
    """Return why no filter can be installed here; empty if one can."""
    try:
        this_architecture()
    except NotEnforced as error:
        return str(error)
    if prctl(_PR_GET_SECCOMP) < 0:
        return "this kernel has no seccomp filters: CONFIG_SECCOMP_FILTER is needed"
    return ""


def apply_seccomp(policy: Policy, *, truncate_by_path: bool) -> None:
    """Install the filter in every thread. It cannot be undone.

    Raises:
        NotEnforced: the kernel refused it, or it does not hold afterwards.
    """
    architecture = this_architecture()
    program = bpf.pack(
        build_filter(
            architecture,
            tgid=os.getpid(),
            truncate_by_path=truncate_by_path,
            native_libraries=policy.native_libraries,
            without=policy.without,
        )
    )
    address, _kept = address_of(program)
    # struct sock_fprog: a 16-bit count, then an aligned pointer.
    described = struct.pack("@HP", len(program) // 8, address)
    try:
        left_out = call(numbers(architecture)["seccomp"], _SET_MODE_FILTER, _TSYNC, described)
    except CallFailed as error:
        raise NotEnforced(f"the system call filter was not accepted: {error}") from error
    if left_out:
        raise NotEnforced(f"the system call filter was not accepted: thread {left_out} could not be included")
    _check_holds(architecture, policy)


def _check_holds(architecture: Architecture, policy: Policy) -> None:
    if prctl(_PR_GET_SECCOMP) != _MODE_FILTER:
        raise NotEnforced("the system call filter was accepted, but the kernel says that there is none")
    if not policy.has("seccomp:execve") or not policy.has("seccomp:default"):
        return
    try:
        # Without the filter the kernel would look at the arguments and answer EFAULT.
        call(numbers(architecture)["execve"], None, None, None)
    except CallFailed as error:
        if error.code == errno.EPERM:
            return
    raise NotEnforced("the system call filter was accepted, but it does not refuse execve")
