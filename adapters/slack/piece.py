"""Pieces of a growing answer for Slack's streams; how a text is cut is ``adapters.markdown.growing``."""

from __future__ import annotations

import re

from adapters.markdown.growing import HOLD, cut_at, open_fence, open_table, settle

__all__ = ["HOLD", "cut_at", "neutralise", "open_fence", "open_table", "settle"]

_BREAK = "\u200b"
_LIVE = re.compile(r"<(?=[!@#])|\](?:\(|:)\s*<?(?=[!@#])|@(?=here|channel|everyone)", re.I)


def neutralise(text: str) -> str:
    """Return Markdown for Slack's ``markdown_text`` in which nothing pings anybody.

    Slack reads ``<!channel>``, ``<@U1>`` and ``<#C1>`` there too. A zero-width space behind the ``<`` makes them plain
    text also inside code, where ``&lt;`` would be shown as such. For a text cut by ``settle`` the result only grows as
    the text grows.
    """
    return _LIVE.sub(lambda found: found[0] + _BREAK, text)
