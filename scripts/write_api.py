"""The reference of ``agent_core``'s public names, from their signatures and docstrings."""

from __future__ import annotations

import enum
import inspect
import re
import types
from collections.abc import Iterator

import agent_core

WIDTH = 100
"""A longer signature has a line for each argument."""


LONG_DEFAULT = 60


def build_api() -> str:
    """One section for each name of ``agent_core.__all__``, in the order of the alphabet."""
    return "\n".join(line for name in sorted(agent_core.__all__, key=str.lower) for line in _describe(name)).rstrip()


def _describe(name: str) -> Iterator[str]:
    value = getattr(agent_core, name)
    yield from (f"### {name}", "")
    if isinstance(value, types.UnionType):
        kinds = ", ".join(f"`{kind.__name__}`" for kind in value.__args__)
        yield from (f"One of {kinds} (`agent_core.runtime.events`).", "")
        return
    yield from ("```python", _sign(name, value), "```", "", f"`{value.__module__}`", "")
    yield from (_render_docstring(value), "")
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        yield from (f"- `{member.name}` = `{member.value!r}`" for member in value)
        yield ""
    if inspect.isclass(value):
        for member, found in _list_members(value):
            yield from _describe_member(member, found)


def _list_members(kind: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties that the engine wrote; inherited ones too, each name once."""
    seen = set[str]()
    for parent in kind.__mro__:
        if parent.__module__.startswith("agent_core"):
            for name, found in vars(parent).items():
                function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
                wanted = inspect.isfunction(function) or isinstance(function, property)
                if wanted and not name.startswith("_") and name not in seen:
                    seen.add(name)
                    yield name, found


def _describe_member(name: str, found: object) -> Iterator[str]:
    if isinstance(found, property):
        yield f"**`{name}`**: {_first_line(found)}"
    else:
        function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
        kind = "async " if inspect.iscoroutinefunction(function) else ""
        yield from ("```python", f"{kind}{_sign(name, function)}", "```", "", _render_docstring(function))
    yield ""


def _first_line(value: object) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0].replace("``", "`")


def _sign(name: str, value: object) -> str:
    """Write how something is called; annotations as they stand in the source."""
    if inspect.isclass(value) and (issubclass(value, enum.Enum | BaseException) and "__init__" not in vars(value)):
        return f"class {name}({', '.join(base.__name__ for base in value.__bases__)})"
    if inspect.isclass(value) and getattr(value, "_is_protocol", False):
        return f"class {name}(Protocol)"
    assert callable(value)
    signature = inspect.signature(value)
    written, starred = list[str](), False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            written.append("*")
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        written.append(_write_parameter(parameter))
    returns = (
        ""
        if signature.return_annotation is signature.empty or inspect.isclass(value)
        else (f" -> {_annotation(signature.return_annotation)}")
    )
    line = f"{name}({', '.join(written)}){returns}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in written) + f"){returns}"


def _write_parameter(parameter: inspect.Parameter) -> str:
    stars = (
        "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    )
    typed = "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{typed}"
    return f"{parameter.name}{typed} = {_default(parameter.default)}"


def _annotation(found: object) -> str:
    return found if isinstance(found, str) else getattr(found, "__name__", str(found))


def _default(value: object) -> str:
    """Write a default so that it is the same on every machine and every run."""
    if isinstance(value, enum.Enum):
        return str(value)
    written = repr(value)
    if len(written) > LONG_DEFAULT:
        return f"{type(value).__name__}(...)"
    return "..." if written.startswith("<") or " at 0x" in written else written


def _render_docstring(value: object) -> str:
    """Turn a docstring into Markdown: ``Args`` and the like become lists, literals get single backticks."""
    lines, section = list[str](), False
    for line in (inspect.getdoc(value) or "").replace("``", "`").splitlines():
        if re.fullmatch(r"(Args|Raises|Returns|Errors):", line):
            section = True
            lines += [f"{line[:-1]}:", ""] if line != "Args:" else ["Arguments:", ""]
        elif section and line.startswith("    ") and not line.startswith("     "):
            lines.append(_as_item(line.strip()))
        elif section and line.startswith("     "):
            lines.append(f"  {line.strip()}")
        else:
            section = section and not line.strip()
            lines.append(line)
    return "\n".join(lines)


def _as_item(text: str) -> str:
    named = re.match(r"([\w., *]+): (.*)", text, flags=re.DOTALL)
    if named is None:
        return f"- {text}"
    return f"- {', '.join(f'`{word.strip()}`' for word in named[1].split(','))}: {named[2]}"
