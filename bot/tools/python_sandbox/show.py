"""What a run came to, as a model reads it and as people see it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence

from adapters.chat import Attachment
from agent_core.tools.results import cap_text
from bot.tools.python_sandbox.cell import FILE_NAME
from bot.tools.python_sandbox.collect import LeftOut
from bot.tools.python_sandbox.files import MadeFile
from bot.tools.python_sandbox.made import ID, Made, Table
from bot.tools.python_sandbox.types import MiB, RunStatus

ERROR_CODES: Mapping[RunStatus, str] = {
    RunStatus.ERROR: "python_error",
    RunStatus.TIMEOUT: "timeout",
    RunStatus.MEMORY: "memory_limit",
    RunStatus.CPU: "cpu_limit",
    RunStatus.BLOCKED: "blocked_call",
    RunStatus.OUTPUT_CAP: "output_limit",
    RunStatus.DISK: "disk_limit",
    RunStatus.CRASHED: "python_crashed",
}
"""The stable word of each way in which a program may fail."""

FIXES: Mapping[RunStatus, str] = {
    RunStatus.ERROR: "read stderr, correct the code and run it again",
    RunStatus.TIMEOUT: "do less at once, or give timeout_s (60 at most); do not wait for anything",
    RunStatus.MEMORY: "read or compute in smaller pieces",
    RunStatus.CPU: "compute less at once; vectorise loops with numpy or pandas",
    RunStatus.BLOCKED: "there is no network, no other program and no process to start in here; do without",
    RunStatus.OUTPUT_CAP: "print a summary, and write the rest to a file in output/",
    RunStatus.DISK: "write less: fewer or smaller files",
    RunStatus.CRASHED: "the interpreter itself died; avoid native code that does not expect such input",
}

LOST = "The interpreter that was kept is gone, and its variables with it: run what defined them again."

SHOWN_CHARS, SHOWN_LINES = 3_000, 60
"""Of stdout and of stderr, for people; the whole goes along as a file."""

OUTPUT_NAME = "output.txt"
TABLE_ROWS = 10
_MIN_ROOM = 400

_START = re.compile(rf'\A\{{"ok":(?:true|false),"output_id":"({ID.pattern})"')
_WRAPPER_FRAMES = re.compile(
    r"(?m)^(Traceback \(most recent call last\):\n)"
    rf'(?:  File "(?!{re.escape(FILE_NAME)}")[^"\n]*", line \d+, in [^\n]*\n(?:    [^\n]*\n)*)*?'
    rf'  File "(?!{re.escape(FILE_NAME)}")[^"\n]*", line \d+, in __cell__\n(?:    [^\n]*\n)*'
)
_SHOW_FRAMES = re.compile(
    rf'(?m)^  File "(?!{re.escape(FILE_NAME)}")[^"\n]*", line \d+, '
    r"in (?:show|show_frame|show_figures)\n(?:    [^\n]*\n)*"
)
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_TICKS = re.compile(r"`+")
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~&@!$])")


# -- for the model ---------------------------------------------------------------------------------


def find_output_id(content: str) -> str:
    """Return the ``output_id`` of a result of ``run_python``; empty for the result of anything else.

    Only the place is read where the tool itself writes it: a program's output comes behind it, as JSON text.
    """
    found = _START.match(content)
    return found[1] if found else ""


def clean_stderr(text: str) -> str:
    """Return a traceback without the lines about the program around the code."""
    return _SHOW_FRAMES.sub("", _WRAPPER_FRAMES.sub(r"\1", text))


def build_result(made: Made, *, given: Mapping[str, int], limit: int, where: str = "") -> dict[str, object]:
    """Build the result of a call, for the model.

    Args:
        made: what it came to.
        given: sizes of the files in ``input/``, by name.
        limit: characters that the result may have as JSON; output is cut in its middle to fit.
        where: how to get at what was cut; part of the note in its place.

    Returns:
        ``ok`` and ``output_id`` first (``find_output_id``).
    """
    outcome = made.outcome
    result: dict[str, object] = {"ok": outcome.status is RunStatus.OK, "output_id": made.output_id}
    stderr = clean_stderr(outcome.stderr)
    if outcome.status is not RunStatus.OK:
        result["error"] = {
            "code": ERROR_CODES[outcome.status],
            "message": describe_end(made),
            "fix": FIXES[outcome.status],
            "retryable": False,
        }
    result |= {
        "status": outcome.status.value,
        "stdout": "",
        "stderr": "",
        "stdout_truncated": outcome.stdout_cut,
        "stderr_truncated": outcome.stderr_cut,
        "exit_code": outcome.exit_code,
        "duration_s": round(outcome.duration_s, 3),
        "peak_memory_mb": round(outcome.peak_memory_bytes / MiB, 1),
        "state": outcome.state,
        "files": [_describe_file(file) for file in made.files],
    }
    if detail := " ".join(part for part in (outcome.detail, LOST if outcome.state == "lost" else "") if part):
        result["detail"] = detail
    if given:
        result["input"] = [{"name": name, "size": size} for name, size in given.items()]
    if made.missing:
        result["missing"] = [{"name": m.name, "reason": m.reason} for m in made.missing]
    if made.left_out:
        result["left_out"] = [{"name": m.name, "reason": m.reason} for m in made.left_out]
        result |= {"more_left_out": made.more_left_out} if made.more_left_out else {}
    if made.table is not None:
        result["table"] = _describe_table(made.table)
    for name, text, share in (("stderr", stderr, 0.3), ("stdout", outcome.stdout, 1.0)):
        room = max(_MIN_ROOM, int((limit - _size(result)) * share))
        shown = _cut_to_size(text, room, where)
        result[name] = shown
        result[f"{name}_truncated"] = bool(result[f"{name}_truncated"]) or shown != text
    return result


def describe_end(made: Made) -> str:
    """Say in a sentence how a run ended that did not go well."""
    outcome = made.outcome
    if outcome.detail:
        return outcome.detail
    if outcome.status is RunStatus.ERROR:
        last = next((line for line in reversed(clean_stderr(outcome.stderr).splitlines()) if line.strip()), "")
        said = _clean(last)[:300]
        return f"the program ended with {said}" if said else f"the program ended with exit code {outcome.exit_code}"
    return f"the program was ended ({outcome.status.value})"


def _describe_file(file: MadeFile) -> dict[str, object]:
    shown: dict[str, object] = {"name": file.name, "size": len(file.content), "type": file.kind}
    return shown if file.rows is None else {**shown, "rows": file.rows}


def _describe_table(table: Table) -> dict[str, object]:
    rows = [list(row) for row in table.rows[:TABLE_ROWS]]
    shown = {"columns": list(table.columns), "rows": rows, "row_count": table.row_count}
    return {**shown, "column_count": table.column_count}


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def _cut_to_size(text: str, room: int, where: str) -> str:
    """Cut a text so that it takes at most ``room`` characters as JSON, where quotes and breaks take two."""
    if _size(text) <= room:
        return text
    most = room
    while True:
        shown, _ = cap_text(text, most, where=where)
        size = _size(shown)
        if size <= room or most < _MIN_ROOM // 4:
            return shown
        most = min(most - 50, most * room // size)


# -- for people ------------------------------------------------------------------------------------


def render_made(made: Made) -> tuple[str, tuple[Attachment, ...]]:
    """Render a run that a person asked for directly: Markdown, and the files that go with it.

    Where output was cut to fit, the whole is the file ``OUTPUT_NAME``, and both say the same about it.
    """
    outcome = made.outcome
    parts: list[str] = []
    if outcome.status is not RunStatus.OK:
        said = outcome.detail or (describe_end(made) if not outcome.stderr else "")
        parts.append(f"**{_TITLES[outcome.status]}**{f': {_escape(said)}' if said else ''}")
    shown, cut = [], False
    for name, printed, lost in (
        ("stdout", outcome.stdout, outcome.stdout_cut),
        ("stderr", clean_stderr(outcome.stderr), outcome.stderr_cut),
    ):
        text = _clean(printed).rstrip("\n")
        head, left = _cut_for_people(text)
        cut |= left
        note = _note(name, text, kept=head, cut=left, lost=lost)
        if text.strip():
            parts.append(_fence(head))
            if note:
                parts.append(f"*{note}*")
        shown.append((name, text, note))
    if made.table is not None:
        parts.append(_render_table(made.table))
    if outcome.status is RunStatus.OK and not parts:
        parts.append(
            "*The program printed nothing.*" if not made.files else "*The program printed nothing; see its files.*"
        )
    if outcome.state == "lost":
        parts.append(f"*{LOST}*")
    parts += _render_left_out("Not handed in", made.missing)
    more = f", and {made.more_left_out} more" if made.more_left_out else ""
    parts += _render_left_out("Left out", made.left_out, more=more)
    files = [*build_attachments([made])]
    if cut:
        files.append(Attachment(name=OUTPUT_NAME, content=_build_whole(shown), title=OUTPUT_NAME))
    return "\n\n".join(parts), tuple(files)


_TITLES: Mapping[RunStatus, str] = {
    RunStatus.ERROR: "The program failed",
    RunStatus.TIMEOUT: "Out of time",
    RunStatus.MEMORY: "Out of memory",
    RunStatus.CPU: "Out of processor time",
    RunStatus.BLOCKED: "Not allowed in the sandbox",
    RunStatus.OUTPUT_CAP: "Too much output",
    RunStatus.DISK: "Too much written",
    RunStatus.CRASHED: "The interpreter crashed",
}


def _cut_for_people(text: str) -> tuple[str, bool]:
    lines = text.split("\n")
    head = "\n".join(lines[:SHOWN_LINES])[:SHOWN_CHARS]
    return (head, True) if len(head) < len(text) else (text, False)


def _note(name: str, text: str, *, kept: str, cut: bool, lost: bool) -> str:
    """Say what of an output is not shown; the file says the same words."""
    lost_note = f"The program wrote more to {name} than the sandbox keeps" if lost else ""
    if not cut:
        return f"{lost_note}." if lost else ""
    lines = text.count("\n") + 1
    all_of_it = f"{len(text):,} characters ({lines:,} line{'s' if lines > 1 else ''})"
    shown = f"{name}: the first {len(kept):,} of {all_of_it}; {OUTPUT_NAME} has them all"
    return f"{shown}. {lost_note}." if lost else f"{shown}."


def _build_whole(shown: Sequence[tuple[str, str, str]]) -> str:
    parts = []
    for name, text, note in shown:
        if text.strip():
            parts.append(f"--- {name} ---\n{text}\n" + (f"--- {note} ---\n" if note else ""))
    return "\n".join(parts)


def _fence(text: str) -> str:
    """Put a text into a code block that nothing inside it can end."""
    longest = max((len(found) for found in _TICKS.findall(text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}\n{text}\n{ticks}"


def _render_table(table: Table) -> str:
    rows = table.rows[:TABLE_ROWS]
    lines = [
        "| " + " | ".join(_cell(name) for name in table.columns) + " |",
        "|" + " --- |" * len(table.columns),
        *("| " + " | ".join(_cell(item) for item in row) + " |" for row in rows),
    ]
    left = f"{table.row_count:,} rows × {table.column_count:,} columns"
    hidden = table.row_count > len(rows) or table.column_count > len(table.columns)
    return "\n".join(lines) + (f"\n\n*The first {len(rows)} of {left}.*" if hidden else "")


def _cell(text: str) -> str:
    return _escape(" ".join(text.split())) or " "


def _escape(text: str) -> str:
    return _MARKS.sub(r"\\\1", _clean(text))


def _clean(text: str) -> str:
    """Return an output without what would steer a terminal, or break lines where none are seen."""
    text = _TERMINAL.sub("", text.replace("\r\n", "\n"))
    return _CONTROL.sub("", text.replace("\r", "\n")).encode(errors="replace").decode()


def _render_left_out(title: str, left: Sequence[LeftOut], *, more: str = "") -> list[str]:
    said = [f"- {_escape(m.name)}: {_escape(m.reason)}" for m in left]
    return ["\n".join([f"{title}{more}:", *said])] if said else []


# -- files -----------------------------------------------------------------------------------------


def build_attachments(
    made: Sequence[Made], *, most_files: int = 10, most_bytes: int = 8 * MiB
) -> tuple[Attachment, ...]:
    """Build what an answer brings along: of several files of one name the newest; the newest ones if they are many."""
    newest: dict[str, MadeFile] = {}
    for call in made:
        for file in call.files:
            newest.pop(file.posted_name, None)
            newest[file.posted_name] = file
    chosen: list[Attachment] = []
    room = most_bytes
    for name, file in reversed(newest.items()):
        room -= len(file.content)
        if len(chosen) == most_files or room < 0:
            break
        chosen.append(
            Attachment(name=name, content=base64.b64encode(file.content).decode(), encoding="base64", title=name)
        )
    return tuple(reversed(chosen))
