"""Make room for a run: the older half of a conversation that is over its budget becomes a summary."""

from __future__ import annotations

import logging
from dataclasses import replace

from agent_core.errors import ProviderError, is_overflow
from agent_core.llm.provider import OFFLINE
from agent_core.memory.summarize import TIMEOUT_S, Summarizer
from agent_core.runtime.ask import Asking, ModelCalls
from agent_core.runtime.events import Summarized
from agent_core.runtime.guards import check_before_model
from agent_core.runtime.work import Work
from agent_core.tools.executor import ToolExecutor

logger = logging.getLogger("agent_core.memory")

SHARE = 0.25
"""Of a run's time, what one try at a summary may take; the answer needs the rest."""


async def make_room(calls: ModelCalls, summarizer: Summarizer, executor: ToolExecutor, work: Work) -> None:
    """Let the model summarise what is over the agent's memory budget, once, or twice if that was too long for it.

    A failure leaves the conversation as it is: trimming makes the request fit, and the next turn tries again.
    """
    if calls.provider.model == OFFLINE:
        return
    conversation, limits, budget = work.conversation, work.ctx.limits, work.ctx.budget
    timeout_s = min(TIMEOUT_S, work.ctx.remaining_s() * SHARE)
    covers = summarizer.find_due(conversation, work.agent.memory_tokens)
    for attempt in (1, 2):
        if not covers or check_before_model(work.record, work.agent, work.ctx):
            return
        if limits.requests is not None and budget.requests + 2 > limits.requests:  # one for the answer
            return
        asking = Asking(
            key=f"summary:{attempt}",
            purpose="summary",
            build=lambda covers=covers: summarizer.build_request(  # type: ignore[misc]
                conversation,
                covers,
                budget_tokens=work.agent.memory_tokens,
                timeout_s=timeout_s,
                is_private=executor.is_private,
            ),
        )
        try:
            response = await calls.ask(work, asking)
        except ProviderError as e:
            logger.warning("no summary this time: %s", e)
            if not is_overflow(e):
                return
            covers = summarizer.shrink(conversation, covers)
            work.memory_tokens = work.agent.memory_tokens // 4  # what was too long for a summary is so for an answer
            continue
        # the last link of a chain answers without a model, and that is no summary of anything
        written = None if response.model == OFFLINE else summarizer.accept(response, conversation, covers)
        if written is None:
            logger.warning("no summary this time: the model's answer is none")
            return
        conversation.summary = written
        *earlier, step = work.record.steps
        said = f"{written.tokens_before} tokens became {written.tokens_after}: {step.detail}"
        work.record = replace(work.record, steps=(*earlier, replace(step, detail=said)))
        work.ctx.emit(Summarized(run_id=work.ctx.run_id, summary=written))
        return
