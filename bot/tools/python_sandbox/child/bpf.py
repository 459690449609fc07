"""A small assembler of classic BPF, as far as a seccomp filter needs it (linux/bpf_common.h, linux/seccomp.h)."""

from __future__ import annotations

import struct

# Not from typing: what is imported here is paid at every cold start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

LOAD, AND, JUMP_EQUAL, JUMP_GREATER, JUMP_SET, RETURN = 0x20, 0x54, 0x15, 0x25, 0x45, 0x06
KILL_PROCESS, ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE = 0, 4
"""Offsets in ``struct seccomp_data``."""
MAX_INSTRUCTIONS = 4096

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, constant."""


def errno_action(code: int) -> int:
    """Return the verdict that answers a call with an errno; 0 answers success without doing anything."""
    return _ERRNO | code


class Condition:
    """One half of one argument, masked, is one of ``values``. Immutable.

    Only 32 bits are looked at: the arguments that are checked are ``int`` in the kernel, or flags below 1 << 32.
    """

    __slots__ = ("argument", "mask", "upper_half", "values")

    def __init__(self, argument: int, *values: int, mask: int = 0xFFFFFFFF, upper_half: bool = False) -> None:
        self.argument, self.values, self.mask, self.upper_half = argument, values, mask, upper_half


def allow_only(alternatives: Iterable[tuple[Condition, ...]], otherwise: int) -> list[Instruction]:
    """Return instructions that allow if all conditions of one alternative hold, and give ``otherwise`` if none does."""
    body: list[Instruction] = []
    for conditions in alternatives:
        body += _build_alternative(conditions)
    return [*body, (RETURN, 0, 0, otherwise)]


def _build_alternative(conditions: tuple[Condition, ...]) -> list[Instruction]:
    # The instruction after this alternative: its own RETURN comes last.
    end = sum(1 + (item.mask != 0xFFFFFFFF) + len(item.values) for item in conditions) + 1
    body: list[Instruction] = []
    for item in conditions:
        body.append((LOAD, 0, 0, 16 + 8 * item.argument + 4 * item.upper_half))
        if item.mask != 0xFFFFFFFF:
            body.append((AND, 0, 0, item.mask))
        for index, value in enumerate(item.values):
            left = len(item.values) - 1 - index
            body.append((JUMP_EQUAL, left, 0 if left else end - len(body) - 1, value))
    return [*body, (RETURN, 0, 0, ALLOW)]


def guard(number: int, body: list[Instruction]) -> list[Instruction]:
    """Return ``body``, jumped over unless the accumulator holds ``number``."""
    if len(body) > 255:
        raise ValueError(f"the checks of call {number} have {len(body)} instructions; a jump reaches 255")
    return [(JUMP_EQUAL, 0, len(body), number), *body]


def pack(program: Iterable[Instruction]) -> bytes:
    """Return the program as an array of ``struct sock_filter``.

    Raises:
        ValueError: it is longer than the kernel takes.
    """
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    if len(packed) > MAX_INSTRUCTIONS * 8:
        raise ValueError(f"the filter has {len(packed) // 8} instructions; the kernel takes {MAX_INSTRUCTIONS}")
    return packed
