"""What this package needs to know of tools and of a history: shapes only, so that it stands below the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Example(Protocol):
    """A question, as a person would put it, and the arguments that answer it."""

    @property
    def question(self) -> str: ...  # noqa: D102

    @property
    def arguments(self) -> Mapping[str, object]: ...  # noqa: D102


class Spec(Protocol):
    """A tool: its name, what it does, the JSON schema of its arguments, and examples."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def description(self) -> str: ...  # noqa: D102

    @property
    def parameters(self) -> Mapping[str, object]: ...  # noqa: D102

    @property
    def examples(self) -> Sequence[Example]: ...  # noqa: D102


class PastToolCall(Protocol):
    """A call that was made: ``arguments`` is JSON text."""

    @property
    def id(self) -> str: ...  # noqa: D102

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def arguments(self) -> str: ...  # noqa: D102


class PastMessage(Protocol):
    """An entry of a history."""

    @property
    def role(self) -> str: ...  # noqa: D102

    @property
    def content(self) -> str: ...  # noqa: D102

    @property
    def tool_calls(self) -> Sequence[PastToolCall]: ...  # noqa: D102

    @property
    def tool_call_id(self) -> str | None: ...  # noqa: D102
