"""Every route names its reference page, checks its arguments, and refuses what Discord refuses."""

from __future__ import annotations

import io
import re
from typing import Any

import discord
import pytest
from discord.http import Route, handle_message_parameters

from tests.servers.discord import DiscordServer, Json
from tests.servers.discord.conftest import Http, ask, button, refusal, row
from tests.servers.discord.model import CATEGORY, FORUM, MIB
from tests.servers.discord.routing import ROUTES

NONE = "111111111111111111"  # the id of nothing
LONG = "x" * 2001
OPTION = {"type": 3, "name": "a", "description": "b"}


def command(**fields: Any) -> Json:
    return {"name": "ask", "description": "asks"} | fields


def embed(**fields: Any) -> Json:
    return {"embeds": [{"title": "t"} | fields]}


def parts(*components: Json) -> Json:
    return {"content": "x", "components": list(components)}


M, MM = "POST /channels/{c}/messages", "PATCH /channels/{c}/messages/{m}"
T, TT = "POST /channels/{c}/messages/{m}/threads", "POST /channels/{c}/threads"
G, P, W = "PUT /applications/{a}/guilds/{g}/commands", "PUT /applications/{a}/commands", "/webhooks/{a}/{t}"
COMMANDS = "/applications/{app}/commands"

#: route, path, body, HTTP status, code
REFUSALS: list[tuple[str, str, Any, int, int]] = [
    ("GET /users/{u}", f"/users/{NONE}", None, 404, 10013),
    ("GET /users/{u}", "/users/alice", None, 400, 50035),
    ("POST /users/@me/channels", "/users/@me/channels", {"recipient_id": NONE}, 400, 50033),
    ("GET /users/@me/guilds", "/users/@me/guilds?limit=201", None, 400, 50035),
    ("GET /guilds/{g}", f"/guilds/{NONE}", None, 404, 10004),
    ("GET /guilds/{g}", "/guilds/{left}", None, 403, 50001),
    ("GET /guilds/{g}/channels", "/guilds/{left}/channels", None, 403, 50001),
    ("GET /guilds/{g}/members", "/guilds/{guild}/members?limit=1001", None, 400, 50035),
    ("GET /guilds/{g}/members/{u}", f"/guilds/{{guild}}/members/{NONE}", None, 404, 10007),
    ("GET /guilds/{g}/roles", "/guilds/{left}/roles", None, 403, 50001),
    ("GET /guilds/{g}/threads/active", f"/guilds/{NONE}/threads/active", None, 404, 10004),
    ("GET /channels/{c}", f"/channels/{NONE}", None, 404, 10003),
    ("GET /channels/{c}", "/channels/{hidden}", None, 403, 50001),
    ("GET /channels/{c}", "/channels/{secret}", None, 403, 50001),
    ("PATCH /channels/{c}", "/channels/{ops}", {"name": "new"}, 403, 50013),
    ("PATCH /channels/{c}", "/channels/{thread}", {"locked": True}, 403, 50013),
    ("PATCH /channels/{c}", "/channels/{thread}", {"auto_archive_duration": 61}, 400, 50035),
    ("DELETE /channels/{c}", "/channels/{thread}", None, 403, 50013),
    ("GET /channels/{c}/threads/archived/public", "/channels/{ops}/threads/archived/public?limit=1", None, 400, 50035),
    ("POST /channels/{c}/typing", "/channels/{mute}/typing", None, 403, 50013),
    # messages
    (M, f"/channels/{NONE}/messages", {"content": "x"}, 404, 10003),
    (M, "/channels/{hidden}/messages", {"content": "x"}, 403, 50001),
    (M, "/channels/{mute}/messages", {"content": "x"}, 403, 50013),
    (M, "/channels/{forum}/messages", {"content": "x"}, 400, 40058),
    (M, "/channels/{category}/messages", {"content": "x"}, 400, 50008),
    (M, "/channels/{locked}/messages", {"content": "x"}, 400, 160005),
    (M, "/channels/{ops}/messages", {"content": ""}, 400, 50006),
    (M, "/channels/{ops}/messages", {"content": "\n" * 2000}, 400, 50006),
    (M, "/channels/{ops}/messages", {"content": "\u202e"}, 400, 50006),
    (M, "/channels/{ops}/messages", {"content": LONG}, 400, 50035),
    (M, "/channels/{ops}/messages", {"content": 5}, 400, 50035),
    (M, "/channels/{ops}/messages", {"content": "x", "flags": "4"}, 400, 50035),
    (M, "/channels/{ops}/messages", {"content": "x", "nonce": "n" * 26}, 400, 50035),
    (M, "/channels/{ops}/messages", {"content": "x", "nonce": [1]}, 400, 50035),
    (M, "/channels/{ops}/messages", {"content": "x", "message_reference": {"message_id": NONE}}, 400, 50035),
    (M, "/channels/{quiet}/messages", {"content": "x", "message_reference": {"message_id": NONE}}, 403, 160002),
    (M, "/channels/{ops}/messages", {"content": "x", "tts": True}, 403, 50013),
    (M, "/channels/{ops}/messages", {"content": "x", "flags": 1 << 15}, 400, 50035),
    (M, "/channels/{ops}/messages", {"content": "x", "allowed_mentions": {"parse": ["people"]}}, 400, 50035),
    (M, "/channels/{ops}/messages", {"content": "x", "allowed_mentions": {"users": [NONE] * 101}}, 400, 50035),
    (
        M,
        "/channels/{ops}/messages",
        {"content": "x", "allowed_mentions": {"parse": ["users"], "users": [NONE]}},
        400,
        50035,
    ),
    (M, "/channels/{ops}/messages", {"embeds": [{"title": "t"}] * 11}, 400, 50035),
    (M, "/channels/{ops}/messages", embed(title="x" * 257), 400, 50035),
    (M, "/channels/{ops}/messages", embed(description="x" * 4097), 400, 50035),
    (M, "/channels/{ops}/messages", embed(footer={"text": "x" * 2049}), 400, 50035),
    (M, "/channels/{ops}/messages", embed(fields=[{"name": "a", "value": "b"}] * 26), 400, 50035),
    (M, "/channels/{ops}/messages", embed(fields=[{"name": "a", "value": ""}]), 400, 50035),
    (M, "/channels/{ops}/messages", {"embeds": [{"description": "x" * 3001}] * 2}, 400, 50035),
    (M, "/channels/{bare}/messages", {"embeds": [{"title": "t"}]}, 403, 50013),
    (M, "/channels/{ops}/messages", parts(*[row(button(str(n))) for n in range(6)]), 400, 50035),
    (M, "/channels/{ops}/messages", parts(row(*[button(str(n)) for n in range(6)])), 400, 50035),
    (M, "/channels/{ops}/messages", parts(row()), 400, 50035),
    (M, "/channels/{ops}/messages", parts(button()), 400, 50035),
    (M, "/channels/{ops}/messages", parts(row(button(), button())), 400, 50035),
    (M, "/channels/{ops}/messages", parts(row(button("x" * 101))), 400, 50035),
    (M, "/channels/{ops}/messages", parts(row(button(""))), 400, 50035),
    (M, "/channels/{ops}/messages", parts(row(button(label="x" * 81))), 400, 50035),
    (M, "/channels/{ops}/messages", parts(row(button(label=""))), 400, 50035),
    (M, "/channels/{ops}/messages", parts(row(button(style=7))), 400, 50035),
    (M, "/channels/{ops}/messages", parts(row({"type": 2, "style": 5, "label": "x"})), 400, 50035),
    (M, "/channels/{ops}/messages", parts(row(button(style=5, url="https://ex.test"))), 400, 50035),
    (M, "/channels/{ops}/messages", parts(row({"type": 3, "custom_id": "s", "options": []})), 400, 50035),
    ("GET /channels/{c}/messages", "/channels/{ops}/messages?limit=101", None, 400, 50035),
    ("GET /channels/{c}/messages", "/channels/{ops}/messages?limit=0", None, 400, 50035),
    ("GET /channels/{c}/messages", "/channels/{ops}/messages?before=soon", None, 400, 50035),
    ("GET /channels/{c}/messages", f"/channels/{{ops}}/messages?before={NONE}&after={NONE}", None, 400, 50035),
    ("GET /channels/{c}/messages/{m}", f"/channels/{{ops}}/messages/{NONE}", None, 404, 10008),
    ("GET /channels/{c}/messages/{m}", "/channels/{thread}/messages/{here}", None, 404, 10008),
    ("GET /channels/{c}/messages/{m}", "/channels/{quiet}/messages/{here}", None, 403, 50013),
    (MM, "/channels/{ops}/messages/{here}", {"content": "x"}, 403, 50005),
    (MM, "/channels/{ops}/messages/{here}", {"flags": 4}, 403, 50013),
    (MM, "/channels/{ops}/messages/{ours}", {"content": LONG}, 400, 50035),
    (MM, "/channels/{ops}/messages/{ours}", {"content": None}, 400, 50006),
    (MM, "/channels/{thread}/messages/{here}", {"content": "x"}, 404, 10008),
    (MM, "/channels/{archived}/messages/{archived_ours}", {"content": "x"}, 400, 50083),
    ("DELETE /channels/{c}/messages/{m}", "/channels/{ops}/messages/{here}", None, 403, 50013),
    ("DELETE /channels/{c}/messages/{m}", f"/channels/{{ops}}/messages/{NONE}", None, 404, 10008),
    ("DELETE /channels/{c}/messages/{m}", "/channels/{dm}/messages/{dm_theirs}", None, 403, 50003),
    (
        "PUT /channels/{c}/messages/{m}/reactions/{e}/@me",
        "/channels/{ops}/messages/{here}/reactions/eyes/@me",
        None,
        400,
        10014,
    ),
    (
        "PUT /channels/{c}/messages/{m}/reactions/{e}/@me",
        "/channels/{plain}/messages/{plain_here}/reactions/👀/@me",
        None,
        403,
        50013,
    ),
    (
        "PUT /channels/{c}/messages/{m}/reactions/{e}/@me",
        "/channels/{archived}/messages/{archived_ours}/reactions/👀/@me",
        None,
        400,
        50083,
    ),
    (
        "DELETE /channels/{c}/messages/{m}/reactions/{e}/@me",
        f"/channels/{{ops}}/messages/{NONE}/reactions/👀/@me",
        None,
        404,
        10008,
    ),
    # threads
    (T, "/channels/{ops}/messages/{ours}/threads", {"name": ""}, 400, 50035),
    (T, "/channels/{ops}/messages/{ours}/threads", {"name": "   "}, 400, 50035),
    (T, "/channels/{ops}/messages/{ours}/threads", {}, 400, 50035),
    (T, "/channels/{ops}/messages/{ours}/threads", {"name": "x" * 101}, 400, 50035),
    (T, "/channels/{ops}/messages/{ours}/threads", {"name": "x", "auto_archive_duration": 30}, 400, 50035),
    (T, "/channels/{ops}/messages/{ours}/threads", {"name": "x", "rate_limit_per_user": 0}, 403, 50013),
    (T, "/channels/{ops}/messages/{here}/threads", {"name": "x"}, 400, 160004),
    (T, f"/channels/{{ops}}/messages/{NONE}/threads", {"name": "x"}, 404, 10008),
    (T, "/channels/{thread}/messages/{here}/threads", {"name": "x"}, 400, 50024),
    (T, "/channels/{post}/messages/{post}/threads", {"name": "x"}, 400, 50024),
    (T, "/channels/{dm}/messages/{dm_theirs}/threads", {"name": "x"}, 400, 50003),
    (T, "/channels/{plain}/messages/{plain_here}/threads", {"name": "x"}, 403, 50013),
    (TT, "/channels/{plain}/threads", {"name": "x", "type": 11}, 403, 50013),
    (TT, "/channels/{thread}/threads", {"name": "x", "type": 11}, 400, 50024),
    (TT, "/channels/{forum}/threads", {"name": "x", "message": {}}, 400, 50006),
    (TT, "/channels/{forum}/threads", {"name": "x", "message": {"content": LONG}}, 400, 50035),
    ("PUT /channels/{c}/thread-members/{u}", f"/channels/{{thread}}/thread-members/{NONE}", None, 404, 10013),
    ("PUT /channels/{c}/thread-members/{u}", "/channels/{ops}/thread-members/@me", None, 400, 50024),
    ("DELETE /channels/{c}/thread-members/{u}", "/channels/{thread}/thread-members/{alice}", None, 403, 50013),
    # commands
    ("GET /applications/{a}/commands", f"/applications/{NONE}/commands", None, 403, 20012),
    ("GET /applications/{a}/guilds/{g}/commands", "/applications/{app}/guilds/{left}/commands", None, 403, 50001),
    (G, "/applications/{app}/guilds/{left}/commands", [command()], 403, 50001),
    (P, COMMANDS, [command(name="Ask")], 400, 50035),
    (P, COMMANDS, [command(name="a b")], 400, 50035),
    (P, COMMANDS, [command(name="x" * 33)], 400, 50035),
    (P, COMMANDS, [command(description="")], 400, 50035),
    (P, COMMANDS, [command(description="x" * 101)], 400, 50035),
    (P, COMMANDS, [command(type=9)], 400, 50035),
    (P, COMMANDS, [command(), command()], 400, 50035),
    (P, COMMANDS, [command(name=f"c{n}") for n in range(101)], 400, 30032),
    (P, COMMANDS, [{"name": f"c{n}", "type": 2} for n in range(16)], 400, 30032),
    (P, COMMANDS, [{"name": "Look", "type": 3, "description": "x"}], 400, 50035),
    (P, COMMANDS, [command(options=[OPTION | {"name": f"o{n}"} for n in range(26)])], 400, 50035),
    (P, COMMANDS, [command(options=[OPTION, OPTION])], 400, 50035),
    (P, COMMANDS, [command(options=[OPTION, OPTION | {"name": "b", "required": True}])], 400, 50035),
    (P, COMMANDS, [command(options=[OPTION | {"type": 12}])], 400, 50035),
    (P, COMMANDS, [command(options=[OPTION | {"choices": [{"name": "a", "value": 1}]}])], 400, 50035),
    (P, COMMANDS, [command(options=[OPTION | {"choices": [{"name": "a", "value": "v" * 101}]}])], 400, 50035),
    (
        P,
        COMMANDS,
        [command(options=[OPTION | {"choices": [{"name": str(n), "value": "v"} for n in range(26)]}])],
        400,
        50035,
    ),
    (
        P,
        COMMANDS,
        [command(options=[OPTION | {"autocomplete": True, "choices": [{"name": "a", "value": "b"}]}])],
        400,
        50035,
    ),
    (P, COMMANDS, [command(options=[OPTION | {"max_length": 6001}])], 400, 50035),
    (P, COMMANDS, [command(options=[OPTION | {"type": 1}, OPTION | {"name": "b"}])], 400, 50035),
    (
        P,
        COMMANDS,
        [command(options=[OPTION | {"name": f"{n:032}", "description": "d" * 100,
                                    "choices": [{"name": f"{k:0100}", "value": "v"} for k in range(3)]}
                          for n in range(20)])],
        400,
        50035,
    ),
    ("POST /applications/{a}/commands", COMMANDS, command(name="Ask"), 400, 50035),
    ("POST /applications/{a}/guilds/{g}/commands", "/applications/{app}/guilds/{left}/commands", command(), 403, 50001),
    ("PATCH /applications/{a}/commands/{m}", f"{COMMANDS}/{NONE}", {"name": "x"}, 404, 10063),
    (
        "PATCH /applications/{a}/guilds/{g}/commands/{m}",
        f"/applications/{{app}}/guilds/{{guild}}/commands/{NONE}",
        {"name": "x"},
        404,
        10063,
    ),
    ("DELETE /applications/{a}/commands/{m}", f"{COMMANDS}/{NONE}", None, 404, 10063),
    (
        "DELETE /applications/{a}/guilds/{g}/commands/{m}",
        f"/applications/{{app}}/guilds/{{guild}}/commands/{NONE}",
        None,
        404,
        10063,
    ),
    # interactions; what depends on their state is in test_interactions.py
    ("POST /interactions/{i}/{t}/callback", f"/interactions/{NONE}/token/callback", {"type": 5}, 404, 10062),
    (f"POST {W}", "/webhooks/{app}/token", {"content": "x"}, 404, 10015),
    (f"GET {W}/messages/{{m}}", "/webhooks/{app}/token/messages/@original", None, 404, 10015),
    (f"PATCH {W}/messages/{{m}}", "/webhooks/{app}/token/messages/@original", {"content": "x"}, 404, 10015),
    (f"DELETE {W}/messages/{{m}}", "/webhooks/{app}/token/messages/@original", None, 404, 10015),
]  # fmt: skip

#: these can only be refused for want of a token
ALWAYS = {
    "GET /users/@me",
    "GET /gateway",
    "GET /gateway/bot",
    "GET /applications/@me",
    "GET /oauth2/applications/@me",
}


async def furnish(server: DiscordServer) -> dict[str, str]:
    """A world with something of everything."""
    made = {name: server.add_channel(name) for name in ("hidden", "mute", "quiet", "bare", "plain")}
    server.deny(made["hidden"], "VIEW_CHANNEL")
    server.deny(made["mute"], "SEND_MESSAGES")
    server.deny(made["quiet"], "READ_MESSAGE_HISTORY")
    server.deny(made["bare"], "EMBED_LINKS", "ATTACH_FILES")
    server.deny(made["plain"], "ADD_REACTIONS", "CREATE_PUBLIC_THREADS")
    made |= {"ops": server.general, "guild": server.guild_id, "app": server.app_id, "alice": server.alice}
    made["forum"] = server.add_channel("forum", kind=FORUM)
    made["category"] = server.add_channel("category", kind=CATEGORY)
    made["left"] = server.add_guild("left")
    await server.kick_bot(made["left"])
    made["here"] = await server.say("root")
    made["plain_here"] = await server.say("root", channel=made["plain"])
    made["ours"] = await server.say("ours", user=server.bot_id)
    made["thread"] = await server.open_thread("talk", message=made["here"])
    made["post"] = await server.open_post("post", "question", channel=made["forum"])
    made["secret"] = await server.open_thread("secret", private=True)
    made["locked"] = await server.open_thread("locked")
    made["archived"] = await server.open_thread("archived")
    made["archived_ours"] = await server.say("ours", user=server.bot_id, channel=made["archived"])
    await server.change_thread(made["locked"], locked=True)
    await server.change_thread(made["archived"], archived=True)
    made["dm"] = server.dm_with(server.alice)
    made["dm_theirs"] = await server.say("hello", channel=made["dm"])
    return made


@pytest.mark.parametrize(("route", "path", "body", "status", "code"), REFUSALS)
async def test_what_discord_refuses_is_refused(
    server: DiscordServer, http: Http, route: str, path: str, body: Any, status: int, code: int
) -> None:
    made = await furnish(server)
    method = route.partition(" ")[0]
    before = sum(len(server.messages(channel)) for channel in server.channels), len(server.channels)
    call = http.request(Route(method, path.format_map(made)), **({} if body is None else {"json": body}))
    assert await refusal(call) == (status, code)
    assert (sum(len(server.messages(channel)) for channel in server.channels), len(server.channels)) == before


def test_every_route_names_its_page_and_has_a_refusal() -> None:
    served = {f"{method} {path}": handler for method, path, handler in ROUTES}
    unnamed = [
        route
        for route, handler in served.items()
        if not re.search(r"docs\.discord\.com/developers/[\w/-]+#[\w-]+", handler.__doc__ or "")
    ]
    assert unnamed == []
    assert set(served) == {route for route, *_ in REFUSALS} | ALWAYS


@pytest.mark.parametrize("route", sorted({f"{m} {p}" for m, p, _ in ROUTES if not p.startswith(("/int", "/web"))}))
async def test_nothing_is_answered_without_the_token(server: DiscordServer, http: Http, route: str) -> None:
    http.token = "another"
    method, path = route.split()
    assert await refusal(ask(http, method, re.sub(r"{\w}", server.general, path))) == (401, 0)


async def test_a_route_that_is_not_served_is_noted(server: DiscordServer, http: Http) -> None:
    assert await refusal(ask(http, "GET", "/stickers/1")) == (404, 0)
    assert server.violations == ["route not served: GET v10/stickers/1"]


async def test_text_is_refused_with_a_file_above_the_guilds_limit(server: DiscordServer, http: Http) -> None:
    async def send(size: int, count: int = 1) -> tuple[int, int]:
        files = [discord.File(io.BytesIO(b"x" * size), f"a{n}.csv") for n in range(count)]
        with handle_message_parameters("text", files=files) as params:
            return await refusal(http.send_message(int(server.general), params=params))

    assert await send(10 * MIB) == (0, 0)
    assert await send(10 * MIB + 1) == (413, 40005)
    server.guilds[server.guild_id].file_limit = 10
    assert await send(11) == (413, 40005)
    assert await send(10, count=11) == (400, 30015)
    server.deny(server.general, "ATTACH_FILES")
    assert await send(1) == (403, 50013)
    assert len(server.bot_messages(server.general)) == 1


async def test_a_request_that_is_no_json_is_refused(server: DiscordServer, http: Http) -> None:
    path = f"/channels/{server.general}/messages"
    assert await refusal(http.request(Route("POST", path), data=b"{", headers={})) == (400, 50035)
    wide = await refusal(http.request(Route("POST", path), data=io.BytesIO(b"x" * (26 * MIB))))
    assert wide == (413, 40005)


async def test_the_error_says_where_the_mistake_is(server: DiscordServer, http: Http) -> None:
    with pytest.raises(discord.HTTPException, match=r"In components\.0\.components\.1\.label: Must be 80 or fewer"):
        await ask(
            http,
            "POST",
            f"/channels/{server.general}/messages",
            content="x",
            components=[row(button("a"), button("b", label="x" * 81))],
        )
