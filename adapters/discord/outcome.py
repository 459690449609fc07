"""What a failed call of Discord's means: not done, never possible, or not known; and what to do about it.

Codes: docs.discord.com/developers/topics/opcodes-and-status-codes#json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import aiohttp

from adapters.chat import InDoubt, Rejected, RetryLater
from adapters.discord.http import Answer
from adapters.discord.wire import Wire, number_of, part_of, text_of, wire_of

UNKNOWN_CHANNEL = 10003
UNKNOWN_GUILD = 10004
UNKNOWN_MEMBER = 10007
UNKNOWN_MESSAGE = 10008
UNKNOWN_USER = 10013
TOO_LARGE = 40005
NO_ACCESS = 50001
NO_DM = 50007
NO_PERMISSION = 50013
NOT_THIS_CHANNEL = 50024
INVALID_BODY = 50035
ARCHIVED = 50083
NO_REPLY = 160002
THREAD_EXISTS = 160004
LOCKED = 160005
TOO_MANY_THREADS = 160006

_INVITE = "hermod doctor prints an invite link with all that it needs"

REMEDIES: Mapping[int, str] = MappingProxyType(
    {
        UNKNOWN_CHANNEL: "the channel or thread was deleted",
        UNKNOWN_GUILD: "the server was deleted, or Hermod was removed from it",
        UNKNOWN_MESSAGE: "the message was deleted",
        TOO_LARGE: "the file is larger than this server takes",
        NO_ACCESS: f"give Hermod the permission View Channel here; {_INVITE}",
        NO_DM: "the person takes no direct messages from Hermod",
        NO_PERMISSION: f"give Hermod the missing permission here; {_INVITE}",
        50006: "the text is empty",
        ARCHIVED: "the thread is archived and locked; a moderator can unlock it",
        NO_REPLY: "give Hermod the permission Read Message History here",
        LOCKED: "the thread is locked; a moderator can unlock it",
        TOO_MANY_THREADS: "the server has as many active threads as Discord allows; archive some",
        40060: "the interaction was answered already",
        10062: "the interaction is too old",
        10015: "the interaction is too old",
        50027: "the interaction is too old",
    }
)

GONE = frozenset({UNKNOWN_CHANNEL, UNKNOWN_GUILD})
"""Codes that mean that this place does not exist any more."""

THIS_PLACE = GONE | {NO_ACCESS, NO_DM, NO_PERMISSION}
"""Codes that a second call of the same kind in the same place would get as well, until somebody changes something."""

BUSY_S = 60.0
"""What to wait after a refusal without a time: the edge in front of Discord turns away whoever asks far too much."""

LONGEST_S = 86_400.0

CALL_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A call that did not give what it should.

    Args:
        status: HTTP's, 0 when there was no answer.
        code: Discord's number, 0 when the failure was not Discord's own answer.
        said: what failed and what to do, without tokens and addresses.
        outcome: what it means for a post.
    """

    status: int = 0
    code: int = 0
    said: str
    outcome: RetryLater | Rejected | InDoubt

    @property
    def is_gone(self) -> bool:
        """True when the place does not exist any more."""
        return self.code in GONE

    @property
    def is_missing(self) -> bool:
        """True for an unknown channel or message."""
        return self.status == 404

    @property
    def is_too_large(self) -> bool:
        """True when a file, and with it the whole request, was not taken because of its size."""
        return self.status == 413 or self.code == TOO_LARGE

    @property
    def later_s(self) -> float:
        """Seconds to wait, zero when waiting would not help."""
        return self.outcome.after_s if isinstance(self.outcome, RetryLater) else 0.0


def build_not_sent(after_s: float, reason: str) -> Failed:
    """Describe a call that was not made."""
    return Failed(said=reason, outcome=RetryLater(after_s=after_s, reason=reason))


def build_broken(error: BaseException) -> Failed:
    """Describe a call that one of ``CALL_ERRORS`` ended: not connected is not sent, all else may have arrived."""
    name = type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.InvalidURL):
        return build_not_sent(3.0, f"Discord could not be reached ({name})")
    reason = f"the connection to Discord broke ({name})"
    return Failed(said=reason, outcome=InDoubt(reason=reason))


def build_failed(answer: Answer) -> Failed:
    """Describe an answer that is none of success."""
    data = wire_of(answer.data)
    status, code = answer.status, number_of(data, "code")
    said = describe(status, code, data)
    return Failed(status=status, code=code, said=said, outcome=_outcome(answer, code, said))


def describe(status: int, code: int, data: Wire) -> str:
    """Say what failed and what to do, without tokens and addresses."""
    if status == 401 and code not in REMEDIES:
        return "Discord refused the bot token; copy it again from the Bot page of the developer portal into [discord]"
    if status == 413 and not code:
        return "Discord refused: HTTP 413; the request is too large"
    if not code:
        return f"Discord refused: HTTP {status}" if status < 500 else f"Discord failed (HTTP {status})"
    remedy = REMEDIES.get(code) or "; ".join(list(_field_errors(part_of(data, "errors")))[:3])
    words = text_of(data, "message")[:120]
    return f"Discord refused: {code} {words}".rstrip() + (f"; {remedy}" if remedy else "")


def retry_after(answer: Answer) -> float:
    """Return how many seconds Discord asks to wait."""
    for value in (wire_of(answer.data).get("retry_after"), answer.headers.get("retry-after")):
        try:
            return min(max(0.0, float(str(value))), LONGEST_S)
        except ValueError:
            continue
    return BUSY_S


def _outcome(answer: Answer, code: int, said: str) -> RetryLater | Rejected | InDoubt:
    if answer.status == 429:
        return RetryLater(after_s=retry_after(answer), reason="Discord asks to wait")
    if answer.status >= 500:
        return InDoubt(reason=f"Discord failed while it worked on the call (HTTP {answer.status})")
    if answer.status < 300:
        return InDoubt(reason="Discord's answer could not be read")
    return Rejected(reason=said, gone=code in GONE)


def _field_errors(errors: Wire, path: str = "") -> Iterator[str]:
    """What Discord says of single fields: ``content: Must be 2000 or fewer in length.``"""
    for name, below in errors.items():
        if name == "_errors" and isinstance(below, list):
            yield from (f"{path}: {text_of(wire_of(error), 'message')}" for error in below)
        elif isinstance(below, Mapping) and path.count(".") < 8:
            yield from _field_errors(below, f"{path}.{name}" if path else str(name))
