"""A chart in one line of text, for where no picture is shown."""

from __future__ import annotations

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def draw_bars(values: Sequence[float | None]) -> str:
    """Draw one sign a value, from 0 to the highest; ``·`` for 0, a blank for what is not known."""
    highest = max((value for value in values if value is not None), default=0.0)

    def draw(value: float | None) -> str:
        if value is None:
            return " "
        if value <= 0 or highest <= 0:
            return "·"
        return _BARS[min(len(_BARS) - 1, int(value / highest * len(_BARS)))]

    return "".join(map(draw, values))
