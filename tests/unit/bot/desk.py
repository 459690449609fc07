"""Hermod around one store, one chat in memory and one model, put together as the app does it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from adapters.chat import ChatAdapter
from adapters.slack.permalink import parse_permalink
from agent_core.agent import Agent
from agent_core.context import Clock, Limits, NoRedactor, Redactor, RunContext, SystemClock
from agent_core.llm.cache import AnswerCache
from agent_core.llm.pricing import FREE, PriceList
from agent_core.llm.provider import Provider
from agent_core.llm.router import Router
from agent_core.llm.scripted import ScriptedProvider, Turn
from agent_core.llm.tokens import TokenCounter
from agent_core.memory.summarize import Summarizer
from agent_core.prompts import PromptTemplate, load_prompts
from agent_core.runtime.loop import AgentLoop
from agent_core.tools.approval import Approver
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from bot.access import Access, AccessAuthorizer, AccessPolicy
from bot.answer import Answer
from bot.attachments import Attachments
from bot.audit import AuditLog
from bot.commands import CommandRunner
from bot.dispatcher import Dispatcher
from bot.feedback import FEEDBACK, FeedbackBox
from bot.forget import ThreadMemory, build_memory_commands
from bot.inbox import Inbox
from bot.jobs.job import Firing
from bot.sender import Sender
from bot.session import Reports, Session
from bot.storage.base import Store
from bot.usage import build_usage_command
from bot.words import ThreadWords
from tests.unit.bot.recording import MemoryChat
from tests.unit.engine.running import WordCounter


class NoReports:
    """For tests in which no job fires."""

    async def run(self, ctx: RunContext, firing: Firing) -> Answer:
        raise AssertionError(f"{firing.job} fired")

    async def decline(self, firing: Firing, reason: str) -> Answer:
        raise AssertionError(f"{firing.job} fired")


class Desk:
    """Hermod around one store, one memory chat and one scripted model."""

    def __init__(
        self,
        store: Store,
        provider: Provider,
        *,
        registry: ToolRegistry | None = None,
        policy: AccessPolicy | None = None,
        chat: MemoryChat | None = None,
        queue_limit: int = 50,
        clock: Clock | None = None,
        redactor: Redactor | None = None,
        agent: Agent | None = None,
        adapters: Mapping[str, ChatAdapter] | None = None,
        approver: Approver | None = None,
        cache: AnswerCache | None = None,
        prompt: PromptTemplate | None = None,
        command_prefix: str = "",
        attachments: Attachments | None = None,
        reports: Reports | None = None,
    ) -> None:
        self.store = store
        self.chat = chat or MemoryChat()
        clock, policy = clock or SystemClock(), policy or AccessPolicy()
        redactor = redactor or NoRedactor()
        adapters = {"memory": self.chat} if adapters is None else adapters
        executor = ToolExecutor(registry or ToolRegistry(), authorizer=AccessAuthorizer(policy), approver=approver)
        self.sender = Sender(store=store, adapters=adapters, clock=clock)

        async def counter() -> TokenCounter:
            return WordCounter()

        memory = ThreadMemory(store, AuditLog(store, clock), cache=cache, files=attachments)
        self.feedback = FeedbackBox(store, clock)
        self.session = Session(
            store=store,
            adapters=adapters,
            sender=self.sender,
            loop=AgentLoop(
                provider=provider,
                executor=executor,
                prices=PriceList({"scripted": FREE}),
                summarizer=Summarizer(),
                cache=cache,
            ),
            agent=agent or Agent(name="operations"),
            limits=Limits(run_deadline_s=20),
            prompt=prompt or load_prompts()["operations"],
            commands=CommandRunner(
                executor,
                registry=registry,
                prefix=command_prefix,
                own=(build_usage_command(store, clock), *build_memory_commands(memory, {"memory": parse_permalink})),
            ),
            words=ThreadWords(store, counter, Router([provider]).states, clock, memory=memory),
            access=Access(policy),
            counter=counter,
            clock=clock,
            redactor=redactor,
            actions={FEEDBACK: self.feedback.take},
            attachments=attachments,
            reports=reports or NoReports(),
            look_s=0.02,
            show_s=0.0,
        )
        self.dispatcher = Dispatcher(
            store=store,
            work=self.session,
            prefixes=[f"{name}:" for name in adapters],
            owner="test",
            clock=clock,
            lease_s=5,
        )
        self.inbox = Inbox(
            store=store,
            clock=clock,
            redactor=redactor,
            queue_limit=queue_limit,
            wake=self.dispatcher.wake,
            erase_files=None if attachments is None else attachments.erase,
        )

    @property
    def texts(self) -> list[str]:
        return [post.text for post in self.chat.posts]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.dispatcher.run())
        try:
            yield
        finally:
            await self.dispatcher.drain(5)
            await task


def desk(store: Store, turns: Sequence[Turn], **options: object) -> tuple[Desk, ScriptedProvider]:
    provider = ScriptedProvider(turns)
    return Desk(store, provider, **options), provider  # type: ignore[arg-type]
