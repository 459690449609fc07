"""Slack as a ``ChatAdapter``: what comes in, by ``sockets`` or ``http``, and what goes out, put together.

One workspace by a configured token, or as many as installed the app (``installing``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import structlog
from aiohttp import web

from adapters.chat import (
    Accept,
    AdapterError,
    AdapterNotConfigured,
    Author,
    Capabilities,
    ConnectionState,
    Delivered,
    Delivery,
    Draft,
    FileRef,
    InDoubt,
    Limits,
    Opened,
    Problem,
    Reply,
    Said,
    ThreadRef,
)
from adapters.places import ChannelLook, PersonLook
from adapters.slack.checkup import SlackCheckup
from adapters.slack.client import SlackClient, SlackUnreachable
from adapters.slack.drafts import DraftMode
from adapters.slack.files import FILE_HOSTS
from adapters.slack.home import SlackHome
from adapters.slack.http import SlackHttp
from adapters.slack.install import Installing, SlackInstaller
from adapters.slack.intake import OnOpened, OnRemoved, SlackIntake, ignore
from adapters.slack.manifest import BOT_SCOPES
from adapters.slack.order import ArrivalOrder
from adapters.slack.outbound import SlackOutbound
from adapters.slack.parse import PLATFORM
from adapters.slack.places import SlackPlaces, thread_below
from adapters.slack.shared import SharedOutbound
from adapters.slack.sockets import SlackSockets
from adapters.slack.workspace import Wiring, Workspace
from adapters.slack.workspaces import ManyWorkspaces, OneWorkspace, Workspaces
from adapters.surfaces import Surfaces

log = structlog.get_logger("hermod.slack")

LIMITS = Limits(text_max=3500, unit="chars", tail_in_file=True)
"""Of canonical Markdown. Slack recommends 4,000 characters and cuts at 40,000; escaping grows a text at most
fivefold, and ``render_mrkdwn`` stays below the cut for every text that fits here."""

CAPABILITIES = Capabilities(
    threads=True,
    status=True,
    status_ttl_s=120.0,
    edits=True,
    buttons=True,
    files=True,
    drafts=True,
    history=True,
    private=True,
)

LONGEST_PAUSE_S = 30.0


class SlackAdapter:
    """Slack, over Socket Mode or HTTP. All methods may be called concurrently.

    A slash command belongs to no thread; its ``ThreadRef.thread`` is ``command-`` and the trigger id, and
    replies to such a thread are posted into the channel itself.

    Args:
        bot_token: ``xoxb-…``; may be empty with ``installing``.
        app_token: ``xapp-…`` with ``connections:write``; for Socket Mode only.
        api_url: base of the Web API.
        mode: ``http``: Slack calls; mount ``build_routes`` in a server that it reaches. Nothing else differs.
        signing_secret: for ``http`` only.
        installing: lets workspaces install the app, and serves those that did; mount ``build_routes`` for it, too.
        connections: how many websockets are kept open, so that one can be replaced while another serves.
        bots: ids of other bots whose messages count; all others are dropped.
        on_opened, on_removed: called when somebody looks at Hermod's page (it was drawn then), and when a workspace
            removed Hermod.
        people_wait_s: the longest time that looking up names may hold up an acknowledgement.
        people_ttl_s: how long a person is taken as known.
        post_patience_s: the longest time that a post waits for its channel's turn.
        drafts: how an answer is shown while it is written.
        file_hosts: the hosts from which attached files may be fetched.
        call_timeout_s: the longest time of one call of the Web API.
        ping_interval_s: of a websocket; one on which nothing came for four times as long is replaced.
        quiet_s: one on which nothing but answers to our own pings came for so long is replaced, too.
        retry_s: the pause after a first failure to connect; it doubles with each further one.
        now, monotonic, sleep: the clock.
    """

    platform = PLATFORM
    capabilities = CAPABILITIES
    limits = LIMITS

    def __init__(
        self,
        bot_token: str,
        app_token: str = "",
        api_url: str = "https://slack.com/api/",
        *,
        mode: Literal["socket", "http"] = "socket",
        signing_secret: str = "",
        installing: Installing | None = None,
        connections: int = 2,
        bots: Collection[str] = (),
        on_opened: OnOpened = ignore,
        on_removed: OnRemoved = ignore,
        people_wait_s: float = 1.0,
        people_ttl_s: float = 3600.0,
        post_patience_s: float = 2.0,
        drafts: DraftMode = "stream",
        file_hosts: Collection[str] = FILE_HOSTS,
        call_timeout_s: float = 20.0,
        ping_interval_s: float = 5.0,
        quiet_s: float = 300.0,
        retry_s: float = 1.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        wiring = Wiring(
            api_url=api_url,
            call_timeout_s=call_timeout_s,
            people_wait_s=people_wait_s,
            people_ttl_s=people_ttl_s,
            post_patience_s=post_patience_s,
            drafts=drafts,
            file_hosts=file_hosts,
            monotonic=monotonic,
            sleep=sleep,
        )
        self._mode = mode
        self._connections = connections
        checkup = partial(SlackCheckup, bot_token, app_token, api_url, mode=mode, signing_secret=signing_secret)
        self._build_checkup = partial(checkup, many=installing is not None, now=now, monotonic=monotonic)
        self._signing_secret = signing_secret
        self._retry_s = retry_s
        self._now = now
        self._sleep = sleep
        # the app's own calls; for one workspace they have its rates, so it is the same client
        self._client = wiring.build_client("" if installing else bot_token, app_token=app_token)
        self._installer: SlackInstaller | None = None
        self._workspaces, self._outbound = self._build_workspaces(wiring, bot_token, installing)
        self._places = SlackPlaces(self._workspaces, monotonic=monotonic)
        self._home = SlackHome(self._find_client)
        self._on_opened = on_opened
        self._intake = SlackIntake(
            client=self._client,
            workspaces=self._workspaces,
            bots=bots,
            on_opened=self._show_opened,
            on_removed=on_removed,
            order=ArrivalOrder(),
            now=now,
        )
        self._http = SlackHttp(signing_secret=signing_secret, intake=self._intake, now=now)
        self._build_sockets = partial(
            SlackSockets,
            client=self._client,
            intake=self._intake,
            count=connections,
            ping_interval_s=ping_interval_s,
            quiet_s=quiet_s,
            base_pause_s=retry_s,
            monotonic=monotonic,
            sleep=sleep,
        )
        self._sockets: SlackSockets | None = None
        self._coming_up: asyncio.Task[None] | None = None
        self._since: datetime | None = None

    def _build_workspaces(
        self, wiring: Wiring, bot_token: str, installing: Installing | None
    ) -> tuple[Workspaces, SlackOutbound | SharedOutbound]:
        """Serve the one workspace of ``bot_token``, or every one that installed the app."""
        if installing is None:
            workspace = Workspace(self._client, wiring)
            return OneWorkspace(workspace), workspace.outbound
        many = ManyWorkspaces(
            installing.installations,
            wiring,
            install_url=installing.app.install_url,
            bot_token=bot_token,
            now=self._now,
        )
        self._installer = SlackInstaller(
            installing,
            client=self._client,
            scopes=sorted(BOT_SCOPES),
            identify=many.identify,
            on_installed=many.installed,
            now=self._now,
        )
        return many, SharedOutbound(many)

    # -- the connection
    @property
    def connected(self) -> bool:
        """True while events can arrive: a websocket is open and greeted, or the routes are mounted; and we know us."""
        if self._mode == "http":
            return self._http.connected
        return self._intake.is_open and self._sockets is not None and self._sockets.connected

    @property
    def state(self) -> ConnectionState:
        """How the connection stands, since when, and when something last came in."""
        return ConnectionState(
            connected=self.connected,
            since=self._since if self.connected else None,
            last_event_at=self._intake.last_event_at,
        )

    def build_routes(self) -> Sequence[web.RouteDef]:
        """Build the routes that Slack calls (not in Socket Mode) and those of installing, for aiohttp's server.

        Over HTTP ``connected`` is true only after this, because before it nothing can arrive.
        """
        events = self._http.build_routes() if self._mode == "http" else ()
        return (*events, *(self._installer.build_routes() if self._installer is not None else ()))

    async def start(self, accept: Accept) -> None:
        """Learn who we are, then let events come; nothing is accepted before our own identity is known.

        Returns also when Slack cannot be reached: it is then tried again until ``stop``, and ``connected`` tells.

        Raises:
            AdapterNotConfigured: a token or the signing secret is missing, a token is refused, or kept ones cannot be
                read.
        """
        if self._mode == "http" and not self._signing_secret.strip():
            raise AdapterNotConfigured(
                "slack: signing_secret is missing; set it in [slack] or HERMOD_SLACK__SIGNING_SECRET "
                "(api.slack.com/apps, Basic Information)"
            )
        try:
            await self._come_up(accept)
        except SlackUnreachable as error:
            log.warning("slack_not_reached", reason=str(error))
            if self._sockets is None:
                self._coming_up = asyncio.create_task(self._keep_trying(accept), name="slack-coming-up")

    async def wind_down(self) -> None:
        """Take nothing more, and close the websockets once what was taken is acknowledged; calls go on until ``stop``.

        Slack delivers an event that was not acknowledged again, to another process or a later one, and tells whoever
        gave a command or pressed a button that it did not work.
        """
        self._intake.close()
        if self._coming_up is not None:
            self._coming_up.cancel()
            await asyncio.wait([self._coming_up])
            self._coming_up = None
        if self._sockets is not None:
            sockets, self._sockets = self._sockets, None
            await sockets.close()
        await self._intake.drain(3.0)

    async def stop(self) -> None:
        """Stop receiving, let what was received be acknowledged, close everything. Safe to call twice."""
        await self.wind_down()
        await self._workspaces.close()
        await self._client.close()

    async def _come_up(self, accept: Accept) -> None:
        await self._workspaces.prepare()
        self._intake.open(accept)
        self._since = self._now()
        if self._mode == "socket":
            sockets = self._sockets = self._build_sockets()  # known before it starts, so that ``stop`` can end it
            try:
                await sockets.start()
            except AdapterNotConfigured:
                self._intake.close()
                self._sockets = None
                await sockets.close()
                raise

    async def _keep_trying(self, accept: Accept) -> None:
        """Learn who we are as soon as Slack tells; from then on the websockets look after themselves."""
        pause_s = self._retry_s
        while self._sockets is None and not (self._mode == "http" and self._intake.is_open):
            await self._sleep(pause_s)
            try:
                await self._come_up(accept)
            except AdapterError as error:
                log.error("slack_not_connected", reason=str(error))
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    # -- its own places
    def show_surfaces(self, surfaces: Surfaces) -> None:
        """Draw the Home tab and suggestions that ``surfaces`` gives, from now on."""
        self._home.show_surfaces(surfaces)

    async def _show_opened(self, opened: Opened) -> None:
        await self._home.show(opened)
        await self._on_opened(opened)

    async def _find_client(self, workspace: str) -> SlackClient:
        return (await self._workspaces.find(workspace)).client

    # -- what goes out
    async def post(self, reply: Reply) -> Delivery:
        """Post one reply that fits ``limits``. Failures are values; only cancellation is raised."""
        return await self._outbound.post(reply)

    async def find_posted(self, thread: ThreadRef, key: str) -> Delivered | InDoubt | None:
        """Look in the thread for our own message whose metadata holds ``key``."""
        return await self._outbound.find_posted(thread, key)

    async def complete_post(self, reply: Reply, remote_id: str) -> None:
        """Post those files of a reply that are not there, after its text was found."""
        await self._outbound.complete_post(reply, remote_id)

    async def set_status(self, thread: ThreadRef, text: str) -> None:
        """Show that work goes on. Best effort; never raises."""
        await self._outbound.set_status(thread, text)

    def open_draft(self, thread: ThreadRef, *, asker: Author | None) -> Draft | None:
        """Begin an answer that people see while it is written."""
        return self._outbound.open_draft(thread, asker=asker)

    async def discard_draft(self, thread: ThreadRef, remote_id: str) -> None:
        """Remove what a process that died left of a draft."""
        await self._outbound.discard_draft(thread, remote_id)

    async def fetch_history(self, thread: ThreadRef, *, limit: int) -> tuple[Said, ...]:
        """Read what was said in a thread, oldest first."""
        return await self._outbound.fetch_history(thread, limit=limit)

    async def fetch_file(self, file: FileRef, *, max_bytes: int) -> bytes | None:
        """Fetch an attached file from Slack's own hosts only."""
        return await self._outbound.fetch_file(file, max_bytes=max_bytes)

    async def react(self, thread: ThreadRef, message_id: str, sign: str) -> None:
        """Put a sign on a message, or take it off."""
        await self._outbound.react(thread, message_id, sign)

    # -- places
    async def look_at_channel(self, workspace: str, channel: str) -> ChannelLook:
        """Tell whether Hermod can post in a channel; see ``SlackPlaces``."""
        return await self._places.look_at_channel(workspace, channel)

    async def look_at_person(self, workspace: str, user: str) -> PersonLook:
        """Tell whether a person is still there, and what they are."""
        return await self._places.look_at_person(workspace, user)

    def thread_below(self, thread: ThreadRef, remote_id: str) -> ThreadRef:
        """Return the thread below a post that stands in the channel itself."""
        return thread_below(thread, remote_id)

    async def check(self) -> tuple[Problem, ...]:
        """Look at tokens, scopes and reachability, see ``adapters.slack.checkup``. Never raises."""
        checkup = self._build_checkup(running=self._connections if self._sockets is not None else 0)
        try:
            return await checkup.check()
        finally:
            await checkup.stop()
