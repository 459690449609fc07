"""Slow logs with known figures: seven shapes, log-normal durations, and what misleads a reader of logs.

Statements over several lines with blank ones, lines inside a literal that look like entries, ``;`` and ``--`` in
literals, lists of any length, letters beyond ASCII, other entries in between.
"""

from __future__ import annotations

import csv
import json
import math
import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TextIO

Kind = Literal["pg-stderr", "pg-csv", "pg-json", "mysql", "mariadb"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How often a shape comes, how long it takes, and ``sign``: words that only it has."""

    weight: int
    median_s: float
    sigma: float
    sign: str
    make: Callable[[random.Random], str]


def _list(draw: random.Random) -> str:
    ids = ", ".join(str(draw.randrange(10**6)) for _ in range(draw.randrange(1, 30)))
    return f"SELECT id, total FROM orders WHERE id IN ({ids}) ORDER BY total DESC LIMIT 10"


def _lines(draw: random.Random) -> str:
    return (
        "SELECT c.name,\n       sum(o.total) AS spent\n\n  FROM customers c\n  JOIN orders o ON o.customer_id = c.id\n"
        f" WHERE o.created_at > '2026-0{draw.randrange(1, 9)}-01'\n"
        f"   AND c.email = 'user{draw.randrange(10**5)}@example.com'\n GROUP BY 1"
    )


def _trap(draw: random.Random) -> str:
    inside = "2026-01-01 00:00:00.000 UTC [1] fake LOG:  duration: 99999.000 ms  statement: nope"
    return f"INSERT INTO audit(msg) VALUES ('line one\n{inside} {draw.randrange(999)}')"


SHAPES = {
    "point": Shape(
        weight=40, median_s=0.3, sigma=0.4, sign="SELECT * FROM orders WHERE id =",
        make=lambda r: f"SELECT * FROM orders WHERE id = {r.randrange(10**6)}",
    ),
    "list": Shape(weight=15, median_s=0.45, sigma=0.6, sign="ORDER BY total DESC", make=_list),
    "lines": Shape(weight=15, median_s=1.1, sigma=0.7, sign="AS spent", make=_lines),
    "literal": Shape(
        weight=10, median_s=0.6, sigma=0.5, sign="UPDATE notes",
        make=lambda r: f"UPDATE notes SET body = 'a;b -- no comment {r.random():.6f} naïve ☃' "
        f"WHERE id = {r.randrange(10**6)}",
    ),
    "trap": Shape(weight=5, median_s=0.8, sigma=0.5, sign="INSERT INTO audit", make=_trap),
    "report": Shape(
        weight=2, median_s=6.0, sigma=0.5, sign="WITH t AS",
        make=lambda r: "WITH t AS (SELECT date_trunc('day', created_at) d, count(*) n FROM orders "
        f"WHERE region = 'EU-{r.randrange(9)}' GROUP BY 1) SELECT * FROM t ORDER BY d",
    ),
    "delete": Shape(
        weight=13, median_s=0.35, sigma=0.9, sign="DELETE FROM sessions",
        make=lambda r: f"DELETE FROM sessions WHERE expires_at < '2026-0{r.randrange(1, 9)}-1{r.randrange(9)}' "
        f"AND token = 'tok_{r.randrange(16**8):08x}'",
    ),
}  # fmt: skip


def write_log(path: Path, kind: Kind, *, entries: int, seed: int) -> dict[str, dict[str, float]]:
    """Write a log of one day and return by shape count, total_s, max_s and p95_s (nearest rank)."""
    draw = random.Random(seed)
    names, weights = list(SHAPES), [shape.weight for shape in SHAPES.values()]
    truth = {name: array("d") for name in names}
    at = datetime(2026, 5, 1, tzinfo=UTC)
    step = timedelta(seconds=86_000 / entries)
    with path.open("w", encoding="utf-8", newline="") as stream:
        if kind in ("mysql", "mariadb"):
            stream.write(
                "/usr/sbin/mysqld, Version: 8.0.36 (MySQL Community Server - GPL). started with:\n"
                "Tcp port: 3306  Unix socket: /run/my.sock\nTime                 Id Command    Argument\n"
            )
        for number in range(entries):
            name = draw.choices(names, weights)[0]
            shape = SHAPES[name]
            sql = shape.make(draw)
            ms = round(1_000 * shape.median_s * math.exp(shape.sigma * draw.gauss(0, 1)), 3)
            truth[name].append(ms / 1_000)
            at += step
            _write_entry(stream, kind, number, at, sql, ms, draw)
    figures: dict[str, dict[str, float]] = {}
    for name, values in truth.items():
        if values:
            ordered = sorted(values)
            figures[name] = {
                "count": len(values),
                "total_s": math.fsum(values),
                "max_s": ordered[-1],
                "p95_s": ordered[math.ceil(0.95 * len(values)) - 1],
            }
    return figures


def _write_entry(
    stream: TextIO, kind: Kind, number: int, at: datetime, sql: str, ms: float, draw: random.Random
) -> None:
    pid, database = 1_000 + draw.randrange(40), draw.choice(["shop", "crm"])
    time = f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} UTC"
    message = f"duration: {ms:.3f} ms  statement: {sql}"
    match kind:
        case "pg-stderr":
            who = f"{time} [{pid}] app@{database}/web"
            body = message.replace("\n", "\n\t")
            stream.write(f"{who} LOG:  {body}\n")
            if number % 997 == 0:
                stream.write(
                    f'{who} ERROR:  relation "nowhere" does not exist\n{who} STATEMENT:  select 1 from nowhere\n'
                )
        case "pg-csv":
            columns = [time, "app", database, pid, "10.0.0.1:5555", f"6900.{pid:x}", number, "SELECT", time]
            columns += ["3/7", 0, "LOG", "00000", message, *[""] * 8, "web", "client backend", "", 123]
            csv.writer(stream, lineterminator="\n").writerow(columns)
        case "pg-json":
            record = {"timestamp": time, "user": "app", "dbname": database, "pid": pid, "error_severity": "LOG"}
            stream.write(
                json.dumps({**record, "message": message, "application_name": "web"}, ensure_ascii=False) + "\n"
            )
        case "mysql":
            stream.write(
                f"# Time: {at:%Y-%m-%dT%H:%M:%S.%f}Z\n# User@Host: app[app] @ web1 [10.0.0.1]  Id: {pid:5d}\n"
                f"# Query_time: {ms / 1000:.6f}  Lock_time: 0.000100 Rows_sent: 3  Rows_examined: 999\n"
                f"use {database};\nSET timestamp={int(at.timestamp())};\n{sql};\n"
            )
        case "mariadb":
            stream.write(
                f"# Time: {at:%y%m%d %k:%M:%S}\n# User@Host: app[app] @ web1 [10.0.0.1]\n"
                f"# Thread_id: {pid}  Schema: {database}  QC_hit: No\n"
                f"# Query_time: {ms / 1000:.6f}  Lock_time: 0.000100  Rows_sent: 3  Rows_examined: 999\n"
                f"# Rows_affected: 0  Bytes_sent: 100\nuse {database};\nSET timestamp={int(at.timestamp())};\n{sql};\n"
            )
