"""Run the Discord server alone: ``python -m tests.servers.discord --port 8198``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib

from tests.servers.discord import DiscordServer


async def _serve(args: argparse.Namespace) -> None:
    async with DiscordServer(
        host=args.host, port=args.port, shards=args.shards, strict_rate_limits=args.strict_rate_limits
    ) as server:
        print(
            f"base_url={server.base_url} gateway_url={server.gateway_url} token={server.token} "
            f"guild={server.guild_id} channel={server.general}",
            flush=True,
        )
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.servers.discord", description="local Discord")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8198, help="0 picks a free one, printed in base_url")
    parser.add_argument("--shards", type=int, default=1, help="the number of shards that it recommends")
    parser.add_argument("--strict-rate-limits", action="store_true", help="enforce the limits that clients report")
    args = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(args))


if __name__ == "__main__":
    main()
