"""Landlock by ctypes: which files may be reached, no TCP, no signals and no abstract sockets outside.

Rights and structures are those of linux/landlock.h; the versions ("ABI") are listed in
https://docs.kernel.org/userspace-api/landlock.html. What a right is not named in a rule is denied, so the grants below
are the whole of it.
"""

from __future__ import annotations

import errno
import os
import stat
import struct

from .kernel import CallFailed, call
from .policy import Policy
from .refused import NotEnforced

# Not from typing: what is imported here is paid at every cold start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# The three calls have one number on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
# Since version 7 each refusal would be an audit record; the code could fill the machine's log with them.
_NO_AUDIT = 1
NEWEST_ABI = 7

FILE_RIGHTS: Mapping[str, tuple[int, int]] = {
    # name: (the version that has it, its bit)
    "execute": (1, 1 << 0),
    "write_file": (1, 1 << 1),
    "read_file": (1, 1 << 2),
    "read_dir": (1, 1 << 3),
    "remove_dir": (1, 1 << 4),
    "remove_file": (1, 1 << 5),
    "make_char": (1, 1 << 6),
    "make_dir": (1, 1 << 7),
    "make_reg": (1, 1 << 8),
    "make_sock": (1, 1 << 9),
    "make_fifo": (1, 1 << 10),
    "make_block": (1, 1 << 11),
    "make_sym": (1, 1 << 12),
    "refer": (2, 1 << 13),
    "truncate": (3, 1 << 14),
    "ioctl_dev": (5, 1 << 15),
}
NET_RIGHTS: Mapping[str, tuple[int, int]] = {"bind_tcp": (4, 1 << 0), "connect_tcp": (4, 1 << 1)}
SCOPES: Mapping[str, tuple[int, int]] = {"scope_abstract": (6, 1 << 0), "scope_signal": (6, 1 << 1)}

READ = ("read_file", "read_dir")
# Not among them: execute, make_sym, make_fifo, make_sock, make_char, make_block, refer, ioctl_dev.
SCRATCH = (*READ, "write_file", "truncate", "make_reg", "make_dir", "remove_file", "remove_dir")
NULL_DEVICE = ("read_file", "write_file", "truncate")
_OF_FILES = frozenset(("execute", "write_file", "read_file", "truncate", "ioctl_dev"))


def landlock_abi() -> int:
    """Return the version of Landlock that the kernel offers to this process; 0 if it offers none."""
    return max(0, _ask_version())


def why_no_landlock() -> str:
    """Return why there is no Landlock here and what helps; empty if there is."""
    match _ask_version():
        case version if version > 0:
            return ""
        case code if code == -errno.ENOSYS:
            return "this kernel has no Landlock: Linux 5.13 or newer is needed, built with CONFIG_SECURITY_LANDLOCK"
        case code if code == -errno.EOPNOTSUPP:
            return "Landlock is switched off in this kernel: add landlock to the boot parameter lsm="
        case code if code == -errno.EPERM:
            return "a seccomp profile forbids Landlock here, as Docker before 23 did: allow the landlock_ calls"
        case code:
            return f"Landlock does not answer: {os.strerror(-code)}"


def apply_landlock(policy: Policy, read: tuple[str, ...]) -> None:
    """Lock this thread, and what it starts, to the paths of the policy. It cannot be undone.

    Args:
        policy: names scratch, and the rules that a test leaves out.
        read: paths that may be read.

    Raises:
        NotEnforced: the kernel refused one of the steps, a path does not exist, or it does not hold afterwards.
    """
    abi = landlock_abi()
    if abi == 0:
        raise NotEnforced(why_no_landlock())
    abi = min(abi, policy.landlock_abi or NEWEST_ABI, NEWEST_ABI)
    handled, net, scoped = (_bits(kind, abi, policy) for kind in (FILE_RIGHTS, NET_RIGHTS, SCOPES))
    attributes = struct.pack("=QQQ", handled, net, scoped)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = _call("landlock_create_ruleset", _CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path in read:
            _grant(ruleset, path, READ, handled)
        _grant(ruleset, policy.scratch, SCRATCH, handled)
        _grant(ruleset, os.devnull, NULL_DEVICE, handled)
        _call("landlock_restrict_self", _RESTRICT_SELF, ruleset, _NO_AUDIT if abi >= 7 else 0)
    finally:
        os.close(ruleset)
    _check_holds(policy)


def _bits(rights: Mapping[str, tuple[int, int]], abi: int, policy: Policy) -> int:
    return sum(bit for name, (since, bit) in rights.items() if since <= abi and policy.has(f"landlock:{name}"))


def _grant(ruleset: int, path: str, names: tuple[str, ...], handled: int) -> None:
    try:
        # The last part is not followed: whoever can plant a link there must not choose what is granted.
        target = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise NotEnforced(f"{path} cannot be granted to the sandbox: {error.strerror}") from error
    try:
        mode = os.fstat(target).st_mode
        if stat.S_ISLNK(mode):
            raise NotEnforced(f"{path} cannot be granted to the sandbox: it is a symbolic link")
        rights = (name for name in names if stat.S_ISDIR(mode) or name in _OF_FILES)
        allowed = sum(FILE_RIGHTS[name][1] for name in rights) & handled
        if allowed:
            rule = struct.pack("=Qi", allowed, target)
            _call("landlock_add_rule", _ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(target)


def _check_holds(policy: Policy) -> None:
    if not policy.has("landlock:read_dir"):
        return
    try:
        os.close(os.open("/", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return
    raise NotEnforced("Landlock was accepted, but the root folder can still be opened")


def _ask_version() -> int:
    try:
        return call(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    except CallFailed as error:
        return -error.code


def _call(name: str, number: int, *arguments: int | bytes) -> int:
    try:
        return call(number, *arguments)
    except CallFailed as error:
        raise NotEnforced(f"{name} failed: {error}") from error
