"""Errors of the engine, named by who has to act on them.

The model acts on ``ModelRetry`` and ``ToolFailed`` (they become tool results), the operator on
``ConfigError``, the router on the ``ProviderError`` family, and the person who asked reads the
``RunError`` family as the reason that ended a run. None of their messages may hold a secret.
"""

from __future__ import annotations


class AgentError(Exception):
    """Base of every error that the engine raises on purpose."""


class ConfigError(AgentError):
    """The program that builds the engine made a mistake; mend the registration or the settings."""


# -- for the model ---------------------------------------------------------------------------------


class ModelRetry(AgentError):
    """The model should call the tool again, differently; the message tells it how."""


class ToolFailed(AgentError):
    """A tool could not do its work; the run goes on and the model reads the failure.

    Args:
        message: what failed, with which input.
        code: a stable word for programs (see ``docs/tools.md``), for example ``connect_failed``.
        fix: what a person can do about it; empty when there is nothing to do.
        retryable: true when the same call may succeed a moment later (a READ tool is then retried
            by the executor, inside the deadline).
    """

    def __init__(self, message: str, *, code: str = "failed", fix: str = "", retryable: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.fix = fix
        self.retryable = retryable


# -- for the router --------------------------------------------------------------------------------


class ProviderError(AgentError):
    """A model provider did not answer; another one, or the same one later, may.

    Args:
        message: what the provider said, without secrets.
        provider: the configured name of the provider.
    """

    def __init__(self, message: str, *, provider: str = "") -> None:
        super().__init__(message)
        self.provider = provider


class RateLimited(ProviderError):
    """The provider asks to wait ``retry_after_s`` seconds (None when it did not say how long)."""

    def __init__(self, message: str, *, provider: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message, provider=provider)
        self.retry_after_s = retry_after_s


class ProviderTimeout(ProviderError):
    """The provider did not answer inside the request's timeout."""


class ProviderUnavailable(ProviderError):
    """The provider could not be reached, answered 5xx, or broke off its answer."""


class ProviderRefused(ProviderError):
    """The provider refused the request itself (4xx); trying again does not help.

    Wrong key, unknown model, a history it does not accept: the operator has to act.
    """


class ContextOverflow(ProviderRefused):
    """The history is longer than the model's context window."""


class AllProvidersFailed(ProviderError):
    """Every provider of the chain failed; ``failures`` has one error for each, in order."""

    def __init__(self, failures: tuple[ProviderError, ...]) -> None:
        said = "; ".join(f"{e.provider or 'provider'}: {e}" for e in failures)
        super().__init__(f"no model provider answered ({said})")
        self.failures = failures


def is_overflow(error: ProviderError) -> bool:
    """Tell whether a shorter history could help."""
    return isinstance(error, ContextOverflow) or (
        isinstance(error, AllProvidersFailed) and any(isinstance(e, ContextOverflow) for e in error.failures)
    )


# -- for the person who asked: why a run ended early -----------------------------------------------


class RunError(AgentError):
    """A run ended before the model gave its final answer.

    ``kind`` is the stable word that the run record, the store and ``--json`` carry.
    """

    kind = "failed"


class LimitReached(RunError):
    """A limit ended the run; what was found until then is the answer."""

    kind = "limit"


class StepLimit(LimitReached):
    """The run made as many model calls as its agent may."""

    kind = "step_limit"


class RequestLimit(LimitReached):
    """The run made as many model requests as the settings allow."""

    kind = "request_limit"


class ToolCallLimit(LimitReached):
    """The run asked for more tool calls than the settings allow."""

    kind = "tool_call_limit"


class TokenLimit(LimitReached):
    """The run used as many tokens as the settings allow."""

    kind = "token_limit"


class CostLimit(LimitReached):
    """The run cost as much as the settings allow."""

    kind = "cost_limit"


class Deadline(LimitReached):
    """The run's wall-clock deadline passed."""

    kind = "deadline"


class Repetition(LimitReached):
    """The model asked for the same tool with the same arguments again and again."""

    kind = "repetition"


class ModelFailed(RunError):
    """No provider answered, or the answer could not be used."""

    kind = "model_failed"


class RunCancelled(RunError):
    """Somebody stopped the run, or the process was told to stop."""

    kind = "cancelled"


class ReplayMismatch(RunError):
    """A resumed run asked for something else than its journal holds; it is not continued."""

    kind = "replay_mismatch"
