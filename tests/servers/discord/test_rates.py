from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.servers.clock import Clock
from tests.servers.discord import ApiError, DiscordServer
from tests.servers.discord.conftest import ask, rest
from tests.servers.discord.rates import Rates

POST, EDIT = "/channels/{c}/messages", "/channels/{c}/messages/{m}"


def send(rates: Rates, method: str = "POST", route: str = POST, place: str = "1", *, told: bool = True) -> int:
    """Make a call; how many remain, -1 when it is refused."""
    try:
        headers = rates.spend(method, route, route, place, exempt=route.startswith("/webhooks"))
    except ApiError:
        return -1
    if told:
        rates.told(method, route, place)
    return int(headers["X-RateLimit-Remaining"])


def test_a_channel_takes_five_messages_in_five_seconds_and_edits_count() -> None:
    rates = Rates(Clock(), strict=True)
    left = [send(rates), send(rates, "PATCH", EDIT), send(rates), send(rates, "PATCH", EDIT), send(rates)]
    assert left == [4, 3, 2, 1, 0]
    assert send(rates, place="2") == 4
    assert rates.violations() == []
    assert send(rates) == -1
    assert len(rates.violations()) == 1
    rates.clock.advance(5)
    assert send(rates) == 4


def test_only_what_the_client_could_know_is_blamed_on_it() -> None:
    rates = Rates(Clock(), strict=True)
    left = [send(rates, told=False) for _ in range(6)]
    assert left == [4, 3, 2, 1, 0, -1]
    assert rates.violations() == []
    assert send(rates) == -1  # the 429 has told it
    assert rates.violations() == [
        "messages of 1: called although the headers said that nothing remains (1 times)",
    ]


def test_fifty_requests_a_second_over_all_but_not_interactions() -> None:
    rates = Rates(Clock(), strict=True)
    assert [send(rates, "GET", "/users/@me", str(n)) for n in range(50)].count(-1) == 0
    assert send(rates, "POST", "/webhooks/{a}/{t}", "token") >= 0
    assert send(rates, "GET", "/users/@me", "x") == -1
    assert "more than 50 requests within a second" in rates.violations()[0]
    rates.clock.advance(1)
    assert send(rates, "GET", "/users/@me", "x") >= 0
    assert rates.busiest("GET", 1.0) == 51


def test_nothing_is_limited_where_limits_are_off_but_all_is_counted() -> None:
    rates = Rates(Clock(), wide=(1000, 1.0))
    assert [send(rates, place=str(n % 2)) for n in range(100)].count(-1) == 0
    assert (rates.busiest("POST", 5.0), rates.busiest("POST", 5.0, per_place=True)) == (100, 50)


def test_many_invalid_requests_are_a_violation_long_before_the_ban() -> None:
    rates = Rates(Clock(), invalid_alarm=10)
    for _ in range(10):
        rates.note_answer(403, "")
    rates.note_answer(404, "")
    rates.note_answer(429, "shared")
    assert rates.violations() == []
    rates.note_answer(429, "user")
    assert "more than 10 invalid requests" in rates.violations()[0]
    for _ in range(9989):
        rates.note_answer(401, "")
    with pytest.raises(ApiError, match="403"):
        rates.check_ban()
    rates.clock.advance(600)
    rates.check_ban()


def test_edits_of_old_messages_have_a_limit_of_their_own() -> None:
    rates = Rates(Clock(), strict=True)
    for _ in range(3):
        rates.spend_old_edit("1")
    with pytest.raises(ApiError, match="30046"):
        rates.spend_old_edit("1")


async def test_discord_py_keeps_within_the_buckets_that_are_announced() -> None:
    async with DiscordServer(bucket=(5, 0.3)) as server:
        path = f"/channels/{server.general}/messages"
        async with rest(server) as http:
            await asyncio.gather(*(ask(http, "POST", path, content=str(n)) for n in range(12)))
        assert len(server.bot_messages(server.general)) == 12
        assert server.rate_violations == []


async def test_a_client_that_does_not_look_at_the_headers_is_found_out() -> None:
    async with DiscordServer(strict_rate_limits=True) as server, aiohttp.ClientSession() as session:
        headers = {"Authorization": f"Bot {server.token}", "User-Agent": "DiscordBot (x, 1)"}
        url = f"{server.base_url}/channels/{server.general}/messages"
        answers = []
        for n in range(6):
            async with session.post(url, json={"content": str(n)}, headers=headers) as answer:
                answers.append((answer.status, await answer.json(), answer.headers))
        assert [status for status, _, _ in answers] == [200] * 5 + [429]
        _, body, told = answers[-1]
        assert body["global"] is False
        assert 0 < body["retry_after"] <= 5
        assert (told["X-RateLimit-Scope"], told["X-RateLimit-Remaining"]) == ("user", "0")
        assert answers[0][2]["X-RateLimit-Bucket"] == told["X-RateLimit-Bucket"]
        assert int(told["Retry-After"]) >= body["retry_after"]
        assert "called although" in server.rate_violations[0]


async def test_old_messages_are_edited_rarely() -> None:
    async with DiscordServer() as server, aiohttp.ClientSession() as session:
        mid = await server.say("x", user=server.bot_id)
        server.fast_forward(3601)
        server.rates.strict = True
        headers = {"Authorization": f"Bot {server.token}", "User-Agent": "DiscordBot (x, 1)"}
        url = f"{server.base_url}/channels/{server.general}/messages/{mid}"
        codes = []
        for n in range(4):
            async with session.patch(url, json={"content": str(n)}, headers=headers) as answer:
                codes.append((answer.status, (await answer.json()).get("code")))
        assert codes == [(200, None)] * 3 + [(429, 30046)]
