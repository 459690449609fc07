"""SQL and other code inside a question."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"```[ \t]*([\w+-]*)[ \t]*\r?\n(.*?)(?:```|\Z)|```(.+?)```", re.DOTALL)
_BACKTICKS = re.compile(r"``(.+?)``|`([^`]+)`", re.DOTALL)
_SQL_START = re.compile(
    r"(?<![\w./-])(?:select\s+(?:distinct\s+|all\s+)?(?:[\d'\"*(@$-]|\w+\s*\(|[\w.\"`*]+(?:\s+(?:as\s+)?[\w\"`]+)?\s*,"
    r"|(?!the\b|a\b|an\b|all\b|some\b|any\b)[\w.\"`]+(?:\s+(?:as\s+)?[\w\"`]+)?\s+from\b(?!\s+(?:the|our|my|these|those)\b))"
    r"|with\s+(?:recursive\s+)?[\w\"]+\s*(?:\([^)]*\)\s*)?as\s*(?:not\s+)?(?:materialized\s*)?\("
    r"|insert\s+into\s+\S|update\s+(?:only\s+)?[\w.\"]+\s+(?:as\s+\w+\s+|\w+\s+)?set\s|delete\s+from\s+\S"
    r"|merge\s+into\s+\S|explain\s+(?:\(|table\s|values\s)|values\s*\("
    # no plan comes of these: the tool's own refusal tells more than a request for a statement
    r"|explain\s+(?:drop|alter|truncate|create)\s+(?:unique\s+|or\s+replace\s+|materialized\s+)?"
    r"(?:table|index|view|schema|database|function|role|sequence|trigger|extension)\s+\S)",
    re.IGNORECASE,
)
_EXPLAIN_BEFORE = re.compile(
    r"^\s*explain\s+(?:analy[sz]e\s+|verbose\s+)*(?=(?:select|with|insert|update|delete|merge)\b)", re.I
)
_TAIL = re.compile(
    r"\s*(?:;\s*|[,，]\s*)?(?:please|pls|plz|thanks|thank you|for me|这条语句|这个语句|这条sql|这个sql"
    r"|的?(?:执行|查询)计划(?:是什么|吗)?|为什么(?:这么|那么|很)?慢|谢谢|怎么样|是什么)?\s*[;?？!！。]*\s*$",
    re.IGNORECASE,
)
_PROSE_AFTER = re.compile(
    r"\s*;\s*(?=\S)(?!\s*(?:select|with|insert|update|delete|merge|drop|create|alter|truncate|begin|commit|rollback|set|"
    r"grant|revoke|copy|do|call|explain|vacuum|analyze|values|table|lock|reset|show|--|/\*)\b)",
    re.IGNORECASE,
)
"""A semicolon with words after it that begin no statement. A second statement stays, for the tool to refuse."""
_CHINESE_TAIL = re.compile(
    r"\s*(?:[，。；？]|的(?=[\u4e00-\u9fff])|(?<=[\w)'\"])\s+(?=(?:的|这|为什么|在|怎么|有))).*$", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A piece of code in a text: ``value`` is the code itself, the span includes its marks.

    ``language`` is the word after the opening fence, or "". ``marked`` is false for SQL found by its first word.
    """

    value: str
    language: str
    start: int
    end: int
    marked: bool = True


def read_code(text: str) -> list[Code]:
    """Return what stands in fences or, where there is none, in backticks; in order."""
    fenced = [
        Code(
            value=(m.group(2) or m.group(3) or "").strip(),
            language=(m.group(1) or "").lower(),
            start=m.start(),
            end=m.end(),
        )
        for m in _FENCE.finditer(text)
    ]
    if fenced:
        return [c for c in fenced if c.value]
    return [
        Code(value=(m.group(1) or m.group(2)).strip(), language="", start=m.start(), end=m.end())
        for m in _BACKTICKS.finditer(text)
        if (m.group(1) or m.group(2)).strip()
    ]


def looks_like_sql(text: str) -> bool:
    """Tell whether a piece of code starts like an SQL statement."""
    return _SQL_START.match(_strip_comments(text)) is not None or _EXPLAIN_BEFORE.match(text) is not None


def _strip_comments(text: str) -> str:
    return re.sub(r"^(?:\s+|--[^\n]*\n|/\*.*?\*/)*", "", text, flags=re.DOTALL)


def read_sql(text: str) -> Code | None:
    """Find the SQL statement: marked code that looks like SQL, else from its first keyword to the end.

    A question mark, a word of thanks and Chinese words after a bare statement are left out, as is an EXPLAIN in front
    of the statement itself.
    """
    for code in read_code(text):
        if code.language in ("sql", "postgres", "postgresql", "mysql", "pgsql") or looks_like_sql(code.value):
            return Code(value=tidy_sql(code.value), language=code.language, start=code.start, end=code.end, marked=True)
    found = _SQL_START.search(text)
    if found is None:
        return None
    start = found.start()
    statement = text[start:]
    quote = text[start - 1] if start else ""
    closing = {"'": "'", '"': '"', "“": "”", "‘": "’", "「": "」"}.get(quote)
    if closing and closing in statement:
        statement = statement[: statement.rindex(closing)]
    end = start + len(_without_tail(statement))
    return Code(value=tidy_sql(text[start:end]), language="", start=start, end=end, marked=False)


def tidy_sql(sql: str) -> str:
    """Drop an EXPLAIN before the statement, and the semicolon at its end."""
    return _EXPLAIN_BEFORE.sub("", sql.strip()).rstrip().rstrip(";").rstrip()


def _without_tail(sql: str) -> str:
    outside = re.sub(r"'(?:[^']|'')*'|\"[^\"]*\"", lambda m: "x" * len(m.group()), sql)
    prose = _PROSE_AFTER.search(outside)
    if prose:
        outside = outside[: prose.start()]
    cut = _CHINESE_TAIL.search(outside)
    if cut:
        outside = outside[: cut.start()]
    tail = _TAIL.search(outside)
    return sql[: tail.start() if tail else len(outside)]
