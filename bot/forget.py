"""What is kept of a thread, in numbers; and forgetting it, with a receipt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import structlog

from adapters.chat import COMMAND_THREAD, Author, ThreadRef
from bot.access import Caller
from bot.arguments import BadArguments
from bot.audit import AuditLog, name_actor
from bot.commands import FORGET, MEMORY, Invocation, OwnCommand
from bot.models import count
from bot.storage.base import Kept, Store

log = structlog.get_logger("hermod.forget")

NOTHING = "I keep nothing of this thread."
NOTHING_FORGOTTEN = "There was nothing to forget: I keep nothing of this thread."
STAYS = "Usage numbers, feedback and the audit log stay; they hold no text."
FILES_LEFT = "Files of this thread could not be removed yet; I will try again, and my log says why."
NO_THREAD = (
    "this command knows no thread; in the thread, mention me with `{word}`, or give it the link of a message there"
)
ELSEWHERE = "that thread is not in this channel; give the command there"
NO_LINK = "{text} is not the link of a message"

ReadLink = Callable[[str, ThreadRef], ThreadRef | None]
"""Reads the link of a message as the thread that it is in; None when it is none. The second is where it was given."""


class KeptAnswers(Protocol):
    """The cache of answers, as far as forgetting needs it (``agent_core.llm.cache.AnswerCache``)."""

    async def count(self, origin: str) -> int:
        """Return how many answers are kept from a thread."""
        ...

    async def forget(self, origin: str) -> int:
        """Drop them, and return how many those were."""
        ...


class KeptFiles(Protocol):
    """Files of threads, as far as forgetting needs them (``bot.attachments.Attachments``)."""

    async def count(self, thread_key: str) -> int:
        """Return how many files are kept of a thread."""
        ...

    async def forget(self, thread_key: str) -> int:
        """Drop them, and return how many those were.

        Raises:
            OSError: some could not be removed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What was kept of a thread: in the store, ``answers`` in the cache, and ``files`` of its Python runs."""

    kept: Kept
    answers: int
    files: int = 0

    @property
    def parts(self) -> list[str]:
        """What it is, in words; empty when it is nothing."""
        k = self.kept
        named = (
            (k.messages, f"{count(k.messages, 'message')} of its history ({k.tokens:,} tokens)"),
            (k.summary, "the summary of the older ones"),
            (k.outputs, count(k.outputs, "whole tool result")),
            (k.traces, f"{count(k.traces, 'trace')} of runs"),
            (k.steps, f"{count(k.steps, 'step')} of runs"),
            (k.texts, f"{count(k.texts, 'text')} of questions and answers"),
            (self.answers, f"{count(self.answers, 'answer')} in the cache"),
            (self.files, f"{count(self.files, 'file')} that were attached or made"),
        )
        return [text for number, text in named if number]


class ThreadMemory:
    """Shows and forgets what is kept of threads.

    Args:
        store: where it is kept.
        audit: who had what forgotten, without content.
        cache: kept answers; None where there are none.
        files: files of threads; None where there are none.
    """

    def __init__(
        self, store: Store, audit: AuditLog, *, cache: KeptAnswers | None = None, files: KeptFiles | None = None
    ) -> None:
        self._store = store
        self._audit = audit
        self._cache = cache
        self._files = files

    async def count(self, thread_key: str) -> Receipt:
        """Count what is kept of a thread."""
        keys = await self._list_keys(thread_key)
        answers = 0 if self._cache is None else sum([await self._cache.count(key) for key in keys])
        files = 0 if self._files is None else sum([await self._files.count(key) for key in keys])
        return Receipt(kept=await self._store.count_kept(thread_key), answers=answers, files=files)

    async def _list_keys(self, thread_key: str) -> tuple[str, ...]:
        """The thread, and where it was opened from: a report was made there."""
        origin = await self._store.load_origin(thread_key)
        return (thread_key,) if origin is None else (thread_key, origin)

    async def show(self, thread_key: str) -> str:
        """Say in Markdown what is kept of a thread, with the text of its summary."""
        found = await self.count(thread_key)
        if not found.parts:
            return NOTHING
        row = await self._store.load_summary(thread_key)
        lines = ["I keep of this thread:", *(f"- {part}" for part in found.parts)]
        if row is not None and row.text:
            lines += ["", f"The summary stands for the first {count(row.through_seq, 'message')}:", "", row.text]
        return "\n".join([*lines, "", "`forget` drops all of it."])

    async def forget(self, thread: ThreadRef, author: Author) -> str:
        """Drop what is kept of a thread, and say in Markdown what that was.

        Raises:
            StoreError: the storage did not take the line of the audit chain, or did not forget.
        """
        found = await self.count(thread.key)
        if not found.parts:
            return NOTHING_FORGOTTEN
        await self._audit.record(
            "thread.forgotten",
            actor=name_actor(Caller.of(thread, author)),
            thread_key=thread.key,
            detail={**asdict(found.kept), "answers": found.answers, "files": found.files},
        )
        keys = await self._list_keys(thread.key)
        kept = await self._store.forget_thread(thread.key)
        answers = 0 if self._cache is None else sum([await self._cache.forget(key) for key in keys])
        log.info("thread_forgotten", thread=thread.key, messages=kept.messages)
        files, stuck = await self._forget_files(keys)
        parts = Receipt(kept=kept, answers=answers, files=files).parts
        return "\n".join(["I have forgotten this thread:", *(f"- {part}" for part in parts), "", *stuck, STAYS])

    async def _forget_files(self, thread_keys: Sequence[str]) -> tuple[int, list[str]]:
        """Drop threads' files; return how many those were, and what is to be said when some could not be removed."""
        if self._files is None:
            return 0, []
        gone, stuck = 0, False
        for key in thread_keys:
            try:
                gone += await self._files.forget(key)
            except OSError as error:
                log.error("files_not_forgotten", thread=key, reason=str(error))
                stuck = True
        return gone, [FILES_LEFT, ""] if stuck else []


def build_memory_commands(memory: ThreadMemory, links: Mapping[str, ReadLink]) -> tuple[OwnCommand, OwnCommand]:
    """Build the commands ``memory [LINK]`` and ``forget [LINK]``.

    Args:
        memory: answers them.
        links: by platform, reads the link of a message; without a link they are about the thread that they stand in.
    """

    async def show(asked: Invocation) -> str:
        return await memory.show(_find_thread(links, asked, MEMORY.name).key)

    async def forget(asked: Invocation) -> str:
        return await memory.forget(_find_thread(links, asked, FORGET.name), asked.author)

    return OwnCommand(info=MEMORY, run=show), OwnCommand(info=FORGET, run=forget)


def _find_thread(links: Mapping[str, ReadLink], asked: Invocation, word: str) -> ThreadRef:
    """Return the thread that is meant: the linked one, in the same channel only; else the one at hand."""
    if asked.text:
        read = links.get(asked.thread.platform)
        linked = None if read is None else read(asked.text, asked.thread)
        if linked is None:
            raise BadArguments(NO_LINK.format(text=repr(asked.text[:60])))
        if (linked.workspace, linked.channel) != (asked.thread.workspace, asked.thread.channel):
            raise BadArguments(ELSEWHERE)
        return linked
    if asked.thread.thread.startswith(COMMAND_THREAD):
        raise BadArguments(NO_THREAD.format(word=word))
    return asked.thread
