"""All that is one workspace's own: the calls made with its token and their rates, its people, what goes out to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from adapters.slack.client import Renew, SlackClient
from adapters.slack.directory import Directory
from adapters.slack.drafts import DraftMode
from adapters.slack.outbound import SlackOutbound
from adapters.slack.parse import Identity, Person


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What all workspaces of an adapter have in common; see ``SlackAdapter``."""

    api_url: str
    call_timeout_s: float
    people_wait_s: float
    people_ttl_s: float
    post_patience_s: float
    drafts: DraftMode
    file_hosts: Collection[str]
    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]

    def build_client(self, bot_token: str, *, app_token: str = "", renew: Renew | None = None) -> SlackClient:
        """Build a client that acts with these tokens."""
        return SlackClient(
            bot_token=bot_token,
            app_token=app_token,
            api_url=self.api_url,
            timeout_s=self.call_timeout_s,
            renew=renew,
            monotonic=self.monotonic,
            sleep=self.sleep,
        )


class Workspace:
    """One workspace.

    Args:
        client: acts with its token.
        wiring: see there.
        identity: who we are there, if that is known; else Slack is asked once.
        revision: of the installation.
    """

    def __init__(
        self, client: SlackClient, wiring: Wiring, *, identity: Identity | None = None, revision: int = 0
    ) -> None:
        self.client = client
        self.revision = revision
        self.read_at = wiring.monotonic()
        self._identity = identity
        self.people = Directory(
            self._fetch_person,
            monotonic=wiring.monotonic,
            ttl_s=wiring.people_ttl_s,
            wait_s=wiring.people_wait_s,
        )
        self.outbound = SlackOutbound(
            client,
            identify=self.identify,
            people=self.people.find,
            patience_s=wiring.post_patience_s,
            drafts=wiring.drafts,
            file_hosts=wiring.file_hosts,
            monotonic=wiring.monotonic,
            sleep=wiring.sleep,
        )

    async def identify(self) -> Identity:
        """Return who we are; asks Slack until it told once. Raises as ``SlackClient.identify``."""
        self._identity = self._identity or await self.client.identify()
        return self._identity

    async def close(self) -> None:
        """Write nothing more and close every connection. Safe to call twice."""
        await self.outbound.close()
        await self.people.close()
        await self.client.close()

    async def _fetch_person(self, user: str) -> Person | None:
        if self._identity is None:
            return None
        return await self.client.fetch_person(user, self._identity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """What is needed to understand a delivery: for whom it is, and who the people are.

    ``workspace`` marks the files of messages where tokens differ (``mark_address``); empty for no mark.
    """

    identity: Identity
    people: Directory
    workspace: str = ""
