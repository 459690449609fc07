"""Settings: loaded once, at the start of a command, and handed down as values.

``load_settings`` is the only way in. It reads what it is given (a file's path and an environment), so it can
be tested without touching the process. Mistakes are collected, all at once, in ``SettingsError``.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, PrivateAttr, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from agent_core.errors import ConfigError
from bot.settings_checks import Installed, check_tree
from bot.settings_docs import SettingDoc, describe_settings, is_later
from bot.settings_sources import (
    KeyPath,
    Mistake,
    Sources,
    read_shape,
    read_sources,
    suggest,
)
from bot.settings_tree import ModelSettings, Section, SettingsTree, TargetSettings

__all__ = [
    "ModelSettings",
    "SettingDoc",
    "Settings",
    "SettingsError",
    "TargetSettings",
    "describe_settings",
    "is_installed",
    "load_settings",
]

DEFAULT_MODEL = "gpt-4o-mini"
OPENAI_URL = "https://api.openai.com/v1"
_SECRET_VARIABLE = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)$")


class SettingsError(ConfigError):
    """The settings cannot be used; the operator has to mend them.

    ``problems`` has one line for each mistake: where it is (``file: key`` or the variable), what it is, and
    how to mend it. No line holds a value that somebody configured.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Settings(SettingsTree):
    """The validated tree, with what is derived from it."""

    _ambient_secrets: tuple[str, ...] = PrivateAttr(default=())
    _notices: tuple[str, ...] = PrivateAttr(default=())

    @property
    def notices(self) -> tuple[str, ...]:
        """One line for each configured key that this release does not use yet; to be logged at the start."""
        return self._notices

    def secrets(self) -> tuple[str, ...]:
        """Every secret value that is known: for the redactor, and for nothing else.

        These are the secret keys of the tree, passwords inside URLs (as written and decoded), and the values
        of environment variables whose names end in KEY, TOKEN, SECRET or PASSWORD. Longest first.
        """
        found = {*self._ambient_secrets, *_collect_secrets(self), *self.security.keys}
        return tuple(sorted(found, key=lambda value: (-len(value), value)))

    def effective_models(self, environ: Mapping[str, str]) -> tuple[ModelSettings, ...]:
        """Return the models to use, with name, key and endpoint filled in.

        Without ``[[models]]``: one OpenAI model when ``OPENAI_API_KEY`` is set (``OPENAI_BASE_URL`` and
        ``HERMOD_MODEL`` count), else the offline one. A configured model takes ``OPENAI_API_KEY`` (or
        ``ANTHROPIC_API_KEY``) only when it has no endpoint of its own, so that the key never goes to another vendor.
        """
        key, url = environ.get("OPENAI_API_KEY", ""), environ.get("OPENAI_BASE_URL", "") or OPENAI_URL
        if not self.models:
            if not key:
                return (ModelSettings(name="offline", kind="offline"),)
            model = environ.get("HERMOD_MODEL", "") or DEFAULT_MODEL
            return (ModelSettings(name="openai", model=model, base_url=url, api_key=SecretStr(key)),)
        return tuple(_complete_model(model, environ) for model in self.models)


def _complete_model(model: ModelSettings, environ: Mapping[str, str]) -> ModelSettings:
    openai_key, url = environ.get("OPENAI_API_KEY", ""), environ.get("OPENAI_BASE_URL", "") or OPENAI_URL
    filled: dict[str, object] = {"name": model.name or model.model or model.kind}
    if model.kind == "openai" and model.base_url is None:
        filled["base_url"] = OPENAI_URL
        if model.api_key is None and openai_key:
            filled.update(base_url=url, api_key=SecretStr(openai_key))
    if model.kind == "anthropic" and model.base_url is None and model.api_key is None:
        filled["api_key"] = SecretStr(environ.get("ANTHROPIC_API_KEY", ""))
    return model.model_copy(update=filled)


def is_installed(module: str) -> bool:
    """Tell whether a module could be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is not there
        return False


def load_settings(
    config_path: Path | None, environ: Mapping[str, str], *, installed: Installed = is_installed
) -> Settings:
    """Read, merge and check the settings.

    Args:
        config_path: the file; None: ``HERMOD_CONFIG``, else ``hermod.toml`` in the working folder if it exists.
        environ: the environment; its ``HERMOD_*`` variables win over the file.
        installed: tells whether an extra's module is there.

    Raises:
        SettingsError: with every mistake that was found.
    """
    sources = read_sources(config_path, environ)
    settings, mistakes = _validate(sources)
    known = [mistake.path for mistake in (*sources.mistakes, *mistakes) if mistake.path]
    checked = () if settings is None else check_tree(settings, environ, installed)
    # A value that was dropped because it is wrong must not be reported again as missing.
    mistakes += [m for m in checked if not any(m.path[: len(path)] == path or _beside(m.path, path) for path in known)]
    if sources.mistakes or mistakes or settings is None:
        raise SettingsError(tuple(dict.fromkeys(map(sources.render, (*sources.mistakes, *mistakes)))))
    settings._ambient_secrets = tuple(
        value for name, value in environ.items() if _SECRET_VARIABLE.search(name) and len(value) >= 8
    )
    settings._notices = tuple(
        f"{sources.locate(path)}: not used yet in this release" for path in _find_later(Settings, sources.data, ())
    )
    return settings


def _beside(path: KeyPath, known: KeyPath) -> bool:
    return path[:-1] == known[:-1] and str(known[-1]) in (f"{path[-1]}_env", f"{path[-1]}_file")


# -- validation ------------------------------------------------------------------------------------

_TEXTS = {
    "missing": "missing; set it",
    "string_type": 'must be text, such as "abc"',
    "tuple_type": 'must be a list, such as ["a", "b"]',
    "model_type": "must be a table; set its keys",
    "model_attributes_type": "must be a table; set its keys",
    "mapping_type": "must be a table; set its keys",
    "dict_type": "must be a table; set its keys",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a smaller whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "literal_error": "must be {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
}


def _validate(sources: Sources) -> tuple[Settings | None, list[Mistake]]:
    """Validate; drop what is wrong and validate again, so that the checks can look at the rest."""
    mistakes: list[Mistake] = []
    dropped: set[tuple[int | str, ...]] = set()
    for _ in range(3):
        try:
            return Settings.model_validate(sources.data), mistakes
        except ValidationError as error:
            for detail in error.errors(include_input=False, include_url=False):
                missing = detail["type"] == "missing"
                if not (missing and detail["loc"] in dropped):  # it is there, and was told to be wrong
                    mistakes.append(_describe(detail))
                dropped.add(detail["loc"])
                _drop(sources.data, detail["loc"], missing=missing)
    return None, mistakes


def _describe(detail: ErrorDetails) -> Mistake:
    path = detail["loc"]
    if detail["type"] == "extra_forbidden":
        section = _find_section(path[:-1])
        near = suggest(str(path[-1]), list(section.model_fields)) if section else ""
        return Mistake(path=path, text=f"unknown key; {near or 'see docs/settings.md, or remove it'}")
    text = _TEXTS.get(detail["type"], "is not valid; see docs/settings.md")
    return Mistake(path=path, text=text.format(**detail.get("ctx", {})))


def _find_section(path: KeyPath) -> type[Section] | None:
    section: type[Section] | None = SettingsTree
    item: object = None
    for part in path:
        shape = read_shape(item if section is None else section.model_fields[str(part)].annotation)
        section, item = shape.section, shape.item
    return section


def _drop(data: dict[str, object], path: KeyPath, *, missing: bool) -> None:
    """Remove the value at ``path``; a list keeps its length as far as tables stand in it."""
    place = path[:-1] if missing else path
    holders: list[object] = [data]
    for part in place[:-1]:
        holder = holders[-1]
        if isinstance(holder, dict):
            holders.append(holder.get(part))
        elif isinstance(holder, list) and isinstance(part, int):
            holders.append(holder[part])
    last = place[-1]
    if isinstance(holder := holders[-1], dict):
        holder.pop(last, None)
    elif isinstance(holder, list) and isinstance(last, int) and last < len(holder):
        holder[last] = {} if place[0] == "models" else ""


# -- secrets and notices ---------------------------------------------------------------------------


def _collect_secrets(value: object) -> Iterator[str]:
    match value:
        case SecretStr():
            yield value.get_secret_value()
        case BaseModel():
            for name in type(value).model_fields:
                yield from _collect_secrets(getattr(value, name))
        case Mapping():
            for item in value.values():
                yield from _collect_secrets(item)
        case tuple():
            for item in value:
                yield from _collect_secrets(item)
        case str() if "://" in value:
            yield from _find_passwords(value)
        case _:
            return


def _find_passwords(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        asked = parse_qsl(parts.query)
        password = parts.password
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)
    # libpq takes them as parameters, too: ?password=... and ?sslpassword=...
    yield from (value for name, value in asked if "password" in name.lower() and value)


def _find_later(section: type[Section], data: Mapping[str, object], path: KeyPath) -> Iterator[KeyPath]:
    for name, known in section.model_fields.items():
        shape, value, inner = read_shape(known.annotation), data.get(name), (*path, name)
        if value is None:
            continue
        if is_later(section, name):
            yield inner
        elif shape.section is not None and isinstance(value, dict):
            yield from _find_later(shape.section, value, inner)
        elif (item := read_shape(shape.item).section) is not None:
            entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
            for key, entry in entries:
                yield from _find_later(item, entry, (*inner, key))
