"""Run the Slack server alone: ``python -m tests.servers.slack --port 8199 [--request-url URL]``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib

from tests.servers.slack import SlackServer


async def _serve(args: argparse.Namespace) -> None:
    server = SlackServer(
        host=args.host, port=args.port, request_url=args.request_url, strict_rate_limits=args.strict_rate_limits
    )
    async with server:
        print(
            f"base_url={server.base_url} bot_token={server.bot_token} app_token={server.app_token} "
            f"signing_secret={server.signing_secret}",
            flush=True,
        )
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.servers.slack", description="local Slack workspace")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8199, help="0 picks a free one, printed in base_url")
    parser.add_argument("--request-url", help="deliver over HTTP to this URL instead of Socket Mode")
    parser.add_argument("--strict-rate-limits", action="store_true", help="enforce Slack's documented limits")
    args = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(args))


if __name__ == "__main__":
    main()
