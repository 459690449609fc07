"""Where settings come from: the file, then the environment over it, with the origin of every value kept.

Nothing here knows what a key means; it only follows the shape of ``bot.settings_tree``. A mistake is a
``Mistake`` value (where, what) and never holds a value that somebody wrote, because that may be a secret.
"""

from __future__ import annotations

import copy
import difflib
import json
import re
import tomllib
import types
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import SecretStr

from bot.settings_tree import Section, SettingsTree

PREFIX = "HERMOD_"
RESERVED = frozenset({"HERMOD_CONFIG", "HERMOD_MODEL", "HERMOD_REQUIRE_SERVICES"})
"""Variables that are not keys: the file's path, the model beside ``OPENAI_API_KEY``, and the tests' switch."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What may stand at a key: a ``section``, an ``array`` or a ``table`` of ``item``, or a ``value``."""

    kind: Literal["section", "array", "table", "value"]
    section: type[Section] | None = None
    item: object = None


def read_shape(annotation: object) -> Shape:
    """Return the shape of an annotation of the settings tree; ``X | None`` counts as ``X``."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return read_shape(args[0])
    if origin in (Union, types.UnionType):
        return read_shape(next(arg for arg in args if arg is not type(None)))
    if origin is tuple:
        return Shape(kind="array", item=args[0])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return Shape(kind="table", item=args[1])
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return Shape(kind="section", section=annotation)
    return Shape(kind="value")


def is_secret(annotation: object) -> bool:
    """Tell whether a field's annotation is ``SecretStr`` (or that and None)."""
    return annotation is SecretStr or SecretStr in get_args(annotation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """Something to mend at ``path``. ``variable`` is set when it can only be named as a variable."""

    path: KeyPath
    text: str
    variable: str = ""


@dataclass(slots=True, kw_only=True)
class Sources:
    """The merged tree of plain values, and where each part of it was written.

    Args:
        file: the file's name as given; empty when there is none.
        written: what the file holds.
        data: nested tables and lists; leaves as the file or the environment had them.
        origins: path of every value that the environment set, with the variable's name.
        mistakes: what could not be read, in the order of finding.
    """

    file: str = ""
    written: Mapping[str, object] = field(default_factory=dict)
    data: dict[str, object] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def locate(self, path: KeyPath) -> str:
        """Say where ``path`` was written, or where it should be: a variable, or file and key."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        if self.file and _holds(self.written, path):
            return f"{self.file}: {render_path(path)}"
        below = [variable for place, variable in self.origins.items() if place[: len(path)] == path]
        if below:
            return below[0]
        return f"{self.file}: {render_path(path)}" if self.file else render_variable(path)

    def render(self, mistake: Mistake) -> str:
        """Write a mistake as one line."""
        return f"{mistake.variable or self.locate(mistake.path)}: {mistake.text}"


def _holds(data: object, path: KeyPath) -> bool:
    for part in path:
        known: Mapping[str | int, object] = {}
        if isinstance(data, dict):
            known = data
        elif isinstance(data, list):
            known = dict(enumerate(data))
        if part not in known:
            return False
        data = known[part]
    return True


def render_path(path: KeyPath) -> str:
    """Write a path as in the documents: ``models[0].api_key``; a name that TOML quotes is quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _BARE_KEY.fullmatch(part) else json.dumps(part)
            text += f".{name}" if text else name
    return text


def render_variable(path: KeyPath) -> str:
    """Write a path as its environment variable."""
    return PREFIX + "__".join(str(part).upper() for part in path)


def suggest(name: str, known: list[str]) -> str:
    """Return ``did you mean X?`` for a near name, else the empty text."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else ""


# -- reading ---------------------------------------------------------------------------------------


def read_sources(config_path: Path | None, environ: Mapping[str, str]) -> Sources:
    """Read the file (``config_path``, else ``HERMOD_CONFIG``, else ``./hermod.toml`` if it exists) and the environment.

    Never raises: whatever is wrong is in ``mistakes``.
    """
    sources = Sources()
    named = config_path or (Path(environ["HERMOD_CONFIG"]) if environ.get("HERMOD_CONFIG") else None)
    if named is not None or Path("hermod.toml").is_file():
        _read_file(sources, named or Path("hermod.toml"))
    _read_environ(sources, environ)
    _read_named_secrets(sources, SettingsTree, sources.data, (), environ)
    return sources


def _read_file(sources: Sources, path: Path) -> None:
    sources.file = str(path)
    try:
        sources.data = tomllib.loads(path.read_text(encoding="utf-8"))
        sources.written = copy.deepcopy(sources.data)
    except FileNotFoundError:
        text = "no such file; give an existing one with --config or HERMOD_CONFIG"
    except UnicodeDecodeError:
        text = "not UTF-8 text; save it as UTF-8"
    except tomllib.TOMLDecodeError as error:
        text = f"not valid TOML: {str(error).splitlines()[0]}"
    except OSError as error:
        text = f"cannot be read ({error.strerror}); check path and permissions"
    else:
        return
    sources.mistakes.append(Mistake(path=(), text=text, variable=str(path)))


def _read_environ(sources: Sources, environ: Mapping[str, str]) -> None:
    found: list[tuple[list[str], str]] = []
    for variable in environ:
        if variable.startswith(PREFIX) and variable not in RESERVED:
            found.append((variable.removeprefix(PREFIX).lower().split("__"), variable))
    # Shorter paths and lower indexes first: a whole list before its entries, entry 2 before entry 10.
    found.sort(key=lambda item: [(len(part), part) for part in item[0]])
    for parts, variable in found:
        # Tables are made on the way down, so an empty or refused variable works on a copy that is dropped.
        trial = copy.deepcopy(sources.data)
        reader = _VariableReader(sources, variable, environ[variable])
        reader.enter_section(SettingsTree, parts, trial, ())
        if variable in sources.origins.values():
            sources.data = trial


@dataclass(slots=True)
class _VariableReader:
    """Follows one variable's name down the tree and puts its value there."""

    sources: Sources
    variable: str
    value: str

    def refuse(self, text: str) -> None:
        self.sources.mistakes.append(Mistake(path=(), text=text, variable=self.variable))

    def enter_section(
        self, section: type[Section], parts: list[str], data: MutableMapping[str, object], path: KeyPath
    ) -> None:
        name, rest = parts[0], parts[1:]
        if name not in section.model_fields:
            known = [render_variable((*path, field)) for field in section.model_fields] + list_variables()
            near = suggest(self.variable.removeprefix(PREFIX), [other.removeprefix(PREFIX) for other in known])
            remedy = near.replace("mean ", f"mean {PREFIX}") or "see docs/settings.md, or unset it"
            self.refuse(f"unknown setting; {remedy}")
            return
        if self.value and not rest:
            self.drop_alternatives(section, data, path, name)
        self.enter(section.model_fields[name].annotation, rest, data, name, path)

    def enter(
        self, annotation: object, parts: list[str], parent: MutableMapping[str, object], name: str, path: KeyPath
    ) -> None:
        path = (*path, name)
        shape = read_shape(annotation)
        match shape.kind:
            case "section" if parts and shape.section is not None:
                if isinstance(table := parent.setdefault(name, {}), dict):
                    self.enter_section(shape.section, parts, table, path)
            case "table" if parts:
                self.enter_table(shape, parts, parent, name, path)
            case "array" if parts:
                self.enter_array(shape, parts, parent, name, path)
            case "value" if parts:
                self.refuse(f"unknown setting: {render_variable(path)} is a single value; see docs/settings.md")
            case "array" if read_shape(shape.item).kind == "value":
                self.put(parent, name, path, [part.strip() for part in self.value.split(",") if part.strip()])
            case "value":
                self.put(parent, name, path, self.value)
            case _:
                self.refuse(f"this is a table; set its keys, such as {_example_variable(shape, path)}")

    def enter_table(
        self, shape: Shape, parts: list[str], parent: MutableMapping[str, object], name: str, path: KeyPath
    ) -> None:
        if not isinstance(table := parent.setdefault(name, {}), dict):
            return
        key = next((known for known in table if known.lower() == parts[0]), parts[0])
        self.enter(shape.item, parts[1:], table, key, path)

    def enter_array(
        self, shape: Shape, parts: list[str], parent: MutableMapping[str, object], name: str, path: KeyPath
    ) -> None:
        items = parent.setdefault(name, [])
        if not isinstance(items, list):
            return
        if not parts[0].isdecimal() or int(parts[0]) > len(items):
            self.refuse(f"entries of {render_path(path)} are counted from 0; the next one is {len(items)}")
            return
        index, item = int(parts[0]), read_shape(shape.item)
        if item.section is not None and len(parts) > 1:
            if index == len(items):
                items.append({})
            if isinstance(entry := items[index], dict):
                self.enter_section(item.section, parts[1:], entry, (*path, index))
        elif item.kind == "value" and len(parts) == 1:
            if self.value:
                items[index:] = [self.value, *items[index + 1 :]]
                self.sources.origins[(*path, index)] = self.variable
        else:
            self.refuse(f"set a key of the entry, such as {_example_variable(item, (*path, index))}")

    def drop_alternatives(
        self, section: type[Section], data: MutableMapping[str, object], path: KeyPath, name: str
    ) -> None:
        """Forget the file's ``api_key_env`` when the environment gives ``api_key``, and so on."""
        stem = name.removesuffix("_env").removesuffix("_file")
        if stem in section.model_fields and is_secret(section.model_fields[stem].annotation):
            for other in {stem, f"{stem}_env", f"{stem}_file"} - {name}:
                if (*path, other) not in self.sources.origins:
                    data.pop(other, None)

    def put(self, parent: MutableMapping[str, object], name: str, path: KeyPath, value: object) -> None:
        # Compose files and unit files pass unset variables on as empty ones.
        if self.value:
            parent[name] = value
            self.sources.origins[path] = self.variable


def _example_variable(shape: Shape, path: KeyPath) -> str:
    while shape.section is None:
        path = (*path, 0 if shape.kind == "array" else "NAME")
        if (shape := read_shape(shape.item)).kind == "value":
            return render_variable(path)
    return render_variable((*path, next(iter(shape.section.model_fields))))


def list_variables() -> list[str]:
    """The variable of every key, for suggestions: ``HERMOD_MODELS__0__NAME``, ``HERMOD_TARGETS__NAME__URL``."""
    return [render_variable(path) for path in _walk(SettingsTree, ())]


def _walk(section: type[Section], path: KeyPath) -> Iterator[KeyPath]:
    for name, known in section.model_fields.items():
        shape, inner = read_shape(known.annotation), (*path, name)
        if shape.kind == "section" and shape.section is not None:
            yield from _walk(shape.section, inner)
        elif shape.kind in ("array", "table") and (item := read_shape(shape.item)).section is not None:
            yield from _walk(item.section, (*inner, 0 if shape.kind == "array" else "NAME"))
        else:
            yield inner


# -- secrets that are kept elsewhere ---------------------------------------------------------------


def _read_named_secrets(
    sources: Sources, section: type[Section], data: object, path: KeyPath, environ: Mapping[str, str]
) -> None:
    """Replace ``*_env`` and ``*_file`` by the value that they name, everywhere in the tree."""
    if not isinstance(data, dict):
        return
    for name, known in section.model_fields.items():
        shape, value, inner = read_shape(known.annotation), data.get(name), (*path, name)
        if is_secret(known.annotation):
            _read_named_secret(sources, data, inner, environ)
        elif shape.section is not None:
            _read_named_secrets(sources, shape.section, value, inner, environ)
        elif shape.kind == "array" and isinstance(value, list) and (item := read_shape(shape.item).section):
            for index, entry in enumerate(value):
                _read_named_secrets(sources, item, entry, (*inner, index), environ)
        elif shape.kind == "table" and isinstance(value, dict) and (item := read_shape(shape.item).section):
            for key, entry in value.items():
                _read_named_secrets(sources, item, entry, (*inner, key), environ)


def _read_named_secret(sources: Sources, data: dict[str, object], path: KeyPath, environ: Mapping[str, str]) -> None:
    name, parent = str(path[-1]), path[:-1]
    given = [key for key in (name, f"{name}_env", f"{name}_file") if data.get(key) is not None]
    if len(given) > 1:
        text = f"give only one of {', '.join(given)}"
        sources.mistakes.append(Mistake(path=(*parent, given[1]), text=text))
    elif given and given[0] != name and isinstance(pointer := data[given[0]], str):
        where = (*parent, given[0])
        if given[0].endswith("_env"):
            secret = environ.get(pointer, "").strip()
            text = "the variable that it names is not set; export it, or name another one"
        else:
            secret, text = _read_secret_file(sources, where, pointer)
        if secret:
            data[name] = secret
            if where in sources.origins:
                sources.origins[path] = sources.origins[where]
        else:
            sources.mistakes.append(Mistake(path=where, text=text))


def _read_secret_file(sources: Sources, where: KeyPath, pointer: str) -> tuple[str, str]:
    """Return the secret, or nothing and what is wrong. A path in the file counts from the file's folder."""
    base = Path() if where in sources.origins or not sources.file else Path(sources.file).parent
    try:
        secret = (base / Path(pointer).expanduser()).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return "", "the file that it names does not exist; create it, or name another one"
    except (OSError, UnicodeDecodeError):
        return "", "the file that it names cannot be read as text; check its permissions"
    return secret, "the file that it names is empty"
