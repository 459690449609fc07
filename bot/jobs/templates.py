"""Templates of reports: Markdown that says what is looked at, by whom, and how the text is written.

A template is three parts under fixed headings; ``docs/reports.md`` shows one. Its placeholders are strict: one that is
unknown, or one that is missing, is refused when the template is read. What is filled in stays as it is, also where it
looks like a placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from agent_core.errors import ConfigError

DEFAULT_TEMPLATE = "daily-database"
PREFIX = "report-"
"""Begins the names of templates in the folder of ``[prompts]``: ``report-daily-database.md``."""

_SHIPPED = ("daily-database", "oncall-handover", "weekly-regression")
_PLACEHOLDERS: Mapping[str, str] = {
    "job": "name of the job",
    "task": "what people asked for",
    "targets": "all targets of the report, separated by commas",
    "target": "one of them; only in assignments for each target",
    "period": "time range of the report, for tools",
    "before": "the range of the same length before it",
    "week_before": "the same range a week earlier",
    "span": "time range of the report, for people, with its zone",
}
_PLACEHOLDER = re.compile(r"\{ *([^\W\d][\w.-]*) *\}")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_PERIOD = re.compile(r"Period: *(\d{1,3}) *(h|d)", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"- *([\w-]+), *(each target|once|last): *(\S.*)")
_REQUEST = re.compile(r" {2,}- *`([^`]+)`")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1)}
_FORM = "'- WORKER, each target: WHAT', '- WORKER, once: WHAT' or '- WORKER, last: WHAT'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An assignment of a template.

    Args:
        worker: its name.
        when: for ``each target``, ``once``, or ``last``, with the findings of all the others.
        text: what is to be found out.
        requests: the tool calls that amount to it where no model reads the text, such as ``db_health target={target}``.
    """

    worker: str
    when: str
    text: str
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTemplate:
    """A template that was read and checked. ``title_zh`` is used where the task is Chinese."""

    name: str
    title: str
    title_zh: str
    length: timedelta
    parts: tuple[Part, ...]
    rules: str


def fill(text: str, values: Mapping[str, str]) -> str:
    """Put values in the place of placeholders, each exactly as it is."""
    return _PLACEHOLDER.sub(lambda m: values[m[1]], text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The time that a report is about. ``start`` and ``end`` are aware; ``zone`` is for people."""

    start: datetime
    end: datetime
    zone: str

    @property
    def range(self) -> str:
        """For tools: ``2026-03-01T08:00:00Z/2026-03-02T08:00:00Z``."""
        return write_range(self.start, self.end)

    def shift(self, span: timedelta) -> str:
        """The same range, earlier, for tools."""
        return write_range(self.start - span, self.end - span)


def write_range(start: datetime, end: datetime) -> str:
    """Write a range of aware instants as tools read it, in UTC."""
    return "/".join(f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for at in (start, end))


def load_report_templates(folder: Path | None = None) -> Mapping[str, ReportTemplate]:
    """Read the shipped templates, and those of a folder: they replace shipped ones by name, or are further ones.

    Args:
        folder: has files ``report-NAME.md``; others in it are not looked at.

    Raises:
        ConfigError: one cannot be read, or is not a template; the message says where, and what would be right.
    """
    found = {name: str(files(__package__) / "templates" / f"{name}.md") for name in _SHIPPED}
    if folder is not None:
        for path in sorted(folder.glob(f"{PREFIX}*.md")):
            name = path.stem.removeprefix(PREFIX)
            if _NAME.fullmatch(name) is None:
                raise ConfigError(f"{path}: a report template is named report-NAME.md, NAME of a-z, 0-9 and '-'")
            found[name] = str(path)
    templates: dict[str, ReportTemplate] = {}
    for name, where in found.items():
        try:
            text = Path(where).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"report template {name}: {where} cannot be read ({type(e).__name__})") from e
        templates[name] = parse_template(name, text)
    return MappingProxyType(templates)


def parse_template(name: str, text: str) -> ReportTemplate:
    """Read a template.

    Raises:
        ConfigError: it is not one; the message says what is wrong, and how it is written.
    """
    try:
        return _parse(name, text)
    except ValueError as e:
        raise ConfigError(f"report template {name}: {e}") from None


def _parse(name: str, text: str) -> ReportTemplate:
    head, parts, rules = _cut(text)
    titles = [line.removeprefix("# ").strip() for line in head if line.startswith("# ")]
    if not titles or len(titles) > 2:
        raise ValueError("begins with a title, '# ...', and perhaps a second one for Chinese reports")
    period = next((m for line in head if (m := _PERIOD.fullmatch(line.strip()))), None)
    if period is None or not int(period[1]):
        raise ValueError("needs a line 'Period: 24 h' or 'Period: 7 d' below its title")
    template = ReportTemplate(
        name=name,
        title=titles[0],
        title_zh=titles[-1],
        length=int(period[1]) * _UNITS[period[2].lower()],
        parts=_read_parts(parts),
        rules="\n".join(rules).strip(),
    )
    _check(template)
    return template


def _cut(text: str) -> tuple[list[str], list[str], list[str]]:
    lines = text.strip().splitlines()
    heads = {line.strip().lower(): n for n, line in reversed(list(enumerate(lines))) if line.startswith("## ")}
    first, second = heads.get("## assignments"), heads.get("## text")
    if first is None or second is None or second < first:
        raise ValueError("needs the headings '## Assignments' and, behind it, '## Text'")
    return lines[:first], lines[first + 1 : second], lines[second + 1 :]


def _read_parts(lines: Sequence[str]) -> tuple[Part, ...]:
    parts: list[Part] = []
    requests: list[list[str]] = []
    for line in filter(str.strip, lines):
        if (found := _ASSIGNMENT.fullmatch(line.rstrip())) is not None:
            parts.append(Part(worker=found[1], when=found[2], text=found[3].strip()))
            requests.append([])
        elif (request := _REQUEST.fullmatch(line.rstrip())) is not None and parts:
            requests[-1].append(request[1].strip())
        elif line.startswith("  ") and parts and not requests[-1] and not line.strip().startswith("- "):
            last = parts[-1]  # a line that goes on
            parts[-1] = Part(worker=last.worker, when=last.when, text=f"{last.text} {line.strip()}")
        else:
            raise ValueError(f"this line of its assignments cannot be read: {line.strip()[:80]!r}; expected {_FORM}")
    if not parts:
        raise ValueError(f"has no assignments; expected {_FORM}")
    return tuple(
        Part(worker=p.worker, when=p.when, text=p.text, requests=tuple(r)) for p, r in zip(parts, requests, strict=True)
    )


def _check(template: ReportTemplate) -> None:
    for where, text in (("title", template.title), ("title", template.title_zh), ("text", template.rules)):
        _check_known(where, text, each=False)
    for part in template.parts:
        for text in (part.text, *part.requests):
            _check_known(f"assignment of {part.worker}", text, each=part.when == "each target")
            if part.when == "each target" and "target" not in _PLACEHOLDER.findall(text):
                raise ValueError(f"an assignment for each target needs the placeholder {{target}}: {text[:80]!r}")
    if "task" not in _PLACEHOLDER.findall(template.rules):
        raise ValueError("its text needs the placeholder {task}, what people asked for")


def _check_known(where: str, text: str, *, each: bool) -> None:
    known = [name for name in _PLACEHOLDERS if each or name != "target"]
    if unknown := sorted(set(_PLACEHOLDER.findall(text)) - set(known)):
        names = ", ".join(f"{{{name}}}" for name in known)
        raise ValueError(
            f"unknown placeholder {', '.join(f'{{{u}}}' for u in unknown)} in its {where}; known are {names}"
        )
