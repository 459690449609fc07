"""What a runner takes, and how it refuses the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.tools.python_sandbox.turns import count_places
from bot.tools.python_sandbox.types import MiB, SandboxLimits

LEAST_TOKEN_CHARS = 16
_RETRY_S = 5


class NotStarted(Exception):
    """The runner does not start; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerLimits:
    """What a runner takes, whoever asks.

    Args:
        ceilings: of a run; the smaller one of these and of what is asked for holds.
        places: runs at once.
        most_waiting: requests beyond these that are taken; more are told to come again.
        request_bytes: of one request.
        connections: at once.
        head_s, body_s: how long the head and the body of a request may take.
        idle_s: the longest silence within a body.
        queue_s: how long a request waits for its turn.
        answer_s: how long a client may take to read the answer.
        drain_s: how long runs under way may take when the runner is to end.
    """

    ceilings: SandboxLimits = field(default_factory=lambda: SandboxLimits(wall_s=60.0, source_bytes=1 * MiB))
    places: int = field(default_factory=count_places)
    most_waiting: int = 16
    request_bytes: int = 160 * MiB
    connections: int = 256
    head_s: float = 10.0
    body_s: float = 60.0
    idle_s: float = 10.0
    queue_s: float = 20.0
    answer_s: float = 60.0
    drain_s: float = 25.0


class Refusal(Exception):
    """A request is not answered as it asks; nothing was run.

    Args:
        status: of HTTP.
        error: a word for programs.
        message: for people.
        headers: further ones.
    """

    def __init__(self, status: int, error: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.error, self.message, self.headers = status, error, message, dict(headers or {})


def check_token(token: str) -> str:
    """Return a token that can serve.

    Raises:
        NotStarted: it is empty, short, or cannot stand in a header.
    """
    if not token:
        raise NotStarted("a runner needs a token; make one with `openssl rand -hex 32`, and give it to Hermod as well")
    if len(token) < LEAST_TOKEN_CHARS or not all("!" <= char <= "~" for char in token):
        raise NotStarted(
            f"the runner's token needs at least {LEAST_TOKEN_CHARS} visible ASCII characters; make one with "
            "`openssl rand -hex 32`"
        )
    return token


def busy() -> Refusal:
    """Refuse for want of room."""
    return Refusal(429, "busy", "all places of the runner are taken", {"Retry-After": str(_RETRY_S)})


def disk_full(error: OSError) -> Refusal:
    """Refuse because the runner's own disk does not take the files."""
    return Refusal(507, "disk", f"the runner cannot keep the files of the run ({error.strerror or 'disk'})")
