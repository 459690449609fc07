"""Run the model server alone: ``python -m tests.servers.openai --port 8197 [--script FILE.json]``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from pathlib import Path

from tests.servers.openai import OpenAIServer, Reply


async def _serve(args: argparse.Namespace, script: list[dict[str, object]]) -> None:
    server = OpenAIServer(host=args.host, port=args.port, models=tuple(args.model), api_keys=tuple(args.api_key))
    if args.echo:
        server.fallback = lambda request: Reply(f"echo: {request.last_user}")
    server.load(script)
    async with server:
        print(f"base_url={server.base_url}", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.servers.openai", description="local model server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8197, help="0 picks a free one, printed as base_url")
    parser.add_argument("--script", type=Path, help="JSON file: a list of rules (OpenAIServer.load)")
    parser.add_argument("--model", action="append", default=[], help="serve only this model name (repeatable)")
    parser.add_argument("--api-key", action="append", default=[], help="accept only this key (repeatable)")
    parser.add_argument("--no-echo", dest="echo", action="store_false", help="refuse what no rule matches")
    args = parser.parse_args()
    script = json.loads(args.script.read_text(encoding="utf-8")) if args.script else []
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(args, script))


if __name__ == "__main__":
    main()
