"""How much fits into one post, counted in one or several units at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Size = tuple[int, ...]
"""How much of a post a text takes: a number for each thing that the platform counts."""

Costs = Callable[[str], Size]
"""Counts a text. Two texts in one post take at most the sum of what they take alone."""

MIN_TEXT_MAX = 64
"""Smaller posts could not hold a fence, its language and a word."""


def add(one: Size, two: Size) -> Size:
    """Return the sum of two sizes."""
    return tuple(a + b for a, b in zip(one, two, strict=True))


@dataclass(slots=True)
class Rest:
    """Whether posts are over: what follows is one piece, and is not cut or measured any more."""

    begun: bool = False


@dataclass(frozen=True, slots=True)
class Room:
    """How much fits, measured inside whatever surrounds it (the marks of a quote, the indent of an item).

    Args:
        size: the most that one post takes.
        costs: what a text takes.
        grain: to how many characters ``longest`` is searched; more than 1 where ``costs`` is expensive.
        rest: once it has begun everything fits.
    """

    size: Size
    costs: Costs
    grain: int = 1
    rest: Rest = field(default_factory=Rest)

    def cost(self, text: str) -> Size:
        """What the text takes."""
        return tuple(0 for _ in self.size) if self.rest.begun else self.costs(text)

    def fits(self, size: Size) -> bool:
        """True when so much is not too much."""
        return self.rest.begun or all(have <= most for have, most in zip(size, self.size, strict=True))

    def holds(self, text: str) -> bool:
        """True when the text fits."""
        return self.fits(self.cost(text))

    def is_far_too_long(self, text: str) -> bool:
        """True for running text that is not worth measuring: hardly any of it can be marks that nobody sees."""
        return not self.rest.begun and self.grain > 1 and len(text) > 4 * self.size[0]

    def inside(self, wrap: Callable[[str], str]) -> Room | None:
        """The room that ``wrap`` leaves, or None when it leaves too little to be worth it."""
        costs = self.costs
        if not self.fits(costs(wrap("x" * (MIN_TEXT_MAX // 2)))):
            return None
        return Room(self.size, lambda text: costs(wrap(text)), self.grain, self.rest)

    def longest(self, count: int, build: Callable[[int], str], *, grain: int = 1) -> int:
        """The largest n of 1..``count`` for which ``build(n)`` fits, to within ``grain``; 0 when none does."""
        low, step = 0, max(64, self.size[0])
        high = count
        while low < high and low + step < high:  # what does not fit by far is not measured
            if not self.holds(build(low + step)):
                high = low + step - 1
                break
            low += step
            step *= 2
        while low < high and (low == 0 or high - low >= grain):
            middle = (low + high + 1) // 2
            if self.holds(build(middle)):
                low = middle
            else:
                high = middle - 1
        return low
