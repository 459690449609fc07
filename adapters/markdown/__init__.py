"""Canonical Markdown: what it means (``parse_markdown``) and how it fits into posts (``fit_markdown``).

Replies are written in CommonMark with tables and strikethrough, without HTML. Each platform renders the
small tree that comes out of ``parse_markdown``; no platform looks at the source text itself.
"""

from adapters.markdown.fit import fit_markdown, unit_size
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
    "fit_markdown",
    "parse_markdown",
    "plain_text",
    "unit_size",
]
