"""What Hermod sends to a runner for one run, and what it remembers of sessions there."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Self

from bot.tools.python_sandbox.runner_files import Leaving, NotSendable, list_sent, read_file
from bot.tools.python_sandbox.runner_wire import (
    CHUNK_BYTES,
    TEXT_FACTOR,
    AnswerHead,
    BadMessage,
    RunHead,
    build_frame,
    build_wire_limits,
)
from bot.tools.python_sandbox.types import MiB, SandboxRun, SandboxUnavailable

MOST_SENT_BYTES = 150 * MiB
_MARK_S = 30 * 24 * 3600.0


class Sending:
    """One request. Made by ``build``.

    Args:
        run: what is to be run.
        head: what stands first.
        files: what follows the program.
    """

    def __init__(self, run: SandboxRun, head: RunHead, code: bytes, files: Sequence[Leaving]) -> None:
        self._run, self._head, self._code, self._files = run, head, code, files
        self._frame = build_frame(head)
        self.size_bytes = len(self._frame) + head.size_bytes
        self.complete = False
        """All of it may have left: from now on the runner may have begun."""

    @classmethod
    def build(cls, run: SandboxRun) -> Self:
        """Look at a run's files; it blocks.

        Raises:
            SandboxUnavailable: they cannot be sent; nothing was run.
        """
        code = run.code.encode("utf-8", "surrogatepass")
        try:
            files = list_sent(run.folder, most_bytes=MOST_SENT_BYTES)
            head = RunHead(
                run=secrets.token_hex(16),
                thread=_digest(str(run.folder.parent)),
                session=_digest(run.session) if run.session else "",
                limits=build_wire_limits(run.limits),
                code_bytes=len(code),
                files=tuple(file.part for file in files),
            )
            return cls(run, head, code, files)
        except OSError as error:
            raise SandboxUnavailable(f"{run.folder} cannot be read: {error.strerror}; nothing was run") from error
        except (NotSendable, BadMessage) as error:
            raise SandboxUnavailable(f"the files cannot be sent to the runner: {error}; nothing was run") from error

    async def send(self) -> AsyncIterator[bytes]:
        """Give its bytes.

        Raises:
            OSError: a file is another one by now.
        """
        last = b""
        chunks = self._read()
        while chunk := await asyncio.to_thread(next, chunks, b""):
            if last:
                yield last
            last = chunk
        self.complete = True
        yield last

    def check(self, answer: AnswerHead) -> None:
        """Make sure that an answer is to this request, and within its limits.

        Raises:
            BadMessage: it is not.
        """
        limits = self._run.limits
        sent = {part.name: part.size for part in self._head.files if part.place == "output"}
        if answer.run != self._head.run:
            raise BadMessage("it belongs to another run")
        if max(answer.stdout_bytes, answer.stderr_bytes) > TEXT_FACTOR * limits.output_bytes:
            raise BadMessage("more output than was asked for")
        if len(answer.files) > limits.scratch_files + len(sent):
            raise BadMessage("more files than a run may leave")
        if sum(part.size for part in answer.files) > limits.scratch_bytes + sum(sent.values()):
            raise BadMessage("larger files than a run may leave")
        if not set(answer.gone) <= sent.keys():
            raise BadMessage("it removes files that were not sent")

    def _read(self) -> Iterator[bytes]:
        yield self._frame
        for start in range(0, len(self._code), CHUNK_BYTES):
            yield self._code[start : start + CHUNK_BYTES]
        for file in self._files:
            yield from read_file(self._run.folder, file)


class SessionMarks:
    """Remembers which sessions there were, so that a loss is told whichever side was started anew.

    Args:
        folder: a private one, where it is written down; None: only in memory.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: set[str] = set()

    def was_there(self, session: str) -> bool:
        """Tell whether a session has run something before."""
        mark = _digest(f"runner {session}")
        return mark in self._known or (self._folder is not None and (self._folder / mark).exists())

    async def know(self, session: str) -> None:
        """Write down that a session has run something; nothing is done for the empty one."""
        if session:
            self._known.add(_digest(f"runner {session}"))
            await asyncio.to_thread(self._write, _digest(f"runner {session}"))

    def _write(self, mark: str) -> None:
        if self._folder is None:
            return
        (self._folder / mark).touch(mode=0o600)
        oldest = time.time() - _MARK_S
        for other in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if other.stat().st_mtime < oldest:
                    other.unlink()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
