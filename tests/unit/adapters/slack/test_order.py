from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.slack.order import ArrivalOrder


class Gate:
    """A ``sleep`` that ends when it is opened: so a test decides who has settled."""

    def __init__(self) -> None:
        self.sleeping: list[asyncio.Event] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeping.append(asyncio.Event())
        await self.sleeping[-1].wait()

    async def let(self, *numbers: int) -> None:
        for number in numbers:
            self.sleeping[number].set()
            await _settle()


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Walkers:
    def __init__(self, order: ArrivalOrder) -> None:
        self.order = order
        self.done: list[str] = []
        self.inside = 0
        self.hold = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    def send(self, key: str, at: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._walk(key, at))
        self.tasks.append(task)
        return task

    async def _walk(self, key: str, at: str) -> None:
        async with self.order.turn(key, at):
            self.inside += 1
            assert self.inside == 1 or key == "other"
            await self.hold.wait()
            self.done.append(at)
            self.inside -= 1


async def test_what_was_said_first_goes_first_though_it_was_read_last() -> None:
    gate = Gate()
    walkers = Walkers(ArrivalOrder(sleep=gate.sleep))
    walkers.hold.set()
    for at in ("3", "1", "2"):
        walkers.send("t", at)
    await _settle()
    await gate.let(0, 1, 2)
    await asyncio.gather(*walkers.tasks)
    assert walkers.done == ["1", "2", "3"]


async def test_one_at_a_time_and_the_earliest_of_those_who_wait_is_next() -> None:
    gate = Gate()
    walkers = Walkers(ArrivalOrder(sleep=gate.sleep))
    walkers.send("t", "5")
    await _settle()
    await gate.let(0)
    walkers.send("t", "9")
    walkers.send("t", "7")
    await _settle()
    await gate.let(1, 2)
    walkers.hold.set()
    await asyncio.gather(*walkers.tasks)
    assert walkers.done == ["5", "7", "9"]


async def test_other_keys_do_not_wait() -> None:
    walkers = Walkers(ArrivalOrder(settle_s=0.0))
    held = walkers.send("t", "1")
    await _settle()
    async with asyncio.timeout(30), walkers.order.turn("other", "2"):
        assert not held.done()
    walkers.hold.set()
    await held


@pytest.mark.parametrize("cancelled", [0, 1, 2])
async def test_who_is_cancelled_holds_up_nobody(cancelled: int) -> None:
    walkers = Walkers(ArrivalOrder(settle_s=0.0))
    for at in ("1", "2", "3"):
        walkers.send("t", at)
    await _settle()
    walkers.tasks[cancelled].cancel()
    walkers.inside = 0 if cancelled == 0 else 1  # the first one is inside
    walkers.hold.set()
    async with asyncio.timeout(30):
        await asyncio.gather(*walkers.tasks, return_exceptions=True)
    assert walkers.done == [at for n, at in enumerate(("1", "2", "3")) if n != cancelled]


async def test_a_failure_inside_lets_the_next_one_in() -> None:
    order = ArrivalOrder(settle_s=0.0)
    with pytest.raises(OSError, match="disk"):
        async with order.turn("t", "1"):
            raise OSError("disk")
    async with asyncio.timeout(30), order.turn("t", "2"):
        pass


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1000, 1050)), max_size=30))
def test_whatever_arrives_together_leaves_in_the_order_of_its_time(arrivals: list[tuple[str, int]]) -> None:
    async def run() -> list[tuple[str, int]]:
        order = ArrivalOrder(settle_s=0.0)
        left: list[tuple[str, int]] = []

        async def walk(key: str, at: int) -> None:
            async with order.turn(key, str(at)):
                left.append((key, at))

        await asyncio.gather(*(walk(key, at) for key, at in arrivals))
        assert order._lines == {}  # nothing is kept of threads in which nobody waits
        return left

    left = asyncio.run(run())
    for key in "ab":
        assert [at for k, at in left if k == key] == sorted(at for k, at in arrivals if k == key)
