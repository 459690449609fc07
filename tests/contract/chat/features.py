"""What the chat platforms are held to: every feature, and the one table of what a platform cannot do, with the reason.

Each scenario of this folder belongs to a feature. Where ``CANNOT`` names a platform, the scenario tries there that
the contract's way of not being able holds. The README's table and ``docs/features.md`` are made of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

Way = Literal["slack-socket", "slack-http", "discord", "terminal"]
"""A platform, and how its events arrive."""

WAYS: tuple[Way, ...] = get_args(Way)

TITLES: Mapping[Way, str] = MappingProxyType(
    {"slack-socket": "Slack, Socket Mode", "slack-http": "Slack, HTTP", "discord": "Discord", "terminal": "Terminal"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Something that people notice. ``id`` is the scenarios' word for it."""

    id: str
    group: str
    title: str


def _group(group: str, **titles: str) -> tuple[Feature, ...]:
    return tuple(Feature(id=key.replace("_", "-"), group=group, title=title) for key, title in titles.items())


FEATURES: tuple[Feature, ...] = (
    *_group(
        "Hearing",
        mention="a mention begins a conversation, with a thread of its own",
        follow_up="what follows in the thread, with or without a mention",
        reply="replies to a message",
        edit="an edit that adds the mention; other edits change nothing",
        deletion="deleted messages",
        direct="direct messages",
        bots="words of other bots and its own begin no loop",
        everyone="a call to everybody is not a call to Hermod",
        group_mention="a mention of its role",
        attached="attached files",
        quotes="previews and forwarded words, told apart from what the person wrote",
        any_text="emoji, CJK, right-to-left text, code, 4,000 characters",
        order="the order in a thread; threads beside each other",
        once="what is delivered twice is one message",
        stored="what could not be stored comes again",
    ),
    *_group(
        "Addresses",
        address="a thread keeps its address, over restarts too",
        workspaces="several workspaces or servers at once",
    ),
    *_group(
        "Answering",
        thread="answers in the thread of the question",
        found="an answer stands there once, and can be found again",
        parts="long answers in several parts, in order",
        whole="code, tables, lists, links, CJK and emoji arrive whole",
        pings="nobody is pinged by what an answer says",
        people="whom an answer names on purpose is pinged",
        previews="links make no preview",
        buttons="buttons, also after a restart",
        feedback="thumbs up and down",
        files="files",
        private="answers that one person sees",
        gone="a place that is gone is told, and nothing else is tried there",
        refused="what is refused is told with its remedy",
        rates="limits of the platform are kept, and nothing is lost",
        doubt="a connection that breaks while posting doubles and loses nothing",
    ),
    *_group(
        "While it works",
        draft="the answer is seen while it is written",
        plan="steps of the work are seen",
        left="what a process that died left is removed",
        status="a sign that work goes on",
        signs="reactions: queued, seen, stopped",
        stop="a stop button",
    ),
    *_group(
        "Commands",
        command="commands with arguments, answered where they were given",
        command_thread="commands inside a thread",
        options="options with types and choices, shown by the platform",
        completion="suggestions while somebody types",
        unknown="a command that nobody takes is answered with help",
    ),
    *_group(
        "Reports",
        root="a report begins with a post in the channel itself, in no thread",
        below="its thread holds the rest of it, and questions about it",
        headless="a report whose first post was deleted ends with a reason",
        looking="whether a report can be posted in a channel, and whose it is, is known before",
    ),
    *_group(
        "Reading",
        history="what was said in a thread before",
        fetching="attached files, whole or not at all",
    ),
    *_group(
        "Connection",
        connecting="it starts, stops, and tells whether it is connected",
        reconnecting="what is said while the connection is broken arrives, once",
        token="a token that is refused is told at the start",
        stopping="stopping in the middle of work",
        checking="the self-check finds what is missing",
    ),
)

_ALONE = "one person, one keyboard: nobody else is there"
_LINES = "lines that were written are not changed or taken back"
_NO_NET = "there is no network between Hermod and its terminal"
_CONSOLE = "the console has commands of its own, which are no part of the channel"

CANNOT: Mapping[tuple[str, Way], str] = MappingProxyType(
    {
        ("reply", "terminal"): "lines have no replies; what follows in the conversation is heard",
        ("edit", "terminal"): _LINES,
        ("deletion", "terminal"): _LINES,
        ("bots", "terminal"): _ALONE,
        ("everyone", "terminal"): _ALONE,
        ("group-mention", "terminal"): _ALONE,
        ("group-mention", "slack-socket"): "user groups of Slack hold people only",
        ("group-mention", "slack-http"): "user groups of Slack hold people only",
        ("attached", "terminal"): "a line has no attachments",
        ("quotes", "terminal"): "a line holds what was typed, and nothing else",
        ("once", "terminal"): "a line is handed over once, in the process",
        ("stored", "terminal"): "who typed the line is told at once, and types it again",
        ("workspaces", "terminal"): "it is one workspace",
        ("pings", "terminal"): _ALONE,
        ("people", "terminal"): _ALONE,
        ("previews", "terminal"): "a terminal fetches nothing",
        ("buttons", "terminal"): "text only; approvals are typed",
        ("feedback", "terminal"): "text only",
        ("files", "terminal"): "text only; what a program made is saved in the current folder",
        ("private", "terminal"): _ALONE,
        ("gone", "terminal"): "it is there as long as the process",
        ("refused", "terminal"): "nothing is refused",
        ("rates", "terminal"): "there are no limits",
        ("doubt", "terminal"): _NO_NET,
        ("draft", "terminal"): _LINES,
        ("plan", "terminal"): "steps are lines of status",
        ("left", "terminal"): "there are no drafts to leave",
        ("signs", "terminal"): "lines have no reactions",
        ("stop", "terminal"): "Ctrl-C is the console's",
        ("command", "terminal"): _CONSOLE,
        ("command-thread", "terminal"): _CONSOLE,
        ("command-thread", "slack-socket"): "Slack has no slash commands in threads",
        ("command-thread", "slack-http"): "Slack has no slash commands in threads",
        ("options", "terminal"): _CONSOLE,
        ("options", "slack-socket"): "a slash command of Slack takes one text; options are typed, as in limit=5",
        ("options", "slack-http"): "a slash command of Slack takes one text; options are typed, as in limit=5",
        ("completion", "terminal"): _CONSOLE,
        ("completion", "slack-socket"): "Slack suggests nothing behind a slash command",
        ("completion", "slack-http"): "Slack suggests nothing behind a slash command",
        ("unknown", "terminal"): _CONSOLE,
        ("headless", "terminal"): _LINES,
        ("looking", "terminal"): "its channel is always there, and so is its person",
        ("history", "terminal"): "what was said before is in Hermod's own memory",
        ("fetching", "terminal"): "a line has no attachments",
        ("reconnecting", "slack-http"): "Slack calls Hermod; what is not acknowledged is delivered again",
        ("reconnecting", "terminal"): _NO_NET,
        ("token", "terminal"): "there is no token",
        ("checking", "terminal"): "there is nothing that could be missing",
    }
)
"""By feature and platform: why it is not possible there."""


def find_feature(name: str) -> Feature:
    """Return the feature of this id.

    Raises:
        LookupError: there is none.
    """
    for feature in FEATURES:
        if feature.id == name:
            return feature
    raise LookupError(f"no feature {name!r}; add it to FEATURES")
