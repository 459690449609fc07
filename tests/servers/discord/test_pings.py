"""The ledger of whom the bot's calls would have notified."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.discord import DiscordServer, Json
from tests.servers.discord.conftest import Http, ask
from tests.servers.discord.pings import clean, find

NOBODY: Json = {"parse": []}


def mentions(text: str, allowed: Json | None = None, *, webhook: bool = False, loud: bool = True) -> set[str]:
    found = find(iter([clean(text)]), allowed, webhook=webhook, loud=loud, loud_roles={"7"})
    return {*found.users, *found.roles, *found.everyone}


@pytest.mark.parametrize(
    ("text", "allowed", "pinged"),
    [
        ("@here <@&7> <@5> <@!6>", None, {"here", "7", "5", "6"}),
        ("@here <@&7> <@5>", NOBODY, set()),
        ("@here <@&7> <@5>", {"parse": ["users", "roles"], "users": []}, {"7", "5"}),
        ("@everyone <@1> <@2> <@&7>", {"parse": ["everyone"], "users": ["1"]}, {"everyone", "1"}),
        ("<@5>", {"users": ["5", "6"]}, {"5"}),
        ("`<@5>` ```@everyone```", None, {"5", "everyone"}),
        ("@\u202eeveryone", None, {"everyone"}),
        ("\u0300 " * 150 + "@\u0300everyone", None, {"everyone"}),
        ("@\u0300everyone", None, set()),
        ("@\u200beveryone", None, set()),
        ("<@\u200b5>", None, set()),
    ],
)
def test_mentions_count_as_discord_says(text: str, allowed: Json | None, pinged: set[str]) -> None:
    assert mentions(text, allowed) == pinged


def test_interactions_parse_people_only_unless_they_say_otherwise() -> None:
    assert mentions("@here <@&7> <@5>", webhook=True) == {"5"}
    assert mentions("@here", {"parse": ["everyone"]}, webhook=True) == {"here"}


def test_roles_and_everyone_take_the_permission() -> None:
    assert mentions("@here <@&7> <@&8> <@5>", loud=False) == {"7", "5"}


@given(st.text(alphabet="@<>&!0123456789everyonh \u200b\u202e"))
def test_nobody_is_pinged_where_nobody_is_allowed(text: str) -> None:
    assert mentions(text, NOBODY) == set()
    assert mentions(text, {}) == set()


async def test_every_way_to_write_is_in_the_ledger(server: DiscordServer, http: Http) -> None:
    text = f"<@{server.alice}> @everyone"
    path = f"/channels/{server.general}/messages"
    safe = await ask(http, "POST", path, content=text, allowed_mentions=NOBODY)
    assert (safe["mentions"], safe["mention_everyone"], server.pings) == ([], False, [])
    await ask(http, "PATCH", f"{path}/{safe['id']}", content=text + "!")  # an edit parses anew, by the defaults
    await ask(http, "POST", path, content=text)
    await ask(http, "POST", path, content="x", message_reference={"message_id": await server.say("hi")})
    assert [ping.via for ping in server.pings] == ["edit", "create", "create"]
    assert server.pings[1].users == {server.alice}
    assert server.pings[1].everyone == {"everyone"}
    assert (server.pings[2].users, server.pings[2].everyone) == (frozenset({server.alice}), frozenset())
    assert server.pinged() == {server.alice, "everyone"}


async def test_answering_pings_its_author_only_if_it_is_allowed(server: DiscordServer, http: Http) -> None:
    reference: Json = {"message_id": await server.say("hi")}
    path = f"/channels/{server.general}/messages"
    for allowed, pinged in [(NOBODY, 0), (NOBODY | {"replied_user": False}, 0), (NOBODY | {"replied_user": True}, 1)]:
        server.ledger.clear()
        await ask(http, "POST", path, content="x", message_reference=reference, allowed_mentions=allowed)
        assert len(server.pings) == pinged


async def test_what_the_bot_may_not_mention_does_not_ping(server: DiscordServer, http: Http) -> None:
    role = server.add_role("on call", members=[server.bob])
    server.deny(server.general, "MENTION_EVERYONE")

    async def send() -> Any:
        content = f"@here <@&{role}>"
        return await ask(http, "POST", f"/channels/{server.general}/messages", content=content)

    assert (await send())["mention_roles"] == []
    assert server.pings == []
    server.set_role(role, mentionable=True)
    assert (await send())["mention_roles"] == [role]
    assert server.pinged() == {role}
