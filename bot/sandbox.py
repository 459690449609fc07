"""What ``run_python`` stands on, put together from the settings."""

from __future__ import annotations

import contextlib
import platform
from pathlib import Path

from agent_core.context import Clock
from agent_core.tools.registry import ToolRegistry
from bot.settings import Settings
from bot.settings_tree import SandboxSettings
from bot.tools.python_sandbox.choose import open_sandbox
from bot.tools.python_sandbox.folders import Folders
from bot.tools.python_sandbox.lazy import LazyBackend
from bot.tools.python_sandbox.packages import Available, Package, list_packages
from bot.tools.python_sandbox.process import harden_process
from bot.tools.python_sandbox.tool import AttachedFiles, register_python_tool
from bot.tools.python_sandbox.types import KiB, MiB, SandboxBackend, SandboxLimits, SandboxUnavailable

FOLDER = "hermod-sandbox"
UNLOCKED = "none-i-accept-host-code-execution"
USUAL = Available(packages=(Package(name="numpy"), Package(name="pandas"), Package(name="matplotlib")))
"""What another interpreter, or a runner's image, is taken to have."""

_SQLITE = "sqlite:///"


class PythonSandbox:
    """The backend, folders and limits of ``run_python``. Nothing is started before code is run.

    Args:
        settings: loaded settings.
        clock: time.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        sandbox = self._settings = settings.sandbox
        self._clock = clock
        root = find_folder(settings)
        self.limits = build_limits(sandbox)
        self.folders = Folders(
            root / "threads",
            clock=clock,
            keep_s=sandbox.keep_hours * 3600,
            most_bytes=self.limits.scratch_bytes,
        )
        self.backend = LazyBackend(
            sandbox.backend,
            enforcing=sandbox.backend != UNLOCKED,
            find=lambda: _open(sandbox, root / "state"),
            monotonic=clock.monotonic,
        )

    def register(self, registry: ToolRegistry, attached: AttachedFiles | None = None, *, versions: bool = True) -> None:
        """Register ``run_python``; ``read_output`` has to be there before, if it shall exist.

        Args:
            registry: where it goes.
            attached: fetches attached files.
            versions: tell the model which packages are installed here; False where that must not depend on "here".

        Raises:
            ConfigError: the name is taken.
        """
        own = versions and self._settings.python is None and self._settings.backend != "runner"
        register_python_tool(
            registry,
            self.backend,
            folders=self.folders,
            limits=self.limits,
            clock=self._clock,
            attached=attached,
            available=Available(python=platform.python_version(), packages=list_packages()) if own else USUAL,
            sessions=self._settings.sessions,
        )

    async def prepare(self) -> None:
        """Look for the backend now, so that the first program need not wait; what is wrong is logged."""
        with contextlib.suppress(SandboxUnavailable):
            await self.backend.find()


async def _open(sandbox: SandboxSettings, state: Path) -> SandboxBackend:
    harden_process()  # before anything that is not ours runs beside this process
    return await open_sandbox(sandbox, state=state)


def find_folder(settings: Settings) -> Path:
    """Return where the files of threads are kept: the configured folder, or one beside the database."""
    if settings.sandbox.folder is not None:
        return Path(settings.sandbox.folder).absolute()
    url = settings.storage.url
    beside = Path(url.removeprefix(_SQLITE)).parent if url.startswith(_SQLITE) else Path()
    return (beside / FOLDER).absolute()


def build_limits(sandbox: SandboxSettings) -> SandboxLimits:
    """Turn the settings' limits into the sandbox's."""
    return SandboxLimits(
        wall_s=sandbox.timeout_s,
        cpu_s=sandbox.cpu_s,
        memory_bytes=sandbox.memory_mb * MiB,
        file_bytes=sandbox.file_mb * MiB,
        scratch_bytes=sandbox.scratch_mb * MiB,
        output_bytes=sandbox.output_kb * KiB,
        output_read_bytes=max(1 * MiB, 2 * sandbox.output_kb * KiB),
        files_out=sandbox.files_out,
        files_out_bytes=sandbox.files_out_mb * MiB,
    )
