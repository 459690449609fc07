"""Who holds a lease: names of processes, and which of them are certainly gone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import structlog

from bot.storage.base import Store

log = structlog.get_logger("hermod.app")


def name_owner() -> str:
    """Name this process for leases: machine, process id and its start, so that a reused id is another owner."""
    return f"{os.uname().nodename}/{os.getpid()}/{_start_of(os.getpid())}/{secrets.token_hex(3)}"


def _start_of(pid: int) -> str:
    """The start time of a process in clock ticks since boot (proc(5), field 22 of stat), or an empty text."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


def is_dead_owner(owner: str) -> bool:
    """Tell whether an owner was a process of this machine that is certainly gone."""
    node, _, rest = owner.partition("/")
    pid, _, rest = rest.partition("/")
    start = rest.partition("/")[0]
    if node != os.uname().nodename or not pid.isdigit() or not start:
        return False
    return _start_of(int(pid)) != start


async def free_dead_owners(store: Store) -> None:
    """End the leases of processes of this machine that died, so that their work goes on at once."""
    for owner in await store.list_owners():
        if is_dead_owner(owner):
            log.info("lease_freed", owner=owner)
            await store.free_owner(owner)
