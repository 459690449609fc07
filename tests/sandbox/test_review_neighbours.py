"""What one program finds of another in the memory that both were forked from."""

from __future__ import annotations

import asyncio
import functools

from bot.tools.python_sandbox.types import RunStatus
from tests.needs import need
from tests.sandbox.sandboxes import NAME_ITSELF, OpenSandbox, find_named, until, why_missing

SLEEPS = "import time\nopen('output/began', 'w').close()\ntime.sleep(60)"
LOOK = """
import ctypes, gc, os, re
libc = ctypes.CDLL(None, use_errno=True)
libc.sbrk.restype = ctypes.c_void_p
libc.write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
reader, writer = os.pipe()
heap = libc.sbrk(0)
starts = {id(item) & ~0xFFFFF for item in gc.get_objects()} | set(range((heap & ~0xFFFFF) - 8 * 2**20, heap, 2**20))
found, pages = set(), 0
for start in starts:
    for page in range(start, start + 0x100000, 4096):
        if libc.write(writer, page, 4096) == 4096:  # EFAULT where nothing is mapped
            pages += 1
            found |= {name.decode() for name in re.findall(rb"/runs/[0-9a-f]{32}", os.read(reader, 4096))}
print(pages, sorted(found - {os.getcwd()}), os.getcwd() in found)
"""


async def test_no_run_finds_the_folder_of_another_in_its_memory(open_sandbox: OpenSandbox) -> None:
    need(why_missing("namespaces"))
    sandbox = await open_sandbox("namespaces", places=4)
    for _ in range(3):
        await sandbox.run("1")
    names = ("neighbour-1", "neighbour-2")
    neighbours = [asyncio.create_task(sandbox.run(NAME_ITSELF.format(name=name) + SLEEPS)) for name in names]
    try:
        for name in names:
            await until(functools.partial(find_named, name), f"{name} runs")
        for _ in range(2):
            outcome = await sandbox.run(LOOK)
            assert outcome.status is RunStatus.OK, outcome
            assert outcome.stdout.rstrip().endswith(" [] True"), outcome.stdout
    finally:
        for neighbour in neighbours:
            neighbour.cancel()
        await asyncio.gather(*neighbours, return_exceptions=True)
