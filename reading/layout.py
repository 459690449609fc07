"""Lay out the JSON of any tool as Markdown: tables for rows, a line for window and coverage, remedies for errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from reading.cells import is_code, label, write_instant, write_measure, write_prose, write_value
from reading.past import parse_result

MAX_COLUMNS = 6
MAX_GRID_COLUMNS = 10
MAX_ROWS = 20
MAX_OUTLINE = 60
_MAX_TEXT = 6_000
_CELL = 160
_WIDEST_CELL = 400
_TEXT_OF_TABLE = 1_600
"""A table of few rows has room for longer sentences."""
_FRAME = ("ok", "target", "engine", "engine_version", "source", "window", "coverage", "rows", "truncated", "warnings")
_LEADS = ("summary", "verdict", "status")
_HIDDEN = (*_FRAME, "took_ms", "duration_kind", "expression", "schema")
_CHILDREN = ("children", "plans", "Plans", "nodes", "inputs")
_TITLES = ("node", "node_type", "Node Type", "name", "role", "pid", "title")
_TELLING_NAMES = """duration wait_s age_s calls total_s mean_s max_s name table index relation title url state status
measured_before_s measured_after_s cost_before cost_after cost_saved size_bytes pid user message
check value share_of_total rows"""
_TELLING = _TELLING_NAMES.split()
_DULL = (
    "fingerprint",
    "queryid",
    "query_id",
    "hash",
    "id",
    "first_seen",
    "last_seen",
    "db",
    "stddev_s",
    "max_exact",
    "p_kind",
)


def render_result(content: str, labels: Mapping[str, str]) -> str:
    """Render one tool result.

    Args:
        content: what the tool gave back: JSON, or text that is shown as it is.
        labels: translations of the fixed words; a missing one stays English.
    """
    value = parse_result(content)
    if isinstance(value, str):
        broken = value is content and content.lstrip()[:1] in ("{", "[")
        text = value if len(value) <= _MAX_TEXT else value[:_MAX_TEXT] + " …"
        return f"{_fence(text)}\n{_say(labels, 'The result was cut.')}" if broken else text.strip() or "–"
    return "\n".join(_render(value, labels)).strip() or _say(labels, "Empty result.")


def _say(labels: Mapping[str, str], words: str) -> str:
    return labels.get(words, words)


def _fence(text: str) -> str:
    ticks = "````" if "```" in text else "```"
    return f"{ticks}\n{text.strip(chr(10))}\n{ticks}"


def _render(value: object, labels: Mapping[str, str]) -> list[str]:
    if isinstance(value, Mapping):
        if value.get("ok") is False:
            return _render_error(value, labels)
        return _render_object(value, labels)
    if isinstance(value, list):
        return _render_list("", value, labels)
    return [_plain(value)]


def _render_error(value: Mapping[str, object], labels: Mapping[str, str]) -> list[str]:
    error = value.get("error")
    if not isinstance(error, Mapping):
        return [f"**{_say(labels, 'Failed')}:** {write_value('', error)}"]
    code = error.get("code")
    lines = [f"**{_say(labels, 'Failed')}**{f' (`{code}`)' if code else ''}: {error.get('message', '')}"]
    fix = error.get("fix")
    if fix:
        lines += ["", f"**{_say(labels, 'What to do')}:** {fix}"]
    return lines


def _render_object(value: Mapping[str, object], labels: Mapping[str, str]) -> list[str]:
    if set(value) <= {"ok", "result", "expression"} and "result" in value:
        return [_plain(value["result"])]
    rows = value.get("rows")
    leads = [k for k in _LEADS if isinstance(rows, list) and isinstance(value.get(k), str) and value[k]]
    lines = _frame_lines(value, labels)
    for key in leads:  # the answer itself comes before what it rests on
        said = write_prose(str(value[key]))
        lines += ["", f"**{said}**" if key != "status" else f"**{label(key)}: {said}**"]
    if isinstance(rows, list) and isinstance(value.get("columns"), list):
        lines += ["", *_render_grid(read_rows(value), labels)]
    elif isinstance(rows, list):
        shown = _without(rows, "ddl") if value.get("to_run") else rows  # these lines stand below, whole
        lines += ["", *(_render_list("rows", shown, labels) if rows else [_say(labels, "No rows.")])]
    facts: list[str] = []
    blocks: list[str] = []
    for key, part in value.items():
        if key in _HIDDEN or key in leads or part in (None, "", [], {}) or (key == "left_out" and not part):
            continue
        if key in ("columns", "types") and isinstance(rows, list):  # the head of the rows
            continue
        if isinstance(part, list | Mapping) or (isinstance(part, str) and "\n" in part):
            blocks += ["", f"**{label(key)}**", *_render_part(key, part, labels)]
        else:
            facts.append(f"{label(key)}: {_write(key, part)}")
    lines += _left_out(value, labels) + blocks
    if facts and lines:
        lines.append("")  # a line right behind a table would be read as one more row of it
    lines += [f"- {fact}" for fact in facts] if len(facts) > 1 else facts
    warnings = value.get("warnings")
    for warning in warnings if isinstance(warnings, list) else []:
        text = warning.get("message", warning) if isinstance(warning, Mapping) else warning
        lines += ["", f"**{_say(labels, 'Warning')}:** {_write('', text)}"]
    return lines


def read_rows(value: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the rows of an answer by name, also where they are lists beside a list of ``columns``."""
    rows, columns = value.get("rows"), value.get("columns")
    if not isinstance(rows, list):
        return []
    if not isinstance(columns, list):
        return [row for row in rows if isinstance(row, Mapping)]
    names: list[str] = []
    for column in map(str, columns):
        same = sum(name == column or name.startswith(f"{column} (") for name in names)
        names.append(f"{column} ({same + 1})" if same else column)
    return [dict(zip(names, row, strict=False)) for row in rows if isinstance(row, list)]


def _render_grid(rows: Sequence[Mapping[str, object]], labels: Mapping[str, str]) -> list[str]:
    """Render rows of whatever columns somebody asked for: in their order, and as they are."""
    if not rows:
        return [_say(labels, "No rows.")]
    columns = list(rows[0])
    shown = columns[:MAX_GRID_COLUMNS]
    lines = ["| " + " | ".join(map(_cell, shown)) + " |", "|" + " --- |" * len(shown)]
    for row in rows[:MAX_ROWS]:
        lines.append("| " + " | ".join(_cell(write_value("", row.get(c))) for c in shown) + " |")
    more = len(columns) - len(shown)
    lines += ["", f"… {more} {_say(labels, 'more columns')}"] if more else []
    return lines + _rest(len(rows), labels)


def _write(key: str, value: object) -> str:
    """Write a value of the answer itself, whose texts are sentences, and no data of anybody."""
    return write_prose(value) if isinstance(value, str) and not is_code(key) else write_value(key, value)


def _without(rows: Sequence[object], key: str) -> list[object]:
    return [{k: v for k, v in row.items() if k != key} if isinstance(row, Mapping) else row for row in rows]


def _join_units(rows: Sequence[Mapping[str, object]]) -> Sequence[Mapping[str, object]]:
    """Put each ``value`` and its ``unit`` into one cell: ``2.7 % of usable connections``."""
    if not any(isinstance(row.get("unit"), str) for row in rows):
        return rows
    joined = []
    for row in rows:
        measure = write_measure(row.get("value"), str(row.get("unit") or ""))
        joined.append({k: measure if k == "value" else v for k, v in row.items() if k != "unit"})
    return joined


def _left_out(value: Mapping[str, object], labels: Mapping[str, str]) -> list[str]:
    truncated = value.get("truncated")
    count = truncated.get("rows") if isinstance(truncated, Mapping) else truncated
    if isinstance(count, bool) or not isinstance(count, int) or count <= 0:
        return []
    return _say_more(count, labels)


def _plain(value: object) -> str:
    if isinstance(value, bool) or value is None or isinstance(value, Mapping | list):
        return write_value("", value)
    return str(value)


def _frame_lines(value: Mapping[str, object], labels: Mapping[str, str]) -> list[str]:
    facts = []
    if value.get("target"):
        facts.append(f"`{value['target']}`")
    if value.get("engine"):
        facts.append(" ".join(str(value[k]) for k in ("engine", "engine_version") if value.get(k)))
    if value.get("source"):
        facts.append(write_value("source", value["source"]))
    window = value.get("window")
    if isinstance(window, Mapping):
        facts.append(_window(window, labels))
    kind = _duration_kind(value)
    if kind:
        facts.append(f"{_say(labels, 'durations are')}: {kind}")
    lines = [" · ".join(f for f in facts if f)] if facts else []
    coverage = value.get("coverage")
    if isinstance(coverage, Mapping) and coverage.get("complete") is False:
        reasons = coverage.get("reasons")
        said = "; ".join(_write("", r) for r in reasons) if isinstance(reasons, list) else _write("", reasons)
        lines += ["", f"**{_say(labels, 'Not fully covered')}:** {said}"]
    return lines


def _window(window: Mapping[str, object], labels: Mapping[str, str]) -> str:
    def span(start: object, end: object) -> str:
        first, last = write_instant(str(start)), write_instant(str(end))
        if first[:10] == last[:10] and last.endswith(" UTC"):
            return f"{first.removesuffix(' UTC')} → {last[11:]}"
        return f"{first} → {last}"

    real = (window.get("start"), window.get("end"))
    asked = (window.get("asked_start"), window.get("asked_end"))
    if not all(real):
        return f"{_say(labels, 'Window')}: {span(*asked)}" if all(asked) else ""
    text = f"{_say(labels, 'Window')}: {span(*real)}"
    return f"{text} ({_say(labels, 'asked for')} {span(*asked)})" if all(asked) and asked != real else text


def _duration_kind(value: Mapping[str, object]) -> str:
    if isinstance(value.get("duration_kind"), str):
        return str(value["duration_kind"])
    rows = value.get("rows")
    kinds = {r.get("duration_kind") for r in rows if isinstance(r, Mapping)} if isinstance(rows, list) else set()
    kinds.discard(None)
    return str(kinds.pop()) if len(kinds) == 1 else ""


def _render_part(key: str, value: object, labels: Mapping[str, str]) -> list[str]:
    if isinstance(value, str):
        return [_fence(value)]
    if isinstance(value, list):
        return _render_list(key, value, labels)
    if isinstance(value, Mapping):
        return _render_tree([value], 0)
    return [write_value(key, value)]


def _render_list(key: str, values: Sequence[object], labels: Mapping[str, str]) -> list[str]:
    objects = [v for v in values if isinstance(v, Mapping)]
    if len(objects) < len(values):
        lines = [f"- {write_value(key, v)}" for v in values[:MAX_ROWS]]
        return lines + _rest(len(values), labels)
    if objects and all(isinstance(o.get("depth"), int) and isinstance(o.get("text"), str) for o in objects):
        outline = [f"{'  ' * _depth(o)}{o['text']}" for o in objects[:MAX_OUTLINE]]
        return [_fence("\n".join(outline)), *_rest(len(objects), labels, MAX_OUTLINE)]
    if any(isinstance(o.get(c), list) and o[c] for o in objects for c in _CHILDREN):
        return _render_tree(objects, 0)
    return _render_table(objects, labels)


def _depth(row: Mapping[str, object]) -> int:
    depth = row.get("depth")
    return min(max(depth, 0), 40) if isinstance(depth, int) else 0


def _rest(count: int, labels: Mapping[str, str], shown: int = MAX_ROWS) -> list[str]:
    return _say_more(count - shown, labels) if count > shown else []


def _say_more(count: int, labels: Mapping[str, str]) -> list[str]:
    return ["", f"… {count} {_say(labels, 'more row' if count == 1 else 'more rows')}"]


def _render_table(rows: Sequence[Mapping[str, object]], labels: Mapping[str, str]) -> list[str]:
    rows, empty = _drop_empty(_join_units(rows))
    width = max(_CELL, min(_WIDEST_CELL, _TEXT_OF_TABLE // max(1, len(rows))))
    left = ["", f"… {empty} {_say(labels, 'rows without numbers')}"] if empty else []
    columns = choose_columns(rows)
    if empty and not rows:
        return left[1:]
    if not columns:
        return [f"- {json.dumps(row, ensure_ascii=False, default=str)}" for row in rows[:MAX_ROWS]]
    numbered = len(rows) > 1
    head = (["#"] if numbered else []) + [_cell(label(c)) for c in columns]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for n, row in enumerate(rows[:MAX_ROWS], 1):
        cells = [_cell(_write(c, row.get(c)), width) for c in columns]
        lines.append("| " + " | ".join([str(n), *cells] if numbered else cells) + " |")
    return lines + _rest(len(rows), labels) + left


def _drop_empty(rows: Sequence[Mapping[str, object]]) -> tuple[Sequence[Mapping[str, object]], int]:
    """Leave out the spans of time of which nothing is known, and tell how many."""
    told = [
        row
        for row in rows
        if not {"start", "end"} <= row.keys()
        or any(value not in (None, 0, "") for key, value in row.items() if key not in ("start", "end"))
    ]
    return told, len(rows) - len(told)


def _cell(text: str, width: int = _CELL) -> str:
    cut = text if len(text) <= width else text[: width - 1] + "…"
    return cut.replace("\\|", "|").replace("|", "\\|").replace("\n", " ")


def choose_columns(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Choose at most ``MAX_COLUMNS`` columns that tell most: measures and names first, code last, ids hardly ever."""
    keys = list(dict.fromkeys(str(k) for row in rows for k in row))
    same_kind = len({row.get("duration_kind") for row in rows}) == 1
    filled = [
        k
        for k in keys
        if any(row.get(k) not in (None, "", [], {}) for row in rows)
        and not any(isinstance(row.get(k), Mapping | list) for row in rows)
        and not (k == "duration_kind" and same_kind)
    ]
    if not filled:
        return []

    def rank(key: str) -> float:
        if is_code(key):
            return -1
        if key == "state" and "duration" in keys and any(row.get(key) not in (None, "finished") for row in rows):
            return rank("duration") + 0.5  # how long it took so far is something else than how long it took
        if key == "duration_kind":  # only here when the rows differ in it: then no duration means anything without it
            return rank("duration") + 0.5
        if key in _TELLING:
            return _TELLING.index(key)
        return 200 if key in _DULL or key.endswith(("_id", "_kind", "_hash")) else 100

    chosen = sorted(filled, key=rank)[:MAX_COLUMNS]
    measures = [k for k in chosen if not is_code(k)]
    return measures + [k for k in chosen if is_code(k)]


def _render_tree(items: Sequence[Mapping[str, object]], depth: int) -> list[str]:
    """Render nested objects (a plan, a tree of blocked sessions) as nested bullets, at most eight levels deep."""
    lines: list[str] = []
    for item in items[:MAX_ROWS]:
        title = next((k for k in _TITLES if item.get(k) not in (None, "")), None)
        nested = {k: v for k, v in item.items() if isinstance(v, Mapping) or _has_objects(v)}
        facts = [
            f"{label(str(k))} {write_value(str(k), v)}"
            for k, v in item.items()
            if k != title and k not in nested and v not in (None, "", [])
        ]
        said = f"**{write_value('', item[title])}** " if title else ""
        lines.append(f"{'  ' * depth}- {said}{', '.join(facts[:8])}".rstrip())
        if depth < 8:
            for key, value in nested.items():
                inner = [value] if isinstance(value, Mapping) else [v for v in _list(value) if isinstance(v, Mapping)]
                if key not in _CHILDREN:
                    lines.append(f"{'  ' * (depth + 1)}- {label(str(key))}:")
                lines += _render_tree(inner, depth + (1 if key in _CHILDREN else 2))
    return lines


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


def _has_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)
