"""The process that reads a page of a stranger: HTML on standard input, its main text as JSON on standard output.

It is a process of its own because a page can be made so that reading it takes hours or all memory: the kernel bounds
what this one takes, and killing it ends it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import sys

MiB = 1024 * 1024
MEMORY_BYTES = 1024 * MiB
CPU_S = 10
MOST_CHARS = 2 * MiB
"""Of the text, and a sixteenth of it of all else: tables can be made to grow a thousandfold in Markdown."""
NICE = 5
_STYLE = "translate(@style, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ \t\n', 'abcdefghijklmnopqrstuvwxyz')"
HIDDEN = (
    "//*[@hidden or @aria-hidden='true']",
    "//template",
    "//noscript",  # says only that there is a program to run
    *(
        f"//*[contains({_STYLE}, '{rule}')]"
        for rule in ("display:none", "visibility:hidden", "font-size:0", "opacity:0;")
    ),
)
"""Elements that no reader of the page sees."""


def read_page(page: str, url: str) -> dict[str, str]:
    """Return ``text``, ``title``, ``author`` and ``published`` of a page; empty where it has none."""
    from trafilatura import bare_extraction, html2txt
    from trafilatura.settings import Document

    tags = page.lower()
    if "<body" not in tags:
        page = f"<html><body>{page}</body></html>"
    # too short to tell what its main text is: all of it, unless it is only there to load a program
    whole = "" if "<script" in tags else html2txt(page)
    found = bare_extraction(
        page,
        url=url,
        with_metadata=True,
        include_comments=False,
        include_tables=True,
        include_formatting=False,
        prune_xpath=list(HIDDEN),
        # a search in the text for what looks like a date takes the most time and guesses
        date_extraction_params={"extensive_search": False, "original_date": True, "outputformat": "%Y-%m-%d"},
    )
    if not isinstance(found, Document):
        return {"text": whole, "title": "", "author": "", "published": ""}
    return {
        "text": found.text or whole,
        "title": found.title or "",
        "author": found.author or "",
        "published": found.date or "",
    }


def main() -> None:
    """Bound what this process may take, then read one page."""
    logging.disable(logging.CRITICAL)
    with contextlib.suppress(OSError, ValueError):
        os.nice(NICE)
    for what, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CPU, CPU_S), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(OSError, ValueError):  # a lower limit is in force
            resource.setrlimit(what, (most, most))
    page = sys.stdin.buffer.read().decode("utf-8", "replace")
    answer = read_page(page, sys.argv[1])
    bounds = {"text": MOST_CHARS}
    sys.stdout.write(json.dumps({name: text[: bounds.get(name, MOST_CHARS // 16)] for name, text in answer.items()}))


if __name__ == "__main__":
    main()
