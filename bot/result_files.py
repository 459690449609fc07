"""Files that go along with an answer because of what tools returned: the whole table as CSV, a trend as a picture.

They are built from nothing but the results, which are in the journal; so a process that takes the run up after
``kill -9`` brings the same files again.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Mapping, Sequence

from adapters.chat import Attachment
from agent_core.tools.base import ToolResult
from reading.layout import MAX_GRID_COLUMNS, MAX_ROWS, choose_columns, read_rows
from reading.past import parse_result

MOST_FILES = 4
"""Of one answer; those of the last results."""

_TREND, _REPORT = "query_trend", "generate_report"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def build_result_files(results: Sequence[ToolResult], *, whole: bool) -> tuple[Attachment, ...]:
    """Build the files of an answer that rests on ``results``. May take a second: call it in a thread.

    Args:
        results: in the order in which they came.
        whole: also those tables of which the answer shows all rows, but not all columns.
    """
    files: list[Attachment] = []
    for result in results:
        value = parse_result(result.content) if result.ok and not result.truncated else None
        if not isinstance(value, Mapping):
            continue
        if result.name == _REPORT and (report := _write_report(value)) is not None:
            files.append(report)
            continue
        if result.name == _TREND and (picture := _draw(value)) is not None:
            files.append(picture)
        found = read_rows(value)
        if found and (len(found) > MAX_ROWS or (whole and _hides_columns(found, grid="columns" in value))):
            files.append(Attachment(name=_name(result.name, value, "csv"), content=write_csv(found)))
    return tuple(_number(files[-MOST_FILES:]))


def write_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Write rows with all their columns; what is nested becomes JSON.

    A text that a spreadsheet would take for a formula gets an apostrophe in front
    (https://owasp.org/www-community/attacks/CSV_Injection).
    """
    columns = list(dict.fromkeys(str(key) for row in rows for key in row))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) and not _is_number(value) else value
    if isinstance(value, Mapping | list):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else value


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?\d+(?:\.\d+)?", text) is not None


def _hides_columns(rows: Sequence[Mapping[str, object]], *, grid: bool) -> bool:
    if grid:
        return len(rows[0]) > MAX_GRID_COLUMNS
    filled = {key for row in rows for key, value in row.items() if value not in (None, "", [], {})}
    return not filled <= set(choose_columns(rows))


def _name(tool: str, value: Mapping[str, object], ending: str) -> str:
    words = (tool.removeprefix("get_"), str(value.get("target") or ""))
    return f"{'-'.join(filter(None, (re.sub(r'[^A-Za-z0-9]+', '-', word).strip('-') for word in words)))}.{ending}"


def _number(files: Sequence[Attachment]) -> list[Attachment]:
    """Give equal names a number."""
    numbered: list[Attachment] = []
    for file in files:
        same = sum(other.name == file.name for other in files[: len(numbered)])
        stem, dot, ending = file.name.rpartition(".")
        name = f"{stem}-{same + 1}{dot}{ending}" if same else file.name
        numbered.append(Attachment(name=name, content=file.content, encoding=file.encoding, title=name))
    return numbered


def _write_report(value: Mapping[str, object]) -> Attachment | None:
    """Write a report that was put together from sections."""
    match value:
        case {"file": str(name), "markdown": str(text)}:
            return Attachment(name=name, content=text)
        case _:
            return None


def _draw(value: Mapping[str, object]) -> Attachment | None:
    """Draw a trend; None without the plotting library, or when there is nothing to draw."""
    try:
        from bot.tools.query_history.chart import draw_trend
    except ImportError:
        return None
    png = draw_trend(value)
    if png is None:
        return None
    return Attachment(
        name=_name(_TREND, value, "png"), content=base64.b64encode(png).decode("ascii"), encoding="base64"
    )
