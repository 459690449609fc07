"""What went wrong around answers: other bots, places that vanish, full windows, failing tools, secrets."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.acceptance.process import HermodProcess
from tests.bugs.slack.failing_tools import DSN
from tests.bugs.slack.office import Office, elements, links, open_office, shown
from tests.servers.openai import Call, OpenAIServer, Reply, Request
from tests.servers.slack import SlackServer

TOOLS = '[tools]\nmodules = ["tests.bugs.slack.failing_tools"]\n'


@pytest.fixture
async def tooled(tmp_path: Path) -> AsyncIterator[Office]:
    """An office with the failing tools."""
    async with open_office(tmp_path, extra=TOOLS) as opened:
        yield opened


async def test_b013_a_bot_that_answers_every_message_starts_no_conversation(office: Office) -> None:
    office.model.on().text("done, <@U9PEER>")
    root = await office.ask("hello")
    for _ in range(20):
        await office.slack.other_bot_says(
            f"<@{office.slack.bot_user}> thank you!", thread_ts=root, bot_id="B9PEER", bot_user="U9PEER"
        )
        await office.slack.other_bot_says(f"<@{office.slack.bot_user}> and again", thread_ts=root)
    await office.slack.wait_until(lambda: all(d.acked for d in office.slack.deliveries))
    await office.ask("and a person?", thread_ts=root)  # people are not affected
    assert len(office.answers(root)) == 2
    assert len(office.model.requests) == 2


async def _answer_into_a_channel_that_vanishes(office: Office, words: str) -> list[str]:
    """Remove a channel while its question is answered; the calls that it still got, once others were answered."""
    office.slack.add_channel("C2GONE", "gone")
    answering = asyncio.Event()

    def answer(request: Request) -> Reply:
        answering.set()
        return Reply(words, pace=0.001)

    office.model.on(user="vanish").dynamic(answer)
    office.model.on().text("still here")
    await office.slack.mention("vanish", channel="C2GONE")
    await asyncio.wait_for(answering.wait(), 30)
    calls = len(office.slack.calls)
    office.slack.remove_channel("C2GONE")
    root = await office.ask("are you there?")
    await office.rest()
    assert shown(office.answers(root)[0]) == "still here"
    return [c.method for c in office.slack.calls[calls:] if c.response.get("error") == "channel_not_found"]


async def test_b029_a_channel_that_vanishes_during_a_run_is_left_alone(office: Office) -> None:
    failed = await _answer_into_a_channel_that_vanishes(office, "words " * 400)
    assert len([method for method in failed if method.startswith("chat.")]) <= 3  # two kinds of draft, the answer


async def test_b029_of_an_answer_in_parts_only_the_first_is_tried_in_a_channel_that_vanished(office: Office) -> None:
    failed = await _answer_into_a_channel_that_vanishes(office, "many-words-in-one " * 1000)
    assert 1 <= len([method for method in failed if method.startswith("chat.")]) <= 3


async def test_b083_every_text_is_utf8_whatever_the_machine_says(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "operations.md").write_text("You are {name} 🦉. Now: {now}", encoding="utf-8")
    ascii_machine = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    async with SlackServer() as slack, OpenAIServer() as model:
        model.on().text("größer als 5 秒 🐢")
        hermod = HermodProcess(
            tmp_path,
            slack_url=slack.base_url,
            model_url=model.base_url,
            extra=f'[prompts]\nfolder = "{tmp_path}/prompts"\n',
            environ=ascii_machine,
        )
        await hermod.start()
        try:
            await slack.wait_connected()
            root = await slack.mention("wie groß? 🐌")
            # a slow one is shown while it is written
            await slack.wait_until(lambda: [shown(m) for m in slack.replies("C1OPS", root)] == ["größer als 5 秒 🐢"])
            sent = [str(m["content"]) for m in model.requests[0].messages]
            assert "🦉" in sent[0]
            assert "wie groß? 🐌" in sent[-1]
        finally:
            assert await hermod.stop() == 0


ONE_TOOL = '[access]\ntools = ["calculator"]\n'
"""What all tools are described with is larger than these windows."""


async def test_b091_a_thread_that_outgrows_the_models_window_goes_on(tmp_path: Path) -> None:
    def reply(request: Request) -> Reply:
        return Reply("reply " + re.findall(r"question ([0-9]+)", request.last_user)[-1] + " word" * 400)

    model = OpenAIServer(max_context=4000)
    async with open_office(tmp_path, model=model, extra=f"{ONE_TOOL}[limits]\nmemory_tokens = 2000\n") as office:
        model.on().dynamic(reply)
        root = await office.ask("question 0 " + "fact " * 400)
        for n in range(1, 12):
            await office.ask(f"question {n} " + "fact " * 400, thread_ts=root)
        assert re.findall(r"reply ([0-9]+)", office.said(root)) == [str(n) for n in range(12)]
        assert model.violations == []


async def test_b091_a_window_smaller_than_was_said_costs_a_request_or_two_and_no_answer(tmp_path: Path) -> None:
    model = OpenAIServer(max_context=4000)
    async with open_office(tmp_path, model=model, extra=f"{ONE_TOOL}[limits]\nmemory_tokens = 8000\n") as office:
        model.on().dynamic(lambda r: Reply("answer " + "word " * 80))
        root = await office.ask("fact " * 900)
        for n in range(6):
            await office.ask(f"{n} " + "fact " * 900, thread_ts=root)
        assert len(office.answers(root)) == 7
        assert all("answer word" in shown(m) for m in office.answers(root))
        asked = Counter(request.last_user for request in model.requests)
        assert len(asked) >= 7
        assert 1 < max(asked.values()) <= 3


async def test_b092_a_tool_that_always_fails_at_length_ends_with_an_answer(tooled: Office) -> None:
    def insist(request: Request) -> Reply:
        failures = sum(1 for m in request.messages if m["role"] == "tool")
        return Reply(None, [Call("fail_at_length", f'{{"step": {failures}}}')])

    tooled.model.on().dynamic(insist)
    root = await tooled.ask("do it")
    (message,) = tooled.answers(root)
    assert shown(message).strip()
    assert len(tooled.model.requests) <= 11
    results = [str(m["content"]) for m in tooled.model.requests[-1].messages if m["role"] == "tool"]
    assert results
    assert max(map(len, results)) < 5120
    assert tooled.model.violations == []


async def test_b093_what_a_tool_fails_with_shows_no_password(
    tooled: Office, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    tooled.model.on(step=0).tools(("connect_somewhere", {"name": "shop"}))
    tooled.model.on(step=1).dynamic(lambda r: Reply(f"it failed: {r.tool_results['connect_somewhere']}"))
    root = await tooled.ask("connect to the shop")
    written = [str(c.args) for c in tooled.slack.calls] + [str(r.messages) for r in tooled.model.requests]
    written += [caplog.text, *capsys.readouterr()]
    assert not [text for text in written if "p4ss-w0rd" in text]
    assert "it failed" in tooled.said(root)


async def test_b094_tokens_reach_no_log_in_any_form(tmp_path: Path) -> None:
    token = "xoxb-12-34-se/cr+et="
    tool = (
        "import asyncio\n\ndef register(registry):\n    async def leak(n: int) -> str:\n"
        f'        """Leak."""\n        raise OSError("GET /api?token={quote(token, safe="")} and {token}")\n'
        "    registry.register(leak)\n"
    )
    async with SlackServer(bot_token=token) as slack, OpenAIServer() as model:
        model.on(step=0).tools(("leak", {"n": 1}))
        model.on(step=1).dynamic(lambda r: Reply(f"failed with {r.tool_results['leak']}"))
        hermod = HermodProcess(
            tmp_path, slack_url=slack.base_url, model_url=model.base_url, bot_token=token, verbose=True
        )
        (tmp_path / "counted_tools.py").write_text(tool)
        slack.inject("chat.postMessage", drop=True)
        slack.inject("assistant.threads.setStatus", http=500)
        slack.inject("users.info", drop=True)
        await hermod.start()
        try:
            await slack.wait_connected()
            root = await slack.mention("leak")
            await slack.wait_until(lambda: slack.replies("C1OPS", root))
        finally:
            await hermod.stop()
        log = hermod.log_path.read_text()
        forms = (token, quote(token, safe=""), quote(token), "se/cr+et")
        assert "run_ended" in log
        assert not [form for form in forms if form in log]
        said = str(slack.bot_messages("C1OPS", root)) + str([r.messages for r in model.requests])
        assert not [form for form in forms if form in said]


async def test_b097_a_link_that_a_page_smuggled_in_is_not_fetched_and_carries_no_secret(tooled: Office) -> None:
    tooled.slack.inject("chat.startStream", error="method_deprecated", times=10**6)  # a stream has no such arguments
    tooled.model.on(step=0).tools(("read_page", {"topic": "disks"}))
    tooled.model.on(step=1).dynamic(lambda r: Reply("Fine. " + r.tool_results["read_page"].partition("with ")[2]))
    root = await tooled.ask("what does the wiki say about disks?")
    (message,) = tooled.answers(root)
    posts = tooled.slack.calls_to("chat.postMessage")
    assert {(call.args["unfurl_links"], call.args["unfurl_media"]) for call in posts} == {(False, False)}
    assert DSN not in str(tooled.model.requests[-1].messages)
    assert "p4ss-w0rd" not in str(message)
    assert elements(message, "image") == []
    assert all("p4ss" not in url for url, _ in links(message))
