"""Links of messages: ``https://team.slack.com/archives/C1/p1700000000000100?thread_ts=1700000000.000000&cid=C1``.

docs.slack.dev/reference/methods/chat.getPermalink shows the form.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs, quote

from adapters.chat import ThreadRef
from adapters.slack.parse import PLATFORM, parse_thread

_LINK = re.compile(
    r"<?https?://[\w.:-]+/archives/(?P<channel>[A-Z0-9]+)/p(?P<s>\d{10})(?P<us>\d{6})(?:\?(?P<query>[^\s|>]*))?"
)
_TS = re.compile(r"\d{10}\.\d{6}")


def parse_permalink(text: str, place: ThreadRef) -> ThreadRef | None:
    """Read the link of a message as the thread that the message is in.

    Args:
        text: the link, perhaps in angle brackets.
        place: where it was given; the link does not tell the workspace, so this one's is taken.

    Returns:
        None when it is no such link.
    """
    match = _LINK.match(text.strip())
    if match is None:
        return None
    roots = parse_qs(match["query"] or "").get("thread_ts", [])
    root = next((ts for ts in roots if _TS.fullmatch(ts)), f"{match['s']}.{match['us']}")
    return parse_thread(place.workspace, match["channel"], root)


def build_permalink(base_url: str, thread: ThreadRef) -> str:
    """Build the link of a thread's root, given the workspace's own address (auth.test tells it); empty if none."""
    if (
        not base_url.startswith(("https://", "http://"))
        or thread.platform != PLATFORM
        or not _TS.fullmatch(thread.thread)
    ):
        return ""
    return f"{base_url.rstrip('/')}/archives/{quote(thread.channel)}/p{thread.thread.replace('.', '')}"
