"""The workspaces that one app serves: one by a configured token, or as many as installed it.

Which one an event or a reply belongs to is decided here and nowhere else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

import structlog

from adapters.chat import AdapterError, AdapterNotConfigured
from adapters.slack.installation import Installation, Installations, NewInstallation, NotInstalled
from adapters.slack.parse import Identity
from adapters.slack.wire import Wire, number_of, part_of, parts_of, text_of
from adapters.slack.workspace import Recipient, Wiring, Workspace

log = structlog.get_logger("hermod.slack")

MOST_WORKSPACES = 500
"""Workspaces that are held ready; a further one takes the place of the one that was used longest ago."""

FRESH_S = 300.0
"""How long a workspace is taken as it was read; another process may have installed it anew, or forgotten it."""

RETIRED_S = 600.0
"""How long a workspace whose place was taken, or that was installed anew, may go on with what it was doing."""

GONE = frozenset({"token_revoked", "account_inactive"})
"""Slack's words for: this workspace removed the app. ``invalid_auth`` is none: it also refuses an address."""

EVENT_SLACK = timedelta(seconds=1)
"""Slack tells the time of an event in whole seconds."""


class Workspaces(Protocol):
    """Finds workspaces. Safe to call concurrently."""

    async def prepare(self) -> None:
        """Learn what has to be known before the first event; called again after ``SlackUnreachable``.

        Raises:
            AdapterNotConfigured: the operator has to act.
            SlackUnreachable: try again later.
        """
        ...

    async def find(self, workspace: str) -> Workspace:
        """Return a workspace.

        Raises:
            NotInstalled: it has not installed Hermod, or not any more.
            AdapterError: it cannot be told now.
        """
        ...

    def peek(self, workspace: str) -> Workspace | None:
        """Return a workspace that is held ready."""
        ...

    async def find_recipient(self, payload: Wire) -> Recipient:
        """Return for whom a delivery is, without asking Slack. Raises as ``find``."""
        ...

    async def end(self, payload: Wire, reason: str) -> None:
        """Take note that the workspace of a delivery removed Hermod."""
        ...

    async def close(self) -> None:
        """Close every connection. Safe to call twice."""
        ...


class OneWorkspace:
    """The workspace of a configured bot token; whatever comes in is for it."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def prepare(self) -> None:
        """Learn who we are."""
        await self._workspace.identify()

    async def find(self, workspace: str) -> Workspace:
        """Return it."""
        return self._workspace

    def peek(self, workspace: str) -> Workspace | None:
        """Return it."""
        return self._workspace

    async def find_recipient(self, payload: Wire) -> Recipient:
        """Return who we are."""
        return Recipient(identity=await self._workspace.identify(), people=self._workspace.people)

    async def end(self, payload: Wire, reason: str) -> None:
        """Do nothing: every further call says by itself that the token is dead."""

    async def close(self) -> None:
        """Close its connections."""
        await self._workspace.close()


class ManyWorkspaces:
    """The workspaces that installed the app. Nothing is asked of Slack to find one: what is kept tells who we are.

    Args:
        installations: keeps them.
        wiring: see there.
        install_url: for messages: where Hermod can be installed.
        bot_token: of a workspace that the app was installed in by hand; it is kept like the others. Empty for none.
        most: workspaces held ready, see ``MOST_WORKSPACES``.
        now: the clock.
    """

    def __init__(
        self,
        installations: Installations,
        wiring: Wiring,
        *,
        install_url: str,
        bot_token: str = "",
        most: int = MOST_WORKSPACES,
        now: Callable[[], datetime],
    ) -> None:
        self._installations = installations
        self._wiring = wiring
        self._install_url = install_url
        self._bot_token = bot_token.strip()
        self._most = most
        self._now = now
        self._ready: OrderedDict[str, Workspace] = OrderedDict()
        self._retired: list[tuple[float, Workspace]] = []
        self._ends = 0

    async def prepare(self) -> None:
        """Check that all tokens can be read, keep the configured one, and hold the newest workspaces ready."""
        await self._installations.prepare()
        if self._bot_token:
            await self._adopt(self._bot_token)
        for installation in reversed(await self._installations.load_all(most=self._most)):
            self._hold(installation)

    def installed(self, installation: Installation) -> None:
        """Use a new installation from now on."""
        self._hold(installation)

    async def find(self, workspace: str) -> Workspace:
        """Return a workspace that is held ready, or look it up."""
        known = self._ready.get(workspace)
        if known is not None:
            self._ready.move_to_end(workspace)
            if self._wiring.monotonic() - known.read_at < FRESH_S:
                return known
        await self._close_retired(RETIRED_S)
        try:
            installation = await self._read(workspace)
        except AdapterError as error:
            if known is None:
                raise
            log.warning("slack_installation_not_read", workspace=workspace, reason=str(error))
            return known
        if installation is None:
            self._end(workspace, "not installed any more")
            raise NotInstalled(
                f"slack: Hermod is not installed in the workspace {workspace} (any more); "
                f"somebody there can install it at {self._install_url}"
            )
        return self._hold(installation)

    async def _read(self, workspace: str) -> Installation | None:
        while True:
            ends = self._ends
            installation = await self._installations.find(workspace)
            if ends == self._ends:  # else it may have ended while it was read
                return installation

    def peek(self, workspace: str) -> Workspace | None:
        """Return a workspace that is held ready."""
        return self._ready.get(workspace)

    async def find_recipient(self, payload: Wire) -> Recipient:
        """Return for whom a delivery is."""
        key = workspace_of(payload)
        workspace = await self.find(key)
        return Recipient(identity=await workspace.identify(), people=workspace.people, workspace=key)

    async def end(self, payload: Wire, reason: str) -> None:
        """Forget the token of the delivery's workspace, unless it was installed anew after what the delivery tells."""
        key, at = workspace_of(payload), number_of(payload, "event_time")
        until = datetime.fromtimestamp(at, UTC) + EVENT_SLACK if at else None
        if await self._installations.remove(key, reason=reason, installed_by=until):
            log.warning("slack_removed", workspace=key, reason=reason)
            self._end(key, reason)

    async def identify(self, bot_token: str) -> Identity:
        """Ask Slack whose token this is. Raises as ``SlackClient.identify``."""
        client = self._wiring.build_client(bot_token)
        try:
            return await client.identify()
        finally:
            await client.close()

    async def close(self) -> None:
        """Close the connections of all of them; a later call opens new ones."""
        for workspace in [*self._ready.values(), *(workspace for _, workspace in self._retired)]:
            await workspace.close()

    # -- holding
    def _hold(self, installation: Installation) -> Workspace:
        """Hold an installation ready, in place of an earlier one of the same workspace."""
        key = installation.workspace
        known = self._ready.get(key)
        if known is not None and known.revision >= installation.revision:
            known.read_at = self._wiring.monotonic()
            return known
        if known is not None:
            known.client.use_token(installation.token)  # what it is doing goes on
            self._retire(key)
        client = self._wiring.build_client(installation.token, renew=lambda dead, code: self._renew(key, dead, code))
        workspace = self._ready[key] = Workspace(
            client, self._wiring, identity=_identity_of(installation), revision=installation.revision
        )
        while len(self._ready) > self._most:
            self._retire(next(iter(self._ready)))
        return workspace

    def _retire(self, key: str) -> None:
        self._retired.append((self._wiring.monotonic(), self._ready.pop(key)))

    def _end(self, key: str, reason: str) -> None:
        """Make no call for a workspace any more."""
        self._ends += 1
        if key in self._ready:
            self._ready[key].client.end(reason)
            self._retire(key)

    async def _close_retired(self, older_s: float) -> None:
        now = self._wiring.monotonic()
        late = [workspace for since, workspace in self._retired if now - since >= older_s]
        self._retired = [(since, workspace) for since, workspace in self._retired if now - since < older_s]
        for workspace in late:
            await workspace.close()

    # -- tokens
    async def _renew(self, key: str, dead: str, code: str) -> str | None:
        """Slack refuses a token: return the one that took its place, or take note that the workspace is gone."""
        try:
            installation = await self._installations.find(key)
            if installation is not None and installation.token != dead:
                self._hold(installation)
                return installation.token
            if installation is not None and code in GONE:
                removed = await self._installations.remove(key, reason=code, revision=installation.revision)
                log.warning("slack_removed", workspace=key, reason=code, removed=removed)
            if installation is None or code in GONE:
                self._end(key, code)
        except AdapterError as error:
            log.error("slack_installation_not_read", workspace=key, reason=str(error))
        return None

    async def _adopt(self, bot_token: str) -> None:
        """Keep the configured token as the installation of its workspace, unless that has one."""
        try:
            identity = await self.identify(bot_token)
        except AdapterNotConfigured as error:
            raise AdapterNotConfigured(f"{error}; or remove bot_token, since workspaces install the app") from None
        await self._installations.save(
            NewInstallation(
                workspace=identity.team,
                name=identity.team,
                enterprise=identity.enterprise,
                org_wide=identity.team == identity.enterprise,
                token=bot_token,
                bot_user=identity.bot_user,
                bot=identity.bot,
                scopes=identity.scopes or frozenset(),
                installed_at=self._now(),
            ),
            unless_known=True,
        )


def workspace_of(payload: Wire) -> str:
    """Return whose installation a delivery is for; empty when it does not say.

    An event names it in ``authorizations`` (the outer team of an event from a shared channel may be the other side's);
    a command has ``team_id``, an interaction ``team``, and of an installation in a whole organisation the
    organisation counts (docs.slack.dev/apis/events-api, .../interactivity/implementing-slash-commands).
    """
    first = next(iter(parts_of(payload, "authorizations")), {})
    flags = (first.get("is_enterprise_install"), payload.get("is_enterprise_install"))
    if any(flag in (True, "true") for flag in flags):
        enterprise = text_of(first, "enterprise_id") or text_of(payload, "enterprise_id")
        return enterprise or text_of(part_of(payload, "enterprise"), "id")
    return text_of(first, "team_id") or text_of(payload, "team_id") or text_of(part_of(payload, "team"), "id")


def _identity_of(installation: Installation) -> Identity:
    return Identity(
        team=installation.workspace,
        bot_user=installation.bot_user,
        bot=installation.bot,
        enterprise=installation.enterprise,
        scopes=installation.scopes,
    )
