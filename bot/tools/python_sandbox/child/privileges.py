"""Give up every right that root would have, for good."""

from __future__ import annotations

import os
import struct

from .kernel import clear_capabilities, prctl, read_capabilities
from .policy import Policy
from .refused import NotEnforced

_PR_SET_DUMPABLE, _PR_GET_DUMPABLE, _PR_CAPBSET_READ, _PR_CAPBSET_DROP = 4, 3, 23, 24
_PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 38, 39, 47, 4
# _LINUX_CAPABILITY_VERSION_3 and this process (linux/capability.h).
_HEADER = struct.pack("=Ii", 0x20080522, 0)
_CAP_SETPCAP = 8


def forbid_new_privileges() -> None:
    """Set no_new_privs, so that no file's setuid bit or capability counts any more.

    Raises:
        NotEnforced: it does not read back.
    """
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if prctl(_PR_GET_NO_NEW_PRIVS) != 1:
        raise NotEnforced("no_new_privs could not be set")


def forbid_inspection() -> None:
    """Make the process not dumpable: no core file, and no other process of this user may trace it.

    Raises:
        NotEnforced: it does not read back.
    """
    prctl(_PR_SET_DUMPABLE, 0)
    if prctl(_PR_GET_DUMPABLE) != 0:
        raise NotEnforced("the process could not be made not dumpable")


def drop_privileges(policy: Policy) -> None:
    """Empty the bounding set where that is allowed, become the user of the policy, and empty every capability set.

    Raises:
        NotEnforced: the user could not be changed, or a capability is left.
    """
    effective = _capabilities()[0]
    if effective & (1 << _CAP_SETPCAP):
        capability = 0
        while prctl(_PR_CAPBSET_READ, capability) >= 0:
            if prctl(_PR_CAPBSET_DROP, capability) != 0:
                raise NotEnforced(f"capability {capability} could not be dropped from the bounding set")
            capability += 1
    if policy.uid is not None and policy.gid is not None:
        _become(policy.uid, policy.gid)
    prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    clear_capabilities(_HEADER)
    if any(_capabilities()):
        raise NotEnforced("the process still has capabilities")


def _become(uid: int, gid: int) -> None:
    try:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise NotEnforced(f"the process cannot become user {uid}:{gid}: {error.strerror}") from error
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid) or os.getgroups():
        raise NotEnforced(f"the process did not become user {uid}:{gid}")


def _capabilities() -> tuple[int, int, int]:
    """Return the effective, permitted and inheritable sets."""
    data = read_capabilities(_HEADER)
    if not data:
        raise NotEnforced("the capabilities of the process cannot be read")
    low = struct.unpack("=6I", data)
    return low[0] | low[3] << 32, low[1] | low[4] << 32, low[2] | low[5] << 32
