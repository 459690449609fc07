"""Canonical Markdown: what it means (``parse_markdown``) and how it fits into posts (``fit_markdown``).

Replies are written in CommonMark with tables and strikethrough, without HTML. Each platform renders the
small tree that comes out of ``parse_markdown``; no platform looks at the source text itself.
"""

from adapters.markdown.bidi import clean_name, isolate, isolate_document
from adapters.markdown.fit import Fitted, fit_answer, fit_answer_costs, fit_costs, fit_markdown, unit_size
from adapters.markdown.grid import cell_text, draw_table, table_csv, table_width
from adapters.markdown.parse import parse_markdown
from adapters.markdown.tree import (
    Block,
    Break,
    Code,
    CodeBlock,
    Document,
    Emphasis,
    Heading,
    Inline,
    Link,
    ListBlock,
    Paragraph,
    Quote,
    Rule,
    Strike,
    Strong,
    Table,
    Text,
    plain_text,
)

__all__ = [
    "Block",
    "Break",
    "Code",
    "CodeBlock",
    "Document",
    "Emphasis",
    "Fitted",
    "Heading",
    "Inline",
    "Link",
    "ListBlock",
    "Paragraph",
    "Quote",
    "Rule",
    "Strike",
    "Strong",
    "Table",
    "Text",
    "cell_text",
    "clean_name",
    "draw_table",
    "fit_answer",
    "fit_answer_costs",
    "fit_costs",
    "fit_markdown",
    "isolate",
    "isolate_document",
    "parse_markdown",
    "plain_text",
    "table_csv",
    "table_width",
    "unit_size",
]
