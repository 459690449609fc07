"""Prompt templates: Markdown files with ``{placeholders}`` that must all be known and all be filled."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from agent_core.errors import ConfigError

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    """A template's text, the placeholders in it, and a hash that names this version of it."""

    name: str
    text: str
    placeholders: frozenset[str]
    version: str

    def fill(self, **values: str) -> str:
        """Put values in the place of the placeholders.

        Raises:
            ConfigError: a value is missing, or there is no such placeholder.
        """
        missing, unknown = self.placeholders - values.keys(), values.keys() - self.placeholders
        if missing or unknown:
            raise ConfigError(f"prompt {self.name}: missing {sorted(missing)}, unknown {sorted(unknown)}")
        return _PLACEHOLDER.sub(lambda m: values[m.group(1)], self.text)


def load_prompt(name: str, *, allowed: frozenset[str], path: Path | None = None) -> PromptTemplate:
    """Read a template: the file ``path``, or the one of that name that comes with the engine.

    Raises:
        ConfigError: it cannot be read, or holds a placeholder that is not in ``allowed``.
    """
    try:
        source = path if path is not None else files(__package__) / f"{name}.md"
        text = source.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"prompt {name}: cannot be read from {path or 'the package'} ({type(e).__name__})") from e
    found = frozenset(_PLACEHOLDER.findall(text))
    if unknown := found - allowed:
        raise ConfigError(f"prompt {name}: unknown placeholder {sorted(unknown)}; allowed are {sorted(allowed)}")
    version = hashlib.sha256(text.encode()).hexdigest()[:12]
    return PromptTemplate(name=name, text=text, placeholders=found, version=version)
