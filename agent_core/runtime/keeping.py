"""Answers that are kept and served again: what may be, and what they are found by."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pydantic_core import to_json

from agent_core.llm.provider import OFFLINE
from agent_core.llm.types import Finish, ModelMessage, ModelRequest, ModelResponse, Usage
from agent_core.runtime.work import Work
from agent_core.tools.executor import ToolExecutor

if TYPE_CHECKING:
    from agent_core.llm.cache.policy import AnswerCache, CacheQuestion

CACHE = "cache"
"""The provider's name in the step of an answer that was kept."""


async def recall_answer(
    cache: AnswerCache, executor: ToolExecutor, work: Work, request: ModelRequest, *, models: str
) -> ModelResponse | None:
    """Look for a kept answer to a run's first request; none is looked for without a ``cache_scope``."""
    if not work.ctx.cache_scope or work.steered:
        return None
    work.question = _question_of(executor, work, request, models)
    hit = await cache.find(work.question)
    if hit is None:
        return None
    return ModelResponse(
        message=ModelMessage(role="assistant", content=work.ctx.redactor.redact(hit.answer)),
        finish=Finish.STOP,
        model=hit.tier,
        provider=CACHE,
        usage=Usage(),
        attempts=0,
    )


async def keep_answer(cache: AnswerCache, executor: ToolExecutor, work: Work) -> None:
    """Keep a run's answer, unless it rests on live data: every tool that was used has to give a time to live."""
    steps = work.record.steps
    models = [step for step in steps if step.kind == "model"]
    if work.question is None or work.steered or any(s.provider == CACHE or s.name == OFFLINE for s in models):
        return
    # an answer may repeat what a private tool returned earlier, without any tool of its own
    if any(executor.is_private(call.name) for m in work.conversation.messages for call in m.tool_calls):
        return
    tools = [step for step in steps if step.kind == "tool"]
    lives = [executor.cache_ttl_s(step.name) for step in tools]
    if any(ttl_s is None for ttl_s in lives) or not all(step.ok for step in tools):
        return
    await cache.keep(work.question, work.record.answer, ttl_s=min((s for s in lives if s is not None), default=None))


def _question_of(executor: ToolExecutor, work: Work, request: ModelRequest, models: str) -> CacheQuestion:
    from agent_core.llm.cache.policy import CacheQuestion

    end = len(request.messages)
    while end and request.messages[end - 1].role == "user":
        end -= 1
    context = hashlib.sha256(to_json((work.agent.name, models)))
    # who speaks and when is not in it: an answer is shared by all of one scope
    for message in request.messages[:end]:
        context.update(to_json((message.role, message.content, [(c.name, c.arguments) for c in message.tool_calls])))
    for spec in request.tools:
        context.update(to_json((spec.name, spec.description, spec.parameters, executor.cache_ttl_s(spec.name))))
    context.update(to_json((request.tool_choice, request.temperature, request.max_tokens, request.model)))
    text = "\n".join(m.content for m in request.messages[end:])
    return CacheQuestion(scope=work.ctx.cache_scope, text=text, context=context.hexdigest(), origin=work.ctx.thread_id)
