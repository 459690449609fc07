"""Ports for servers that begin to listen later, or in another process."""

from __future__ import annotations

import contextlib
import random
import socket
from contextlib import closing
from pathlib import Path


def free_port() -> int:
    """A port of 127.0.0.1 that nothing uses, and that the kernel gives to nobody who asks for any.

    One that the kernel gave would soon be given again: to the client of another server, or to the very client that
    looks whether the server is there, which then finds itself.
    """
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(10_000, first_given), 100):
        with closing(socket.socket()) as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")
