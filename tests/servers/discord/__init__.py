"""A Discord guild on one loopback port that the genuine discord.py talks to.

REST is served under ``base_url`` and the gateway under ``gateway_url``. People act (``say``, ``slash``, ``click`` ...),
the test looks (``messages``, ``threads``, ``calls_to``, ``wait_until``, ``violations``), faults are injected
(``inject``, ``reconnect``, ``invalidate``, ``kill_sockets``). ``python -m tests.servers.discord`` runs it alone.
"""

from tests.servers.discord import routes_channels, routes_interactions
from tests.servers.discord.model import ApiError, Call, Fault, Interaction, Json, Session
from tests.servers.discord.server import DiscordServer

__all__ = [
    "ApiError",
    "Call",
    "DiscordServer",
    "Fault",
    "Interaction",
    "Json",
    "Session",
    "routes_channels",
    "routes_interactions",
]
