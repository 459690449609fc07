"""The workspace's state, and what a test sees and sets up."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import ClientSession, web

from tests.servers.clock import Clock
from tests.servers.slack.model import ApiCall, Channel, Copies, Delivery, Fault, Json, Outcome, SlackError, Workspace
from tests.servers.slack.pings import find_pings
from tests.servers.slack.rates import Ledger

EVENTS = (
    "app_mention",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
    "reaction_added",
    "app_home_opened",
    "agent_session_stopped",
    "app_uninstalled",
    "tokens_revoked",
)


PATIENCE_S = 60.0
"""How long a test waits for what has to happen: a process may need ten seconds to start where others work too."""


class World:
    """An in-memory workspace with one installed app; ``add_workspace`` makes further ones."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        bot_token: str = "xoxb-fake-bot",
        app_token: str = "xapp-1-fake-app",
        signing_secret: str = "fake-signing-secret",
        client_id: str = "111.222",
        client_secret: str = "fake-client-secret",
        request_url: str | None = None,
        subscriptions: tuple[str, ...] = EVENTS,
        ack_timeout: float = 3.0,
        retry_delays: tuple[float, ...] = (0.0, 60.0, 300.0),
        trigger_ttl: float = 3.0,
        stream_ttl: float = 300.0,
        status_ttl: float = 120.0,
        strict_rate_limits: bool = False,
        max_sockets: int = 10,
        echo_bot_messages: bool = True,
        scopes: tuple[str, ...] | None = None,
        agent: bool = True,
        enterprise_id: str = "",
        max_page: int = 999,
        skew_s: float = 0.0,
    ) -> None:
        self.host, self.port = host, port
        self.app_token, self.signing_secret = app_token, signing_secret
        self.client_id, self.client_secret = client_id, client_secret
        self.request_url = request_url  # HTTP mode when set; Socket Mode otherwise
        self.subscriptions = set(subscriptions)
        self.ack_timeout, self.retry_delays = ack_timeout, retry_delays
        self.trigger_ttl, self.stream_ttl, self.status_ttl = trigger_ttl, stream_ttl, status_ttl
        self.strict_rate_limits, self.max_sockets = strict_rate_limits, max_sockets
        self.echo_bot_messages = echo_bot_messages
        self.agent = agent  # declared as an agent in the app's settings
        self.max_page = max_page  # 15 for conversations.replies/.history of commercial apps outside the Marketplace
        self.skew_s = skew_s  # by how much Slack's clock (Date header, timestamps) is ahead of ours
        self.clock = Clock()
        self.ledger = Ledger()
        self.copies = Copies()  # of every message, unless ``say`` is told otherwise
        self.app_id = "A0FAKE"
        home = Workspace("T0FAKE", "Fake", "U0BOT", "B0FAKE", bot_token, scopes, enterprise_id)
        self.home = home
        self.workspaces: dict[str, Workspace] = {home.id: home}
        self.acting = home  # whose token the call at work bears
        self.users: dict[str, Json] = {}
        self.channels: dict[str, Channel] = {}
        self.calls: list[ApiCall] = []
        self.deliveries: list[Delivery] = []
        self.ephemerals: list[Json] = []
        self.reactions: set[tuple[str, str, str, str]] = set()
        self.views: dict[str, Json] = {}
        self.files: dict[str, Json] = {}
        self.blobs: dict[str, bytes] = {}
        self.streams: dict[str, Json] = {}
        self.sessions: dict[tuple[str, str], Json] = {}
        self.statuses: list[Json] = []
        self.prompts: list[Json] = []
        self.violations: list[str] = []
        self.faults: list[Fault] = []
        self.lose_acks: dict[str, int] = {}  # event type ('*' = any) -> acknowledgements to lose
        self._prepare()
        self.add_user(home.bot_user, "hermod", is_bot=True)
        self.add_user("U1ALICE", "alice")
        self.add_user("U2BOB", "bob")
        self.add_channel("C1OPS", "ops")
        self.add_channel("D1ALICE", "alice-dm", kind="im", members={"U1ALICE"})

    def _prepare(self) -> None:
        """Make what only the server itself uses."""
        self._outcomes: dict[str, Outcome] = {}
        self._triggers: dict[str, float] = {}
        self._response_urls: dict[str, tuple[Outcome, float, str, str | None]] = {}
        self._sockets: dict[int, web.WebSocketResponse] = {}  # by number, in the order of connecting
        self._silent: dict[int, bool] = {}  # number -> whether pings are still answered
        self._refusals = 0
        self._tickets: set[str] = set()
        self._codes: dict[str, Json] = {}
        self._acks: dict[str, asyncio.Future[Json | None]] = {}  # by envelope id
        self._windows: dict[str, deque[float]] = defaultdict(deque)
        self._seq = itertools.count(1)
        self._rr = itertools.count()
        self._last_ts = 0.0
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._runner: web.AppRunner | None = None
        self._http: ClientSession | None = None

    # ------------------------------------------------------------------ the first workspace, by short names
    @property
    def team_id(self) -> str:
        return self.home.id

    @property
    def bot_user(self) -> str:
        return self.home.bot_user

    @property
    def bot_id(self) -> str:
        return self.home.bot_id

    @property
    def bot_token(self) -> str:
        return self.home.bot_token

    @property
    def scopes(self) -> tuple[str, ...] | None:
        """Granted to the bot and enforced; None: everything is granted."""
        return self.home.scopes

    @scopes.setter
    def scopes(self, scopes: tuple[str, ...] | None) -> None:
        self.home.scopes = scopes

    # ------------------------------------------------------------------ setting up
    def add_user(self, uid: str, name: str, *, is_bot: bool = False, **extra: Any) -> None:
        """Add a person; ``extra`` sets further fields, e.g. ``team_id`` or ``is_restricted``."""
        self.users[uid] = {
            "id": uid,
            "team_id": self.team_id,
            "name": name,
            "real_name": name.title(),
            "is_bot": is_bot,
            "deleted": False,
            "tz": "Etc/UTC",
            "tz_offset": 0,
            "profile": {"display_name": name, "real_name": name.title(), "email": f"{name}@example.test"},
            **extra,
        }

    def add_channel(
        self,
        cid: str,
        name: str,
        *,
        kind: str = "channel",
        members: set[str] | list[str] | None = None,
        bot_in: bool = True,
        team: str = "",
        shared_with: str = "",
    ) -> None:
        """Add a conversation; ``shared_with`` (a team id) makes it a Slack Connect channel."""
        space = self.workspaces[team or self.team_id]
        who = set(members or {"U1ALICE", "U2BOB"}) | ({space.bot_user} if bot_in else set())
        self.channels[cid] = Channel(cid, name, kind, who, team=space.id, shared_with=shared_with)

    def add_workspace(self, team_id: str, name: str = "", *, installed: bool = True, **more: Any) -> Workspace:
        """Add another workspace with its own bot user and token; not ``installed``: OAuth has to do that."""
        tail = team_id.removeprefix("T")
        space = Workspace(
            team_id,
            name or team_id,
            f"U0BOT{tail}",
            f"B0{tail}",
            f"xoxb-{tail.lower()}-bot",
            installed=installed,
            **more,
        )
        self.workspaces[team_id] = space
        self.add_user(space.bot_user, "hermod", is_bot=True, team_id=team_id)
        return space

    def archive_channel(self, channel: str) -> None:
        self.channels[channel].archived = True

    def remove_channel(self, channel: str) -> None:
        """Delete it: from now on every call to it answers channel_not_found."""
        del self.channels[channel]

    def kick_bot(self, channel: str) -> None:
        """Take the bot out of a channel: posts answer not_in_channel, events stop."""
        place = self.channels[channel]
        place.members.discard(self.workspaces[place.team].bot_user)

    def fast_forward(self, seconds: float) -> None:
        """Let time pass for the server: retries, stream and status ends, response addresses."""
        self.clock.advance(seconds)

    def inject(self, method: str = "*", **kw: Any) -> Fault:
        """Queue a fault, e.g. ``inject("chat.postMessage", http=429, retry_after=2, times=3, every=4)``."""
        self.faults.append(fault := Fault(method, **kw))
        return fault

    def drop_ack(self, event: str = "*", times: int = 1) -> None:
        """Lose the next ``times`` acknowledgements of an event type ('*' = any), so that Slack delivers again."""
        self.lose_acks[event] = self.lose_acks.get(event, 0) + times

    # ------------------------------------------------------------------ looking
    def messages(self, channel: str, thread_ts: str | None = None) -> list[Json]:
        """Messages of a channel in order, or of one thread (root first)."""
        found = sorted(self.channels[channel].messages.values(), key=lambda m: float(m["ts"]))
        return found if thread_ts is None else [m for m in found if m.get("thread_ts", m["ts"]) == thread_ts]

    def bot_messages(self, channel: str, thread_ts: str | None = None) -> list[Json]:
        bot = self.workspaces[self.channels[channel].team].bot_user
        return [m for m in self.messages(channel, thread_ts) if m.get("user") == bot]

    def replies(self, channel: str, thread_ts: str | None = None) -> list[Json]:
        """The bot's messages that are whole. What is only shown while an answer is written has no key of a reply yet.

        An answer is seen early where a machine is slow, so whoever looks at its words waits for these.
        """
        posted = self.bot_messages(channel, thread_ts)
        return [m for m in posted if m.get("metadata", {}).get("event_type") == "hermod_reply"]

    def calls_to(self, method: str) -> list[ApiCall]:
        return [c for c in self.calls if c.method == method]

    def signs(self, ts: str, *, channel: str = "C1OPS") -> list[str]:
        """The reactions that the bot has on a message now."""
        bot = self.workspaces[self.channels[channel].team].bot_user
        return sorted(name for place, at, name, who in self.reactions if (place, at, who) == (channel, ts, bot))

    def shown_status(self, thread_ts: str, *, channel: str = "C1OPS") -> str:
        """The status that people see in a thread now: gone after two minutes, and with the bot's next message.

        docs.slack.dev/reference/methods/assistant.threads.setStatus
        """
        last = next(
            (s for s in reversed(self.statuses) if (s["channel_id"], s["thread_ts"]) == (channel, thread_ts)), None
        )
        if last is None or self.clock.now() - last["at"] > self.status_ttl:
            return ""
        newest = max((float(m["ts"]) for m in self.bot_messages(channel, thread_ts)), default=0.0)
        return "" if newest > float(last["ts"]) else str(last.get("status", ""))

    def session(self, thread_ts: str, *, channel: str = "C1OPS") -> Json:
        """The agent session of a thread (``status``, ``title``), empty when there is none."""
        return self.sessions.get((channel, thread_ts), {})

    def home_view(self, user: str = "U1ALICE") -> Json:
        """What the app published to a person's Home tab; empty when it did not."""
        return self.views.get(f"VHOME{user}", {})

    def pinged(self, channel: str | None = None) -> set[str]:
        """Everybody (ids, here, channel, everyone) whom the bot's messages of any channel would have notified."""
        found: set[str] = set()
        for place in [channel] if channel else list(self.channels):
            for message in self.bot_messages(place):
                found |= find_pings(message)
        for shown in self.ephemerals:
            found |= find_pings(shown)
        return found

    @property
    def open_sockets(self) -> list[int]:
        """Numbers of the open connections, oldest first."""
        return [number for number, ws in self._sockets.items() if not ws.closed]

    @property
    def rate_violations(self) -> list[str]:
        """What went above the published rates."""
        return self.ledger.violations()

    async def wait_until(self, predicate: Callable[[], Any], timeout: float = PATIENCE_S) -> Any:
        """Wait for a truthy ``predicate()``; it is checked again after every change."""

        async def poll() -> Any:
            async with self._changed:
                while not (value := predicate()):
                    await self._changed.wait()
                return value

        return await asyncio.wait_for(poll(), timeout)

    async def wait_connected(self, timeout: float = PATIENCE_S, *, sockets: int = 1) -> None:
        """Wait for so many open connections; of an app that was ended before, ``wait_gone`` has to be waited for."""
        await self.wait_until(lambda: len(self.open_sockets) >= sockets, timeout)

    async def wait_gone(self) -> None:
        """Wait until no connection is open: that an app has ended is noticed here a moment after its end."""
        await self.wait_until(lambda: not self.open_sockets)

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def base_url(self) -> str:
        """Value for ``AsyncWebClient(base_url=...)``."""
        return f"{self.origin}/api/"

    # ------------------------------------------------------------------ shared machinery
    def _space(self, channel: str) -> Workspace:
        return self.workspaces[self.channels[channel].team]

    def _ts(self) -> str:
        self._last_ts = max(self.clock.wall() + self.skew_s, self._last_ts + 1e-5)
        return f"{self._last_ts:.6f}"

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _spawn(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _describe(self, c: Channel) -> Json:
        """docs.slack.dev/reference/objects/conversation-object: a direct message has a person, no name or members."""
        if c.kind == "im":
            (user, *_) = sorted(c.members - {self._space(c.id).bot_user}) or [""]
            gone = bool(self.users.get(user, {}).get("deleted"))
            im = {"is_im": True, "is_archived": c.archived, "user": user, "is_user_deleted": gone}
            return {"id": c.id, "context_team_id": c.team, **im}
        return {
            "id": c.id,
            "name": c.name,
            "is_channel": c.kind == "channel",
            "is_group": c.kind == "group",
            "is_im": c.kind == "im",
            "is_mpim": c.kind == "mpim",
            "is_private": c.kind != "channel",
            "is_archived": c.archived,
            "is_ext_shared": bool(c.shared_with),
            "is_member": self._space(c.id).bot_user in c.members,
            "num_members": len(c.members),
            "context_team_id": c.team,
        }

    @staticmethod
    def _between(items: list[Json], a: Json) -> list[Json]:
        low, high = float(a.get("oldest") or 0), float(a.get("latest") or "inf")
        whole = str(a.get("inclusive", "")).lower() in ("1", "true")
        return [m for m in items if (low <= float(m["ts"]) <= high if whole else low < float(m["ts"]) < high)]

    def _page(self, key: str, items: list[Any], a: Json, most: int = 999) -> Json:
        try:
            limit = max(1, min(int(a.get("limit") or 100), most))
            start = int(str(a.get("cursor") or "0:").partition(":")[0])
        except ValueError:
            raise SlackError("invalid_cursor" if a.get("cursor") else "invalid_limit") from None
        more = start + limit < len(items)
        return {
            key: items[start : start + limit],
            "has_more": more,
            "response_metadata": {"next_cursor": f"{start + limit}:{key}" if more else ""},
        }
