"""REST: the application's commands. docs.discord.com/developers/interactions/application-commands#endpoints."""

from __future__ import annotations

from tests.servers.discord import options
from tests.servers.discord.model import ApiError, Json, limited
from tests.servers.discord.routing import Request, route
from tests.servers.discord.server import DiscordServer

DAY_S, CREATES_A_DAY = 86_400.0, 200


def _scope(server: DiscordServer, r: Request) -> str:
    """The guild, or "global"; refuses another application and a guild that the bot is not in."""
    if r.path["a"] != server.app_id:
        raise ApiError(403, 20012, "You are not authorized to perform this action on this application")
    if "g" not in r.path:
        return "global"
    if r.path["g"] not in server.guilds or not server.guilds[r.path["g"]].bot_in:
        raise ApiError(403, 50001, "Missing Access")
    return r.path["g"]


def _spend_creates(server: DiscordServer, scope: str, count: int) -> None:
    """200 creates a day in a guild, 30034 above; the HTTP status, here 429, is UNDOCUMENTED."""
    now = server.clock.now()
    recent = [at for at in server.command_creates.get(scope, []) if now - at < DAY_S]
    if len(recent) + count > CREATES_A_DAY:
        server.violations.append(f"commands: more than {CREATES_A_DAY} were created in {scope} within a day")
        raise limited(DAY_S - (now - recent[0]) if recent else DAY_S, code=30034)
    server.command_creates[scope] = recent + [now] * count


def _make(server: DiscordServer, scope: str, given: Json, old: Json | None) -> Json:
    defaults: Json = {
        "default_member_permissions": None, "type": 1, "nsfw": False, "description": "", "name_localizations": None,
        "description_localizations": None, "integration_types": [0], "contexts": None, "dm_permission": True,
    }  # fmt: skip
    made = defaults | given | {"application_id": server.app_id, "version": server.snowflake()}
    made["id"] = old["id"] if old else server.snowflake()
    return made | ({"guild_id": scope} if scope != "global" else {})


def _same(commands: list[Json], given: Json) -> Json | None:
    key = (given.get("name"), given.get("type", 1))
    return next((each for each in commands if (each["name"], each["type"]) == key), None)


@route("GET", "/applications/{a}/commands")
@route("GET", "/applications/{a}/guilds/{g}/commands")
def commands(server: DiscordServer, r: Request) -> list[Json]:
    """docs.discord.com/developers/interactions/application-commands#get-global-application-commands."""
    return server.commands.get(_scope(server, r), [])


@route("PUT", "/applications/{a}/commands")
@route("PUT", "/applications/{a}/guilds/{g}/commands")
def overwrite(server: DiscordServer, r: Request) -> list[Json]:
    """docs.discord.com/developers/interactions/application-commands#bulk-overwrite-global-application-commands.

    Only commands that do not exist yet count as created.
    """
    scope = _scope(server, r)
    given = r.body.get("_", [])
    options.check_commands(given)
    old = server.commands.get(scope, [])
    _spend_creates(server, scope, sum(1 for each in given if _same(old, each) is None))
    server.command_puts.append(scope)
    server.commands[scope] = [_make(server, scope, each, _same(old, each)) for each in given]
    return server.commands[scope]


@route("POST", "/applications/{a}/commands")
@route("POST", "/applications/{a}/guilds/{g}/commands")
def create(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/interactions/application-commands#create-global-application-command: an upsert."""
    scope = _scope(server, r)
    kept = server.commands.setdefault(scope, [])
    old = _same(kept, r.body)
    rest = [each for each in kept if each is not old]
    options.check_commands([*rest, r.body], "")
    _spend_creates(server, scope, 0 if old else 1)
    made = _make(server, scope, r.body, old)
    server.commands[scope] = [*rest, made]
    return made


@route("PATCH", "/applications/{a}/commands/{m}")
@route("PATCH", "/applications/{a}/guilds/{g}/commands/{m}")
def change(server: DiscordServer, r: Request) -> Json:
    """docs.discord.com/developers/interactions/application-commands#edit-global-application-command."""
    scope = _scope(server, r)
    old = _known(server, scope, r.path["m"])
    options.check_command({"type": old["type"]} | old | r.body, "")
    made = _make(server, scope, old | r.body, old)
    server.commands[scope] = [made if each is old else each for each in server.commands[scope]]
    return made


@route("DELETE", "/applications/{a}/commands/{m}")
@route("DELETE", "/applications/{a}/guilds/{g}/commands/{m}")
def delete(server: DiscordServer, r: Request) -> None:
    """docs.discord.com/developers/interactions/application-commands#delete-global-application-command."""
    scope = _scope(server, r)
    known = _known(server, scope, r.path["m"])
    server.commands[scope].remove(known)


def _known(server: DiscordServer, scope: str, command: str) -> Json:
    found = next((each for each in server.commands.get(scope, []) if each["id"] == command), None)
    if found is None:
        raise ApiError(404, 10063, "Unknown application command")
    return found
