"""A Discord on one loopback port that the genuine discord.py talks to.

It serves what a bot talks to: the REST API (``base_url``), the gateway with shards (``gateway_url``) and the signed
addresses of files. Nothing is set up in the client but these two addresses.

Three sides: *people* act (``say``, ``slash``, ``click``, ``open_thread``, ``deny`` ...), the *test* looks
(``messages``, ``threads``, ``calls_to``, ``wait_until``, ``violations``, ``rate_violations``, ``pings``), *faults* are
injected (``inject``, ``reconnect``, ``invalidate``, ``kill_sockets``, ``drop_acks``, ``hold_events`` ...).
``python -m tests.servers.discord --port 8198`` runs it alone; see ``tests/servers/README.md``.

Behaviour follows docs.discord.com and the issues of github.com/discord/discord-api-docs; what Discord does not document
is marked UNDOCUMENTED.
"""

from tests.servers.discord import routes_commands, routes_interactions, routes_messages, routes_places
from tests.servers.discord.model import ApiError, Call, Fault, Interaction, Json, Ping, Session
from tests.servers.discord.server import DiscordServer

__all__ = [
    "ApiError",
    "Call",
    "DiscordServer",
    "Fault",
    "Interaction",
    "Json",
    "Ping",
    "Session",
    "routes_commands",
    "routes_interactions",
    "routes_messages",
    "routes_places",
]
