"""Who would be pinged by a message: the mentions in its text that ``allowed_mentions`` and permissions let through.

docs.discord.com/developers/resources/message#allowed-mentions-object. Without the field ordinary messages parse
users, roles and everyone; interactions and webhooks parse users only. Text is cleaned before it is parsed
(github.com/discord/discord-api-docs/issues/1189), so an override character inside ``@everyone`` does not protect.
Whether Discord looks into code spans is UNDOCUMENTED; here it does, so that a mention has to be off everywhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tests.servers.discord.model import Json, invalid

USER, ROLE = re.compile(r"<@!?(\d{1,20})>"), re.compile(r"<@&(\d{1,20})>")
ALL = re.compile(r"@(everyone|here)")
KINDS = ("users", "roles", "everyone")

#: UNDOCUMENTED which characters are dropped; a maintainer names the override: discord-api-docs/issues/1193
_OVERRIDES = re.compile("[\u202d\u202e]")
#: above so many combining marks Discord drops them all: discord-api-docs/issues/1241
_MARKS = 150


@dataclass(frozen=True)
class Mentions:
    """What of a message's text is a mention, after ``allowed_mentions``."""

    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    everyone: frozenset[str] = frozenset()


def clean(text: str) -> str:
    """What Discord keeps of a text: no override characters, no heaps of combining marks, no white space around it.

    That white space around a text is dropped is UNDOCUMENTED.
    """
    text = _OVERRIDES.sub("", text)
    if sum(1 for char in text if unicodedata.combining(char)) >= _MARKS:
        text = "".join(char for char in text if not unicodedata.combining(char))
    return text.strip()


def check(allowed: Json | None) -> None:
    """Refuse an ``allowed_mentions`` that contradicts itself."""
    if allowed is None:
        return
    parse = allowed.get("parse") or []
    for n, kind in enumerate(parse):
        if kind not in KINDS:
            raise invalid(f"allowed_mentions.parse.{n}", "BASE_TYPE_CHOICES", f"Value must be one of {KINDS}.")
    for kind in ("users", "roles"):
        named = allowed.get(kind) or []
        if len(named) > 100:
            raise invalid(f"allowed_mentions.{kind}", "BASE_TYPE_MAX_LENGTH", "Must be 100 or fewer in length.")
        if len({str(each) for each in named}) < len(named):  # UNDOCUMENTED, but seen by many clients
            raise invalid(f"allowed_mentions.{kind}", "SET_TYPE_ALREADY_CONTAINS_VALUE", "The set already contains it")
        if named and kind in parse:
            raise invalid(
                "allowed_mentions",
                "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE",
                f'parse:["{kind}"] and {kind}: [ids...] are mutually exclusive.',
            )


def find(
    texts: Iterator[str], allowed: Json | None, *, webhook: bool, loud: bool, loud_roles: Collection[str]
) -> Mentions:
    """The mentions in ``texts`` that take effect.

    Args:
        texts: content and text components, cleaned.
        allowed: the call's ``allowed_mentions``; None for the default of its kind.
        webhook: the call is an interaction's or a webhook's.
        loud: the author has MENTION_EVERYONE.
        loud_roles: roles that anybody may mention.
    """
    text = "\n".join(texts)
    parse = (["users"] if webhook else KINDS) if allowed is None else allowed.get("parse") or []
    named = allowed or {}
    users = [str(each) for each in named.get("users") or []]
    roles = [str(each) for each in named.get("roles") or []]
    found_users = [uid for uid in dict.fromkeys(USER.findall(text)) if "users" in parse or uid in users]
    found_roles = [rid for rid in dict.fromkeys(ROLE.findall(text)) if "roles" in parse or rid in roles]
    return Mentions(
        users=tuple(found_users),
        roles=tuple(rid for rid in found_roles if loud or rid in loud_roles),
        everyone=frozenset(ALL.findall(text)) if loud and "everyone" in parse else frozenset(),
    )
