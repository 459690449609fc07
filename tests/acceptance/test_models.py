"""Models through the shipped process: fail-over, Anthropic, memory that survives a kill, workers, exported traces."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bot.telemetry import FLUSH_S
from tests.acceptance.process import PATIENCE_S, HermodProcess
from tests.servers.anthropic import AnthropicServer
from tests.servers.anthropic import Reply as Said
from tests.servers.openai import OpenAIServer, Reply, Request
from tests.servers.slack import SlackServer

CHANNEL = "C1OPS"


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    # what is said while nobody is connected is delivered soon after
    async with SlackServer(ack_timeout=1.0, retry_delays=(0.2, *(0.5,) * 60)) as server:
        yield server


@pytest.fixture
async def model() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        yield server


pytestmark = pytest.mark.timeout(180)


@asynccontextmanager
async def serving(folder: Path, slack: SlackServer, model_url: str | None, extra: str) -> AsyncIterator[HermodProcess]:
    """A connected process; it is stopped at the end."""
    hermod = HermodProcess(folder, slack_url=slack.base_url, model_url=model_url, extra=extra)
    await hermod.start()
    try:
        await slack.wait_connected()
        yield hermod
    finally:
        await hermod.stop()


async def ask(slack: SlackServer, text: str, root: str = "") -> tuple[str, str]:
    """Ask in a thread, or in a new one; return the thread and the answer."""
    before = len(slack.replies(CHANNEL, root)) if root else 0
    if root:
        await slack.say(text, thread_ts=root)
    else:
        root = await slack.mention(text)
    await slack.wait_until(lambda: len(slack.replies(CHANNEL, root)) > before)
    return root, str(slack.replies(CHANNEL, root)[before]["text"])


async def run(hermod: HermodProcess, *words: str) -> str:
    """Run another command on the same settings, and return what it printed."""
    done = await hermod.start_command(*words, output=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(done.communicate(), PATIENCE_S)
    return out.decode()


async def use_port(hermod: HermodProcess) -> None:
    """Let other commands find the port that the process took."""
    port = await hermod.find_port()
    hermod.config.write_text(hermod.config.read_text().replace("port = 0", f"port = {port}"))


async def test_a_failing_model_is_replaced_left_alone_and_told_about_everywhere(
    tmp_path: Path, slack: SlackServer, model: OpenAIServer
) -> None:
    async with OpenAIServer() as spare:
        model.on().fail(500, "server_error", "boom").times(1)
        model.on().text("half an answer that is cut off somewhere", quirk="cut").times(1)
        model.on().fail(503, "overloaded", "too much")
        spare.fallback = lambda request: Reply("from the spare one")
        spares = f"""
            [[models]]
            name = "spare"
            model = "fake-small"
            base_url = "{spare.base_url}"
            priority = 1
            [router]
            failure_threshold = 3
            recovery_timeout_s = 600
            """
        async with serving(tmp_path, slack, model.base_url, spares) as hermod:
            await use_port(hermod)
            answers = [(await ask(slack, f"question {n}"))[1] for n in range(2)]
            root, shown = await ask(slack, "!providers")
            assert answers == ["from the spare one"] * 2
            assert "main (fake-large): breaker closed; 2 requests, 2 errors" in shown
            # the third failure in a row opens the breaker
            assert [(await ask(slack, f"question {n}"))[1] for n in (3, 4)] == ["from the spare one"] * 2
            assert len(model.requests) == 3
            in_thread = (await ask(slack, "!providers", root))[1]
            for told in (in_thread, await run(hermod, "providers"), await run(hermod, "doctor")):
                assert "main (fake-large): breaker open, asked again in " in told
                assert "3 requests, 3 errors, 0 under way; last error: HTTP 503: too much" in told
                assert "spare (fake-small): breaker closed; 4 requests, 0 errors, 0 under way" in told
            metrics = (await hermod.get("/metrics"))[1]
            assert 'hermod_provider_breaker{provider="main",model="fake-large"} 2' in metrics
            fallen = [e["failures"] for e in hermod.events() if e.get("event") == "model_fell_back"]
            assert len(fallen) == 3
            assert "HTTP 500: boom" in str(fallen[0])


async def test_anthropic_answers_with_tools_and_its_cache_is_counted(tmp_path: Path, slack: SlackServer) -> None:
    def script(body: dict[str, object]) -> Said:
        newest = json.dumps(body["messages"][-1])  # type: ignore[index]
        if "tool_result" in newest:
            return Said("the disk is fine")
        return Said("Let me look.", calls=[("look_at", {"thing": "disk"})], thinking="hm")

    async with AnthropicServer(script) as server:
        claude = f"""
            [[models]]
            name = "claude"
            kind = "anthropic"
            model = "claude-haiku-4-5"
            base_url = "{server.base_url}"
            api_key = "sk-ant-test"
            [router]
            max_attempts = 1
            """
        async with serving(tmp_path, slack, None, claude) as hermod:
            # the offline provider of the common settings is the last link
            assert (await ask(slack, "look at the disk"))[1] == "the disk is fine"
            usage = json.loads(await run(hermod, "usage", "--json"))["totals"]
            assert server.violations == []
            assert usage["requests"] == 2
            assert usage["cached_input_tokens"] > 0
            assert usage["cache_write_tokens"] > 0
            assert "from the provider's cache" in await run(hermod, "usage")


async def test_a_summary_survives_a_kill_and_a_correction_stands_in_its_place(
    tmp_path: Path, slack: SlackServer, model: OpenAIServer
) -> None:
    model.on(where=_is_summary).text("Alice asked for the disk of shop-db.")
    model.fallback = lambda request: Reply("a long answer about servers and their disks " * 12)
    limits = """
        [limits]
        memory_tokens = 500
        """
    async with serving(tmp_path, slack, model.base_url, limits) as hermod:
        root, _ = await ask(slack, "question 0: how is the disk of shop-db?")
        while not any(map(_is_summary, model.requests)):
            await ask(slack, f"question {len(model.requests)}: and now?", root)
        await hermod.kill()
        await hermod.start()
        assert "Alice asked for the disk of shop-db." in (await ask(slack, "!summary", root))[1]
        await ask(slack, "!summary Alice asked for nothing.", root)
        await hermod.kill()
        await hermod.start()
        seen = len(model.requests)
        await ask(slack, "what did I ask for?", root)
        first = "\n".join(str(m["content"]) for m in model.requests[seen].messages)
        assert "Alice asked for nothing." in first
        assert "question 0" not in first
        assert "shop-db." not in first
        await ask(slack, "!forget", root)
        await ask(slack, "and now?", root)
        assert len(model.requests[-1].messages) == 2
    assert model.violations == []


def _is_summary(request: Request) -> bool:
    return "Summarise the older part" in request.last_user


async def test_workers_are_asked_and_counted(tmp_path: Path, slack: SlackServer, model: OpenAIServer) -> None:
    asked = {"worker": "disks", "task": "how full is it?"}
    model.on(user="hand over", step=0).tools(("call_worker", asked))
    model.on(user="hand over", step=1).dynamic(lambda r: Reply(json.loads(r.tool_results["call_worker"])["finding"]))
    model.on(user="how full", step=0).tools(("look_at", {"thing": "disk"}))
    model.on(user="how full", step=1).text("half full")
    workers = f"""
        [workers.disks]
        description = "Knows how full disks are."
        model = "small"
        [[models]]
        name = "small"
        model = "fake-small"
        base_url = "{model.base_url}"
        priority = 1
        input_usd_per_mtok = 1
        output_usd_per_mtok = 1
        """
    async with serving(tmp_path, slack, model.base_url, workers) as hermod:
        assert (await ask(slack, "hand over"))[1] == "half full"
        assert [r.body["model"] for r in model.requests] == ["fake-large", "fake-small", "fake-small", "fake-large"]
        usage = json.loads(await run(hermod, "usage", "--json"))
        assert {name: row["requests"] for name, row in usage["by"].items()} == {"fake-large": 2, "fake-small": 2}
        assert usage["by"]["fake-small"]["cost_usd"] > 0
        assert usage["by"]["fake-large"]["cost_usd"] is None
    assert model.violations == []


class Receiver:
    """Takes what is exported over OTLP/HTTP."""

    def __init__(self) -> None:
        self.spans: list[str] = []
        self.metrics: list[str] = []
        self.text = ""

    async def traces(self, http: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(_unpack(http, await http.read()))
        self.spans += [s.name for r in sent.resource_spans for scope in r.scope_spans for s in scope.spans]
        self.text += str(sent)
        return web.Response()

    async def measures(self, http: web.Request) -> web.Response:
        sent = ExportMetricsServiceRequest.FromString(_unpack(http, await http.read()))
        self.metrics += [m.name for r in sent.resource_metrics for scope in r.scope_metrics for m in scope.metrics]
        self.text += str(sent)
        return web.Response()


def _unpack(http: web.Request, body: bytes) -> bytes:
    return gzip.decompress(body) if http.headers.get("Content-Encoding") == "gzip" else body


@asynccontextmanager
async def receiving() -> AsyncIterator[tuple[Receiver, str]]:
    receiver, app = Receiver(), web.Application()
    app.router.add_post("/v1/traces", receiver.traces)
    app.router.add_post("/v1/metrics", receiver.measures)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield receiver, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_traces_and_metrics_of_the_last_run_arrive_before_the_process_has_ended(
    tmp_path: Path, slack: SlackServer, model: OpenAIServer
) -> None:
    model.on(step=0).tools(("look_at", {"thing": "the-hidden-disk"}))
    model.on(step=1).text("it is fine")
    async with receiving() as (receiver, url):
        async with serving(tmp_path, slack, model.base_url, f'\n[otel]\nendpoint = "{url}"\n') as hermod:
            await ask(slack, "look at it")
            assert await hermod.stop() == 0
        chat = "chat fake-large"
        assert receiver.spans == [chat, "execute_tool look_at", chat, "invoke_agent operations"]
        assert "gen_ai.client.operation.duration" in receiver.metrics
        assert "hidden-disk" not in receiver.text  # content is off


async def test_an_endpoint_for_traces_that_is_down_costs_no_answer_and_few_lines(
    tmp_path: Path, slack: SlackServer, model: OpenAIServer
) -> None:
    model.fallback = lambda request: Reply("fine")
    async with serving(tmp_path, slack, model.base_url, '\n[otel]\nendpoint = "http://127.0.0.1:9"\n') as hermod:
        assert (await ask(slack, "how are you?"))[1] == "fine"
        time = asyncio.get_running_loop().time
        begun = time()
        await run(hermod, "usage")
        command_s, begun = time() - begun, time()
        assert await hermod.stop() == 0
        assert time() - begun < FLUSH_S + 5 * max(1.0, command_s)  # a busy machine is as slow with any command
        told = [e for e in hermod.events() if "export" in str(e.get("event"))]
        assert 1 <= len(told) <= 2
