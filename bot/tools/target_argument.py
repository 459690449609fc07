"""The argument ``target`` of every tool that looks into a database."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field, create_model
from pydantic.config import JsonDict

TARGET = "Name of the database to look at. Leave it out when only one is configured."
"""What a model is told about it."""


def with_names(model: type[BaseModel], names: Sequence[str], *, description: str = TARGET) -> type[BaseModel]:
    """Put the configured names into the schema; any other string still passes, to get our own error."""
    if not names:
        return model
    extra: JsonDict = {"enum": list(names)}
    field = Field(default=None, description=description, json_schema_extra=extra)
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, target=(str | None, field))
