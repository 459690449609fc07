"""From Slack's wire events to the contract's values. The only place that makes a Slack ``ThreadRef``.

Wire data is read defensively: a shape that is not understood gives None, and the adapter acknowledges and
ignores it. References: docs.slack.dev/reference/events/message and its subtypes, .../app_mention,
.../agent_session_stopped, .../app_home_opened, .../tokens_revoked,
docs.slack.dev/interactivity/implementing-slash-commands, docs.slack.dev/reference/interaction-payloads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from adapters.chat import (
    COMMAND_THREAD,
    Action,
    Author,
    Command,
    Deleted,
    FileRef,
    Message,
    Opened,
    Removed,
    Stop,
    ThreadRef,
)
from adapters.slack.text import USER, markup_of, quoted_of, read_markup
from adapters.slack.wire import Wire, number_of, parse_time, part_of, parts_of, text_of

__all__ = [
    "COMMAND_THREAD",
    "PLATFORM",
    "SUBTYPES",
    "Identity",
    "Person",
    "RawMessage",
    "RawOpened",
    "RawStop",
    "Wire",
    "build_author",
    "build_message",
    "build_opened",
    "build_stop",
    "parse_actions",
    "parse_command",
    "parse_event",
    "parse_identity",
    "parse_person",
    "parse_place",
    "parse_thread",
    "parse_time",
    "part_of",
    "parts_of",
    "read_text",
    "text_of",
]

PLATFORM = "slack"

SUBTYPES = frozenset({"", "file_share", "thread_broadcast", "me_message"})
"""Kinds of messages that a person wrote. Of all others only edits and deletions are looked at."""

EDITED_MENTION_S = 72_000.0
"""An ``app_mention`` that was edited later than this is not answered: it may have been answered so long ago that it
is not remembered. A mention that the edit itself added is seen by ``message_changed``, whenever it happens."""

_SLACKBOT = "USLACKBOT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who we are in the workspace, as auth.test told."""

    team: str
    bot_user: str
    bot: str
    enterprise: str = ""
    scopes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """What users.info tells of somebody."""

    name: str
    bot: bool = False
    external: bool = False
    guest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RawMessage:
    """A message whose people have no names yet. ``external`` and ``called`` are what the event itself says."""

    thread: ThreadRef
    id: str
    user: str
    text: str
    mentioned: bool
    direct: bool
    sent_at: datetime
    delivery_id: str
    external: bool
    bot: bool
    called: str = ""
    files: tuple[FileRef, ...] = ()
    quoted: str = ""

    @property
    def people(self) -> tuple[str, ...]:
        """Ids of the author and of everybody whom the text mentions; a bot without a user is nobody to ask for."""
        author = [self.user] if self.user[:1] in ("U", "W") else []
        return tuple(dict.fromkeys([*author, *USER.findall(self.text)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RawStop:
    """Slack's stop sign under an answer, pressed by ``user``."""

    thread: ThreadRef
    id: str
    user: str
    sent_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RawOpened:
    """``user`` looks at our page."""

    workspace: str
    user: str
    tab: str
    channel: str = ""


Parsed = RawMessage | RawStop | RawOpened | Deleted | Removed


def parse_thread(workspace: str, channel: str, thread: str) -> ThreadRef | None:
    """Make the address of a Slack thread, or None when a part is missing."""
    try:
        return ThreadRef(platform=PLATFORM, workspace=workspace, channel=channel, thread=thread)
    except ValueError:
        return None


def parse_identity(wire: Wire, scopes: frozenset[str] | None) -> Identity | None:
    """Read auth.test; None when the token belongs to no bot. An organisation's token may name no workspace."""
    enterprise = text_of(wire, "enterprise_id")
    team, user, bot = text_of(wire, "team_id") or enterprise, text_of(wire, "user_id"), text_of(wire, "bot_id")
    if not (team and user and bot):
        return None
    return Identity(team=team, bot_user=user, bot=bot, enterprise=enterprise, scopes=scopes)


def parse_person(user: Wire, identity: Identity) -> Person:
    """Read a user of users.info. A single-channel or multi-channel guest is a guest, a stranger is external.

    In an Enterprise Grid organisation people of sibling workspaces are not external.
    """
    profile = part_of(user, "profile")
    names = (text_of(profile, "display_name"), text_of(profile, "real_name"), text_of(user, "real_name"))
    team = text_of(user, "team_id")
    enterprise = text_of(part_of(user, "enterprise_user"), "enterprise_id")
    ours = team in ("", identity.team) or (enterprise == identity.enterprise != "")
    return Person(
        name=next((n for n in names if n), text_of(user, "name") or text_of(user, "id")),
        bot=user.get("is_bot") is True,
        external=user.get("is_stranger") is True or not ours,
        guest=user.get("is_restricted") is True or user.get("is_ultra_restricted") is True,
    )


def parse_place(body: Wire) -> tuple[str, str] | None:
    """Return what keeps events in order: the thread (whatever the workspace) and the time; None: no matter.

    An edit or deletion belongs to the thread of the message it is about.
    """
    event = part_of(body, "event")
    said = part_of(event, "message") or part_of(event, "previous_message") or event
    at = text_of(event, "event_ts") or text_of(event, "ts")
    channel = text_of(event, "channel")
    root = text_of(said, "thread_ts") or text_of(said, "ts") or at
    if text_of(event, "type") not in ("message", "app_mention") or not (channel and root):
        return None
    return f"{channel}/{root}", at


def parse_event(body: Wire, identity: Identity, *, bots: Collection[str] = ()) -> Parsed | None:
    """Read an Events API body.

    Args:
        body: the whole payload, not only its ``event``.
        identity: ours; our own messages give None.
        bots: ids (``B…``, ``U…`` or ``A…``) of other bots whose messages count.

    Returns:
        What it means, or None for everything that is not for a chat program: own words, joins, topics, and edits,
        except one by which a person added our mention: that is the message, mentioned.
    """
    event = part_of(body, "event")
    match text_of(event, "type"), text_of(event, "subtype"):
        case "message", "message_changed":
            return _parse_change(body, event, identity)
        case "message", "message_deleted":
            was = part_of(event, "previous_message")
            return _build_deleted(body, event, was, text_of(event, "deleted_ts") or text_of(was, "ts"), identity)
        case "message" | "app_mention", _:
            return _parse_said(body, event, identity, bots)
        case "agent_session_stopped", _:
            return _parse_stop(body, event, identity)
    return _parse_life(event, _workspace(body, identity))


def build_message(raw: RawMessage, people: Mapping[str, Person], identity: Identity) -> Message:
    """Give the message's people their names. Who is not in ``people`` keeps the id as name."""
    return Message(
        thread=raw.thread,
        id=raw.id,
        author=build_author(raw.user, people.get(raw.user), external=raw.external, bot=raw.bot, called=raw.called),
        text=read_text(raw.text, people, identity),
        mentioned=raw.mentioned,
        direct=raw.direct,
        sent_at=raw.sent_at,
        delivery_id=raw.delivery_id,
        files=raw.files,
        quoted=read_text(raw.quoted, people, identity),
    )


def build_author(
    user: str, person: Person | None, *, external: bool = False, bot: bool = False, called: str = ""
) -> Author:
    """Describe who wrote; without ``person`` by the id and what the event itself says.

    A bot is heard only when the operator listed it, so it is not unknown, whether users.info tells of it or not.
    """
    if person is None:
        return Author(id=user, name=called or user, external=external, bot=bot, unknown=not bot)
    return Author(id=user, name=person.name, bot=bot or person.bot, external=person.external, guest=person.guest)


def build_stop(raw: RawStop, people: Mapping[str, Person]) -> Stop:
    """Give the one who stopped a name."""
    return Stop(thread=raw.thread, id=raw.id, author=build_author(raw.user, people.get(raw.user)), sent_at=raw.sent_at)


def build_opened(raw: RawOpened, people: Mapping[str, Person]) -> Opened:
    """Give the one who looks a name."""
    author = build_author(raw.user, people.get(raw.user))
    return Opened(workspace=raw.workspace, author=author, tab=raw.tab, channel=raw.channel)


def parse_command(
    body: Wire, author: Author, identity: Identity, received_at: datetime, *, delivery_id: str = ""
) -> Command | None:
    """Read a slash command. See ``COMMAND_THREAD`` for where its replies go.

    Its id is the trigger's, which every redelivery repeats; ``delivery_id`` stands in where there is none.
    """
    trigger, name = text_of(body, "trigger_id") or delivery_id, text_of(body, "command").removeprefix("/")
    channel = text_of(body, "channel_id")
    thread = parse_thread(_workspace(body, identity), channel, f"{COMMAND_THREAD}{trigger}" if trigger else "")
    if thread is None or not name:
        return None
    return Command(
        thread=thread,
        id=trigger,
        author=author,
        name=name,
        text=read_text(text_of(body, "text"), {}, identity),
        sent_at=received_at,
        respond_to=text_of(body, "response_url"),
    )


def parse_actions(
    body: Wire, author: Author, identity: Identity, received_at: datetime, *, delivery_id: str = ""
) -> tuple[Action, ...]:
    """Read the pressed buttons of a block_actions payload; those without an address are left out."""
    container, message = part_of(body, "container"), part_of(body, "message")
    channel = text_of(container, "channel_id") or text_of(part_of(body, "channel"), "id")
    root = text_of(message, "thread_ts") or text_of(container, "thread_ts") or text_of(container, "message_ts")
    # under our own post the thread is ours, whichever organisation's person pressed it
    ours = _is_ours(message, identity, "")
    thread = parse_thread(identity.team if ours else _workspace(body, identity), channel, root)
    if thread is None:
        return ()
    base = text_of(body, "trigger_id") or delivery_id
    return tuple(
        Action(
            thread=thread,
            id=(f"{base}-{n}" if n else base) or text_of(action, "action_ts"),
            author=author,
            name=text_of(action, "action_id"),
            value=text_of(action, "value") or text_of(part_of(action, "selected_option"), "value"),
            sent_at=parse_time(text_of(action, "action_ts")) or received_at,
        )
        for n, action in enumerate(parts_of(body, "actions"))
    )


def read_text(text: str, people: Mapping[str, Person], identity: Identity) -> str:
    """Turn Slack's markup into what a person reads: names for ids, our own mention removed, ``&`` restored."""
    return read_markup(text, people, identity.bot_user)


def _parse_life(event: Wire, workspace: str) -> RawOpened | Removed | None:
    """Read what happens to the app itself."""
    kind, user, tab = text_of(event, "type"), text_of(event, "user"), text_of(event, "tab")
    if kind == "app_home_opened":
        channel = text_of(event, "channel")
        return RawOpened(workspace=workspace, user=user, tab=tab, channel=channel) if user and tab else None
    # a person's own token that is revoked is none of ours
    if kind == "app_uninstalled" or (kind == "tokens_revoked" and part_of(event, "tokens").get("bot")):
        return Removed(platform=PLATFORM, workspace=workspace)
    return None


def _parse_said(body: Wire, event: Wire, identity: Identity, bots: Collection[str]) -> RawMessage | None:
    """Read ``message`` and ``app_mention``."""
    user, bot, subtype = text_of(event, "user"), text_of(event, "bot_id"), text_of(event, "subtype")
    if _is_ours(event, identity, text_of(body, "api_app_id")) or user == _SLACKBOT:
        return None
    if bot and not {bot, user, _app_of(event)} & set(bots):
        return None
    if (subtype not in SUBTYPES and not (bot and subtype == "bot_message")) or event.get("hidden") is True:
        return None
    if "message" in event:  # message_replied, which comes without its subtype
        return None
    mention = text_of(event, "type") == "app_mention"
    if mention and _edited_long_after(event):
        return None
    return _build_raw(body, event, event, identity, mentioned=mention)


def _parse_change(body: Wire, event: Wire, identity: Identity) -> RawMessage | Deleted | None:
    """Read an edit: a deleted root with replies becomes a tombstone; a person's new mention of us is a message.

    Everything else (typing errors, previews, bots that update their posts, languages that Slack found) is ignored.
    """
    now, was = part_of(event, "message"), part_of(event, "previous_message")
    if text_of(now, "subtype") == "tombstone":
        return _build_deleted(body, event, was, text_of(now, "ts"), identity)
    by_a_person = text_of(now, "user") not in ("", _SLACKBOT, identity.bot_user) and not text_of(now, "bot_id")
    if not was or not by_a_person or text_of(now, "subtype") not in SUBTYPES:
        return None
    if _mentions(was, identity) or not _mentions(now, identity):
        return None
    return _build_raw(body, event, now, identity, mentioned=True)


def _build_raw(body: Wire, event: Wire, said: Wire, identity: Identity, *, mentioned: bool) -> RawMessage | None:
    ts = text_of(said, "ts") or text_of(event, "event_ts")
    channel, sent_at = text_of(event, "channel"), parse_time(ts)
    thread = parse_thread(_workspace(body, identity), channel, text_of(said, "thread_ts") or ts)
    bot = text_of(said, "bot_id")
    author = text_of(said, "user") or bot
    if thread is None or sent_at is None or not author:
        return None
    text = markup_of(said, bot=bool(bot))
    return RawMessage(
        thread=thread,
        id=ts,
        user=author,
        text=text,
        mentioned=mentioned or identity.bot_user in USER.findall(text),
        direct=text_of(event, "channel_type") == "im" or channel.startswith("D"),
        sent_at=sent_at,
        delivery_id=text_of(body, "event_id"),
        external=_is_external(said, identity),
        bot=bool(bot),
        called=text_of(said, "username") or text_of(part_of(said, "bot_profile"), "name"),
        files=tuple(parse_file(file) for file in parts_of(said, "files")),
        quoted=quoted_of(said, bot=bool(bot)),
    )


def _build_deleted(body: Wire, event: Wire, was: Wire, ts: str, identity: Identity) -> Deleted | None:
    """Describe a deletion; Slack does not say who deleted, so ``author`` is who had written. Our own posts: None."""
    if _is_ours(was, identity, text_of(body, "api_app_id")):
        return None
    thread = parse_thread(
        _workspace(body, identity), text_of(event, "channel"), text_of(was, "thread_ts") or text_of(was, "ts") or ts
    )
    sent_at = parse_time(text_of(event, "event_ts") or text_of(event, "ts") or ts)
    if thread is None or sent_at is None or not ts:
        return None
    author = build_author(text_of(was, "user") or text_of(was, "bot_id"), None, bot=bool(text_of(was, "bot_id")))
    return Deleted(thread=thread, id=ts, message_id=ts, author=author, sent_at=sent_at)


def _parse_stop(body: Wire, event: Wire, identity: Identity) -> RawStop | None:
    ts = text_of(event, "event_ts")
    thread = parse_thread(_workspace(body, identity), text_of(event, "channel"), text_of(event, "thread_ts"))
    sent_at, user = parse_time(ts), text_of(event, "user")
    if thread is None or sent_at is None or not user:
        return None
    return RawStop(thread=thread, id=ts, user=user, sent_at=sent_at)


def parse_file(file: Wire) -> FileRef:
    """Read a file. One of another organisation may come without its address (``file_access: check_file_info``)."""
    name = text_of(file, "name") or text_of(file, "title") or text_of(file, "id")
    return FileRef(
        id=text_of(file, "id"),
        name=name,
        size=number_of(file, "size"),
        media_type=text_of(file, "mimetype"),
        address=text_of(file, "url_private_download") or text_of(file, "url_private"),
    )


def _mentions(said: Wire, identity: Identity) -> bool:
    return identity.bot_user in USER.findall(markup_of(said, bot=False))


def _edited_long_after(event: Wire) -> bool:
    edited = parse_time(text_of(part_of(event, "edited"), "ts"))
    said = parse_time(text_of(event, "ts") or text_of(event, "event_ts"))
    return edited is not None and said is not None and (edited - said).total_seconds() > EDITED_MENTION_S


def _is_ours(said: Wire, identity: Identity, app: str) -> bool:
    """True for words of our bot, and for everything else that our app posts (webhooks, response URLs)."""
    bot = text_of(said, "bot_id")
    if text_of(said, "user") == identity.bot_user or bot == identity.bot:
        return True
    return bool(bot) and app != "" and _app_of(said) == app


def _app_of(said: Wire) -> str:
    return text_of(said, "app_id") or text_of(part_of(said, "bot_profile"), "app_id")


def _is_external(said: Wire, identity: Identity) -> bool:
    """Tell whether the event itself says that its author is of another organisation."""
    teams = (text_of(said, "user_team"), text_of(said, "source_team"), text_of(said, "team"))
    return next((team for team in teams if team), "") not in ("", identity.team, identity.enterprise)


def _workspace(body: Wire, identity: Identity) -> str:
    """The workspace in which we are installed; in a shared channel the outer team may be the other side's.

    An installation in a whole organisation is one, whichever of its workspaces something comes from.
    """
    installed = next(iter(parts_of(body, "authorizations")), {})
    if installed.get("is_enterprise_install") is True or body.get("is_enterprise_install") in (True, "true"):
        return identity.team
    team = text_of(installed, "team_id") or text_of(body, "team_id") or text_of(part_of(body, "team"), "id")
    return team or identity.team
