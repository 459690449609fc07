"""What a failed call of Slack's means: not done, never possible, or not known; and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import aiohttp
from slack_sdk.errors import SlackApiError

from adapters.chat import InDoubt, Rejected, RetryLater
from adapters.slack.wire import text_of

_COPY_AGAIN = "copy the token again from the app's page at api.slack.com/apps and set it in [slack]"

REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "not_in_channel": "invite Hermod to the channel: /invite @hermod",
        "channel_not_found": "the channel does not exist or Hermod is not in it; invite it: /invite @hermod",
        "is_archived": "the channel is archived; unarchive it or ask in another one",
        "restricted_action": "the workspace allows only some people to post in this channel; ask its admins",
        "restricted_action_thread_locked": "the thread is locked",
        "missing_scope": "add the scope to the app (manifest.yml has the full list) and reinstall it",
        "not_allowed_token_type": "the bot token begins with xoxb-, the app token with xapp-; check [slack]",
        "not_authed": _COPY_AGAIN,
        "invalid_auth": _COPY_AGAIN,
        "account_inactive": "the app was removed from the workspace; install it again and set the new token",
        "token_revoked": "the token was revoked; install the app again and set the new token",
        "token_expired": "the token expired; install the app again and set the new token",
        "no_permission": "the token may not do this; reinstall the app with the scopes of manifest.yml",
        "ekm_access_denied": "the organisation's key policy forbids posting; ask its admins",
        "msg_too_long": "the text is too long for one post",
        "no_text": "the text is empty",
        "user_not_in_channel": "the person is not in the channel",
    }
)

REFUSED = frozenset(
    {"not_authed", "invalid_auth", "account_inactive", "token_revoked", "token_expired", "not_allowed_token_type",
     "missing_scope", "no_permission"}
)  # fmt: skip
"""Codes that mean the app may not do this at all, until somebody changes its installation."""

DEAD_TOKENS = frozenset({"invalid_auth", "account_inactive", "token_revoked", "token_expired"})
"""Codes that mean that this token is of no use; another one of the same workspace may be."""

GONE = DEAD_TOKENS | {"channel_not_found", "is_archived", "not_in_channel"}
"""Codes that mean that nothing can be posted in this place."""

NO_METHOD = frozenset({"unknown_method", "method_not_supported_for_channel_type", "method_deprecated"})
"""Codes that mean that Slack does not offer the method here."""

BAD_BLOCKS = frozenset(
    {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_blocks_too_many", "block_mismatch"}
)
"""Codes that mean that the message would be taken without its blocks, or with others."""

_BUSY = frozenset({"ratelimited", "rate_limited", "service_unavailable", "team_added_to_org"})
_UNCLEAR = frozenset({"", "internal_error", "fatal_error", "request_timeout"})

# AttributeError: what Slack's client raises for a 200 whose body is plain text, as some proxies answer
CALL_ERRORS = (SlackApiError, aiohttp.ClientError, OSError, TimeoutError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A call that did not give what it should.

    Args:
        code: Slack's word for it, empty when the failure was not Slack's own answer.
        said: what failed and what to do, without tokens and addresses.
        outcome: what it means for a post.
        sent: false when the call never left, since its turn did not come in time.
    """

    code: str
    said: str
    outcome: RetryLater | Rejected | InDoubt
    sent: bool = True

    @property
    def refused(self) -> bool:
        """True when the app may not do this at all."""
        return self.code in REFUSED


def build_failed(error: BaseException) -> Failed:
    """Describe the failure that one of ``CALL_ERRORS`` tells."""
    return Failed(code=error_code(error), said=describe(error), outcome=outcome_of(error))


def error_code(error: BaseException) -> str:
    """Return Slack's word for what failed, empty when the failure was not Slack's own answer."""
    if isinstance(error, SlackApiError):
        data = getattr(error.response, "data", None)
        if isinstance(data, Mapping):
            return text_of(data, "error")
    return ""


def describe(error: BaseException) -> str:
    """Say what failed and what to do, without tokens and addresses."""
    code = error_code(error)
    if not code:
        return f"Slack did not answer as it should ({type(error).__name__})"
    needed = text_of(error.response.data, "needed") if isinstance(error, SlackApiError) else ""
    remedy = REMEDIES.get(code, "")
    return f"Slack refused: {code}" + (f" (needs {needed})" if needed else "") + (f"; {remedy}" if remedy else "")


def outcome_of(error: BaseException) -> RetryLater | Rejected | InDoubt:
    """Say what a failed post means: certainly not posted, never possible, or not known.

    Slack documents of ``fatal_error`` and ``internal_error`` that parts of the work may have been done.
    """
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.InvalidURL):
        return RetryLater(after_s=3.0, reason=f"Slack could not be reached ({type(error).__name__})")
    if not isinstance(error, SlackApiError):
        return InDoubt(reason=f"the connection to Slack broke ({type(error).__name__})")
    code, status = error_code(error), _status(error)
    if status == 429 or code in _BUSY:
        return RetryLater(after_s=retry_after(error), reason=f"Slack asks to wait ({code or status})")
    if status >= 500 or code in _UNCLEAR:
        return InDoubt(reason=f"Slack failed while it worked on the post ({code or status})")
    return Rejected(reason=describe(error), gone=code in GONE)


def retry_after(error: SlackApiError, default_s: float = 1.0) -> float:
    """Return how many seconds Slack asks to wait."""
    headers = getattr(error.response, "headers", None)
    for name, value in headers.items() if isinstance(headers, Mapping) else ():
        if name.lower() == "retry-after":
            try:
                return max(0.0, float(value))
            except (TypeError, ValueError):
                break
    return default_s


def _status(error: SlackApiError) -> int:
    status = getattr(error.response, "status_code", None) or getattr(error.response, "status", 0)
    return status if isinstance(status, int) else 0
