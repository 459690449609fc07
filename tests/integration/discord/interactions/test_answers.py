"""Answers to commands, by the interaction's token."""

from __future__ import annotations

import pytest

from adapters.chat import Attachment, Delivered
from adapters.discord.app import DiscordAdapter
from adapters.discord.interactions import NOT_TAKEN, TOKEN_S
from tests.integration.discord.conftest import Inbox
from tests.integration.discord.interactions.desk import (
    CALLBACK,
    LOADING,
    WEBHOOK,
    Clock,
    answer_to,
    give,
    seen_in,
    start,
    texts,
)
from tests.servers.discord import DiscordServer


async def test_b065_an_answer_after_the_three_seconds_becomes_the_announced_message(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    await give(server, inbox)
    server.interaction_deadline = 0.0  # the three seconds are over
    assert isinstance(await adapter.post(answer_to(inbox, "5 queries.")), Delivered)
    (message,) = seen_in(server)
    assert (message["content"], message["flags"] & LOADING) == ("5 queries.", 0)
    assert server.threads() == []


async def test_the_same_answer_twice_is_one_message(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    await give(server, inbox)
    for _ in range(2):
        for part in (1, 2, 3):
            file = (Attachment(name="rows.csv", content="a,b\n"),) if part == 3 else ()
            outcome = await adapter.post(answer_to(inbox, f"part {part}", part=part, files=file))
            assert isinstance(outcome, Delivered)
    assert texts(seen_in(server)) == ["part 1", "part 2", "part 3"]
    assert [a["filename"] for a in seen_in(server)[-1]["attachments"]] == ["rows.csv"]


async def test_after_a_restart_the_answer_still_becomes_the_announced_message(
    server: DiscordServer, inbox: Inbox
) -> None:
    first = await start(server, inbox)
    await give(server, inbox)
    await first.stop()
    second = await start(server, inbox)
    try:
        assert isinstance(await second.post(answer_to(inbox, "here it is")), Delivered)
    finally:
        await second.stop()
    assert texts(seen_in(server)) == ["here it is"]


async def test_b050_nobody_is_pinged_by_any_way_an_answer_can_take(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    loud = f"@everyone @here <@&9> <@{server.bob}>"
    await give(server, inbox)
    await adapter.post(answer_to(inbox, loud))
    await adapter.post(answer_to(inbox, loud, part=2))
    await adapter.post(answer_to(inbox, loud, part=3, files=(Attachment(name="a.txt", content=loud),)))
    await give(server, inbox, "usage")
    await adapter.post(answer_to(inbox, loud, private=True))
    await adapter.post(answer_to(inbox, loud, part=2, private=True))
    await give(server, inbox)
    await adapter.post(answer_to(inbox, loud, private=True))
    inbox.answer = False
    await server.slash("slowq")
    await server.wait_until(lambda: NOT_TAKEN in texts(seen_in(server)))
    calls = [c for c in server.calls_to(rf"{WEBHOOK}|/messages") if c.method in ("POST", "PATCH")]
    assert len(calls) == 7
    assert server.pinged() == set()
    for call in calls:
        assert call.body["allowed_mentions"] == {"parse": [], "users": [], "roles": [], "replied_user": False}


async def test_an_answer_may_ping_whom_it_names(server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter) -> None:
    await give(server, inbox)
    await adapter.post(answer_to(inbox, f"done, <@{server.bob}>", mentions=frozenset({server.bob})))
    (call,) = server.calls_to(r"^PATCH .*/@original$")
    assert call.body["allowed_mentions"]["users"] == [server.bob]


async def test_a_private_answer_stays_with_the_one_who_asked(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    await give(server, inbox, "usage")
    for part in (1, 2):
        outcome = await adapter.post(answer_to(inbox, f"secret {part}", part=part, private=True))
        assert isinstance(outcome, Delivered)
    assert seen_in(server) == []
    assert texts(seen_in(server, by_all=False)) == ["secret 1", "secret 2"]


async def test_a_private_answer_to_a_public_announcement_takes_that_back_first(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    await give(server, inbox)
    assert isinstance(await adapter.post(answer_to(inbox, "only for you", private=True)), Delivered)
    assert seen_in(server) == [], "not even the announcement stays"
    assert texts(seen_in(server, by_all=False)) == ["only for you"]
    order = [call.method for call in server.calls_to(WEBHOOK)]
    assert order == ["DELETE", "POST"]


async def test_a_private_answer_waits_while_the_announcement_cannot_be_taken_back(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    await give(server, inbox)
    server.inject(r"^DELETE /webhooks/", times=9, http=500)
    outcome = await adapter.post(answer_to(inbox, "only for you", private=True))
    assert not isinstance(outcome, Delivered)
    assert not server.calls_to(r"^POST /webhooks/")
    server.faults.clear()
    assert isinstance(await adapter.post(answer_to(inbox, "only for you", private=True)), Delivered)
    assert texts(seen_in(server, by_all=False)) == ["only for you"]


@pytest.mark.parametrize("how", ["old", "refused"])
async def test_without_the_token_the_answer_is_posted_as_the_bot(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter, clock: Clock, how: str
) -> None:
    await give(server, inbox)
    if how == "old":
        clock.ahead_s = TOKEN_S + 1
    else:
        server.token_ttl = 0.0
    for _ in range(2):
        assert isinstance(await adapter.post(answer_to(inbox, "late but here")), Delivered)
    assert texts([m for m in seen_in(server) if not m["flags"] & LOADING]) == ["late but here"]
    assert bool(server.calls_to(r"^PATCH /webhooks/")) == (how == "refused")


@pytest.mark.parametrize("name", ["usage", "slowq"])
@pytest.mark.parametrize("how", ["old", "refused"])
async def test_without_the_token_a_private_answer_is_a_direct_message(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter, clock: Clock, how: str, name: str
) -> None:
    await give(server, inbox, name)
    if how == "old":
        clock.ahead_s = TOKEN_S + 1
    else:
        server.token_ttl = 0.0
    assert isinstance(await adapter.post(answer_to(inbox, "secret", private=True)), Delivered)
    assert "secret" not in texts(server.messages(server.general))
    direct = next(c for c in server.channels.values() if c["type"] == 1)
    assert texts(server.bot_messages(direct["id"])) == ["secret"]


async def test_an_answer_that_stands_already_is_not_posted_again_when_the_token_is_old(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter, clock: Clock
) -> None:
    await give(server, inbox)
    first = await adapter.post(answer_to(inbox, "once"))
    clock.ahead_s = TOKEN_S + 1
    assert await adapter.post(answer_to(inbox, "once")) == first
    assert texts(seen_in(server)) == ["once"]


async def test_an_announcement_that_was_removed_costs_no_answer(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    interaction = await give(server, inbox)
    del server._messages[server.general][interaction.message]
    assert isinstance(await adapter.post(answer_to(inbox, "still here")), Delivered)
    assert texts(seen_in(server)) == ["still here"]


async def test_where_the_bot_may_not_post_further_parts_follow_the_first(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter
) -> None:
    await give(server, inbox)
    await adapter.post(answer_to(inbox, "part 1"))
    server.inject(r"^POST /channels/\d+/messages$", times=9, http=403, code=50013, message="Missing Permissions")
    assert isinstance(await adapter.post(answer_to(inbox, "part 2", part=2)), Delivered)
    assert texts(seen_in(server)) == ["part 1", "part 2"]


async def test_no_token_of_an_interaction_is_logged(
    server: DiscordServer, inbox: Inbox, adapter: DiscordAdapter, capsys: pytest.CaptureFixture[str]
) -> None:
    server.inject(CALLBACK, http=500)
    interaction = await server.slash("slowq", wait=False)
    await inbox.wait_for(lambda: inbox.commands)
    server.inject(WEBHOOK, times=9, http=400)
    await adapter.post(answer_to(inbox, "x"))
    await adapter.post(answer_to(inbox, "x", part=2, private=True))
    said = capsys.readouterr()
    assert interaction.token not in said.out + said.err
