"""From Slack's wire events to the contract's values. The only place that makes a Slack ``ThreadRef``.

Wire data is read defensively: a shape that is not understood gives None, and the adapter acknowledges and
ignores it. References: docs.slack.dev/reference/events/message, .../app_mention,
docs.slack.dev/interactivity/implementing-slash-commands, docs.slack.dev/reference/interaction-payloads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from adapters.chat import Action, Author, Command, Message, ThreadRef

Wire = Mapping[str, object]

PLATFORM = "slack"

SUBTYPES = frozenset({"", "file_share", "thread_broadcast", "me_message"})
"""Kinds of messages that a person wrote. Every other subtype (edits, deletions, joins, topics) is ignored."""

COMMAND_THREAD = "command-"
"""Slack has no threads for slash commands: such a thread id is this and the trigger id, so it is unique,
and replies to it are posted into the channel itself."""

_SLACKBOT = "USLACKBOT"
_ANGLE = re.compile(r"<([^<>]+)>")
_USER = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")


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
class Draft:
    """A message whose people have no names yet. ``external`` is what the event itself says."""

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
    files: tuple[str, ...]

    @property
    def people(self) -> tuple[str, ...]:
        """Ids of the author and of everybody whom the text mentions."""
        return tuple(dict.fromkeys([self.user, *_USER.findall(self.text)]))


def text_of(wire: Wire, key: str) -> str:
    """Return a text field, empty when it is missing or something else."""
    value = wire.get(key)
    return value if isinstance(value, str) else ""


def part_of(wire: Wire, key: str) -> Wire:
    """Return a nested object, empty when it is missing or something else."""
    value = wire.get(key)
    return value if isinstance(value, Mapping) else {}


def parts_of(wire: Wire, key: str) -> tuple[Wire, ...]:
    """Return the objects of a list, none when it is missing or something else."""
    value = wire.get(key)
    return tuple(v for v in value if isinstance(v, Mapping)) if isinstance(value, list | tuple) else ()


def parse_time(ts: str) -> datetime | None:
    """Read Slack's ``ts`` (seconds with six digits that make it unique); None when it is no such thing."""
    try:
        return datetime.fromtimestamp(float(ts), UTC)
    except (ValueError, OverflowError, OSError):
        return None


def parse_thread(workspace: str, channel: str, thread: str) -> ThreadRef | None:
    """Make the address of a Slack thread, or None when a part is missing."""
    try:
        return ThreadRef(platform=PLATFORM, workspace=workspace, channel=channel, thread=thread)
    except ValueError:
        return None


def parse_identity(wire: Wire, scopes: frozenset[str] | None) -> Identity | None:
    """Read auth.test; None when the token belongs to no bot."""
    team, user, bot = text_of(wire, "team_id"), text_of(wire, "user_id"), text_of(wire, "bot_id")
    if not (team and user and bot):
        return None
    return Identity(team=team, bot_user=user, bot=bot, enterprise=text_of(wire, "enterprise_id"), scopes=scopes)


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


def parse_event(body: Wire, identity: Identity, *, bots: Collection[str] = ()) -> Draft | None:
    """Read an Events API body.

    Args:
        body: the whole payload, not only its ``event``.
        identity: ours; our own messages give None.
        bots: ids (``B…`` or ``U…``) of other bots whose messages count.

    Returns:
        The message, or None for everything that no person wrote, which includes edits and deletions.
    """
    event = part_of(body, "event")
    kind, user, bot = text_of(event, "type"), text_of(event, "user"), text_of(event, "bot_id")
    if kind not in ("message", "app_mention") or _is_ours(user, bot, identity) or user == _SLACKBOT:
        return None
    if bot and not {bot, user} & set(bots):
        return None
    subtype = text_of(event, "subtype")
    if (subtype not in SUBTYPES and not (bot and subtype == "bot_message")) or event.get("hidden") is True:
        return None
    ts = text_of(event, "ts") or text_of(event, "event_ts")
    channel, sent_at = text_of(event, "channel"), parse_time(ts)
    thread = parse_thread(_workspace(body, identity), channel, text_of(event, "thread_ts") or ts)
    author = user or bot
    if thread is None or sent_at is None or not author or "message" in event:  # message_replied has no subtype
        return None
    text = text_of(event, "text") or (_fallback(event) if bot else "")
    team = text_of(event, "user_team")
    return Draft(
        thread=thread,
        id=ts,
        user=author,
        text=text,
        mentioned=kind == "app_mention" or identity.bot_user in _USER.findall(text),
        direct=text_of(event, "channel_type") == "im" or channel.startswith("D"),
        sent_at=sent_at,
        delivery_id=text_of(body, "event_id"),
        external=team not in ("", identity.team, identity.enterprise),
        bot=bool(bot),
        files=tuple(text_of(f, "name") or text_of(f, "id") for f in parts_of(event, "files")),
    )


def build_message(draft: Draft, people: Mapping[str, Person], identity: Identity) -> Message:
    """Give the message's people their names. Who is not in ``people`` keeps the id as name."""
    text = read_text(draft.text, people, identity)
    files = "\n".join(f"[attached file: {name}]" for name in draft.files)
    return Message(
        thread=draft.thread,
        id=draft.id,
        author=build_author(draft.user, people.get(draft.user), external=draft.external, bot=draft.bot),
        text="\n".join(part for part in (text, files) if part),
        mentioned=draft.mentioned,
        direct=draft.direct,
        sent_at=draft.sent_at,
        delivery_id=draft.delivery_id,
    )


def build_author(user: str, person: Person | None, *, external: bool = False, bot: bool = False) -> Author:
    """Describe who wrote; without ``person`` by the id and what the event itself says."""
    if person is None:
        return Author(id=user, name=user, external=external, bot=bot, unknown=True)
    return Author(id=user, name=person.name, bot=bot or person.bot, external=person.external, guest=person.guest)


def parse_command(body: Wire, author: Author, identity: Identity, received_at: datetime) -> Command | None:
    """Read a slash command. See ``COMMAND_THREAD`` for where its replies go."""
    trigger, name = text_of(body, "trigger_id"), text_of(body, "command").removeprefix("/")
    workspace = text_of(body, "team_id") or identity.team
    thread = parse_thread(workspace, text_of(body, "channel_id"), f"{COMMAND_THREAD}{trigger}" if trigger else "")
    if thread is None or not name:
        return None
    text = read_text(text_of(body, "text"), {}, identity)
    return Command(thread=thread, id=trigger, author=author, name=name, text=text, sent_at=received_at)


def parse_actions(body: Wire, author: Author, identity: Identity, received_at: datetime) -> tuple[Action, ...]:
    """Read the pressed buttons of a block_actions payload; those without an address are left out."""
    container, message = part_of(body, "container"), part_of(body, "message")
    channel = text_of(container, "channel_id") or text_of(part_of(body, "channel"), "id")
    root = text_of(message, "thread_ts") or text_of(container, "thread_ts") or text_of(container, "message_ts")
    thread = parse_thread(text_of(part_of(body, "team"), "id") or identity.team, channel, root)
    if thread is None:
        return ()
    return tuple(
        Action(
            thread=thread,
            id=text_of(body, "trigger_id") or text_of(action, "action_ts"),
            author=author,
            name=text_of(action, "action_id"),
            value=text_of(action, "value") or text_of(part_of(action, "selected_option"), "value"),
            sent_at=parse_time(text_of(action, "action_ts")) or received_at,
        )
        for action in parts_of(body, "actions")
    )


def read_text(text: str, people: Mapping[str, Person], identity: Identity) -> str:
    """Turn Slack's markup into what a person reads: names for ids, our own mention removed, ``&`` restored."""
    own = re.compile(rf"[ \t]*<@{re.escape(identity.bot_user)}(?:\|[^<>]*)?>[:,]?[ \t]*")
    text = own.sub(" ", text)
    text = _ANGLE.sub(lambda found: _readable(found[1], people), text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()


def _readable(inner: str, people: Mapping[str, Person]) -> str:
    target, _, label = inner.partition("|")
    match target[:1]:
        case "@":
            person = people.get(target[1:])
            return f"@{person.name if person else label or target[1:]}"
        case "#":
            return f"#{label or target[1:]}"
        case "!":
            name = target[1:].partition("^")[0]
            return label if label and name not in ("here", "channel", "everyone") else f"@{name}"
    shown = target.removeprefix("mailto:")
    if not label or label in (target, shown) or f"//{label}" in target:
        return shown
    return f"{label} ({shown})"


def _is_ours(user: str, bot: str, identity: Identity) -> bool:
    return user == identity.bot_user or bot == identity.bot


def _workspace(body: Wire, identity: Identity) -> str:
    """The workspace in which we are installed; in a shared channel the outer team may be the other side's."""
    installed = next(iter(parts_of(body, "authorizations")), {})
    return text_of(installed, "team_id") or text_of(body, "team_id") or identity.team


def _fallback(event: Wire) -> str:
    """The text of a bot's message that has it only in attachments."""
    lines = []
    for attachment in parts_of(event, "attachments"):
        lines += [text_of(attachment, key) for key in ("title", "text", "fallback") if text_of(attachment, key)][:2]
    return "\n".join(lines)
