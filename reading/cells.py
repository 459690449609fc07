"""Write single values for a table cell or a line: durations, sizes, shares, instants, code."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SQL_KEYS = re.compile(r"^(?:sql|query|statement|query_text|ddl|definition|command|example)$")
_INSTANT = re.compile(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d(?::\d\d)?)(?:\.\d+)?(?:Z|\+00:00)$")
_INSIDE = re.compile(r"(?<![\w/])(\d{4}-\d\d-\d\d)T(\d\d:\d\d(?::\d\d)?)(?:\.\d+)?Z(?![\w/])")
_SHARES = frozenset({"cost_saved", "coverage"})
_SIZES = {"bytes": 1, "kb": 1024, "mb": 1024 * 1024}
SQL_WIDTH = 72


def is_code(key: str) -> bool:
    """Tell whether values of this name are SQL or other code."""
    return _SQL_KEYS.match(key.lower()) is not None


def label(key: str) -> str:
    """Turn a field's name into words, without the unit that its values carry: ``total_s`` -> ``total``."""
    words = re.sub(r"_(?:s|ms|bytes|kb|mb)$", "", key).replace("_", " ").strip() or key
    return re.sub(r"\bxact\b", "transaction", words)


def write_duration(seconds: float) -> str:
    """Write seconds with a unit and two or three digits: ``12.3 ms``, ``1.25 s``, ``83 s``, ``12 min``."""
    size = abs(seconds)
    if size == 0:
        return "0 s"
    if size < 1:
        return f"{_digits(seconds * 1000)} ms"
    if size < 600:
        return f"{_digits(seconds)} s"
    return f"{_digits(seconds / 60)} min" if size < 36_000 else f"{_digits(seconds / 3600)} h"


def _digits(number: float) -> str:
    places = 0 if abs(number) >= 100 else 1 if abs(number) >= 10 else 2
    return f"{number:.{places}f}".rstrip("0").rstrip(".") if places else f"{number:.0f}"


def write_size(size_bytes: float) -> str:
    """Write bytes with a binary unit: ``8.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size_bytes) < 1024:
            return f"{_digits(size_bytes)} {unit}"
        size_bytes /= 1024
    return f"{_digits(size_bytes)} TiB"


def write_instant(text: str) -> str:
    """Write an ISO instant in UTC as ``2026-01-31 08:00:00 UTC``; any other text comes back as it is."""
    m = _INSTANT.match(text)
    return f"{m.group(1)} {m.group(2)} UTC" if m else text


def write_prose(text: str) -> str:
    """Write a sentence on one line, with the ISO instants inside it as people write them."""
    return _INSIDE.sub(r"\1 \2 UTC", _one_line(text))


def write_measure(value: object, unit: str) -> str:
    """Write a number and the words of its unit, which may begin with ``share``, ``bytes`` or ``seconds``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{write_value('', value)} {unit}".strip() if value is not None else "–"
    first, _, rest = unit.partition(" ")
    written = {
        "share": write_value("share", value),
        "bytes": write_size(value),
        "seconds": write_duration(value),
    }.get(first)
    return f"{written} {rest}".strip() if written is not None else f"{write_value('', value)} {unit}".strip()


def write_code(text: str, width: int = SQL_WIDTH) -> str:
    """Put one line of code between backticks, cut to ``width`` characters."""
    line = " ".join(text.split())
    line = line if len(line) <= width else line[: width - 1].rstrip() + "…"
    ticks = "``" if "`" in line else "`"
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}" if line else ""


def write_value(key: str, value: object) -> str:
    """Write one value on one line, by the unit in its field's name."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _write_number(key.lower(), value)
    if isinstance(value, str) and is_code(key):
        return write_code(value)
    return _write_text(key, value)


def _write_text(key: str, value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{label(str(k))} {write_value(str(k), v)}" for k, v in value.items() if v is not None)
    if isinstance(value, list | tuple):
        return ", ".join(write_value(key, v) for v in value)
    return _one_line(write_instant(str(value)))


def _write_number(key: str, value: int | float) -> str:
    if key == "duration" or key.endswith(("_s", "_seconds")):
        return write_duration(value)
    if key.endswith("_ms"):
        return write_duration(value / 1000)
    if unit := _SIZES.get(key.rpartition("_")[2]):
        return write_size(value * unit)
    if "share" in key or key.endswith("_ratio") or key in _SHARES:
        return _write_share(value)
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 and not key.endswith(("id", "port", "year")) else str(value)
    return _write_float(value)


def _write_float(value: float) -> str:
    """Six digits, or all before the point: no exponent where people compare."""
    size = abs(value)
    if not size < 1e15:
        return repr(value)
    if size >= 1e5:
        return f"{value:,.0f}"
    return f"{value:,.6g}" if size >= 1e4 else f"{value:.6g}"


def _write_share(value: int | float) -> str:
    """Nothing short of all is written as all, and nothing above none as none."""
    if not 0 <= value <= 1:
        return f"{value:g}"
    percent = f"{value * 100:.3g}"
    if percent == "100" and value < 1:
        return "over 99.9 %"
    return f"{percent} %"


def _one_line(text: str) -> str:
    return " ".join(text.split())
