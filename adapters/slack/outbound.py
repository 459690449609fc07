"""Everything that goes out to a Slack workspace: posts, drafts, status, signs, files, and reading threads."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog

from adapters.chat import (
    AdapterError,
    Attachment,
    Author,
    Delivered,
    Delivery,
    FileRef,
    InDoubt,
    Rejected,
    Reply,
    Said,
    ThreadRef,
)
from adapters.slack.client import LATE_S, SlackClient
from adapters.slack.drafts import DraftMode, Drafts
from adapters.slack.files import FILE_HOSTS, SlackFiles, file_name
from adapters.slack.history import (
    PART_TYPE,
    FindPeople,
    build_metadata,
    fetch_files_behind,
    fetch_history,
    find_posted,
    thread_ts_of,
)
from adapters.slack.outcome import BAD_BLOCKS, NO_METHOD, Failed
from adapters.slack.parse import Identity, Person
from adapters.slack.respond import ResponseUrls
from adapters.slack.stream import SlackDraft
from adapters.slack.surface import Block, Surface, build_surface
from adapters.slack.wire import Wire, text_of

log = structlog.get_logger("hermod.slack")

END_PATIENCE_S = 1.0
"""How long the end of a session waits for its turn; else people keep seeing a stop button that stops nothing."""

STATUS_TIMEOUT_S = 3.0

SIGNS: Mapping[str, str] = {"queued": "hourglass_flowing_sand", "seen": "eyes", "stopped": "octagonal_sign"}
"""The emoji of ``react``."""

MOST_REMEMBERED = 2_000

LOOK_WAITS_S = (0.0, 0.5, 2.0)
"""How long to wait before each look for a file whose upload got no answer."""

UNSEEN = "I do not know whether these files arrived; ask again if one is not there: {names}"

_Known = TypeVar("_Known")

_NOT_THERE = frozenset({"not_in_channel", "channel_not_found", "is_archived", "restricted_action"})

_NO_ROOT = frozenset({"thread_not_found", "message_not_found", "cannot_reply_to_message", "invalid_thread_ts"})
"""Codes of a post in a thread whose first message is not there any more: no further one can stand in it."""

_THIS_PLACE = _NOT_THERE | _NO_ROOT | {"user_not_in_channel", "restricted_action_thread_locked"}
"""Codes that say nothing of other places: the thread was deleted, the channel left."""


async def _nobody(_: Iterable[str]) -> Mapping[str, Person]:
    return {}


class SlackOutbound:
    """What a Slack ``ChatAdapter`` says. All methods may be called concurrently; see the contract for each.

    Args:
        client: the workspace's Web API.
        identify: gives our own identity, or raises ``AdapterError``.
        people: names for ``fetch_history``.
        patience_s: the longest time that a post waits for its channel's turn.
        drafts: the best way of showing an answer while it is written.
        file_hosts: of files that may be fetched.
        monotonic, sleep: the clock.
    """

    def __init__(
        self,
        client: SlackClient,
        *,
        identify: Callable[[], Awaitable[Identity]],
        people: FindPeople = _nobody,
        patience_s: float = 2.0,
        drafts: DraftMode = "stream",
        file_hosts: Collection[str] = FILE_HOSTS,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._identify = identify
        self._people = people
        self._patience_s = patience_s
        self._monotonic = monotonic
        self._sleep = sleep
        self._files = SlackFiles(client, file_hosts)
        self._urls = ResponseUrls(client, monotonic)
        self._off: set[str] = set()  # methods that the app may not use
        self._working: OrderedDict[str, None] = OrderedDict()  # threads in which work shows
        self._refused: OrderedDict[str, int] = OrderedDict()  # by key: how many forms of it Slack refused
        self._unseen: OrderedDict[str, None] = OrderedDict()  # keys of private posts that nobody can look for
        self._drafts = Drafts(
            client, mode=drafts, identify=identify, attach=self._end_public, monotonic=monotonic, sleep=sleep
        )

    async def close(self) -> None:
        """Stop showing drafts; what is visible stays. Safe to call twice."""
        await self._drafts.close()

    # -- posting
    async def post(self, reply: Reply) -> Delivery:
        """Post one reply that fits ``LIMITS``. Failures are values; only cancellation is raised.

        A private reply goes to ``respond_to``, else as an ephemeral message. A public one is posted by the bot, since
        only such a post can be found again; where the bot may not post, ``respond_to`` shows it to the asker.
        """
        since = self._monotonic()
        draft = self._drafts.unfinished(reply.key)
        if draft is not None and (finished := await draft.finish(reply)) is not None:
            return finished
        surface = build_surface(reply)
        if not surface.text.strip():
            return Rejected(reason="the text is empty")
        if not reply.private_to:
            return await self._post_public(reply, surface, since)
        outcome = await self._post_private(reply, surface, since)
        if isinstance(outcome, Delivered):
            await self.set_status(reply.thread, "")  # only a message that all see takes the status away
        return outcome

    async def _post_public(self, reply: Reply, surface: Surface, since: float) -> Delivery:
        answer: Wire | Failed = {}
        for n, blocks in enumerate(surface.forms()):
            if n < self._refused.get(reply.key, 0):
                continue  # an earlier try came as far as this, and had to wait
            answer = await self._post_message(reply, surface.text, blocks, since)
            if not isinstance(answer, Failed) or answer.code not in BAD_BLOCKS:
                break
            log.warning("slack_blocks_refused", thread=reply.thread.key, code=answer.code)
            _remember(self._refused, reply.key, n + 1)
        if not isinstance(answer, Failed):
            await self._end_public(replace(reply, files=surface.files), since)
            return Delivered(remote_id=text_of(answer, "ts"))
        if answer.code in _NOT_THERE and reply.respond_to and self._urls.usable(reply.respond_to):
            return await self._post_url(reply, surface)
        if answer.code in _NO_ROOT:
            return Rejected(reason=f"{answer.said}; the message that begins the thread was deleted", gone=True)
        return answer.outcome

    async def _post_message(self, reply: Reply, text: str, blocks: tuple[Block, ...], since: float) -> Wire | Failed:
        return await self._client.call(
            "chat.postMessage",
            lambda web: web.chat_postMessage(
                channel=reply.thread.channel,
                thread_ts=thread_ts_of(reply.thread),
                text=text,
                blocks=list(blocks) or None,
                mrkdwn=True,
                link_names=False,
                unfurl_links=False,
                unfurl_media=False,
                metadata=build_metadata(reply.key),
            ),
            channel=reply.thread.channel,
            priority=min(reply.priority, 1),  # also a notice is worth waiting for
            patience_s=self._patience_s,
            since=since,
        )

    async def _post_private(self, reply: Reply, surface: Surface, since: float) -> Delivery:
        if reply.respond_to and self._urls.usable(reply.respond_to):
            outcome = await self._post_url(reply, surface)
            if not isinstance(outcome, Rejected):
                return outcome
        answer: Wire | Failed = {}
        for blocks in surface.forms():
            answer = await self._post_ephemeral(reply, surface.text, blocks, since)
            if not isinstance(answer, Failed) or answer.code not in BAD_BLOCKS:
                break
        if not isinstance(answer, Failed):
            return Delivered(remote_id=text_of(answer, "message_ts"))
        if isinstance(answer.outcome, InDoubt):
            _remember(self._unseen, reply.key, None)
        return answer.outcome

    async def _post_ephemeral(self, reply: Reply, text: str, blocks: tuple[Block, ...], since: float) -> Wire | Failed:
        return await self._client.call(
            "chat.postEphemeral",
            lambda web: web.chat_postEphemeral(
                channel=reply.thread.channel,
                user=reply.private_to,
                thread_ts=thread_ts_of(reply.thread),
                text=text,
                blocks=list(blocks) or None,
                link_names=False,
            ),
            priority=min(reply.priority, 1),
            patience_s=self._patience_s,
            since=since,
        )

    async def _post_url(self, reply: Reply, surface: Surface) -> Delivery:
        """Show the reply to the asker alone by ``respond_to``."""
        failed: Failed | None = None
        for blocks in surface.forms():
            failed = await self._urls.post(reply.respond_to, text=surface.text, blocks=blocks, private=True)
            if failed is None:
                return Delivered(remote_id=f"response-{reply.key}")
            if not isinstance(failed.outcome, Rejected):
                break
        if failed is not None and isinstance(failed.outcome, InDoubt):
            _remember(self._unseen, reply.key, None)
        return failed.outcome if failed is not None else Rejected(reason="the text is empty")

    async def _end_public(self, reply: Reply, since: float | None = None) -> None:
        """Do what follows a reply that all see: its files, and the end of what the thread's session shows."""
        await self._attach(reply, self._monotonic() if since is None else since)
        thread_ts = thread_ts_of(reply.thread)
        if thread_ts is not None:
            await self._set_session(reply.thread, thread_ts, working=False)

    async def complete_post(self, reply: Reply, remote_id: str) -> None:
        """Post those files of a reply that are not there: the process that posted its text died, or lost the answer."""
        files = build_surface(reply).files
        if reply.private_to or not files:
            return
        there = await self._list_files(reply.thread, remote_id)
        if there is None:
            names = ", ".join(file_name(file.name) for file in files)
            await self._say_missing(reply, UNSEEN.format(names=names))
            return
        missing = tuple(file for file in files if file_name(file.name) not in there)
        log.info("slack_post_completed", thread=reply.thread.key, files=len(missing))
        await self._end_public(replace(reply, files=missing))

    async def _list_files(self, thread: ThreadRef, remote_id: str) -> frozenset[str] | None:
        """The names of the files that stand behind a post of ours; None when that cannot be read."""
        try:
            identity = await self._identify()
        except AdapterError:
            return None
        found = await fetch_files_behind(
            self._client, channel=thread.channel, thread_ts=thread_ts_of(thread), ts=remote_id, identity=identity
        )
        return None if isinstance(found, Failed) else found

    async def _was_late(self, reply: Reply, name: str, since: float) -> bool:
        """Tell whether a file was posted meanwhile: while a process stands still another one takes its work over."""
        return self._monotonic() > since + LATE_S and await self._is_there(reply, name) is True

    async def _is_there(self, reply: Reply, name: str) -> bool | None:
        """Tell whether a file stands behind its reply; None when that cannot be read."""
        for wait_s in LOOK_WAITS_S:
            await self._sleep(wait_s)
            posted = await self.find_posted(reply.thread, reply.key)
            if isinstance(posted, Delivered):
                names = await self._list_files(reply.thread, posted.remote_id)
                if names is not None:
                    return name in names
        return None

    async def _attach(self, reply: Reply, since: float) -> None:
        """Post the reply's files after its text; a file that fails is named in the thread, and costs nothing else."""
        for attachment in reply.files:
            failed = await self._upload(reply, attachment, since)
            if failed is not None and isinstance(failed.outcome, InDoubt):
                # a connection that broke, as all do when the process is asked to end: once more is enough
                there = await self._is_there(reply, file_name(attachment.name))
                if there is None:
                    await self._say_missing(reply, UNSEEN.format(names=file_name(attachment.name)))
                failed = await self._upload(reply, attachment, since) if there is False else None
            if failed is None:
                continue
            log.error("slack_file_not_posted", thread=reply.thread.key, reason=failed.said)
            await self._say_missing(reply, f"I could not attach the file {attachment.name}: {failed.said}")

    async def _upload(self, reply: Reply, attachment: Attachment, since: float) -> Failed | None:
        return await self._files.upload(
            attachment,
            channel=reply.thread.channel,
            thread_ts=thread_ts_of(reply.thread),
            unless=partial(self._was_late, reply, file_name(attachment.name), since),
        )

    async def _say_missing(self, reply: Reply, notice: str) -> None:
        text = build_surface(Reply(thread=reply.thread, text=notice, key=reply.key)).text
        await self._client.call(
            "chat.postMessage",
            lambda web: web.chat_postMessage(
                channel=reply.thread.channel,
                thread_ts=thread_ts_of(reply.thread),
                text=text,
                unfurl_links=False,
                unfurl_media=False,
                metadata=build_metadata(reply.key, PART_TYPE),
            ),
            channel=reply.thread.channel,
            priority=1,
            patience_s=self._patience_s,
        )

    async def find_posted(self, thread: ThreadRef, key: str) -> Delivered | InDoubt | None:
        """Look in the thread for our own message whose metadata holds ``key``."""
        if key in self._unseen:
            return InDoubt(reason="a post that only one person sees cannot be looked for")
        try:
            identity = await self._identify()
        except AdapterError as error:
            return InDoubt(reason=str(error))
        return await find_posted(
            self._client, channel=thread.channel, thread_ts=thread_ts_of(thread), key=key, identity=identity
        )

    # -- while it works
    async def set_status(self, thread: ThreadRef, text: str) -> None:
        """Show that work goes on, and that the thread's agent session does. Best effort; never raises."""
        thread_ts = thread_ts_of(thread)
        if thread_ts is None or not (text or thread.key in self._working):
            return
        await self._quietly(
            "assistant.threads.setStatus",
            lambda: self._client.call(
                "assistant.threads.setStatus",
                lambda web: web.assistant_threads_setStatus(
                    channel_id=thread.channel, thread_ts=thread_ts, status=text
                ),
                priority=1,
                timeout_s=STATUS_TIMEOUT_S,
            ),
        )
        await self._set_session(thread, thread_ts, working=bool(text))

    async def _set_session(self, thread: ThreadRef, thread_ts: str, *, working: bool) -> None:
        """Tell the agent session (docs.slack.dev/ai/agent-sessions), which gives people a stop button."""
        method = "agents.sessions.setStatus"
        if working == (thread.key in self._working):
            return
        if working:
            _remember(self._working, thread.key, None)
        else:
            del self._working[thread.key]
        await self._quietly(
            method,
            lambda: self._client.call(
                method,
                lambda web: web.agents_sessions_setStatus(
                    channel_id=thread.channel, thread_ts=thread_ts, status="processing" if working else "active"
                ),
                priority=1,
                patience_s=0.0 if working else END_PATIENCE_S,
                timeout_s=STATUS_TIMEOUT_S,
            ),
            optional=True,
        )

    async def react(self, thread: ThreadRef, message_id: str, sign: str) -> None:
        """Put a sign (``queued``, ``seen``, ``stopped``) on a message, or take it off (``-queued``). Best effort."""
        name = SIGNS.get(sign.removeprefix("-"))
        if name is None or thread_ts_of(thread) is None:  # what asked for a post in the channel itself is no message
            return
        channel, ts = thread.channel, message_id
        if sign.startswith("-"):
            await self._quietly(
                "reactions",
                lambda: self._client.call(
                    "reactions.remove",
                    lambda web: web.reactions_remove(channel=channel, timestamp=ts, name=name),
                    priority=1,
                    timeout_s=STATUS_TIMEOUT_S,
                ),
            )
        else:
            await self._quietly(
                "reactions",
                lambda: self._client.call(
                    "reactions.add",
                    lambda web: web.reactions_add(channel=channel, timestamp=ts, name=name),
                    priority=1,
                    timeout_s=STATUS_TIMEOUT_S,
                ),
            )

    async def _quietly(
        self, what: str, call: Callable[[], Awaitable[Wire | Failed]], *, optional: bool = False
    ) -> None:
        """Make a call that nobody waits for. Falls quiet for good where the app may not make it."""
        if what in self._off:
            return
        answer = await call()
        if not isinstance(answer, Failed):
            return
        never = optional and isinstance(answer.outcome, Rejected) and answer.code not in _THIS_PLACE
        if answer.refused or answer.code in NO_METHOD or never:
            self._off.add(what)
            (log.info if optional else log.warning)("slack_switched_off", what=what, reason=answer.said)

    # -- drafts
    def open_draft(self, thread: ThreadRef, *, asker: Author | None) -> SlackDraft | None:
        """Begin an answer that people see while it is written.

        None for a command, which has no thread, and for a bot: it would only read the first words (its platform
        tells it of new posts, not of edits).
        """
        thread_ts = thread_ts_of(thread)
        if thread_ts is None or (asker is not None and asker.bot):
            return None
        return self._drafts.open(thread, asker=asker)

    async def discard_draft(self, thread: ThreadRef, remote_id: str) -> None:
        """Remove what a process that died left of a draft. Best effort; never raises.

        A message that is a finished reply by now is left alone.
        """
        await self._drafts.discard(thread, remote_id)

    # -- reading
    async def fetch_history(self, thread: ThreadRef, *, limit: int) -> tuple[Said, ...]:
        """Read what was said in a thread, oldest first, at most the newest ``limit``; empty when it cannot be read."""
        thread_ts = thread_ts_of(thread)
        if thread_ts is None:
            return ()
        try:
            identity = await self._identify()
        except AdapterError as error:
            log.warning("slack_history_not_read", channel=thread.channel, reason=str(error))
            return ()
        return await fetch_history(
            self._client,
            channel=thread.channel,
            thread_ts=thread_ts,
            limit=limit,
            identity=identity,
            people=self._people,
        )

    async def fetch_file(self, file: FileRef, *, max_bytes: int) -> bytes | None:
        """Fetch an attached file, never more than ``max_bytes``; None when it cannot or must not be fetched."""
        return await self._files.fetch(file, max_bytes=max_bytes)


def _remember(keys: OrderedDict[str, _Known], key: str, value: _Known) -> None:
    keys[key] = value
    while len(keys) > MOST_REMEMBERED:
        keys.popitem(last=False)
