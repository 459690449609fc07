"""Links on Slack: the policy of ``adapters.markdown.links``, and what Slack makes of plain text by itself."""

from __future__ import annotations

from adapters.markdown.links import URL_MAX, Shown, find_bare_urls, host_of, names_host, show_link

__all__ = ["URL_MAX", "Shown", "find_bare_urls", "host_of", "looks_linked", "show_link"]


def looks_linked(text: str) -> bool:
    """True for text in which Slack would find an address by itself."""
    return names_host(text) or "@" in text
