"""What goes out to many workspaces: each thing with the token of its own workspace, nothing to one that is gone."""

from __future__ import annotations

from dataclasses import replace

import structlog

from adapters.chat import (
    AdapterError,
    Author,
    Delivered,
    Delivery,
    Draft,
    FileRef,
    InDoubt,
    Rejected,
    Reply,
    RetryLater,
    Said,
    ThreadRef,
)
from adapters.slack.installation import NotInstalled
from adapters.slack.outbound import SlackOutbound
from adapters.slack.workspaces import Workspaces

log = structlog.get_logger("hermod.slack")

UNREADABLE_S = 30.0
"""When a post is tried again whose workspace cannot be looked up (the storage fails, or a key is not there)."""


class SharedOutbound:
    """Finds the workspace of everything that goes out. Same methods and meaning as ``SlackOutbound``.

    Args:
        workspaces: finds them.
    """

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def post(self, reply: Reply) -> Delivery:
        """Post one reply; to a workspace that removed Hermod nothing is tried."""
        try:
            workspace = await self._workspaces.find(reply.thread.workspace)
        except NotInstalled as error:
            return Rejected(reason=str(error))
        except AdapterError as error:
            return RetryLater(after_s=UNREADABLE_S, reason=str(error))
        return await workspace.outbound.post(reply)

    async def find_posted(self, thread: ThreadRef, key: str) -> Delivered | InDoubt | None:
        """Look in the thread for our own message whose metadata holds ``key``."""
        try:
            workspace = await self._workspaces.find(thread.workspace)
        except AdapterError as error:
            return InDoubt(reason=str(error))
        return await workspace.outbound.find_posted(thread, key)

    async def complete_post(self, reply: Reply, remote_id: str) -> None:
        """Post those files of a reply that are not there."""
        if (outbound := await self._find(reply.thread.workspace)) is not None:
            await outbound.complete_post(reply, remote_id)

    async def set_status(self, thread: ThreadRef, text: str) -> None:
        """Show that work goes on. Best effort; never raises."""
        if (outbound := await self._find(thread.workspace)) is not None:
            await outbound.set_status(thread, text)

    async def react(self, thread: ThreadRef, message_id: str, sign: str) -> None:
        """Put a sign on a message, or take it off. Best effort."""
        if (outbound := await self._find(thread.workspace)) is not None:
            await outbound.react(thread, message_id, sign)

    def open_draft(self, thread: ThreadRef, *, asker: Author | None) -> Draft | None:
        """Begin an answer that people see while it is written, where the workspace is held ready."""
        workspace = self._workspaces.peek(thread.workspace)
        return None if workspace is None else workspace.outbound.open_draft(thread, asker=asker)

    async def discard_draft(self, thread: ThreadRef, remote_id: str) -> None:
        """Remove what a process that died left of a draft. Best effort; never raises."""
        if (outbound := await self._find(thread.workspace)) is not None:
            await outbound.discard_draft(thread, remote_id)

    async def fetch_history(self, thread: ThreadRef, *, limit: int) -> tuple[Said, ...]:
        """Read what was said in a thread, oldest first; empty when it cannot be read."""
        outbound = await self._find(thread.workspace)
        return () if outbound is None else await outbound.fetch_history(thread, limit=limit)

    async def fetch_file(self, file: FileRef, *, max_bytes: int) -> bytes | None:
        """Fetch an attached file with the token of the workspace that it was sent in (``mark_address``)."""
        workspace, _, address = file.address.partition(" ")
        outbound = await self._find(workspace) if address else None
        return (
            None if outbound is None else await outbound.fetch_file(replace(file, address=address), max_bytes=max_bytes)
        )

    async def close(self) -> None:
        """Do nothing: the workspaces are closed by who holds them."""

    async def _find(self, workspace: str) -> SlackOutbound | None:
        try:
            return (await self._workspaces.find(workspace)).outbound
        except AdapterError as error:
            log.info("slack_workspace_not_found", workspace=workspace, reason=str(error))
            return None


def mark_address(file: FileRef, workspace: str) -> FileRef:
    """Write into a file's address whose token fetches it; an address itself has no spaces."""
    return replace(file, address=f"{workspace} {file.address}") if file.address else file
