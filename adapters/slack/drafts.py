"""The drafts of a workspace: which are being written, which wait to be finished, what a dead process left."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Literal

import structlog

from adapters.chat import AdapterError, Author, Reply, ThreadRef
from adapters.slack.client import SlackClient
from adapters.slack.history import PART_TYPE, fetch_page, find_unfinished, is_own, metadata_key, thread_ts_of
from adapters.slack.live import Spot, remove_message
from adapters.slack.outcome import NO_METHOD, Failed
from adapters.slack.parse import Identity
from adapters.slack.stream import SlackDraft
from adapters.slack.wire import part_of, parts_of, text_of

log = structlog.get_logger("hermod.slack")

DraftMode = Literal["stream", "edits", "off"]

MOST_KEPT = 500


class Drafts:
    """Opens drafts and knows those that are not over.

    Args:
        client: the workspace's Web API.
        mode: the best way to try: Slack's streams, edited messages, or no drafts.
        identify: gives our own identity, or raises ``AdapterError``.
        attach: posts a reply's files.
        monotonic, sleep: the clock.
    """

    def __init__(
        self,
        client: SlackClient,
        *,
        mode: DraftMode,
        identify: Callable[[], Awaitable[Identity]],
        attach: Callable[[Reply], Awaitable[None]],
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.client = client
        self._mode = mode
        self._identify = identify
        self._attach = attach
        self._monotonic = monotonic
        self._sleep = sleep
        self._writing: set[SlackDraft] = set()
        self._kept: OrderedDict[str, SlackDraft] = OrderedDict()

    def open(self, thread: ThreadRef, *, asker: Author | None) -> SlackDraft | None:
        """Begin a draft; None where there is no thread to write in, or drafts are off."""
        thread_ts = thread_ts_of(thread)
        if thread_ts is None or self._mode == "off":
            return None
        spot = Spot(
            channel=thread.channel,
            thread_ts=thread_ts,
            recipient_user=asker.id if asker is not None else "",
            recipient_team=thread.workspace if asker is not None else "",
        )
        direct = thread.channel.startswith("D")
        draft = SlackDraft(
            self,
            spot,
            name=secrets.token_hex(8),
            stream=self._mode == "stream" and (direct or asker is not None),
            monotonic=self._monotonic,
            sleep=self._sleep,
        )
        self._writing.add(draft)
        return draft

    def unfinished(self, key: str) -> SlackDraft | None:
        """Return the draft that a reply with this key has to finish."""
        return self._kept.get(key)

    async def close(self) -> None:
        """Write nothing more; what is visible stays for ``discard``."""
        for draft in list(self._writing):
            await draft.halt()
        self._writing.clear()
        self._kept.clear()

    async def discard(self, thread: ThreadRef, remote_id: str) -> None:
        """Remove the messages of a draft, unless one of them is a finished reply by now, or that cannot be told.

        ``remote_id`` may be empty, or lack the newest message: what is unfinished in the thread is looked for.
        """
        thread_ts = thread_ts_of(thread)
        if thread_ts is None:
            return
        try:
            identity = await self._identify()
        except AdapterError as error:
            log.warning("slack_draft_left", ids=remote_id, reason=str(error))
            return
        known = [ts for ts in remote_id.split(",") if ts]
        found = await find_unfinished(
            self.client, channel=thread.channel, thread_ts=thread_ts, known=known, identity=identity
        )
        if isinstance(found, Failed):
            log.warning("slack_draft_left", ids=remote_id, reason=found.said)
            return
        for message in found:
            streaming = not part_of(message, "metadata")
            await remove_message(self.client, thread.channel, text_of(message, "ts"), streaming=streaming)

    # -- what a draft needs
    @property
    def writers(self) -> int:
        """How many drafts are being written."""
        return len(self._writing)

    @property
    def may_stream(self) -> bool:
        """False once Slack said that the app may not."""
        return self._mode == "stream"

    def stream_refused(self, failed: Failed) -> None:
        """Fall back to edits for good where the app may not stream."""
        if failed.refused or failed.code in NO_METHOD:
            self._mode = "edits"
            log.warning("slack_streams_switched_off", reason=failed.said)

    def drop(self, draft: SlackDraft) -> None:
        """The draft is over."""
        self._writing.discard(draft)
        for key in [key for key, kept in self._kept.items() if kept is draft]:
            del self._kept[key]

    def keep(self, key: str, draft: SlackDraft) -> None:
        """The draft is to be finished by a later try with the same key."""
        self._writing.discard(draft)
        self._kept[key] = draft
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    async def attach(self, reply: Reply) -> None:
        """Post the reply's files."""
        await self._attach(reply)

    async def remove_lost(self, spot: Spot, name: str, text: str) -> None:
        """Remove a message that began with ``text`` and of which Slack never told whether it was made."""
        try:
            identity = await self._identify()
        except AdapterError:
            return
        page = await fetch_page(self.client, spot.channel, spot.thread_ts)
        for message in parts_of(page, "messages") if not isinstance(page, Failed) else ():
            ours = is_own(message, identity) and not parts_of(message, "files")
            named = metadata_key(message, identity, PART_TYPE) == name
            bare = not part_of(message, "metadata") and _letters(text_of(message, "text")) == _letters(text)
            if ours and (named or bare):
                await remove_message(self.client, spot.channel, text_of(message, "ts"), streaming=bare)


def _letters(text: str) -> str:
    """What is left of a text whatever markup Slack made of it."""
    return "".join(c for c in text if c.isalnum())
