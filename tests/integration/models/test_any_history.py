"""2,000 random histories, cut, summarised, cancelled or crashed anywhere: the strict server accepts every one."""

from __future__ import annotations

import asyncio
import random

from agent_core.llm.openai_compat import OpenAICompatible
from agent_core.llm.types import ModelMessage, ModelRequest
from agent_core.memory.budget import select_window
from agent_core.memory.conversation import Conversation, Summary
from agent_core.memory.summarize import Summarizer, summary_message
from agent_core.memory.validity import make_sendable
from tests.servers.openai import OpenAIServer
from tests.unit.engine.histories import damage, random_history
from tests.unit.engine.running import WordCounter

HISTORIES = 2_000
AT_ONCE = 50


class Letters(WordCounter):
    """Counts characters, so that messages differ in size."""

    def count(self, text: str) -> int:
        return len(text)


def build_messages(rng: random.Random) -> tuple[ModelMessage, ...]:
    """What a loop would send of a random thread: a summary up to any message, and what fits of the rest."""
    history = random_history(rng)
    conversation = Conversation(Letters())
    conversation.extend(damage(rng, history) if rng.random() < 0.6 else [*history, history[0]])
    match rng.randrange(3):
        case 0:  # where the summarizer itself would end it
            covers = Summarizer().find_due(conversation, rng.randrange(1, conversation.total_tokens + 1))
        case 1:  # anywhere, as another version or a lost row may have left it
            covers = rng.randrange(len(conversation) + 1)
        case _:
            covers = 0
    if covers:
        conversation.summary = Summary(text="they spoke about an index", covers=covers, tokens_after=20)
    window = select_window(conversation, rng.randrange(1, conversation.total_tokens + 50))
    summary = () if conversation.summary is None else (summary_message(conversation.summary),)
    return (*summary, *make_sendable(window))


async def test_2000_random_histories_with_random_cuts_summaries_and_damage_are_all_accepted() -> None:
    rng = random.Random(20261130)
    made = [build_messages(rng) for _ in range(HISTORIES)]
    assert sum(messages[0].role == "system" for messages in made) > HISTORIES / 3
    gate = asyncio.Semaphore(AT_ONCE)
    async with OpenAIServer() as server:
        server.on().text("ok")
        provider = OpenAICompatible(name="main", model="fake-large", api_key="k", base_url=server.base_url)

        async def send(messages: tuple[ModelMessage, ...]) -> None:
            async with gate:
                await provider.complete(ModelRequest(messages=messages, timeout_s=30))

        async with asyncio.TaskGroup() as group:
            for messages in made:
                group.create_task(send(messages))
        await provider.aclose()
    assert len(server.requests) == HISTORIES
    assert server.violations == []
