"""Plans that auto_explain logged: the statement in them, and the plan without data.

Text and JSON plans are kept; of YAML and XML only the statement is read. See
https://www.postgresql.org/docs/current/auto-explain.html for the forms.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping

from bot.tools.slow_queries.redact_sql import redact_sql, shorten

LONGEST_PLAN = 4_000
"""Characters of a plan that are kept."""

_MOST_LINES = 80
_TEXT_QUERY = re.compile(
    rb"\s*Query Text: (.*?)(?=\n\t?(?:Query Parameters: |Query Identifier: |[^\n]*\(cost=|[^\n]*\(actual )|\Z)",
    re.DOTALL,
)
_JSON_QUERY = re.compile(rb'"Query Text": "((?:[^"\\]|\\.)*)"')
_YAML_QUERY = re.compile(rb'\s*Query Text: ("(?:[^"\\]|\\.)*")')
_XML_QUERY = re.compile(rb"<Query-Text>(.*?)</Query-Text>", re.DOTALL)

# A node's line: words and names, then nothing but estimates and measurements. All else may hold data.
_NODE = re.compile(
    r"(?P<indent>\s*)(?P<arrow>->\s+)?(?P<node>[A-Za-z][\w .\"$-]*?)\s+"
    r"(?P<numbers>\((?:cost|actual)[\d.= a-z]+\)(?: \((?:actual|never)[\d.= a-z]+\))?)\s*"
)
_LABELLED = re.compile(r"(?P<indent>\s*)(?P<label>[A-Z][A-Za-z -]{1,40}): (?P<rest>.*)")
_MEASURES = re.compile(r"[\w.=,:%() -]*")
_MEASURED = frozenset(
    {"Rows Removed by Filter", "Rows Removed by Index Recheck", "Rows Removed by Join Filter", "Heap Fetches"}
    | {"Buffers", "I/O Timings", "Sort Method", "Buckets", "Batches", "Planning Time", "Execution Time", "WAL"}
    | {"Workers Planned", "Workers Launched", "Heap Blocks", "Memory Usage", "Disk Usage", "Loops", "Hits", "JIT"}
)
_PLAIN_KEYS = frozenset(
    {"Node Type", "Relation Name", "Schema", "Alias", "Index Name", "Join Type", "Parent Relationship", "Strategy"}
    | {"Scan Direction", "Subplan Name", "Operation", "Sort Method", "Sort Space Type", "Partial Mode", "CTE Name"}
)


def split_logged_plan(text: bytes) -> tuple[bytes, bytes]:
    """Return the statement and the plan of an entry, both as they stand there (lines after the first begin with a tab).

    The statement is empty when none is found; the plan is empty in forms of which no plan is kept.
    """
    head = text.lstrip()[:1]
    if head == b"{":
        match = _JSON_QUERY.search(text)
        return (_unescape(match[1]) if match else b""), text
    if head == b"<":
        match = _XML_QUERY.search(text)
        return (html.unescape(match[1].decode("utf-8", "replace")).encode() if match else b""), b""
    if match := _YAML_QUERY.match(text):
        return _unescape(match[1][1:-1]), b""
    if match := _TEXT_QUERY.match(text):
        return match[1], text[match.end() :]
    return b"", b""


def redact_plan(raw: bytes) -> str:
    """Return a plan without data: conditions pass the lexer, what is not known to be harmless is left out."""
    text = raw.decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        try:
            body = json.loads(text, strict=False)
        except ValueError:
            return ""
        plan = body.get("Plan") if isinstance(body, dict) else None
        return shorten("\n".join(_json_lines(plan, 0)[:_MOST_LINES]), LONGEST_PLAN) if isinstance(plan, dict) else ""
    lines = [kept for line in text.replace("\n\t", "\n").splitlines()[: 4 * _MOST_LINES] if (kept := _keep_line(line))]
    return shorten("\n".join(lines[:_MOST_LINES]), LONGEST_PLAN)


def _keep_line(line: str) -> str:
    if node := _NODE.fullmatch(line):
        return f"{node['indent']}{node['arrow'] or ''}{redact_sql(node['node'])} {node['numbers']}"
    labelled = _LABELLED.fullmatch(line)
    if labelled is None or labelled["label"].startswith("Query"):
        return ""
    rest = labelled["rest"]
    if labelled["label"] in _MEASURED:
        return line if _MEASURES.fullmatch(rest) else ""
    return f"{labelled['indent']}{labelled['label']}: {redact_sql(rest)}"


def _json_lines(node: Mapping[str, object], depth: int) -> list[str]:
    """Lay a JSON plan out like a text plan."""
    indent = "  " * depth
    names = [redact_sql(str(node[key])) for key in ("Node Type", "Index Name", "Relation Name", "Alias") if key in node]
    numbers = f"cost={node.get('Startup Cost')}..{node.get('Total Cost')} rows={node.get('Plan Rows')}"
    if "Actual Rows" in node:
        numbers += f" actual time={node.get('Actual Total Time')} rows={node.get('Actual Rows')}"
        numbers += f" loops={node.get('Actual Loops')}"
    lines = [f"{indent}{'->  ' if depth else ''}{' '.join(names)} ({numbers})"]
    for key, value in node.items():
        if key in _PLAIN_KEYS or not key[:1].isupper():
            continue
        if isinstance(value, str):
            lines.append(f"{indent}  {redact_sql(key)}: {redact_sql(value)}")
        elif isinstance(value, list) and key != "Plans" and all(isinstance(item, str) for item in value):
            lines.append(f"{indent}  {redact_sql(key)}: {redact_sql(', '.join(map(str, value)))}")
        elif key == "Rows Removed by Filter" and isinstance(value, (int, float)):
            lines.append(f"{indent}  {key}: {value}")
    plans = node.get("Plans")
    for child in plans if isinstance(plans, list) and depth < 40 else ():
        if isinstance(child, dict):
            lines += _json_lines(child, depth + 1)
    return lines


def _unescape(raw: bytes) -> bytes:
    try:
        value = json.loads(b'"' + raw + b'"', strict=False)
    except ValueError:
        return raw
    return value.encode("utf-8", "replace") if isinstance(value, str) else raw
