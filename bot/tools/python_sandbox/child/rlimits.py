"""Limits of the process, each read back after it was set."""

from __future__ import annotations

import os
import resource

from .policy import Policy
from .refused import NotEnforced

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
        "core": (0, 0),
        "memlock": (0, 0),
        "msgqueue": (0, 0),
    }


def apply_limits(policy: Policy) -> None:
    """Set every limit, soft and hard. One that was lower already stays as low as it was.

    Raises:
        NotEnforced: a limit could not be set, or reads back as another value.
    """
    for name, (soft, hard) in wanted_limits(policy).items():
        if not policy.has(f"rlimit:{name}"):
            continue
        kind = _KINDS[name]
        present = resource.getrlimit(kind)[1]
        wanted = (soft, hard) if present == resource.RLIM_INFINITY else (min(soft, present), min(hard, present))
        try:
            resource.setrlimit(kind, wanted)
        except (OSError, ValueError, OverflowError) as error:
            raise NotEnforced(f"the limit {name} could not be set to {wanted}: {error}") from error
        if resource.getrlimit(kind) != wanted:
            raise NotEnforced(f"the limit {name} reads back as {resource.getrlimit(kind)}, not {wanted}")
