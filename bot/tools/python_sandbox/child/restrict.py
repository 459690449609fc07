"""Lock the running process in, for good: limits, privileges, files, system calls, in this order.

Nothing here trusts Python: the code that runs afterwards may do what it likes in this process. What it cannot do is
decided by the kernel. Each step is read back; one that does not hold ends in ``NotEnforced``, never in a weaker lock.
"""

from __future__ import annotations

import os
import stat

from .landlock import apply_landlock, landlock_abi, why_no_landlock
from .policy import Policy, default_read_paths
from .privileges import drop_privileges, forbid_inspection, forbid_new_privileges
from .refused import NotEnforced
from .rlimits import apply_limits, can_bound_threads, limit_threads
from .seccomp import apply_seccomp, why_no_seccomp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NotEnforced", "can_bound_threads", "is_supported", "landlock_abi", "restrict"]

_TRUNCATE_SINCE_ABI = 3


def is_supported() -> str:
    """Return why this machine cannot lock code in; empty if it can. Changes nothing."""
    if os.name != "posix" or os.uname().sysname != "Linux":
        return "the sandbox needs Linux"
    return why_no_landlock() or why_no_seccomp()


def restrict(policy: Policy) -> None:
    """Apply the whole policy to this process, which must have one thread. The working directory becomes scratch.

    Raises:
        NotEnforced: something that the policy asks for cannot be enforced. The process is then in between: end it.
    """
    _check_single_thread()
    read = policy.read or default_read_paths()
    os.umask(0o077)
    if policy.has("input"):
        _make_read_only(policy.input)
    apply_limits(policy)
    if policy.has("no_new_privs"):
        forbid_new_privileges()
    if policy.has("capabilities"):
        drop_privileges(policy)
    if policy.has("rlimit:nproc") and can_bound_threads(policy):
        limit_threads(policy)
    if policy.has("dumpable"):
        forbid_inspection()
    try:
        os.chdir(policy.scratch)
    except OSError as error:
        raise NotEnforced(f"the sandbox's folder {policy.scratch} cannot be entered: {error.strerror}") from error
    _check_folders(policy)
    if policy.has("landlock"):
        apply_landlock(policy, read)
    if policy.has("seccomp"):
        abi = min(landlock_abi(), policy.landlock_abi or landlock_abi())
        apply_seccomp(policy, truncate_by_path=abi >= _TRUNCATE_SINCE_ABI)


def _check_single_thread() -> None:
    # Landlock locks the calling thread only.
    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError as error:
        raise NotEnforced(f"the threads of the process cannot be counted: {error}") from error
    if threads != 1:
        raise NotEnforced(f"the process has {threads} threads; it can be restricted only while it has one")


def _below(folder: str) -> Iterator[tuple[str, bool]]:
    """Yield the folders and regular files of a tree, and whether each is a folder; links are passed over."""
    for path, _, names in os.walk(folder):
        yield path, True
        for name in names:
            file = os.path.join(path, name)
            if stat.S_ISREG(os.lstat(file).st_mode):
                yield file, False


def _make_read_only(folder: str) -> None:
    # By the modes: Landlock adds the rights of a folder's parents, so it cannot take away what scratch gives. The modes
    # hold because no capability is left that overrides them, and because chmod is not done for the code.
    for path, is_folder in _below(folder) if folder else ():
        try:
            os.chmod(path, 0o555 if is_folder else 0o444)
        except OSError:
            # Another owner's, or a read-only mount. Whether it is writable is looked at after the privileges are gone.
            continue


def _check_folders(policy: Policy) -> None:
    if not os.access(policy.scratch, os.R_OK | os.W_OK | os.X_OK):
        raise NotEnforced(f"the sandbox's folder {policy.scratch} cannot be written by user {os.getuid()}")
    if policy.input and policy.has("input") and policy.has("capabilities"):
        for path, _ in _below(policy.input):
            if os.access(path, os.W_OK):
                raise NotEnforced(f"{path} could not be made read-only for the sandbox")
