"""Files of a thread, between the chat platforms and the tools: attached ones in, made ones out."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from adapters.chat import Attachment, ChatAdapter, FileRef, Message, Said, ThreadRef
from agent_core.context import Clock, Redactor
from agent_core.runtime.events import RunEvent, ToolFinished
from agent_core.tools.base import ToolResult
from bot.result_files import build_result_files
from bot.tools.python_sandbox.collect import LeftOut
from bot.tools.python_sandbox.files import MadeFile, clean_file_name, format_size
from bot.tools.python_sandbox.folders import SWEEP_EVERY_S, Folders
from bot.tools.python_sandbox.made import RUN_PYTHON, Made, MadeFiles
from bot.tools.python_sandbox.show import build_attachments, find_output_id, render_made
from bot.tools.python_sandbox.types import MiB
from bot.tools.python_sandbox.uploads import Fetched, Upload, Uploads

log = structlog.get_logger("hermod.attachments")

FETCH_S = 15.0
"""How long the files of one call may take to come."""

FETCHES = 2
"""Files that are fetched at the same time."""

_TEXTS = ("csv", "txt", "json", "md")


class Attachments:
    """The files of threads. Safe to call concurrently.

    Args:
        adapters: by platform name, to fetch what people attached.
        folders: where the files are.
        redactor: removes secrets from text files that are posted.
        most_bytes: of one attached file.
        most_files_out, most_bytes_out: of what one answer brings along.
    """

    def __init__(
        self,
        adapters: Mapping[str, ChatAdapter],
        folders: Folders,
        *,
        redactor: Redactor,
        most_bytes: int = 20 * MiB,
        most_files_out: int = 10,
        most_bytes_out: int = 8 * MiB,
    ) -> None:
        self._adapters = adapters
        self._folders = folders
        self._uploads = Uploads(folders)
        self._made = MadeFiles(folders)
        self._redactor = redactor
        self._most_bytes = most_bytes
        self._most_files_out = most_files_out
        self._most_bytes_out = most_bytes_out

    # -- in ------------------------------------------------------------------------------------------

    async def note(self, messages: Sequence[Message]) -> None:
        """Remember which files messages brought, so that a tool finds them; nothing is fetched yet."""
        for message in messages:
            await self._note(message.thread.key, message.id, message.sent_at, message.files)

    async def note_said(self, thread_key: str, said: Sequence[Said]) -> None:
        """Remember the files of what was said in a thread before Hermod came; not those that it posted itself."""
        for one in said:
            await self._note(thread_key, one.id, one.sent_at, () if one.own else one.files)

    async def _note(self, thread_key: str, message_id: str, at: datetime, files: Sequence[FileRef]) -> None:
        if not files:
            return
        try:
            await asyncio.to_thread(self._uploads.note, thread_key, message_id, at.timestamp(), files)
        except OSError as error:  # the question itself can be answered; the tool will say what is wrong
            log.error("files_not_noted", thread=thread_key, reason=str(error))

    async def erase(self, thread_key: str, message_id: str) -> None:
        """Drop the files of a message that was deleted on its platform."""
        try:
            await asyncio.to_thread(self._uploads.erase, thread_key, message_id)
        except OSError as error:
            log.error("files_not_erased", thread=thread_key, reason=str(error))

    async def fetch(self, thread_key: str, names: Collection[str] | None) -> Fetched:
        """Fetch a thread's attached files that are not here yet: those called ``names``, or all of them.

        Returns:
            What can be handed in, and by name what cannot, and why.

        Raises:
            OSError: they cannot be kept.
        """
        noted = await asyncio.to_thread(self._uploads.list, thread_key)
        wanted, unknown = _choose(noted, names)
        if unknown:
            return Fetched(unknown=unknown, known=tuple(upload.name for upload in noted))
        problems: dict[str, str] = {}
        absent: list[Upload] = []
        room = self._folders.most_bytes
        for upload in reversed(wanted):  # the newest are the most likely to be meant
            here = await asyncio.to_thread(self._uploads.find, thread_key, upload)
            room -= upload.file.size if here is None else here.stat().st_size
            if room < 0:
                problems[upload.name] = f"the files together have more than {format_size(self._folders.most_bytes)}"
            elif here is None:
                absent.append(upload)
        problems |= await self._fetch_all(thread_key, absent)
        return Fetched(
            names=tuple(upload.name for upload in wanted if upload.name not in problems),
            missing=tuple(LeftOut(name=name, reason=reason) for name, reason in problems.items()),
        )

    async def _fetch_all(self, thread_key: str, absent: Sequence[Upload]) -> dict[str, str]:
        """Fetch files, a few at a time, and return by name why one did not come."""
        problems = {upload.name: f"it did not come within {FETCH_S:.0f} s" for upload in absent}
        places = asyncio.Semaphore(FETCHES)

        async def fetch_one(upload: Upload) -> None:
            async with places:
                content, problem = await self._fetch_one(thread_key, upload)
            await asyncio.to_thread(self._uploads.save, thread_key, upload, content, problem)
            if problem:
                problems[upload.name] = problem
            else:
                del problems[upload.name]

        tasks = [asyncio.create_task(fetch_one(upload), name="fetch of a file") for upload in absent]
        try:
            if tasks:
                done, _ = await asyncio.wait(tasks, timeout=FETCH_S)
                for task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return problems

    async def _fetch_one(self, thread_key: str, upload: Upload) -> tuple[bytes | None, str]:
        most, file = self._most_bytes, upload.file
        if file.size > most:
            return None, f"it has {format_size(file.size)}, and files of up to {format_size(most)} are read"
        adapter = self._adapters.get(ThreadRef.parse_key(thread_key).platform)
        content = None if adapter is None else await adapter.fetch_file(file, max_bytes=most)
        if content is None:
            return None, f"the platform did not give it, or it has more than {format_size(most)}"
        return content, ""

    # -- out -----------------------------------------------------------------------------------------

    async def load_made(self, thread_key: str, made: Sequence[tuple[str, str]]) -> list[Made]:
        """Load what calls of ``run_python`` made, given as run ids with output ids, without secrets in text files."""

        def load() -> list[Made]:
            found: list[Made] = []
            for run_id, output_id in made:
                for call in self._made.load(thread_key, run_id, [output_id]):
                    found.append(replace(call, files=tuple(map(self._redact, call.files))))
            return found

        try:
            return await asyncio.to_thread(load)
        except OSError as error:
            log.error("made_files_not_read", thread=thread_key, reason=str(error))
            return []

    def build(self, made: Sequence[Made]) -> tuple[Attachment, ...]:
        """Build what an answer brings along."""
        return build_attachments(made, most_files=self._most_files_out, most_bytes=self._most_bytes_out)

    async def drop_made(self, thread_key: str, run_id: str) -> None:
        """Drop what was kept for a run's answer, now that the answer is stored."""
        try:
            await asyncio.to_thread(self._made.drop, thread_key, run_id)
        except OSError as error:  # the sweep looks for it again
            log.error("made_files_not_dropped", thread=thread_key, reason=str(error))

    def _redact(self, file: MadeFile) -> MadeFile:
        if file.kind not in _TEXTS:
            return file
        text = file.content.decode("utf-8", "replace")
        redacted = self._redactor.redact(text)
        return file if redacted == text else replace(file, content=redacted.encode("utf-8", "replace"))

    # -- forgetting ----------------------------------------------------------------------------------

    async def count(self, thread_key: str) -> int:
        """Count the files that are kept of a thread."""
        return await asyncio.to_thread(self._folders.count, thread_key)

    async def forget(self, thread_key: str) -> int:
        """Drop all files of a thread, and return how many those were.

        Raises:
            OSError: some could not be removed; the sweep will try again.
        """
        return await asyncio.to_thread(self._folders.forget, thread_key)

    async def keep_swept(self, clock: Clock) -> None:
        """Drop files that are too old, again and again, until this is cancelled."""
        while True:
            try:
                gone = await asyncio.to_thread(self._folders.sweep)
                if gone:
                    log.info("thread_files_swept", threads=gone)
            except OSError as error:
                log.error("thread_files_not_swept", reason=str(error))
            await clock.sleep(SWEEP_EVERY_S)


def _choose(noted: Sequence[Upload], names: Collection[str] | None) -> tuple[list[Upload], tuple[str, ...]]:
    if names is None:
        return list(noted), ()
    by_name = {upload.name.casefold(): upload for upload in noted}
    asked = {name: clean_file_name(name).casefold() for name in names}
    chosen = [upload for upload in noted if upload.name.casefold() in asked.values()]
    return chosen, tuple(name for name, clean in asked.items() if clean not in by_name)


class RunFiles:
    """Follows one run for the files that its answer brings along: what programs made, and tables and pictures.

    A result that is replayed from the journal of an earlier attempt counts like any other, so a resumed run brings the
    files of exactly the calls that it rests on.

    Args:
        attachments: loads what calls of ``run_python`` made; None where there is no sandbox.
        thread_key: of the run.
    """

    def __init__(self, attachments: Attachments | None, thread_key: str) -> None:
        self._attachments = attachments
        self._thread_key = thread_key
        self._made: dict[tuple[str, str], None] = {}
        self._results: dict[tuple[str, str], ToolResult] = {}

    def on_event(self, event: RunEvent) -> None:
        """Take one event of the run, or of a run inside it."""
        if not isinstance(event, ToolFinished):
            return
        self._results[event.run_id, event.result.call_id] = event.result
        if event.result.name == RUN_PYTHON and (output_id := find_output_id(event.result.content)):
            self._made[event.run_id, output_id] = None

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """What the run's tools returned so far, and those of runs inside it."""
        return tuple(self._results.values())

    async def build(self, *, whole: bool = False) -> tuple[Attachment, ...]:
        """Build what the run's answer brings along; ``whole``: see ``build_result_files``."""
        files = await asyncio.to_thread(build_result_files, self.results, whole=whole)
        if self._attachments is None or not self._made:
            return files
        made = await self._attachments.load_made(self._thread_key, tuple(self._made))
        return (*self._attachments.build(made), *files)

    async def render(self) -> tuple[str, tuple[Attachment, ...]] | None:
        """Render the one program that a command ran; None where it ran none."""
        if self._attachments is None or not self._made:
            return None
        found = await self._attachments.load_made(self._thread_key, tuple(self._made))
        return render_made(found[-1]) if found else None
