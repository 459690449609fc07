"""The exact SQL that a tool ran, for whoever asks: ``echo_sql=true`` on any tool that looks into a database.

Connections note what they send (``note_sql``); only while somebody records does that cost anything. What a person or
a model passed in is noted without its literals, as it stands everywhere else; our own queries hold none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from pydantic import BaseModel, Field, create_model
from pydantic_core import to_jsonable_python

from agent_core.context import RunContext
from agent_core.tools.base import Tool
from agent_core.tools.schema import build_parameters

ECHO_SQL = "echo_sql"
SQL_RAN = "sql_ran"

_MOST_CHARS = 12_000
_MOST_VALUE_CHARS = 80
_recording: ContextVar[list[str] | None] = ContextVar("hermod_sql", default=None)


def note_sql(write: Callable[[], str]) -> None:
    """Note a statement that is sent now; ``write`` gives its text, and is called only while somebody records."""
    if (noted := _recording.get()) is not None:
        noted.append(write().strip())


def write_sent(text: str, parameters: Sequence[object]) -> str:
    """Write a query of our own with the values that go beside it."""
    return f"{text}\n-- with {', '.join(map(_shorten, parameters))}" if parameters else text


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_VALUE_CHARS else f"{text[:_MOST_VALUE_CHARS]}…"


@contextmanager
def record_sql() -> Iterator[list[str]]:
    """Collect the statements that are sent meanwhile, in their order, by this task and the ones that it starts."""
    noted: list[str] = []
    token = _recording.set(noted)
    try:
        yield noted
    finally:
        _recording.reset(token)


def offer_sql(tool: Tool) -> Tool:
    """Return ``tool`` with the argument ``echo_sql``; where it is true, the answer has ``sql_ran`` beside the rest."""
    shown = Field(default=False, description="Also return the exact SQL that was run on the database.")
    of = tool.arguments
    arguments = create_model(of.__name__, __base__=of, __doc__=of.__doc__, echo_sql=(bool, shown))

    async def invoke(ctx: RunContext, given: BaseModel) -> object:
        if not getattr(given, ECHO_SQL):
            return await tool.invoke(ctx, given)
        with record_sql() as noted:
            answer: object = to_jsonable_python(await tool.invoke(ctx, given))
        return {**answer, SQL_RAN: _join(noted)} if isinstance(answer, dict) else answer

    return replace(tool, arguments=arguments, parameters=build_parameters(arguments), invoke=invoke)


def _join(noted: list[str]) -> str:
    text = ";\n\n".join([*noted, ""]).strip()
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]} … ({len(text) - _MOST_CHARS} characters more)"
