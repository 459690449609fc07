"""What Slack delivers, by whatever way it came: understood, handed over, and only then acknowledged.

The order that matters: an event is handed to ``accept`` first and acknowledged only when that returned, so that
Slack delivers it again when it could not be stored. Bolt does this with ``process_before_response``: it runs the
listener to its end before it answers, and answers 500 when the listener raised.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncBoltContext, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse

from adapters.chat import Accept, AdapterError, Author, Deleted, Opened, Removed
from adapters.slack.client import SlackClient
from adapters.slack.installation import NotInstalled
from adapters.slack.order import ArrivalOrder
from adapters.slack.parse import (
    RawMessage,
    RawOpened,
    RawStop,
    build_author,
    build_message,
    build_opened,
    build_stop,
    parse_actions,
    parse_command,
    parse_event,
    parse_place,
)
from adapters.slack.shared import mark_address
from adapters.slack.wire import Wire, part_of, text_of
from adapters.slack.workspace import Recipient
from adapters.slack.workspaces import Workspaces

log = structlog.get_logger("hermod.slack")

OnOpened = Callable[[Opened], Awaitable[None]]
"""Called when somebody looks at Hermod's page. It may take two seconds; what takes longer is cancelled."""

OnRemoved = Callable[[Removed], Awaitable[None]]
"""Called when a workspace removed Hermod or its token. When it raises, Slack delivers the event again."""

OPENED_S = 2.0

UNKNOWN_COMMAND = "I do not know `{command}`. Mention me in a channel and ask in plain words, or try `/hermod help`."

_ANY = re.compile("")
_BEGUN = "hermod_begun"
_RECIPIENT = "hermod_recipient"
_DELIVERY = "hermod_delivery_id"
_ACCEPT = "hermod_accept"

# what Bolt raises for a payload of another shape than Slack documents
_SHAPE_ERRORS = (TypeError, AttributeError, LookupError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What Slack is answered: ``ok`` false leaves the delivery unacknowledged. ``body`` goes along, if any."""

    ok: bool
    body: Mapping[str, object] | None = None


NOT_TAKEN = Answer(ok=False)
TAKEN = Answer(ok=True)


async def ignore(what: Opened | Removed) -> None:
    """Do nothing."""


class SlackIntake:
    """Understands deliveries. ``receive`` may be called concurrently; nothing is taken before ``open``.

    Args:
        client: for Bolt's own client and logger; no call is made with it on the way to an acknowledgement.
        workspaces: tells for whom a delivery is, and names and standing of people within a bounded time.
        bots: ids of other bots whose messages count; all others are dropped.
        on_opened, on_removed: see ``OnOpened`` and ``OnRemoved``.
        order: keeps each thread in order.
        now: the clock.
    """

    def __init__(
        self,
        *,
        client: SlackClient,
        workspaces: Workspaces,
        bots: Collection[str] = (),
        on_opened: OnOpened = ignore,
        on_removed: OnRemoved = ignore,
        order: ArrivalOrder,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._workspaces = workspaces
        self._bots = frozenset(bots)
        self._on_opened = on_opened
        self._on_removed = on_removed
        self._order = order
        self._now = now
        self._accept: Accept | None = None
        self._bolt: AsyncApp | None = None
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.last_event_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        """True while deliveries are taken."""
        return self._accept is not None

    def open(self, accept: Accept) -> None:
        """Take deliveries from now on; who we are has to be known by now."""
        self._bolt = self._bolt or self._build_bolt()
        self._accept = accept

    def close(self) -> None:
        """Take nothing more; what is under way goes on. Slack delivers the rest to the next process."""
        self._accept = None

    async def drain(self, grace_s: float) -> None:
        """Wait for what is under way, at most ``grace_s`` seconds."""
        try:
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("slack_deliveries_left", count=self._active)

    async def receive(self, payload: Wire, *, delivery_id: str = "") -> Answer:
        """Take one delivery: an event, a command or an interaction.

        Returns:
            ``ok`` when Slack may forget it: it is stored, or it is none of our business. Not ``ok``: it could not be
            stored, or it cannot be told yet for whom it is, or we are stopping.
        """
        bolt, accept = self._bolt, self._accept
        if bolt is None or accept is None:
            return NOT_TAKEN
        self.last_event_at = self._now()
        self._active += 1
        self._idle.clear()
        try:
            # with the ``accept`` of now: what was received before a stop is still handed over
            return await self._dispatch(bolt, payload, {_DELIVERY: delivery_id, _ACCEPT: accept})
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()

    async def _dispatch(self, bolt: AsyncApp, payload: Wire, context: dict[str, object]) -> Answer:
        async with AsyncExitStack() as stack:
            place = parse_place(payload)
            if place is not None:
                await stack.enter_async_context(self._order.turn(*place))
            try:
                context[_RECIPIENT] = await self._workspaces.find_recipient(payload)
                request = AsyncBoltRequest(mode="socket_mode", body=dict(payload), context=context)
            except NotInstalled as error:
                log.warning("slack_delivery_ignored", reason=str(error))
                return TAKEN
            except AdapterError as error:
                log.error("slack_delivery_left", reason=str(error))
                return NOT_TAKEN
            except _SHAPE_ERRORS as error:
                log.warning("slack_delivery_not_understood", reason=type(error).__name__)
                return TAKEN
            response: BoltResponse = await bolt.async_dispatch(request)
        return self._answer(payload, response, begun=request.context.get(_BEGUN) is True)

    def _answer(self, payload: Wire, response: BoltResponse, *, begun: bool) -> Answer:
        if response.status == 200:
            return Answer(ok=True, body=_body_of(response))
        if begun:
            return NOT_TAKEN  # it was understood and could not be stored
        # a kind that nobody here listens to, or a shape that Bolt does not understand: once more would not help
        kind = text_of(part_of(payload, "event"), "type") or text_of(payload, "type") or "unknown"
        log.info("slack_delivery_ignored", kind=kind)
        return TAKEN

    def _build_bolt(self) -> AsyncApp:
        """Register one listener for each kind of delivery, with the authorisation already at hand."""

        async def authorize(context: AsyncBoltContext) -> AuthorizeResult:
            identity = _recipient_of(context).identity
            return AuthorizeResult(
                enterprise_id=identity.enterprise or None,
                team_id=identity.team,
                bot_id=identity.bot,
                bot_user_id=identity.bot_user,
            )

        bolt = AsyncApp(
            name="hermod",
            logger=self._client.sdk_log,
            client=self._client.build_web(None),
            authorize=authorize,
            process_before_response=True,
            request_verification_enabled=False,
            ssl_check_enabled=False,
            url_verification_enabled=False,
            attaching_function_token_enabled=False,
            attaching_conversation_kwargs_enabled=False,
        )
        bolt.event(_ANY)(self._on_event)
        bolt.command(_ANY)(self._on_command)
        bolt.block_action(_ANY)(self._on_action)
        return bolt

    async def _on_event(self, body: dict[str, Any], context: AsyncBoltContext) -> None:
        accept, recipient = self._begin(context)
        identity = recipient.identity
        parsed = parse_event(body, identity, bots=self._bots)
        match parsed:
            case RawMessage():
                concerns_us = parsed.mentioned or parsed.direct or parsed.thread.thread != parsed.id
                others = [person for person in parsed.people if person != identity.bot_user]
                people = await recipient.people.find(others) if concerns_us else {}
                message = build_message(parsed, people, identity)
                if recipient.workspace:
                    files = tuple(mark_address(file, recipient.workspace) for file in message.files)
                    message = replace(message, files=files)
                await accept(message)
            case RawStop():
                await accept(build_stop(parsed, await recipient.people.find([parsed.user])))
            case Deleted():
                await accept(parsed)
            case RawOpened():
                await self._show(parsed, recipient)
            case Removed():
                log.warning("slack_removal_told", workspace=parsed.workspace)
                await self._workspaces.end(body, text_of(part_of(body, "event"), "type"))
                await self._on_removed(parsed)

    async def _show(self, raw: RawOpened, recipient: Recipient) -> None:
        try:
            async with asyncio.timeout(OPENED_S):
                await self._on_opened(build_opened(raw, await recipient.people.find([raw.user])))
        except TimeoutError:
            log.info("slack_page_took_too_long", tab=raw.tab)

    async def _on_command(self, body: dict[str, Any], ack: AsyncAck, context: AsyncBoltContext) -> None:
        accept, recipient = self._begin(context)
        author = await _find_author(recipient, text_of(body, "user_id"))
        command = parse_command(body, author, recipient.identity, self._now(), delivery_id=_delivery_of(context))
        if command is not None and await accept(command):
            await ack()
        else:
            name = text_of(body, "command").replace("`", "")
            await ack(text=UNKNOWN_COMMAND.format(command=name), response_type="ephemeral")

    async def _on_action(self, body: dict[str, Any], ack: AsyncAck, context: AsyncBoltContext) -> None:
        accept, recipient = self._begin(context)
        user = part_of(body, "user")
        author = await _find_author(recipient, text_of(user, "id"), team=text_of(user, "team_id"))
        for action in parse_actions(body, author, recipient.identity, self._now(), delivery_id=_delivery_of(context)):
            await accept(action)
        await ack()

    def _begin(self, context: AsyncBoltContext) -> tuple[Accept, Recipient]:
        context[_BEGUN] = True
        accept: Accept | None = context.get(_ACCEPT)
        if accept is None:
            raise AdapterError("slack: a delivery lost what it is for on its way through Bolt")
        return accept, _recipient_of(context)


async def _find_author(recipient: Recipient, user: str, *, team: str = "") -> Author:
    people = await recipient.people.find([user] if user else [])
    external = team not in ("", recipient.identity.team, recipient.identity.enterprise)
    return build_author(user, people.get(user), external=external)


def _recipient_of(context: AsyncBoltContext) -> Recipient:
    recipient = context.get(_RECIPIENT)
    if not isinstance(recipient, Recipient):
        raise AdapterError("slack: a delivery lost what it is for on its way through Bolt")
    return recipient


def _delivery_of(context: AsyncBoltContext) -> str:
    value = context.get(_DELIVERY)
    return value if isinstance(value, str) else ""


def _body_of(response: BoltResponse) -> Mapping[str, object] | None:
    """Return what Bolt answers as JSON; plain text becomes a message."""
    if not response.body:
        return None
    try:
        body = json.loads(response.body)
    except ValueError:
        return {"text": response.body}
    return body if isinstance(body, dict) else {"text": response.body}
