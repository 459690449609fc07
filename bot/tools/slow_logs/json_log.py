"""Postgres's jsonlog, from version 15 on: one object a line.

The keys are those of https://www.postgresql.org/docs/current/runtime-config-logging.html#RUNTIME-CONFIG-LOGGING-JSONLOG
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from bot.tools.slow_logs.csv_log import take_message
from bot.tools.slow_logs.messages import MESSAGE, Pairing
from bot.tools.slow_logs.shapes import ShapeTable, Who
from bot.tools.slow_logs.sources import cut_at_entries
from bot.tools.slow_logs.tally import Tally
from bot.tools.slow_logs.times import Times

TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d):(\d\d(?:\.\d+)?) ?(\S*)")


def read_json_log(chunks: Iterator[bytes], table: ShapeTable, pairing: Pairing, times: Times, tally: Tally) -> None:
    """Read one file into ``table``."""
    for buffer in cut_at_entries(chunks, _last_start, tally):
        position = 0
        while position < len(buffer):
            end = buffer.find(b"\n", position) + 1 or len(buffer)
            line = buffer[position:end]
            record = _parse(line)
            if record is None:
                tally.damage(buffer, position, end, "not a JSON object of a log")
            else:
                tally.entries += 1
                _take(record, table, pairing, times)
            position = end
        tally.pass_over(buffer)


def _parse(line: bytes) -> dict[str, object] | None:
    try:
        record = json.loads(line.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and "error_severity" in record else None


def _take(record: dict[str, object], table: ShapeTable, pairing: Pairing, times: Times) -> None:
    severity = record["error_severity"]
    body = _bytes(record.get("message"))
    told = MESSAGE.match(body) if severity == "LOG" else None
    at = _at(record.get("timestamp"), times)
    who: Who = (
        _name(record.get("user")),
        _name(record.get("dbname")),
        _name(record.get("application_name")),
    )
    if told is not None and told[2] in (b"statement", b"execute") and not pairing.waits:
        table.add(at, float(told[1]) / 1000, body[told.end() :], who)
        return
    session = _bytes(record.get("session_id")) or str(record.get("pid", "")).encode()
    number = record.get("line_num")
    line = number if isinstance(number, int) else 0
    if told is not None:
        text = body[told.end() :]
        take_message(pairing, told[2], text, float(told[1]) / 1000, at=at, who=who, session=session, line=line)
    elif severity == "LOG":
        pairing.untimed(body, session, line)
    elif severity in ("ERROR", "FATAL"):
        pairing.cancelled(at, body, _bytes(record.get("statement")), who, session)


def _at(value: object, times: Times) -> float:
    match = TIME.match(value) if isinstance(value, str) else None
    if match is None:
        return float("nan")
    return times.minute(match[1].encode(), match[3].encode("ascii", "replace")) + float(match[2])


def _bytes(value: object) -> bytes:
    return value.encode("utf-8", "replace") if isinstance(value, str) else b""


def _name(value: object) -> bytes | None:
    return value.encode("utf-8", "replace") if isinstance(value, str) else None


def _last_start(buffer: bytes) -> int:
    return buffer.rfind(b"\n") + 1
