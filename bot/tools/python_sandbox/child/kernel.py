"""Call the kernel where the standard library has no function for it."""

from __future__ import annotations

import ctypes
import os

# One handle: making it costs more than most of the calls.
_LIBC = ctypes.CDLL(None, use_errno=True)
_PRCTL, _SYSCALL, _CAPGET, _CAPSET = _LIBC.prctl, _LIBC.syscall, _LIBC.capget, _LIBC.capset
# Every argument as a full register: of a plain int the upper half would be undefined.
_PRCTL.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
_SYSCALL.restype = ctypes.c_long


class CallFailed(Exception):
    """The kernel refused a call."""

    def __init__(self, code: int) -> None:
        """Keep the errno."""
        super().__init__(os.strerror(code))
        self.code = code


def prctl(option: int, argument: int = 0, second: int = 0) -> int:
    """Call prctl(2); return what it returns, -1 after a failure."""
    return int(_PRCTL(option, argument, second, 0, 0))


def call(number: int, *arguments: int | bytes | None) -> int:
    """Make a system call by its number; bytes are passed as a pointer, None as a null pointer.

    Raises:
        CallFailed: with the errno.
    """
    passed = (ctypes.c_long(item) if isinstance(item, int) else ctypes.c_char_p(item) for item in arguments)
    got = int(_SYSCALL(ctypes.c_long(number), *passed))
    if got == -1:
        raise CallFailed(ctypes.get_errno())
    return got


def address_of(data: bytes) -> tuple[int, object]:
    """Copy bytes to where the kernel can read them; return the address, and what must be kept alive meanwhile."""
    kept = ctypes.create_string_buffer(data, len(data))
    return ctypes.addressof(kept), kept


def read_capabilities(header: bytes) -> bytes:
    """Call capget(2) for this process; return its 24 bytes, or none after a failure."""
    data = ctypes.create_string_buffer(24)
    return data.raw if _CAPGET(ctypes.create_string_buffer(header, len(header)), data) == 0 else b""


def clear_capabilities(header: bytes) -> bool:
    """Call capset(2) for this process with empty sets."""
    return bool(_CAPSET(ctypes.create_string_buffer(header, len(header)), bytes(24)) == 0)
