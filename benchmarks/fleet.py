"""The processes of a measurement: one model server, and a worker for each contender."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from benchmarks.cells import Cell, warm_up
from benchmarks.contenders import CONTENDERS

ANSWER_S = 180.0
"""No cell takes a contender longer; who has not answered then is ended."""


class WorkerFailed(Exception):
    """A contender could not be started, died, gave no answer in time, or did not do the work."""


@contextlib.contextmanager
def open_server() -> Iterator[str]:
    """Run the model server; yields its base URL."""
    command = [sys.executable, "-m", "benchmarks.model_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        finally:
            server.stdin.close()


@dataclass(slots=True)
class Worker:
    """A contender's process.

    Args:
        name: of the contender.
        url: the model server's base URL.
        process: runs ``benchmarks.worker``.
        log: its standard error.
        versions: of its libraries.
    """

    name: str
    url: str
    process: subprocess.Popen[str]
    log: IO[str]
    versions: dict[str, str] = field(default_factory=dict)

    def measure(self, cell: Cell) -> dict[str, object]:
        """Make the cell's runs and return what they cost (``benchmarks.worker``).

        Raises:
            WorkerFailed: it died, or it did not make the requests that the work takes.
        """
        before = self._count_requests(cell.model)
        measured = self._exchange({"cell": cell.name, "runs": cell.runs})
        made = self._count_requests(cell.model) - before
        due = (warm_up(cell) + cell.runs) * cell.requests
        if made != due:
            raise WorkerFailed(f"{self.name} made {made} requests instead of {due} ({cell.name})")
        return measured

    def _count_requests(self, model: str) -> int:
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/counts", timeout=10) as answer:
            return int(json.loads(answer.read()).get(model, 0))

    def _exchange(self, wanted: object | None) -> dict[str, object]:
        """Send a line, unless None, and wait for the next one."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if wanted is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(json.dumps(wanted) + "\n")
                self.process.stdin.flush()
        # reading a pipe has no time-out of its own; the end of the process ends the wait
        timer = threading.Timer(ANSWER_S, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            self.process.wait(10)
            self.log.seek(0)
            said = self.log.read().strip().splitlines() or ["it ended without a word"]
            raise WorkerFailed(f"{self.name}: {said[-1]}")
        return cast(dict[str, object], json.loads(line))

    def stop(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()  # type: ignore[union-attr]
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()  # type: ignore[union-attr]
        self.log.close()


def start_worker(name: str, url: str, peers: Path) -> Worker:
    """Start a contender and wait until it has imported what it needs.

    Args:
        name: of the contender.
        url: the model server's base URL.
        peers: the peers' environment.

    Raises:
        WorkerFailed: it could not import it.
    """
    python = peers / "bin" / "python" if CONTENDERS[name].peer else Path(sys.executable)
    if not python.exists():
        raise WorkerFailed(f"{name}: {python} is not there; `make bench` makes it")
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by stop()
    command = [str(python), "-m", "benchmarks.worker", name, url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    worker = Worker(name, url, process, log)
    try:
        worker.versions = cast(dict[str, str], worker._exchange(None)["versions"])
    except WorkerFailed:
        worker.stop()
        raise
    return worker
