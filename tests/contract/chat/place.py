"""A platform with people in it: what they do, what they see, and what goes wrong there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from adapters.chat import ChatAdapter, Command, Message, ThreadRef
from adapters.commands import CommandOffer, Complete
from tests.contract.chat.features import Way
from tests.integration.slack.conftest import Inbox

Who = Literal["alice", "bob"]

PATIENCE_S = 20.0
"""How long something may take on a busy machine before it is taken for missing."""


class NotHereError(AssertionError):
    """A scenario asked for something that ``CANNOT`` does not excuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A message of the bot, as people see it.

    Args:
        id: the platform's.
        text: with the platform's own marks.
        buttons: their labels, in order; thumbs are left out.
        files: what hangs on it, by name.
        previews: a link in it would be shown with a preview.
    """

    id: str
    text: str
    buttons: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    previews: bool = False


class Place(Protocol):
    """A platform with two people in it, and an adapter whose inbox is ``inbox``. What it cannot do raises."""

    way: Way
    adapter: ChatAdapter
    inbox: Inbox

    # ------------------------------------------------------------------ life
    async def start(self) -> None:
        """Start the adapter, and wait until it is connected."""
        raise NotHereError

    async def restart(self) -> None:
        """End the adapter, and start another one that remembers nothing."""
        raise NotHereError

    async def take_over(self) -> None:
        """Let another process go on: it remembers nothing, and the first one, which froze, cleaned nothing up."""
        raise NotHereError

    def build_other(self) -> ChatAdapter:
        """Build one more adapter on the same platform, with a token that is refused. Not started."""
        raise NotHereError

    async def settle(self) -> None:
        """Wait until the platform has delivered what it has to."""
        return

    async def open_second(self) -> None:
        """Be in a second workspace from now on, too."""
        raise NotHereError

    def offer(self, offers: Sequence[CommandOffer], complete: Complete) -> None:
        """Let the platform know these commands; before ``start``."""
        return

    # ------------------------------------------------------------------ people
    def person(self, who: Who) -> str:
        """The id of a person."""
        raise NotHereError

    def channel(self) -> tuple[str, str, str]:
        """Platform, workspace and id of the channel in which things are said."""
        raise NotHereError

    async def say(
        self,
        text: str,
        *,
        thread: ThreadRef | None = None,
        mention: bool = True,
        who: Who = "alice",
        files: Mapping[str, bytes] | None = None,
    ) -> str:
        """Say something in the channel or in a thread; returns the message's id."""
        raise NotHereError

    async def say_direct(self, text: str, *, who: Who = "alice") -> str:
        """Say something to the bot alone."""
        raise NotHereError

    async def say_in_second(self, text: str) -> str:
        """Mention the bot in the second workspace."""
        raise NotHereError

    async def say_twice(self, text: str) -> str:
        """Mention the bot in a message that the platform delivers several times."""
        raise NotHereError

    async def say_as_bot(self, text: str, *, thread: ThreadRef | None = None) -> str:
        """Another bot mentions ours."""
        raise NotHereError

    async def say_as_us(self, text: str) -> str:
        """Our own bot mentions itself, by another process."""
        raise NotHereError

    async def call_everyone(self, text: str) -> str:
        """Say something to everybody."""
        raise NotHereError

    async def call_group(self, text: str) -> str:
        """Say something to a group or role of the bot's."""
        raise NotHereError

    async def quote(self, text: str, quoted: str) -> str:
        """Mention the bot, with words of somebody else beside it."""
        raise NotHereError

    async def answer_to(self, message: str, text: str, *, mention: bool, thread: ThreadRef | None = None) -> str:
        """Reply to a message, in the channel or in a thread."""
        raise NotHereError

    async def edit(self, message: str, text: str, *, mention: bool = False) -> None:
        """Edit a message in the channel."""
        raise NotHereError

    async def preview(self, message: str) -> None:
        """The platform adds a preview to a message, which is no edit."""
        raise NotHereError

    async def delete(self, message: str) -> None:
        """Delete a message in the channel."""
        raise NotHereError

    async def press(self, thread: ThreadRef, label: str, *, who: Who = "alice") -> None:
        """Press the newest button with this label."""
        raise NotHereError

    async def rate(self, thread: ThreadRef, *, up: bool) -> None:
        """Press a thumb under the newest post that has some."""
        raise NotHereError

    async def press_stop(self, thread: ThreadRef) -> None:
        """Press the stop button of the answer that is being written."""
        raise NotHereError

    async def give(
        self, name: str, values: Mapping[str, object], *, thread: ThreadRef | None = None, who: Who = "alice"
    ) -> str:
        """Give a command of ``OFFERS``; returns its id."""
        raise NotHereError

    async def type(self, name: str, option: str, typed: str) -> list[str]:
        """Begin to fill in an option; returns what is suggested."""
        raise NotHereError

    # ------------------------------------------------------------------ what people see
    def posts(self, thread: ThreadRef) -> list[Post]:
        """What the bot wrote in a thread that everybody sees; of a command or report: in its channel, in no thread."""
        raise NotHereError

    def shown_to(self, who: Who) -> list[str]:
        """Words that this person alone was shown."""
        raise NotHereError

    def pinged(self) -> set[str]:
        """Everybody whom the bot's messages notified, however they were called."""
        raise NotHereError

    def works(self, thread: ThreadRef) -> bool:
        """True while people see that work goes on."""
        raise NotHereError

    def signs(self, message: str) -> set[str]:
        """The signs that the bot has on a message in the channel."""
        raise NotHereError

    def violations(self) -> list[str]:
        """What the bot did against the platform's rules."""
        return []

    # ------------------------------------------------------------------ what goes wrong
    async def cut(self) -> None:
        """Break every connection by which events come, and see that it is noticed or mended."""
        raise NotHereError

    def limit_posts(self, wait_s: float) -> None:
        """Refuse the next post for so long."""
        raise NotHereError

    def break_post(self, *, arrives: bool) -> None:
        """Break the connection of the next post, after it was made or before."""
        raise NotHereError

    def forbid_posting(self) -> None:
        """Take from the bot what it needs to post in the channel."""
        raise NotHereError

    def forbid_files(self) -> None:
        """Take from the bot what it needs to post files."""
        raise NotHereError

    def forbid_seeing(self) -> None:
        """Keep the bot out of the channel."""
        raise NotHereError

    async def remove(self, thread: ThreadRef) -> None:
        """Delete the place in which a thread is."""
        raise NotHereError

    def take_permission(self) -> str:
        """Take a permission that Hermod needs; returns a word by which the self-check has to name it."""
        raise NotHereError


# ---------------------------------------------------------------------- what scenarios do again and again
async def until(predicate: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Wait for something that nothing tells of.

    Raises:
        TimeoutError: it did not come.
    """
    async with asyncio.timeout(timeout_s):
        while not predicate():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.005)


async def arrived(place: Place, message_id: str) -> Message:
    """Wait for a message; of several deliveries the first one."""
    await place.inbox.wait_for(lambda: any(m.id == message_id for m in place.inbox.messages), PATIENCE_S)
    return next(m for m in place.inbox.messages if m.id == message_id)


async def ask(place: Place, text: str = "which queries are slow?", who: Who = "alice") -> Message:
    """Mention the bot in the channel, and wait until it is heard."""
    return await arrived(place, await place.say(text, who=who))


async def all_heard(place: Place) -> list[Message]:
    """Wait until everything that was said is handed over, and return it, each message once."""
    await arrived(place, await place.say("the end"))
    await place.settle()
    await place.adapter.stop()
    return list({m.id: m for m in place.inbox.messages if m.text != "the end"}.values())


async def given(
    place: Place, name: str, values: Mapping[str, object], *, thread: ThreadRef | None = None, who: Who = "alice"
) -> Command:
    """Give a command, and wait until it is heard."""
    command = await place.give(name, values, thread=thread, who=who)
    await place.inbox.wait_for(lambda: any(c.id == command for c in place.inbox.commands), PATIENCE_S)
    return next(c for c in place.inbox.commands if c.id == command)
