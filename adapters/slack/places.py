"""Looks at Slack's channels and people, before something is promised for later.

docs.slack.dev/reference/methods/conversations.info and .../users.info; what a conversation says of itself:
docs.slack.dev/reference/objects/conversation-object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from adapters.chat import COMMAND_THREAD, AdapterError, ThreadRef
from adapters.places import ChannelLook, Glance, PersonLook
from adapters.slack.installation import NotInstalled
from adapters.slack.outcome import Failed
from adapters.slack.parse import build_author, parse_person, parse_thread
from adapters.slack.wire import Wire, part_of, text_of
from adapters.slack.workspace import Workspace
from adapters.slack.workspaces import Workspaces

LOOK_S = 10.0
"""The longest time of a look, whatever it has to wait for."""

CALL_S = 5.0
PATIENCE_S = 3.0

INVITE = "write /invite @hermod in the channel"

_FULL_SIGHT = "add the scopes channels:read and groups:read (manifest.yml has the full list) and reinstall the app"


class SlackPlaces:
    """See ``adapters.places.HasPlaces``. A channel that is open, and a person who is here, are known for a moment.

    Args:
        workspaces: finds the workspace whose token looks.
        monotonic: the clock, seconds.
    """

    def __init__(self, workspaces: Workspaces, *, monotonic: Callable[[], float]) -> None:
        self._workspaces = workspaces
        self._channels: Glance[ChannelLook] = Glance(monotonic)
        self._people: Glance[PersonLook] = Glance(monotonic)

    async def look_at_channel(self, workspace: str, channel: str) -> ChannelLook:
        """Tell whether Hermod can post in a channel.

        A public channel that Hermod has not joined is closed, even to an app that may write there with
        ``chat:write.public``: files are refused, and nothing that is said in a thread would be heard.
        """
        if (known := self._channels.find(workspace, channel)) is not None:
            return known
        try:
            async with asyncio.timeout(LOOK_S):
                look = await self._ask_channel(await self._find(workspace), channel)
        except NotInstalled as error:
            return ChannelLook(state="gone", what=str(error), fix="install Hermod there")
        except (AdapterError, TimeoutError) as error:
            return ChannelLook(
                state="unknown", what=str(error) or "Slack did not answer in time", fix="try again later"
            )
        if look.state == "open":
            self._channels.keep(workspace, channel, look)
        return look

    async def look_at_person(self, workspace: str, user: str) -> PersonLook:
        """Tell whether a person is still there, and what they are, as of the messages that they write."""
        if (known := self._people.find(workspace, user)) is not None:
            return known
        try:
            async with asyncio.timeout(LOOK_S):
                look = await self._ask_person(await self._find(workspace), user)
        except (AdapterError, TimeoutError):
            return PersonLook(state="unknown")
        if look.state == "here":
            self._people.keep(workspace, user, look)
        return look

    async def _find(self, name: str) -> Workspace:
        """Find a workspace by its id; one that a configured token does not belong to is not served here.

        Raises:
            NotInstalled, AdapterError: as ``Workspaces.find``.
        """
        workspace = await self._workspaces.find(name)
        identity = await workspace.identify()
        # in an organisation one token may serve many workspaces
        if name not in (identity.team, identity.enterprise) and not identity.enterprise:
            raise NotInstalled(f"slack: the token is for the workspace {identity.team}, not for {name}")
        return workspace

    async def _ask_channel(self, workspace: Workspace, channel: str) -> ChannelLook:
        answer = await workspace.client.call(
            "conversations.info",
            lambda web: web.conversations_info(channel=channel),
            priority=1,
            patience_s=PATIENCE_S,
            timeout_s=CALL_S,
        )
        if not isinstance(answer, Failed):
            return _read_channel(part_of(answer, "channel"))
        if answer.code == "missing_scope":
            # direct messages need a scope of their own, and older installations lack it for channels as well
            return await self._ask_history(workspace, channel)
        return _read_failed(answer)

    async def _ask_history(self, workspace: Workspace, channel: str) -> ChannelLook:
        """Learn by its newest message whether a conversation can be read: so it can be written in."""
        answer = await workspace.client.call(
            "conversations.history",
            lambda web: web.conversations_history(channel=channel, limit=1),
            priority=1,
            patience_s=PATIENCE_S,
            timeout_s=CALL_S,
        )
        if not isinstance(answer, Failed):
            return ChannelLook(state="open")
        if answer.code == "not_in_channel":
            return _closed("")
        return _read_failed(answer)

    async def _ask_person(self, workspace: Workspace, user: str) -> PersonLook:
        answer = await workspace.client.call(
            "users.info",
            lambda web: web.users_info(user=user),
            priority=1,
            patience_s=PATIENCE_S,
            timeout_s=CALL_S,
        )
        if isinstance(answer, Failed):
            return PersonLook(state="gone" if answer.code == "user_not_found" else "unknown")
        wire = part_of(answer, "user")
        if not text_of(wire, "id"):
            return PersonLook(state="unknown")
        if wire.get("deleted") is True:
            return PersonLook(state="gone")
        return PersonLook(state="here", author=build_author(user, parse_person(wire, await workspace.identify())))


def thread_below(thread: ThreadRef, remote_id: str) -> ThreadRef:
    """Return the thread below a post that stands in the channel itself; what stands in a thread is below it already."""
    if not thread.thread.startswith(COMMAND_THREAD):
        return thread
    return parse_thread(thread.workspace, thread.channel, remote_id) or thread


def _read_channel(wire: Wire) -> ChannelLook:
    direct = wire.get("is_im") is True
    name = f"#{text_of(wire, 'name')}" if text_of(wire, "name") and not direct else ""
    if not text_of(wire, "id"):
        return ChannelLook(state="unknown", what="Slack's answer could not be read", fix="try again later")
    if wire.get("is_archived") is True:
        what = f"{name or 'the channel'} is archived"
        return ChannelLook(state="gone", name=name, what=what, fix="unarchive it, or choose another channel")
    if direct and wire.get("is_user_deleted") is True:
        return ChannelLook(state="gone", what="the person of this conversation left", fix="choose another channel")
    # a direct conversation does not say that we are in it: others are not shown to us
    if not direct and wire.get("is_mpim") is not True and wire.get("is_member") is not True:
        return _closed(name)
    return ChannelLook(state="open", name=name)


def _closed(name: str) -> ChannelLook:
    return ChannelLook(state="closed", name=name, what=f"Hermod is not in {name or 'the channel'}", fix=INVITE)


def _read_failed(failed: Failed) -> ChannelLook:
    match failed.code:
        case "channel_not_found":
            what = "there is no such channel, or it is private and Hermod is not in it"
            return ChannelLook(
                state="gone", what=what, fix=f"check its id; into a private channel invite Hermod: {INVITE}"
            )
        case "missing_scope":
            return ChannelLook(state="unknown", what=failed.said, fix=_FULL_SIGHT)
        case _:
            return ChannelLook(state="unknown", what=failed.said, fix="try again later")
