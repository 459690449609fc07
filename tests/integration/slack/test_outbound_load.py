"""Many answers at once, on real time: whole, in time, within the published rates."""

from __future__ import annotations

import asyncio
import time

import pytest

from adapters.chat import Delivered, RetryLater, ThreadRef
from adapters.slack.outbound import SlackOutbound
from tests.integration.slack.desk import ALICE, open_outbound, place, reply
from tests.servers.slack import SlackServer

ANSWERS = 20
TOKENS_PER_S = 200
CHARACTERS = 10_000


Written = list[tuple[float, int]]
"""When the model had written how many letters."""


def build_text(number: int) -> str:
    """Ten thousand characters in paragraphs, with a list here and there."""
    text = f"# Answer {number}\n\n"
    while len(text) < CHARACTERS:
        text += "".join(f"word{n} " for n in range(len(text) % 37 + 20)).strip() + ".\n\n"
        text += f"- one\n- two {number}\n\n"
    return text[:CHARACTERS].strip()


def visible(server: SlackServer, thread: ThreadRef) -> str:
    return "".join(m["text"] for m in server.bot_messages(thread.channel, thread.thread))


def letters(text: str) -> str:
    return "".join(c for c in text if c.isalnum())


def worst_lag(server: SlackServer, thread: ThreadRef, written: Written) -> float:
    """How old the oldest letter got that people did not see, by the calls that the workspace took."""
    shown: dict[str, str] = {}
    worst, n = 0.0, 0
    for call in server.calls:
        ts = str(call.response.get("ts") or "")
        if not call.response.get("ok") or call.args.get("channel") != thread.channel:
            continue
        if call.method in ("chat.startStream", "chat.postMessage") and call.args["thread_ts"] != thread.thread:
            continue
        if call.method in ("chat.postMessage", "chat.update", "chat.startStream"):
            shown[ts] = str(call.args.get("text") or call.args.get("markdown_text") or "")
        elif call.method in ("chat.appendStream", "chat.stopStream") and ts in shown:
            shown[ts] += str(call.args.get("markdown_text") or "")
        else:
            continue
        if n < len(written):
            worst = max(worst, call.at - written[n][0])
        visible_letters = sum(len(letters(text)) for text in shown.values())
        while n < len(written) and written[n][1] <= visible_letters:
            n += 1
    assert n == len(written)
    return worst


async def answer(outbound: SlackOutbound, thread: ThreadRef, text: str, key: str) -> tuple[Written, float]:
    """Write ``text`` as a model would; returns when, and for how long this machine was too busy to write on."""
    draft = outbound.open_draft(thread, asker=ALICE)
    assert draft is not None
    step, begun, count = 4, time.time(), 0
    written: Written = []
    held_up_s = 0.0
    for n in range(step, len(text) + step, step):
        await draft.show(text[:n])
        count += len(letters(text[n - step : n]))
        written.append((time.time(), count))
        wait_s = begun + n / step / TOKENS_PER_S - time.time()
        held_up_s = max(held_up_s, -wait_s)
        await asyncio.sleep(max(0.0, wait_s))
    final = reply(thread.thread, text, key, channel=thread.channel)
    outcome = await draft.finish(final)
    while outcome is None or isinstance(outcome, RetryLater):  # None: what was shown is gone, and it is posted anew
        await asyncio.sleep(0.0 if outcome is None else outcome.after_s)
        outcome = await outbound.post(final)
    assert isinstance(outcome, Delivered)
    return written, held_up_s


@pytest.mark.parametrize(("drafts", "bound_s"), [("stream", 3.0), ("edits", 5.0)])
async def test_twenty_long_answers_at_once_are_whole_in_time_and_within_the_rates(
    server: SlackServer, drafts: str, bound_s: float
) -> None:
    """By edits each answer has a channel of its own: 20 answers of several messages in one take longer."""
    server.strict_rate_limits = True
    threads = []
    for n in range(ANSWERS):
        channel = "C1OPS"
        if drafts == "edits":
            server.add_channel(channel := f"C{n}EDIT", f"edit-{n}")
        threads.append(place(await server.say("root", channel=channel), channel))
    texts = [build_text(n) for n in range(ANSWERS)]
    async with open_outbound(server, drafts=drafts) as outbound:
        times = await asyncio.gather(*(answer(outbound, t, texts[n], f"run-{n}") for n, t in enumerate(threads)))
        found = [await outbound.find_posted(t, f"run-{n}") for n, t in enumerate(threads)]
    assert all(isinstance(f, Delivered) for f in found)
    for n, thread in enumerate(threads):
        if drafts == "stream":
            assert visible(server, thread) == texts[n]
        assert letters(visible(server, thread)) == letters(texts[n])
    assert [c.method for c in server.calls if c.response.get("error") == "ratelimited"] == []
    assert server.ledger.violations() == []
    lags = [worst_lag(server, thread, times[n][0]) for n, thread in enumerate(threads)]
    held_up_s = max(held_up_s for _, held_up_s in times)
    print(f"{drafts}: worst lag {max(lags):.2f} s, held up for {held_up_s:.2f} s, {len(server.calls)} calls")
    assert max(lags) <= bound_s + 2 * held_up_s  # it cannot be shown sooner than it is written
