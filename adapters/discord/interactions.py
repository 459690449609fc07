"""Commands, buttons and suggestions: acknowledged at once, then handed over; and the answers that go back that way.

Discord waits three seconds for the first word about an interaction, and delivers none again
(docs.discord.com/developers/interactions/receiving-and-responding). So the order is the other way round than for
messages: first "thinking...", then it is stored; when it cannot be stored, the person is told to try again. An
interaction's token is good for fifteen minutes; after that the answer is posted as the bot, and what only one person
may see as a direct message.

Nothing that matters is kept in memory: what a command needs for its answer travels with it, and a button says what it
is for by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

import discord
import structlog
from discord.http import Route

from adapters.chat import (
    Accept,
    Action,
    Command,
    Delivered,
    Delivery,
    InDoubt,
    Rejected,
    Reply,
    RetryLater,
    Stop,
    ThreadRef,
)
from adapters.commands import MOST_CHOICES, CommandOffer, CommandOption, Complete, Completing, write_text
from adapters.discord.body import EPHEMERAL, Body, build_nonce
from adapters.discord.buttons import STOP, parse_custom_id
from adapters.discord.client import WEBHOOK, DiscordClient
from adapters.discord.outcome import UNKNOWN_MESSAGE, Failed
from adapters.discord.payload import Payload
from adapters.discord.received import Received, Responder, parse_responder, read_interaction
from adapters.discord.threads import COMMAND
from adapters.discord.wire import Wire, id_of, number_of, part_of, text_of, time_of

log = structlog.get_logger("hermod.discord")

MESSAGE, LATER, LATER_BELOW, CHOICES = 4, 5, 6, 8
"""Types of the first word: a message, a message later, nothing now (the button's message stays), suggestions."""

LOADING = 1 << 7

TOKEN_S = 840.0
"""A token is used for fourteen minutes; Discord takes it for fifteen."""

TELL_S = 3.0
CHOICE_MAX = 100

UNKNOWN_INTERACTION, ANSWERED = 10062, 40060

NOT_TAKEN = "I could not take this command here. Mention me in a channel and ask in plain words, or try `/hermod`."
NOT_STORED = "I could not note this down just now, so I will not work on it. Please try again in a moment."
NOT_HERE = "I cannot work here. Please try it in a channel of a server where I am, or in a direct message to me."
UNUSED_BUTTON = "That button does nothing any more. Please ask me again."
NOTHING_TO_STOP = "There is nothing running here that I could stop."


class DiscordInteractions:
    """Takes interactions, and answers commands. Safe to call concurrently.

    Args:
        client: the REST API.
        now: the clock of a token's age; aware.
    """

    def __init__(self, client: DiscordClient, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._client = client
        self._now = now
        self._offers: Mapping[str, CommandOffer] = {}
        self._complete: Complete = lambda asked: ()

    def offer(self, offers: Sequence[CommandOffer], complete: Complete) -> None:
        """Read commands as these offers, and suggest values by ``complete``."""
        self._offers = {offer.name: offer for offer in offers}
        self._complete = complete

    # -- in
    async def receive(self, interaction: discord.Interaction, accept: Accept) -> None:
        """Take one interaction.

        Raises:
            Whatever ``accept`` raises; the person was told then.
        """
        received = read_interaction(interaction)
        if received is None:
            log.info("discord_interaction_ignored", kind=interaction.type.name)
            if interaction.type is not discord.InteractionType.autocomplete:
                await self._say_at_once(str(interaction.id), interaction.token, NOT_HERE)
            return
        match received.kind:
            case "command":
                await self._take_command(received, accept)
            case "button":
                await self._take_button(received, accept)
            case _:
                await self._suggest(received)

    async def _take_command(self, received: Received, accept: Accept) -> None:
        # a command that Discord still shows, and Hermod knows no more, is answered with a word: like help, to one alone
        offer = self._offers.get(received.name) or _build_unknown(received)
        first = await self._acknowledge(received, LATER, private=offer.private)
        if first == "over":
            return
        responder = Responder(
            application=received.application, token=received.token, id=received.id, private=offer.private
        )
        command = Command(
            thread=received.thread,
            id=received.id,
            author=received.author,
            name=received.name,
            text=write_text(offer, _read_values(offer, received.values)),
            sent_at=received.sent_at,
            respond_to=responder.write(),
        )
        async with self._telling(responder if first == "said" else None):
            taken = await accept(command)
        if not taken and first == "said":
            await self._tell(responder, NOT_TAKEN)

    async def _take_button(self, received: Received, accept: Accept) -> None:
        meant = parse_custom_id(received.custom_id)
        if meant is None:
            await self._say_at_once(received.id, received.token, UNUSED_BUTTON)
            return
        first = await self._acknowledge(received, LATER_BELOW)
        if first == "over":
            return
        responder = Responder(
            application=received.application, token=received.token, id=received.id, private=True, button=True
        )
        thread, author, at, respond_to = received.thread, received.author, received.sent_at, responder.write()
        name, value = meant
        stops = meant == (STOP, "")
        async with self._telling(responder if first == "said" else None):
            if stops:
                stop = Stop(thread=thread, id=received.id, author=author, sent_at=at, respond_to=respond_to)
                taken = await accept(stop)
            else:
                taken = await accept(
                    Action(
                        thread=thread,
                        id=received.id,
                        author=author,
                        name=name,
                        value=value,
                        sent_at=at,
                        respond_to=respond_to,
                    )
                )
        if not taken and first == "said":
            await self._tell(responder, NOTHING_TO_STOP if stops else UNUSED_BUTTON)

    async def _suggest(self, received: Received) -> None:
        offer = self._offers.get(received.name)
        option = next((o for o in offer.options if o.name == received.focused), None) if offer is not None else None
        found: Sequence[str] = ()
        if option is not None and option.completes:
            typed = received.values.get(option.name)
            asked = Completing(
                completes=option.completes,
                typed=typed if isinstance(typed, str) else "",
                thread=received.thread,
                author=received.author,
            )
            found = [name for name in self._complete(asked) if 0 < len(name) <= CHOICE_MAX][:MOST_CHOICES]
        choices = [{"name": name, "value": name} for name in found]
        failed = await self._client.respond(received.id, received.token, kind=CHOICES, data={"choices": choices})
        if failed is not None:
            log.info("discord_suggestions_late", command=received.name, reason=failed.said)

    async def _acknowledge(
        self, received: Received, kind: int, *, private: bool = False
    ) -> Literal["said", "known", "over"]:
        """Say the first word.

        Returns:
            ``over``: it comes too late, and Discord has told the person so. ``known``: it was said before, by another
            session of ours or by a call whose answer got lost; since an interaction is stored once by its id, it is
            handed over all the same. ``said``: in all other cases, also when nobody knows whether it arrived.
        """
        data: Body | None = {"flags": EPHEMERAL} if private else None
        failed = await self._client.respond(received.id, received.token, kind=kind, data=data)
        if failed is None:
            return "said"
        log.info("discord_acknowledgement_failed", kind=received.kind, code=failed.code, reason=failed.said)
        return "over" if failed.code == UNKNOWN_INTERACTION else "known" if failed.code == ANSWERED else "said"

    @contextlib.asynccontextmanager
    async def _telling(self, responder: Responder | None) -> AsyncIterator[None]:
        """Tell the person when what is done inside fails; None: another session may have stored it, and answers."""
        stored = False
        try:
            yield
            stored = True
        finally:
            if not stored and responder is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TELL_S):
                        await self._tell(responder, NOT_STORED)

    async def _tell(self, responder: Responder, text: str) -> None:
        """Say a word about an interaction that was acknowledged and comes to nothing."""
        payload = Payload(content=text, private=True)
        if responder.button:
            outcome: Delivery = await self._client.follow_up(responder.application, responder.token, payload)
        else:
            outcome = await self._client.edit_original(responder.application, responder.token, payload)
        if not isinstance(outcome, Delivered):
            log.info("discord_word_not_said", reason=outcome.reason)

    async def _say_at_once(self, interaction_id: str, token: str, text: str) -> None:
        payload = Payload(content=text, private=True)
        failed = await self._client.respond(interaction_id, token, kind=MESSAGE, payload=payload)
        if failed is not None:
            log.info("discord_word_not_said", reason=failed.said)

    # -- out
    async def answer(self, reply: Reply, payload: Payload) -> Delivery | None:
        """Post a reply by the token of the interaction that asked for it.

        The first part of an answer becomes the announced message, which is the same however often it is done. Further
        ones are messages of the bot with the reply's nonce, or, where it may not post, follow-ups.

        Returns:
            None when it is to be posted as the bot: nothing of it is visible. A private one must not be posted for all.
        """
        responder = parse_responder(reply.respond_to)
        if responder is None or (responder.button and not reply.private_to):
            return None  # what all may read stands beside the message of the button, not in its place
        if responder.id and (self._now() - time_of(responder.id)).total_seconds() > TOKEN_S:
            return await self._answer_late(reply, payload, responder)
        if reply.private_to:
            return await self._answer_alone(reply, replace(payload, private=True, reply_to=""), responder)
        if _part_of(reply.key) > 1:
            return await self._answer_on(reply, replace(payload, private=responder.private), responder)
        outcome = await self._client.edit_original(responder.application, responder.token, payload)
        return await self._answer_late(reply, payload, responder) if isinstance(outcome, Rejected) else outcome

    async def _answer_alone(self, reply: Reply, payload: Payload, responder: Responder) -> Delivery | None:
        """Show a reply to the one who asked.

        An announcement that all see is taken back first: a message that follows while it stands would fill it, for all.
        """
        first = _part_of(reply.key) == 1 and not responder.button
        outcome: Delivery
        if first and responder.private:
            outcome = await self._client.edit_original(responder.application, responder.token, payload)
            if not isinstance(outcome, Rejected):
                return outcome
        elif first and (failed := await self._take_back(responder)) is not None:
            return await self._answer_late(reply, payload, responder) if isinstance(failed, Rejected) else failed
        outcome = await self._client.follow_up(responder.application, responder.token, payload)
        return await self._answer_late(reply, payload, responder) if isinstance(outcome, Rejected) else outcome

    async def _take_back(self, responder: Responder) -> Rejected | RetryLater | InDoubt | None:
        """Remove the announcement; None when it is certainly gone."""
        route = Route(
            "DELETE",
            "/webhooks/{webhook_id}/{webhook_token}/messages/@original",
            webhook_id=responder.application,
            webhook_token=responder.token,
        )
        answer = await self._client.calls.call(route, WEBHOOK, responder.token)
        return _once_more(answer) if isinstance(answer, Failed) and answer.code != UNKNOWN_MESSAGE else None

    async def _answer_on(self, reply: Reply, payload: Payload, responder: Responder) -> Delivery | None:
        """Post a further part of an answer."""
        if not responder.private:
            outcome = await self._client.create_message(
                _place_of(reply.thread), replace(payload, private=False), nonce=build_nonce(reply.key)
            )
            if not isinstance(outcome, Rejected):
                return outcome
        outcome = await self._client.follow_up(responder.application, responder.token, payload)
        return await self._answer_late(reply, payload, responder) if isinstance(outcome, Rejected) else outcome

    async def _answer_late(self, reply: Reply, payload: Payload, responder: Responder) -> Delivery | None:
        """Leave a reply to the bot, unless its announced message holds it already."""
        if reply.private_to:
            log.info("discord_private_answer_late", thread=reply.thread.key)
            return None
        return await self._find_answer(reply, payload, responder) if _part_of(reply.key) == 1 else None

    async def _find_answer(self, reply: Reply, payload: Payload, responder: Responder) -> Delivery | None:
        """Look whether the announced message holds the answer already; one that still announces goes."""
        place = _place_of(reply.thread)
        found = await self._client.fetch_messages(place)
        for message in () if isinstance(found, Failed) else found:
            if id_of(part_of(message, "interaction_metadata"), "id") != responder.id or not responder.id:
                continue
            if number_of(message, "flags") & LOADING:
                await self._client.delete_message(place, id_of(message, "id"))
            elif _holds(message, payload):
                return Delivered(remote_id=id_of(message, "id"))
        return None


def _build_unknown(received: Received) -> CommandOffer:
    options = tuple(CommandOption(name=name, summary="") for name in received.values)
    return CommandOffer(name=received.name, summary="", options=options, plain=True, private=True)


def _read_values(offer: CommandOffer, values: Mapping[str, object]) -> dict[str, object]:
    """Take what Discord sent as the kinds that were offered: whole numbers may come with a point."""
    kinds = {option.name: option.kind for option in offer.options}
    read: dict[str, object] = {}
    for name, value in values.items():
        if value is None or name not in kinds:
            continue
        whole = kinds[name] == "integer" and isinstance(value, float) and value.is_integer()
        read[name] = int(value) if whole and isinstance(value, float) else value
    return read


def _part_of(key: str) -> int:
    """Return which part of an answer a reply is, by its key ``RUN/PART``."""
    part = key.rpartition("/")[2]
    return int(part) if part.isascii() and part.isdecimal() and len(part) < 10 else 1


def _place_of(thread: ThreadRef) -> str:
    """Return the id of the channel in which a command was given: a thread, a conversation, or a channel."""
    return thread.channel if thread.thread.startswith(COMMAND) else thread.thread


def _holds(message: Wire, payload: Payload) -> bool:
    return text_of(message, "content").split() == payload.content.split()


def _once_more(failed: Failed) -> Rejected | RetryLater | InDoubt:
    """Say when to try a deletion again, which may be done twice."""
    outcome = failed.outcome
    return RetryLater(after_s=1.0, reason=outcome.reason) if isinstance(outcome, InDoubt) else outcome
