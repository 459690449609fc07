"""Hermod's own places in Slack: the Home tab, and questions to begin with in the Messages tab.

docs.slack.dev/reference/events/app_home_opened, .../methods/views.publish,
.../methods/assistant.threads.setSuggestedPrompts (without a thread, as agents do).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import structlog

from adapters.chat import AdapterError, Opened, ThreadRef
from adapters.slack.client import SlackClient
from adapters.slack.mrkdwn import escape, render_mrkdwn
from adapters.slack.outcome import Failed
from adapters.slack.permalink import build_permalink
from adapters.slack.wire import text_of
from adapters.surfaces import HomeLine, HomePage, Surfaces

log = structlog.get_logger("hermod.slack")

Block = dict[str, object]

FindClient = Callable[[str], Awaitable[SlackClient]]

BLOCKS_MAX = 100
"""Of a view: docs.slack.dev/reference/views."""

TEXT_MAX = 3000
HEADER_MAX = 150
PATIENCE_S = 1.0
SUGGESTIONS_MAX = 4
SUGGESTIONS_TITLE = "For example"


class SlackHome:
    """Draws what ``surfaces`` gives; what Slack does not take is logged.

    Args:
        find_client: finds the client of a workspace; raises ``AdapterError`` when Hermod is not installed there.
    """

    def __init__(self, find_client: FindClient) -> None:
        self._find_client = find_client
        self._surfaces: Surfaces | None = None
        self._base_urls: dict[str, str] = {}

    def show_surfaces(self, surfaces: Surfaces) -> None:
        """Draw what ``surfaces`` gives, from now on; before this nothing is drawn."""
        self._surfaces = surfaces

    async def show(self, opened: Opened) -> None:
        """Draw the place that somebody opened."""
        surfaces = self._surfaces
        if surfaces is None:
            return
        try:
            client = await self._find_client(opened.workspace)
        except AdapterError as error:
            log.warning("slack_home_not_shown", reason=str(error))
            return
        if opened.tab == "home":
            await self._publish(client, opened, await surfaces.build_home(opened))
        elif opened.tab == "messages" and opened.channel:
            suggestions = await surfaces.suggest(opened)
            prompts = [{"title": s.title, "message": s.message} for s in suggestions[:SUGGESTIONS_MAX]]
            if prompts:
                await _suggest(client, opened.channel, prompts)

    async def _publish(self, client: SlackClient, opened: Opened, page: HomePage) -> None:
        links = any(line.thread for section in page.sections for line in section.lines)
        view = build_home_view(page, await self._find_base_url(client, opened.workspace) if links else "")
        answer = await client.call(
            "views.publish",
            lambda web: web.views_publish(user_id=opened.author.id, view=view),
            priority=1,
            patience_s=PATIENCE_S,
        )
        if isinstance(answer, Failed):
            log.warning("slack_home_not_shown", reason=answer.said)

    async def _find_base_url(self, client: SlackClient, workspace: str) -> str:
        """Return the workspace's own address for links; empty when it is not known, then there are no links."""
        if workspace not in self._base_urls:
            answer = await client.call("auth.test", lambda web: web.auth_test(), priority=1, patience_s=PATIENCE_S)
            if isinstance(answer, Failed):
                return ""
            self._base_urls[workspace] = text_of(answer, "url")
        return self._base_urls[workspace]


async def _suggest(client: SlackClient, channel: str, prompts: list[dict[str, str]]) -> None:
    answer = await client.call(
        "assistant.threads.setSuggestedPrompts",
        lambda web: web.assistant_threads_setSuggestedPrompts(
            channel_id=channel, title=SUGGESTIONS_TITLE, prompts=prompts
        ),
        priority=1,
        patience_s=PATIENCE_S,
    )
    if isinstance(answer, Failed):
        log.warning("slack_suggestions_not_shown", reason=answer.said)


def build_home_view(page: HomePage, base_url: str) -> dict[str, object]:
    """Build the view of a page.

    Args:
        page: what it says.
        base_url: the workspace's address, for the links of threads; empty: no links.
    """
    blocks: list[Block] = [{"type": "header", "text": {"type": "plain_text", "text": page.title[:HEADER_MAX]}}]
    for section in page.sections:
        title = f"*{escape(section.title)}*"
        for n, text in enumerate(
            _fill([_render_line(line, base_url) for line in section.lines], TEXT_MAX - len(title) - 1)
        ):
            said = f"{title}\n{text}" if n == 0 else text
            blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": said, "verbatim": True}})
    return {"type": "home", "blocks": blocks[:BLOCKS_MAX]}


def _fill(lines: list[str], most: int) -> Iterator[str]:
    """Put lines together into texts of at most ``most`` characters; a line that is longer is left out."""
    held = ""
    for line in lines:
        if len(line) > most:
            continue
        if held and len(held) + 1 + len(line) > most:
            yield held
            held = ""
        held = f"{held}\n{line}" if held else line
    if held:
        yield held


def _render_line(line: HomeLine, base_url: str) -> str:
    text = render_mrkdwn(line.text)
    if line.thread is None:
        return text
    link = build_permalink(base_url, line.thread)
    shown = f"<{escape(link)}|{escape(line.text)}>" if link else text
    return f"• {shown} in {_name_channel(line.thread)}"


def _name_channel(thread: ThreadRef) -> str:
    """Mention the channel: Slack shows its name to those only who may see it."""
    return "your messages with me" if thread.channel.startswith("D") else f"<#{escape(thread.channel)}>"
