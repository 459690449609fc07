"""What a person was shown about a job and has not confirmed yet, and the words that confirm or cancel it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter
from pydantic_core import to_json

from bot.jobs.job import JobSpec

PROPOSAL_S = 900.0
"""How long a proposal waits for its answer."""

Answered = Literal["confirm", "cancel"]

_WORDS: Mapping[str, Answered] = {"confirm": "confirm", "确认": "confirm", "cancel": "cancel", "取消": "cancel"}
_DECISION = re.compile(rf"(?P<word>{'|'.join(_WORDS)})(?:\s+`?(?P<name>[a-z0-9][a-z0-9-]{{0,62}})`?)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person said to a proposal; ``name``: of the job, empty when it was not named."""

    word: Answered
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A change of a job that waits to be confirmed.

    Args:
        action: what is to be done.
        name: of the job: as it is to be called when it is made, else as it is called.
        place, spec: of the job as it is to be; not needed to delete one.
        renamed: what it is to be called from now on; empty keeps the name.
        job_id, revision: of the job as the person was shown it.
        by: who asked for it, for people.
    """

    action: Literal["make", "change", "delete"]
    name: str
    place: str = ""
    spec: JobSpec | None = None
    renamed: str = ""
    job_id: str = ""
    revision: int = 0
    by: str = ""


_WANTED = TypeAdapter(Wanted)


def dump_wanted(wanted: Wanted) -> str:
    """Write it as JSON text."""
    return to_json(wanted).decode()


def load_wanted(text: str) -> Wanted:
    """Read what ``dump_wanted`` wrote.

    Raises:
        ValueError: it is something else.
    """
    return _WANTED.validate_json(text)


def read_decision(text: str) -> Decision | None:
    """Read ``confirm``, ``cancel``, ``确认``, ``取消``, alone or with the name of a job; None for anything else."""
    m = _DECISION.fullmatch(text.strip().strip(".!。！").strip())
    return None if m is None else Decision(word=_WORDS[m["word"].lower()], name=(m["name"] or "").lower())
