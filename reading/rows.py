"""A row of an earlier result, shown as it is: "what is row 3?" takes no new call."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from reading.layout import render_result
from reading.past import PastCall, read_reference, rows_of
from reading.phrases import Phrases
from reading.words import has_chinese

_FILLER = re.compile(
    r"\b(?:what|does|do|is|was|are|s|show|describe|tell|explain|me|us|about|details?|of|in|on|the|mean|please|can|could"
    r"|you|report|list|table|here|there|more|up)\b|是什么|什么|意思|解释|一下|说明|请|看看|显示|详情|详细|介绍|告诉"
    r"|报告|表格?|列表|给我|的|里|中|呢|吗|是|我",
    re.IGNORECASE,
)


def show_row(text: str, past: Sequence[PastCall], words: Phrases) -> str:
    """Show the row that a question is about and nothing else; empty where it is about something else.

    The result that is meant is the newest one that lists statements and has that row, else the newest with that row.

    Args:
        text: the question.
        past: finished calls of the thread, oldest first.
        words: has the labels of the answer's language.
    """
    reference = read_reference(text)
    if reference is None or reference.vague or reference.row is None:
        return ""
    rest = _FILLER.sub(" ", f"{text[: reference.start]} {text[reference.end :]}")
    if re.search(r"\w", rest):
        return ""
    listed = [(call, rows) for call in reversed(past) if (rows := rows_of(call.result))]
    if not listed:
        return ""
    n, chinese = reference.row, has_chinese(text)
    having = [(call, rows) for call, rows in listed if n == -1 or 0 < n <= len(rows)]
    if not having:
        most = max(len(rows) for _, rows in listed)
        return (
            f"没有第 {n} 行：最长的结果有 {most} 行。"
            if chinese
            else f"There is no row {n}: the longest list has {most}."
        )
    call, rows = next((one for one in having if "sql" in one[1][0]), having[0])
    at = len(rows) if n == -1 else n
    target = str(call.arguments.get("target") or "")
    where = f"`{call.name}`{f' ({target})' if target else ''}"
    head = f"**{where} 的第 {at} 行**" if chinese else f"**Row {at} of {where}**"
    facts = {key: value for key, value in rows[at - 1].items() if value not in (None, "", [], {})}
    sql = facts.pop("sql", None)
    shown = render_result(json.dumps(facts, ensure_ascii=False, default=str), words.labels)
    code = render_result(json.dumps({"sql": sql}, ensure_ascii=False), words.labels) if isinstance(sql, str) else ""
    return "\n\n".join(filter(None, [head, code, shown]))
