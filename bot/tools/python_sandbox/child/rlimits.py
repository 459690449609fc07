"""Limits of the process, each read back after it was set."""

from __future__ import annotations

import _thread
import os
import resource

from .policy import Policy
from .refused import NotEnforced

_MOST_PROCESSES = 1 << 22
_SMALL_STACK = 64 * 1024
_KINDS = {
    "as": resource.RLIMIT_AS,
    "cpu": resource.RLIMIT_CPU,
    "fsize": resource.RLIMIT_FSIZE,
    "nofile": resource.RLIMIT_NOFILE,
    "core": resource.RLIMIT_CORE,
    "memlock": resource.RLIMIT_MEMLOCK,
    "msgqueue": resource.RLIMIT_MSGQUEUE,
}


def address_space_bytes() -> int:
    """Return the size of this process's address space now.

    Raises:
        NotEnforced: /proc cannot be read, so that no limit above the present size can be computed.
    """
    try:
        # Not open(): a text file of this encoding would load the codec, which takes longer than all the limits.
        statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(statm, 200).split()[0]) * resource.getpagesize()
        finally:
            os.close(statm)
    except (OSError, ValueError, IndexError) as error:
        raise NotEnforced(f"the memory limit needs /proc/self/statm, which cannot be read: {error}") from error


def wanted_limits(policy: Policy) -> dict[str, tuple[int, int]]:
    """Return soft and hard value of each limit; memory is counted from the present size of the process."""
    memory = address_space_bytes() + policy.memory_bytes
    return {
        "as": (memory, memory),
        # SIGXCPU at the soft value; a program that ignores it is killed a second later.
        "cpu": (policy.cpu_s, policy.cpu_s + 1),
        "fsize": (policy.file_bytes, policy.file_bytes),
        "nofile": (policy.open_files, policy.open_files),
        # One byte is less than any core file has, and the one value by which the kernel does not start the program of a
        # core_pattern that begins with "|"; for zero it would (core(5), fs/coredump.c).
        "core": (1, 1),
        "memlock": (0, 0),
        "msgqueue": (0, 0),
    }


def can_bound_threads(policy: Policy) -> bool:
    """Tell whether the kernel counts the threads of this run: it does for every user but root (setrlimit(2))."""
    return policy.uid is not None or os.getuid() != 0


def limit_threads(policy: Policy) -> None:
    """Bound how many threads can be started. Call it when the capabilities are gone, because some exempt from it.

    The limit counts all processes of the user, and nobody tells how many these are (other containers share the number).
    So it is raised until one thread can be started, and the wanted number is added to that.

    Raises:
        NotEnforced: it could not be set, or not one thread can be started.
    """
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = hard if hard != resource.RLIM_INFINITY else _MOST_PROCESSES
    present = min(policy.threads, most)
    while not _can_start_thread(present):
        if present >= most:
            raise NotEnforced(f"no thread can be started: this user has all of the {most} processes that it may have")
        present = min(2 * present, most)
    wanted = min(present + policy.threads, most)
    _set_processes(wanted, wanted)
    if resource.getrlimit(resource.RLIMIT_NPROC) != (wanted, wanted):
        raise NotEnforced(
            f"the limit of threads reads back as {resource.getrlimit(resource.RLIMIT_NPROC)}, not {wanted}"
        )


def _can_start_thread(processes: int) -> bool:
    _set_processes(processes, resource.getrlimit(resource.RLIMIT_NPROC)[1])
    usual = _thread.stack_size(_SMALL_STACK)
    try:
        _thread.start_new_thread(int, ())
    except RuntimeError:
        return False
    finally:
        _thread.stack_size(usual)
    while len(os.listdir("/proc/self/task")) > 1:
        os.sched_yield()
    return True


def _set_processes(soft: int, hard: int) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    except (OSError, ValueError) as error:
        raise NotEnforced(f"the limit of threads could not be set to {soft}: {error}") from error


def apply_limits(policy: Policy) -> None:
    """Set every limit, soft and hard. One that was lower already stays as low as it was.

    Raises:
        NotEnforced: a limit could not be set, or reads back as another value.
    """
    for name, (soft, hard) in wanted_limits(policy).items():
        if not policy.has(f"rlimit:{name}"):
            continue
        kind = _KINDS[name]
        wanted = (soft, hard)
        try:
            present = resource.getrlimit(kind)[1]
            if present != resource.RLIM_INFINITY:
                wanted = (min(soft, present), min(hard, present))
            resource.setrlimit(kind, wanted)
        except (OSError, ValueError, OverflowError) as error:
            raise NotEnforced(f"the limit {name} could not be set to {wanted}: {error}") from error
        if resource.getrlimit(kind) != wanted:
            raise NotEnforced(f"the limit {name} reads back as {resource.getrlimit(kind)}, not {wanted}")
