"""What Hermod asks for on a server, and what a channel leaves of it."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import discord
from hypothesis import given
from hypothesis import strategies as st

from adapters.discord.permissions import (
    ADMINISTRATOR,
    ALL,
    INTEGER,
    NEEDED,
    VIEW,
    build_invite_url,
    compute_granted,
    list_missing,
)
from adapters.discord.wire import Wire

GUILD, OWNER, BOT = "70", "1", "2"
SEND = 1 << 11


def granted(*, roles: list[Wire], channel: Wire, role_ids: tuple[str, ...] = (), user: str = BOT) -> int:
    return compute_granted(
        guild_id=GUILD, owner_id=OWNER, user_id=user, role_ids=role_ids, roles=roles, channel=channel
    )


def role(name: str, bits: int) -> Wire:
    return {"id": name, "permissions": str(bits)}


def overwrite(name: str, *, allow: int = 0, deny: int = 0) -> Wire:
    return {"id": name, "type": 0, "allow": str(allow), "deny": str(deny)}


def test_the_number_is_the_sum_of_the_library_s_own_bits() -> None:
    library = discord.Permissions(
        view_channel=True,
        send_messages=True,
        send_messages_in_threads=True,
        create_public_threads=True,
        embed_links=True,
        attach_files=True,
        read_message_history=True,
        add_reactions=True,
        use_external_emojis=True,
    )
    assert library.value == INTEGER == 309_238_025_280
    assert len({permission.bit for permission in NEEDED}) == len(NEEDED)


def test_b080_the_invite_link_asks_for_threads_and_for_commands() -> None:
    url = urlsplit(build_invite_url("42", "70"))
    assert (url.scheme, url.netloc, url.path) == ("https", "discord.com", "/oauth2/authorize")
    asked = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert asked == {
        "client_id": "42",
        "permissions": "309238025280",
        "scope": "bot applications.commands",
        "guild_id": "70",
    }
    assert int(asked["permissions"]) & discord.Permissions(create_public_threads=True).value
    assert "guild_id" not in build_invite_url("42")


def test_what_is_missing_is_named_and_without_the_channel_nothing_else_is() -> None:
    assert list_missing(INTEGER) == ()
    assert [p.name for p in list_missing(INTEGER & ~(1 << 35))] == ["Create Public Threads"]
    assert [p.name for p in list_missing(0)] == ["View Channels"]
    assert [p.name for p in list_missing(VIEW | SEND)][:2] == ["Send Messages in Threads", "Create Public Threads"]


def test_roles_add_up_and_overwrites_count_in_discords_order() -> None:
    roles = [role(GUILD, VIEW), role("31", SEND), role("33", 1 << 15)]
    assert granted(roles=roles, channel={}) == VIEW
    assert granted(roles=roles, channel={}, role_ids=("31",)) == VIEW | SEND
    closed = {"permission_overwrites": [overwrite(GUILD, deny=VIEW | SEND)]}
    assert granted(roles=roles, channel=closed, role_ids=("31",)) == 0
    opened = {"permission_overwrites": [overwrite(GUILD, deny=VIEW | SEND), overwrite("31", allow=VIEW)]}
    assert granted(roles=roles, channel=opened, role_ids=("31",)) == VIEW
    own = {"permission_overwrites": [*opened["permission_overwrites"], overwrite(BOT, allow=SEND, deny=VIEW)]}
    assert granted(roles=roles, channel=own, role_ids=("31",)) == SEND
    two = {"permission_overwrites": [overwrite("31", deny=SEND), overwrite("32", allow=SEND)]}
    assert granted(roles=roles, channel=two, role_ids=("31", "32")) == VIEW | SEND


def test_the_owner_and_administrators_may_do_everything() -> None:
    closed = {"permission_overwrites": [overwrite(GUILD, deny=ALL)]}
    assert granted(roles=[], channel=closed, user=OWNER) == ALL
    assert granted(roles=[role("34", ADMINISTRATOR)], channel=closed, role_ids=("34",)) == ALL


@given(st.dictionaries(st.sampled_from(["id", "permissions", "permission_overwrites", "x"]), st.text(max_size=5)))
def test_json_of_another_shape_grants_nothing(wire: dict[str, object]) -> None:
    assert granted(roles=[wire], channel=wire, role_ids=("31",)) >= 0
    assert granted(roles=[{"id": "31", "permissions": "all"}], channel={}, role_ids=("31",)) == 0
