"""Prompt templates: Markdown files with ``{placeholders}`` that must all be known and all be filled."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from agent_core.errors import ConfigError
from agent_core.llm.types import ToolSpec

_PLACEHOLDER = re.compile(r"\{ *([^\W\d][\w.-]*) *\}")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n\s*\n")

ANSWERING = frozenset({"name", "now", "tools"})
"""What the template of an agent or a worker may hold: its name, the time with its zone, and its tools."""

_ANSWERING = ("react", "operations", "research", "report", "sql_optimizer", "analyst")
_ALLOWED: Mapping[str, frozenset[str]] = dict.fromkeys(_ANSWERING, ANSWERING) | {
    "synthesis": frozenset({"now"}),
    "decomposition": frozenset({"now", "workers", "limit"}),
    "summary": frozenset({"conversation", "limit"}),
}
_REQUIRED = {"decomposition": frozenset({"workers"}), "summary": frozenset({"conversation"})}


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    """A template, the placeholders in it and those that may be, and a hash of its text."""

    name: str
    text: str
    placeholders: frozenset[str]
    allowed: frozenset[str]
    version: str

    @property
    def label(self) -> str:
        """``name@version``, for traces."""
        return f"{self.name}@{self.version}"

    def fill(self, **values: str) -> str:
        """Put values in the place of the placeholders; one that is allowed but not in the text is left out.

        Raises:
            ConfigError: a value is missing, or may not be in a template of this name.
        """
        missing, unknown = self.placeholders - values.keys(), values.keys() - self.allowed
        if missing or unknown:
            raise ConfigError(f"prompt {self.name}: missing {sorted(missing)}, unknown {sorted(unknown)}")
        return _PLACEHOLDER.sub(lambda m: values[m.group(1)], self.text)


Prompts = Mapping[str, PromptTemplate]


def load_prompts(paths: Mapping[str, Path] = MappingProxyType({})) -> Prompts:
    """Read and check every template of the engine; ``paths`` are files that replace shipped ones, by name.

    Raises:
        ConfigError: as ``load_prompt``, and for a name that no template has.
    """
    if unknown := paths.keys() - _ALLOWED.keys():
        raise ConfigError(f"prompts: there is no template {sorted(unknown)}; known are {sorted(_ALLOWED)}")
    return MappingProxyType({n: load_prompt(n, allowed=a, path=paths.get(n)) for n, a in _ALLOWED.items()})


def load_prompt(name: str, *, allowed: frozenset[str], path: Path | None = None) -> PromptTemplate:
    """Read a template: the file ``path``, or the one of that name that comes with the engine.

    Raises:
        ConfigError: it cannot be read, is empty, has a placeholder not in ``allowed``, or lacks one that it needs.
    """
    try:
        source = path if path is not None else files(__package__) / f"{name}.md"
        text = source.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"prompt {name}: cannot be read from {path or 'the package'} ({type(e).__name__})") from e
    found = frozenset(_PLACEHOLDER.findall(text))
    if unknown := found - allowed:
        raise ConfigError(f"prompt {name}: unknown placeholder {sorted(unknown)}; allowed are {sorted(allowed)}")
    if not text or (missing := _REQUIRED.get(name, frozenset()) - found):
        raise ConfigError(f"prompt {name}: {f'needs the placeholder {sorted(missing)}' if text else 'is empty'}")
    version = hashlib.sha256(text.encode()).hexdigest()[:12]
    return PromptTemplate(name=name, text=text, placeholders=found, allowed=allowed, version=version)


def describe_tools(specs: Sequence[ToolSpec]) -> str:
    """Return a line for each tool, its name and the first sentence about it, for ``{tools}``."""
    lines = (f"- {s.name}: {' '.join(_SENTENCE_END.split(s.description.strip(), 1)[0].split())}" for s in specs)
    return "\n".join(lines) or "(none)"


def describe_time(at: datetime) -> str:
    """Return an aware instant with its weekday and zone, for ``{now}``."""
    return f"{at:%A %Y-%m-%d %H:%M %Z}"
