"""The threads that discord.py keeps for heartbeats: none outlives its connection."""

from __future__ import annotations

import threading

from discord.gateway import KeepAliveHandler

from tests.integration.discord.conftest import Inbox, running
from tests.integration.discord.test_gateway import until
from tests.servers.discord import DiscordServer


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if isinstance(thread, KeepAliveHandler)]


async def test_no_thread_of_a_connection_outlives_it_to_beat_into_a_loop_that_is_closed(
    server: DiscordServer, inbox: Inbox
) -> None:
    """Each hello begins a thread, and discord.py's own close ends one of them: the others beat on 41 seconds later."""
    before = set(keepers())
    async with running(server, inbox):
        (session,) = server.live()
        assert session.connection is not None
        server._push(session.connection, {"op": 10, "d": {"heartbeat_interval": server.heartbeat_ms, "_trace": []}})
        await until(lambda: len(set(keepers()) - before) == 2)
    assert not set(keepers()) - before
