"""``run_python``: code from a model or a person, run inside the sandbox, with the files of its thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Protocol

import structlog
from pydantic import BaseModel, Field

from agent_core.context import Clock, RunContext
from agent_core.errors import ModelRetry, ToolFailed
from agent_core.llm.types import ToolExample
from agent_core.tools.base import Effect
from agent_core.tools.executor import READ_OUTPUT
from agent_core.tools.registry import ToolRegistry
from bot.tools.python_sandbox.cell import build_cell
from bot.tools.python_sandbox.collect import LeftOut, collect_outputs
from bot.tools.python_sandbox.files import format_size
from bot.tools.python_sandbox.folders import RUNS, SESSION, SWEEP_EVERY_S, Folders, remove_tree
from bot.tools.python_sandbox.made import RUN_PYTHON, Made, MadeFiles, new_output_id, read_table
from bot.tools.python_sandbox.packages import Available
from bot.tools.python_sandbox.sessions_key import load_session_key
from bot.tools.python_sandbox.show import build_result, clean_stderr
from bot.tools.python_sandbox.turns import Turns, count_places
from bot.tools.python_sandbox.types import (
    KiB,
    MiB,
    SandboxBackend,
    SandboxLimits,
    SandboxOutcome,
    SandboxRun,
    SandboxUnavailable,
)
from bot.tools.python_sandbox.uploads import Fetched, Uploads

log = structlog.get_logger("hermod.sandbox")

MOST_WALL_S = 60.0
"""The longest that one call may ask for."""

GRACE_S = 5.0
"""What the tool may take beyond the program's own time: to lay files out, to kill, to collect."""

RESERVE_S = 3.0
"""Of the run's time that is left for the model to say what came out."""

PATIENCE_S = 25.0
"""How long a call waits for a place."""

SESSION_HINT = (
    '\n\nsession true keeps variables for later calls; `state` says "fresh", "continued" or "lost". After "lost" '
    "run what defined them again."
)

DESCRIPTION = """\
Run Python code in a sandbox and return what it printed, with the files that it made. Use it to compute, to analyse or \
convert an attached file, and to draw ("plot this", "run this code", "average per month of this CSV", "画图", \
"用Python算"). There is no network, no other process and no secret in there: fetch data with other tools first, and \
write it into the code.

- Python {python}with {packages} and the standard library; nothing can be installed.
- Files that people attached in this thread are in input/ under their names (`input` in the result lists them; read \
only). Write what people shall get into output/, without subfolders: PNG, JPEG, CSV, JSON, TXT and MD are shown, \
everything else is a download. They are posted with your answer: do not print their contents, do not write links.
- Earlier files in output/ are there again in later calls of this thread; variables are not.
- The last expression is shown like in a notebook. A data frame there becomes a table and output/result.csv.
- Limits: {wall:g} s (timeout_s: up to {most:g}), {cpu:g} s of processor time, {memory} of memory, {output} of output, \
{files} files of {files_size} together. `status` says which one a program hit.{session}

Example: {{"code": "import pandas as pd\\ndf = pd.read_csv('input/sales.csv')\\ndf.groupby('month').total.sum()"}}"""


class PythonArguments(BaseModel):
    """Arguments of ``run_python``."""

    code: Annotated[str, Field(min_length=1, description="The program.", json_schema_extra={"format": "python"})]
    timeout_s: Annotated[
        float | None,
        Field(gt=0, le=MOST_WALL_S, allow_inf_nan=False, description="Seconds after which it is ended."),
    ] = None
    files: Annotated[
        list[str] | None,
        Field(max_length=50, description="Names of attached files to put into input/. Leave it out for all of them."),
    ] = None
    session: Annotated[bool, Field(description="Keep variables between calls of this thread.")] = False


class AttachedFiles(Protocol):
    """Fetches what people attached in threads (``bot.attachments``)."""

    async def fetch(self, thread_key: str, names: Collection[str] | None) -> Fetched:
        """Fetch a thread's files that are not on this disk yet; all of them without ``names``. Bounded in time."""
        ...


class NoAttachedFiles:
    """There are no attached files here."""

    async def fetch(self, thread_key: str, names: Collection[str] | None) -> Fetched:
        """Find nothing."""
        return Fetched(unknown=tuple(names or ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Desk:
    """The folder of one call, as it was laid out."""

    run: Path
    given: Mapping[str, int]
    known: Mapping[str, str]
    session: str = ""


@dataclass(slots=True, kw_only=True)
class PythonTool:
    """Runs the calls of ``run_python``; one instance serves all threads.

    Args:
        backend: locks code in.
        folders: the files of threads.
        limits: of a run; ``wall_s`` is what a call gets that asks for nothing else.
        clock: the time that waits are reckoned by.
        attached: fetches what people attached.
        sessions: interpreters may be kept between calls.
        reads_on: ``read_output`` exists, so what is cut out of a result can be read there.
    """

    backend: SandboxBackend
    folders: Folders
    limits: SandboxLimits
    clock: Clock
    attached: AttachedFiles = field(default_factory=NoAttachedFiles)
    sessions: bool = False
    reads_on: bool = False
    turns: Turns = field(default_factory=lambda: Turns(count_places()))
    _swept_at: float = float("-inf")

    async def run_python(self, ctx: RunContext, arguments: PythonArguments) -> dict[str, object]:
        """Run one program; see ``build_result`` for what comes back.

        Raises:
            ModelRetry: the call has to be written otherwise.
            ToolFailed: nothing was run, or what it made could not be kept.
        """
        self._check(arguments)
        begun = self.clock.monotonic()
        try:
            async with self._take_turn(ctx):
                fetched = await self.attached.fetch(ctx.thread_id, arguments.files)
                _refuse_unknown(fetched)
                return await self._run(ctx, arguments, fetched, begun)
        except SandboxUnavailable as error:
            raise ToolFailed(
                f"the code was not run: {error}",
                code="sandbox_unavailable",
                fix="`hermod doctor` tells what is missing",
            ) from error
        except OSError as error:
            log.error("sandbox_files_failed", thread=ctx.thread_id, reason=str(error))
            raise ToolFailed(
                f"the files of this thread cannot be kept ({error.strerror or type(error).__name__})",
                code="sandbox_files",
                fix=f"a person has to look at the disk and the rights of {self.folders.root}",
            ) from error

    def _check(self, arguments: PythonArguments) -> None:
        size = len(arguments.code.encode("utf-8", "surrogatepass"))
        if size > self.limits.source_bytes:
            raise ModelRetry(
                f"the code has {size:,} bytes, and at most {self.limits.source_bytes:,} are taken; write less, "
                "and read data from a file instead of writing it into the code"
            )
        if arguments.session and not self.sessions:
            raise ModelRetry(
                "variables are not kept between calls here: leave session out, and run everything in one call or "
                "keep results as files in output/, which are there again in the next call"
            )

    @asynccontextmanager
    async def _take_turn(self, ctx: RunContext) -> AsyncIterator[None]:
        """Wait for a place: one program a thread at a time, and a few on this machine."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(min(PATIENCE_S, ctx.remaining_s())):
                    await stack.enter_async_context(self.turns.take(ctx.thread_id))
            except TimeoutError:
                raise ToolFailed(
                    "all places of the sandbox are taken; the code was not run",
                    code="busy",
                    fix="try again in a minute",
                ) from None
            yield

    async def _run(
        self, ctx: RunContext, arguments: PythonArguments, fetched: Fetched, begun: float
    ) -> dict[str, object]:
        await self._sweep()
        desk = await asyncio.to_thread(self._lay_out, ctx.thread_id, fetched.names, arguments.session)
        try:
            outcome = await self.backend.run(self._build_run(ctx, arguments, desk, begun))
            made = await asyncio.to_thread(self._collect, ctx, desk, outcome, fetched.missing)
        finally:
            if not desk.session:
                await asyncio.shield(asyncio.to_thread(_clear_away, desk.run))
        return await self._answer(ctx, made, desk)

    async def _sweep(self) -> None:
        if self.clock.monotonic() - self._swept_at >= SWEEP_EVERY_S:
            self._swept_at = self.clock.monotonic()
            await asyncio.to_thread(self.folders.sweep)

    def _build_run(self, ctx: RunContext, arguments: PythonArguments, desk: _Desk, begun: float) -> SandboxRun:
        code = build_cell(arguments.code)
        spent_s = self.clock.monotonic() - begun
        wall_s = min(
            arguments.timeout_s or self.limits.wall_s,
            MOST_WALL_S - max(0.0, spent_s - GRACE_S / 2),
            ctx.remaining_s() - RESERVE_S,
        )
        limits = replace(
            self.limits, wall_s=max(1.0, wall_s), source_bytes=max(self.limits.source_bytes, len(code) * 4)
        )
        return SandboxRun(code=code, folder=desk.run, limits=limits, session=desk.session)

    # -- in a thread ---------------------------------------------------------------------------------

    def _lay_out(self, thread_key: str, names: Sequence[str], session: bool) -> _Desk:
        made, key = MadeFiles(self.folders), ""
        folder = self.folders.open(thread_key)
        if session:
            key, run = load_session_key(self.folders, folder), folder / RUNS / SESSION
            begun = not run.exists()
            self.folders.lay_out(run)
        else:
            run, begun = self.folders.new_run(thread_key), True
        if begun:
            made.lay_out(thread_key, run / "output")
        given = Uploads(self.folders).copy(thread_key, names, run / "input")
        return _Desk(run=run, given=given, known=made.list_known(thread_key), session=key)

    def _collect(self, ctx: RunContext, desk: _Desk, outcome: SandboxOutcome, missing: tuple[LeftOut, ...]) -> Made:
        found = collect_outputs(
            desk.run,
            most_files=self.limits.files_out,
            most_bytes=self.limits.files_out_bytes,
            known=desk.known,
        )
        made = Made(
            output_id=new_output_id(),
            outcome=replace(outcome, stdout=_clean(outcome.stdout), stderr=_clean(outcome.stderr)),
            files=found.files,
            left_out=found.left_out,
            more_left_out=found.more_left_out,
            table=read_table(found.table),
            missing=missing,
        )
        kept = MadeFiles(self.folders)
        kept.discard(ctx.thread_id, found.gone)
        kept.save(ctx.thread_id, ctx.run_id, made)
        return made

    async def _answer(self, ctx: RunContext, made: Made, desk: _Desk) -> dict[str, object]:
        where = f'; {READ_OUTPUT}(output_id="{made.output_id}", start=..., end=...) reads them' if self.reads_on else ""
        result = build_result(made, given=desk.given, limit=ctx.limits.tool_output_chars - 100, where=where)
        outcome = made.outcome
        whole = {"stdout": outcome.stdout, "stderr": clean_stderr(outcome.stderr)}
        if self.reads_on and any(result[name] != text for name, text in whole.items()):
            text = "\n".join(f"--- {name} ---\n{text}" for name, text in whole.items() if text)
            await ctx.outputs.put(ctx.thread_id, made.output_id, ctx.redactor.redact(text))
        return result


def _refuse_unknown(fetched: Fetched) -> None:
    if fetched.unknown:
        known = ", ".join(map(repr, fetched.known)) or "none"
        raise ModelRetry(f"no attached file of this thread is called {fetched.unknown[0]!r}; there are: {known}")


def _clean(text: str) -> str:
    """Return a text that can be stored: half a surrogate pair, which JSON may bring, is none."""
    return text.encode(errors="replace").decode()


def _clear_away(run: Path) -> None:
    try:
        remove_tree(run)
    except OSError as error:  # it is looked for again by the next sweep
        log.error("sandbox_folder_not_removed", folder=run.name, reason=str(error))


def register_python_tool(
    registry: ToolRegistry,
    backend: SandboxBackend,
    *,
    folders: Folders,
    limits: SandboxLimits,
    clock: Clock,
    attached: AttachedFiles | None = None,
    available: Available | None = None,
    sessions: bool = False,
) -> PythonTool:
    """Register ``run_python``.

    Its effect is READ only with a backend that enforces; code that could do anything asks first (EXEC).

    Args:
        registry: where it goes; register ``read_output`` there before, if it shall exist.
        backend: locks the code in.
        folders: where the files of threads are.
        limits: of a run.
        clock: the time that ages and waits are reckoned by.
        attached: fetches attached files; None where there are none.
        available: what code finds in the sandbox; None: the model is not told.
        sessions: interpreters may be kept between calls of a thread.

    Raises:
        ConfigError: the name is taken.
    """
    tool = PythonTool(
        backend=backend,
        folders=folders,
        limits=limits,
        clock=clock,
        attached=attached or NoAttachedFiles(),
        sessions=sessions,
        reads_on=registry.get(READ_OUTPUT) is not None,
    )
    registry.register(
        tool.run_python,
        name=RUN_PYTHON,
        description=build_description(limits, available or Available(), sessions=sessions),
        arguments=PythonArguments,
        effect=Effect.READ if backend.enforcing else Effect.EXEC,
        timeout_s=MOST_WALL_S + GRACE_S,
        examples=EXAMPLES,
    )
    return tool


def build_description(limits: SandboxLimits, available: Available, *, sessions: bool = False) -> str:
    """Write the tool's description for the model."""
    return DESCRIPTION.format(
        python=f"{available.python} " if available.python else "",
        packages=", ".join(map(str, available.packages)) or "no further packages",
        wall=limits.wall_s,
        most=MOST_WALL_S,
        cpu=limits.cpu_s,
        memory=f"{limits.memory_bytes // MiB} MiB",
        output=f"{limits.output_bytes // KiB} KiB",
        files=limits.files_out,
        files_size=format_size(limits.files_out_bytes),
        session=SESSION_HINT if sessions else "",
    )


EXAMPLES = (
    ToolExample(question="run this Python code: print(sum(range(10)))", arguments={"code": "print(sum(range(10)))"}),
    ToolExample(
        question="plot the attached CSV",
        arguments={
            "code": "import pandas as pd, matplotlib.pyplot as plt\n"
            "pd.read_csv('input/data.csv').plot()\nplt.savefig('output/plot.png')"
        },
    ),
)
