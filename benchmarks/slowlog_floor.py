"""A bare pass over a log: count, total, maximum and exact p95 by a simple shape. The reference for counts and speed.

It hides nothing of a statement, keeps every duration, knows one prefix, and survives no damage.
"""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

_LITERAL = re.compile(r"'(?:[^']|'')*'|\b\d+(?:\.\d+)?\b|\$\d+", re.DOTALL)
_LIST = re.compile(r"\(\s*\?(?:\s*,\s*\?)*\s*\)")
_SPACE = re.compile(r"\s+")
_HEAD = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \S+ \[\d+\] \S* ?(\w+):  (.*)", re.DOTALL)
_TIMED = re.compile(r"duration: ([\d.]+) ms  (?:statement|execute [^:]*): (.*)", re.DOTALL)
_QUERY = re.compile(r"# Query_time: ([\d.]+)")

Execution = tuple[float, str]


def read_postgres(stream: TextIO) -> Iterator[Execution]:
    """Read a plain log."""
    entry: list[str] = []
    for line in stream:
        if line[0] == "\t":
            entry.append(line[1:])
        elif head := _HEAD.match(line):
            yield from _timed("".join(entry))
            entry = [head[2]] if head[1] == "LOG" else []
    yield from _timed("".join(entry))


def read_mysql(stream: TextIO) -> Iterator[Execution]:
    """Read a slow log of MySQL or MariaDB."""
    body: list[str] = []
    seconds = 0.0
    for line in stream:
        if line[0] == "#":
            if body:
                yield seconds, "".join(body)
                body = []
            if query := _QUERY.match(line):
                seconds = float(query[1])
        elif seconds and not line.startswith(("use ", "SET timestamp=")):
            body.append(line)
    if body:
        yield seconds, "".join(body)


def _timed(message: str) -> Iterator[Execution]:
    if match := _TIMED.match(message):
        yield float(match[1]) / 1000, match[2]


def main() -> None:
    """Print count, total, maximum and p95 of every shape."""
    kind, path = sys.argv[1:3]
    shapes: dict[str, list[float]] = {}
    with Path(path).open(encoding="utf-8", newline="" if kind == "pg-csv" else None) as stream:
        executions: Iterator[Execution]
        if kind == "pg-csv":
            executions = (found for row in csv.reader(stream) for found in _timed(row[13]))
        elif kind == "pg-json":
            executions = (found for line in stream for found in _timed(json.loads(line)["message"]))
        else:
            executions = read_postgres(stream) if kind == "pg-stderr" else read_mysql(stream)
        for seconds, sql in executions:
            shape = _LIST.sub("(?+)", _SPACE.sub(" ", _LITERAL.sub("?", sql))).strip().lower()
            shapes.setdefault(shape, []).append(seconds)
    for shape, values in sorted(shapes.items(), key=lambda item: -sum(item[1])):
        values.sort()
        p95 = values[math.ceil(0.95 * len(values)) - 1]
        print(len(values), round(sum(values), 3), values[-1], p95, shape[:60])


if __name__ == "__main__":
    main()
